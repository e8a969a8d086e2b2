"""`atollctl job hold|release|retry|reschedule|abort|resume|restart|move|delete`: what people do to workloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import CommandError
from atoll.cli.lookup import parts_of, title
from atoll.cli.workloads import Names, Selected, Work, each

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer
    from atoll.model.apiresource import ApiResource

Json = dict[str, Any]

_WAIT_S = 60.0

Wait = Annotated[bool, typer.Option(help=f"Return only once the job has followed (at most {_WAIT_S:.0f} s).")]


def hold(ctx: typer.Context, names: Names = None, selector: Selected = None) -> None:
    """Keep jobs from running until they are released; what runs is evicted and keeps its age."""
    from atoll.model import keys

    each(ctx, names, selector, _annotation({keys.HOLD: "true"}, "held", selected=bool(selector)))


def release(ctx: typer.Context, names: Names = None, selector: Selected = None) -> None:
    """Let held jobs run."""
    from atoll.model import keys

    each(ctx, names, selector, _annotation({keys.HOLD: None}, "released"))


def retry(
    ctx: typer.Context,
    names: Names = None,
    selector: Selected = None,
    index: Annotated[
        str | None, typer.Option(help="Only these failed indices of a JobArray: 3,17-20.", metavar="INDICES")
    ] = None,
) -> None:
    """Run failed indices of a JobArray again, in a new array; have other jobs tried again that members refused:
    deactivated ones, and those of a namespace that is not let in.
    """
    import time

    from atoll.model import keys
    from atoll.model.timestamps import rfc3339_micro

    tried = _annotation({keys.RETRY: rfc3339_micro(time.time())}, "is tried again if members had refused it")

    async def work(host: ApiServer, resource: ApiResource, found: Json) -> str:
        from atoll.cli.array_retry import again
        from atoll.cli.submission import BadSubmission
        from atoll.model.apiresource import JOB_ARRAYS

        name = title(resource, found["metadata"]["name"])
        if resource != JOB_ARRAYS or not (index or (found.get("status") or {}).get("failed")):
            if index:
                raise CommandError(f"{name} has no indices: --index is for JobArrays")
            return await tried(host, resource, found)
        try:
            made = await host.create(JOB_ARRAYS, again(found, index or ""), field_manager="atollctl")
        except BadSubmission as error:
            raise CommandError(error.as_options()) from error
        return f"{title(JOB_ARRAYS, made['metadata']['name'])} runs indices {made['spec']['indices'][:200]} of {name}"

    each(ctx, names, selector, work)


def reschedule(ctx: typer.Context, names: Names = None, selector: Selected = None) -> None:
    """Have jobs placed anew, by what their policies and the members say now: they are evicted, keep their age, and
    start from the beginning, perhaps where they were.
    """
    import math
    import time

    from atoll.model import keys
    from atoll.model.timestamps import rfc3339_seconds

    # Dispatches of this second are meant as well.
    at = rfc3339_seconds(math.ceil(time.time()))
    each(ctx, names, selector, _annotation({keys.RESCHEDULE: at}, "is placed anew"))


def abort(ctx: typer.Context, names: Names = None, selector: Selected = None, wait: Wait = True) -> None:
    """Stop Volcano Jobs in all members; what has ended stays counted, and `resume` starts them again."""
    each(ctx, names, selector, _command("AbortJob", wait, "aborted", lambda job: _phase(job) == "Aborted"))


def resume(ctx: typer.Context, names: Names = None, selector: Selected = None, wait: Wait = True) -> None:
    """Start aborted Volcano Jobs again; they go back to their queues with their age."""
    from atoll.model import keys

    each(
        ctx, names, selector, _command("ResumeJob", wait, "resumed", lambda job: keys.ABORTED not in _annotations(job))
    )


def restart(ctx: typer.Context, names: Names = None, selector: Selected = None, wait: Wait = True) -> None:
    """Start Volcano Jobs anew: their pods are removed, and they go back to their queues with their age."""
    from atoll.model import keys

    before: dict[str, str] = {}

    def restarted(job: Json) -> bool:
        retries = _annotations(job).get(keys.RETRIES, "")
        return retries != before.setdefault(job["metadata"]["uid"], retries)

    each(ctx, names, selector, _command("RestartJob", wait, "restarted", restarted))


def delete(ctx: typer.Context, names: Names = None, selector: Selected = None) -> None:
    """Delete jobs; what runs of them in members goes with them."""

    async def work(host: ApiServer, resource: ApiResource, found: Json) -> str:
        meta = found["metadata"]
        for part in parts_of(resource, found):
            await host.delete(resource, part["name"], part["namespace"], uid=part["uid"])
        return f"{title(resource, meta['name'])} deleted"

    each(ctx, names, selector, work)


def _annotation(annotations: Json, done: str, *, selected: bool = False) -> Work:
    """`selected`: by their labels, so that jobs which have ended are no mistake."""
    from atoll.model import keys

    async def work(host: ApiServer, resource: ApiResource, found: Json) -> str:
        meta, present = found["metadata"], _annotations(found)
        name = title(resource, meta["name"])
        if annotations.get(keys.HOLD) and (ended := _ended(resource, found)):
            if selected:
                return f"{name} has ended ({ended}) and stays as it is"
            raise CommandError(f"{name} has ended ({ended}): there is nothing to hold")
        if keys.ABORTED in present and present.get(keys.HOLD) == "true":
            raise CommandError(f"{name} is aborted: `atollctl job resume {meta['name']}` starts it again")
        if all(present.get(key) == value for key, value in annotations.items()):
            return f"{name} {done} already"
        for part in parts_of(resource, found):
            patch = {"metadata": {"uid": part["uid"], "annotations": annotations}}
            await host.merge_patch(resource, part["name"], patch, part["namespace"], field_manager="atollctl")
        return f"{name} {done}"

    return work


def _command(action: str, wait: bool, done: str, reached: Callable[[Json], bool]) -> Work:
    from atoll.cli import vcctl_commands
    from atoll.kinds import BY_RESOURCE

    async def work(host: ApiServer, resource: ApiResource, found: Json) -> str:
        name = title(resource, found["metadata"]["name"])
        kind = BY_RESOURCE.get(resource)
        if kind is None or action not in kind.commands:
            raise CommandError(f"{name}: {action} is for Volcano Jobs; use `atollctl job hold` and `job release`")
        if (why := _pointless(action, found)) is not None:
            raise CommandError(f"{name} {why}")
        # Also tells it what the job was before the Command.
        if reached(found):
            return f"{name} {done} already"
        await vcctl_commands.send(host, resource, found, action)
        if wait:
            await vcctl_commands.followed(host, resource, found, reached, seconds=_WAIT_S, wanted=done)
            return f"{name} {done}"
        return f"{name} told: {action}"

    return work


def _pointless(action: str, job: Json) -> str | None:
    """Why control would refuse this, so that the command does not wait for it."""
    from atoll.model import keys

    phase, notes = _phase(job), _annotations(job)
    if phase in ("Completed", "Failed", "Terminated"):
        return f"has ended ({phase})"
    aborted = keys.ABORTED in notes and notes.get(keys.HOLD) == "true"
    if action == "ResumeJob" and not aborted:
        held = notes.get(keys.HOLD) == "true"
        return "is held, not aborted: use `atollctl job release`" if held else "is not aborted"
    if action == "RestartJob" and aborted:
        return "is aborted: use `atollctl job resume`"
    if action == "RestartJob" and phase in ("", "Pending"):
        return "has not started"
    return None


def _ended(resource: ApiResource, workload: Json) -> str:
    """How it ended; empty where it has not, or where its kind does not say."""
    from atoll.kinds import BY_RESOURCE

    kind = BY_RESOURCE.get(resource)
    outcome = kind.finished(workload.get("status") or {}) if kind is not None else None
    return str(outcome.value) if outcome is not None else ""


def _phase(job: Json) -> str:
    return str(((job.get("status") or {}).get("state") or {}).get("phase") or "")


def _annotations(job: Json) -> dict[str, str]:
    return job["metadata"].get("annotations") or {}
