"""`atollctl job hold|release|retry|abort|resume|restart|delete`: what people do to a workload."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import FAILED, CommandError, describe
from atoll.cli.options import settings

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer
    from atoll.model.apiresource import ApiResource

Json = dict[str, Any]

_WAIT_S = 60.0

Name = Annotated[
    str,
    typer.Argument(
        metavar="[KIND/]NAME", help="The job; without a kind the Volcano Job of that name, else the batch Job."
    ),
]
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="[KIND/]NAME...", help="Jobs; without a kind the Volcano Job of that name, else the batch Job."
    ),
]
Wait = Annotated[bool, typer.Option(help=f"Return only once the job has followed (at most {_WAIT_S:.0f} s).")]


def hold(ctx: typer.Context, names: Names) -> None:
    """Keep a job from running until it is released; one that runs is taken back and keeps its age."""
    from atoll.model import keys

    _annotate(ctx, names, {keys.HOLD: "true"}, "held")


def release(ctx: typer.Context, names: Names) -> None:
    """Let a held job run."""
    from atoll.model import keys

    _annotate(ctx, names, {keys.HOLD: None}, "released")


def retry(ctx: typer.Context, names: Names) -> None:
    """Have a deactivated job tried again: one that members refused until it was given up."""
    import time

    from atoll.model import keys
    from atoll.model.timestamps import rfc3339_micro

    _annotate(ctx, names, {keys.RETRY: rfc3339_micro(time.time())}, "is tried again")


def abort(ctx: typer.Context, names: Names, wait: Wait = True) -> None:
    """Stop a Volcano Job in all members; what has ended stays counted, and `resume` starts it again."""
    _command(ctx, names, "AbortJob", wait, "aborted", lambda job: _phase(job) == "Aborted")


def resume(ctx: typer.Context, names: Names, wait: Wait = True) -> None:
    """Start an aborted Volcano Job again; it goes back to its queue with its age."""
    from atoll.model import keys

    _command(ctx, names, "ResumeJob", wait, "resumed", lambda job: keys.ABORTED not in _annotations(job))


def restart(ctx: typer.Context, names: Names, wait: Wait = True) -> None:
    """Start a Volcano Job anew: its pods are removed, and it goes back to its queue with its age."""
    from atoll.model import keys

    before: dict[str, str] = {}

    def restarted(job: Json) -> bool:
        retries = _annotations(job).get(keys.RETRIES, "")
        return retries != before.setdefault(job["metadata"]["uid"], retries)

    _command(ctx, names, "RestartJob", wait, "restarted", restarted)


def delete(ctx: typer.Context, names: Names) -> None:
    """Delete jobs; what runs of them in members goes with them."""

    async def work(host: ApiServer, name: str) -> str:
        resource, found = await find(host, name, settings(ctx).one_namespace)
        meta = found["metadata"]
        await host.delete(resource, meta["name"], meta["namespace"], uid=meta["uid"])
        return f"{_title(resource, meta['name'])} deleted"

    _each(ctx, names, work)


def _each(ctx: typer.Context, names: Sequence[str], work: Callable[[ApiServer, str], Awaitable[str]]) -> None:
    """Do it to each of them, and say of each what became of it; one that fails does not keep the others from it.

    Raises:
        SystemExit: one of several failed.
        Exception: the only one failed.
    """
    from atoll.cli.connection import call
    from atoll.kube.errors import ApiError, Unreachable

    async def all_of_them(host: ApiServer) -> bool:
        failed = False
        for name in names:
            try:
                print(await work(host, name), flush=True)
            except Unreachable:
                raise
            except (CommandError, ApiError) as error:
                if len(names) == 1:
                    raise
                print(describe(error)[0], file=sys.stderr)
                failed = True
        return failed

    if call(settings(ctx), all_of_them):
        raise SystemExit(FAILED)


async def find(host: ApiServer, workload: str, namespace: str) -> tuple[ApiResource, Json]:
    """The resource and the object that the user means.

    Raises:
        NotFound: there is none of that kind.
        CommandError: no such kind; without a kind, nothing of that name, or a Volcano Job and a batch Job.
    """
    from atoll.cli.explain import find_resource, parse
    from atoll.kube.errors import NotFound
    from atoll.model.apiresource import BATCH_JOBS, JOBS

    kind, name = parse(workload)
    if "/" in workload:
        resource = await find_resource(host, kind)
        return resource, await host.get(resource, name, namespace)
    found = []
    for resource in (JOBS, BATCH_JOBS):
        try:
            found.append((resource, await host.get(resource, name, namespace)))
        except NotFound:
            continue
    if not found:
        raise CommandError(
            f"there is no Volcano Job and no batch Job {name} in namespace {namespace}: choose another with -n, or"
            f" write KIND/NAME, such as job/{name} or vcjob/{name}"
        )
    if len(found) > 1:
        raise CommandError(
            f"{name} is a Volcano Job and a batch Job in namespace {namespace}: write vcjob/{name} or job.batch/{name}"
        )
    return found[0]


def _annotate(ctx: typer.Context, names: Sequence[str], annotations: Json, done: str) -> None:
    from atoll.model import keys

    async def work(host: ApiServer, name: str) -> str:
        resource, found = await find(host, name, settings(ctx).one_namespace)
        meta, present = found["metadata"], _annotations(found)
        title = _title(resource, meta["name"])
        if annotations.get(keys.HOLD) and (ended := _ended(resource, found)):
            raise CommandError(f"{title} has ended ({ended}): there is nothing to hold")
        if keys.ABORTED in present and present.get(keys.HOLD) == "true":
            raise CommandError(f"{title} is aborted: `atollctl job resume {meta['name']}` starts it again")
        if all(present.get(key) == value for key, value in annotations.items()):
            return f"{title} {done} already"
        patch = {"metadata": {"uid": meta["uid"], "annotations": annotations}}
        await host.merge_patch(resource, meta["name"], patch, meta["namespace"], field_manager="atollctl")
        return f"{title} {done}"

    _each(ctx, names, work)


def _command(
    ctx: typer.Context, names: Sequence[str], action: str, wait: bool, done: str, reached: Callable[[Json], bool]
) -> None:
    from atoll.cli import commands
    from atoll.model.apiresource import JOBS

    async def work(host: ApiServer, name: str) -> str:
        resource, found = await find(host, name, settings(ctx).one_namespace)
        meta = found["metadata"]
        title = _title(resource, meta["name"])
        if resource != JOBS:
            raise CommandError(f"{title}: {action} is for Volcano Jobs; use `atollctl job hold` and `job release`")
        if (why := _pointless(action, found)) is not None:
            raise CommandError(f"{title} {why}")
        # Also tells it what the job was before the Command.
        if reached(found):
            return f"{title} {done} already"
        await commands.send(host, resource, found, action)
        if wait:
            await commands.followed(host, resource, found, reached, seconds=_WAIT_S, wanted=done)
            return f"{title} {done}"
        return f"{title} told: {action}"

    _each(ctx, names, work)


def _pointless(action: str, job: Json) -> str | None:
    """Why control would refuse this, so that nobody waits for it."""
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


def _title(resource: ApiResource, name: str) -> str:
    return f"{resource.kind.lower()}.{resource.group}/{name}"
