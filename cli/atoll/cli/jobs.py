"""`atollctl job`: the Volcano Jobs and batch Jobs of the federation, with where they run and why they wait."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli import job_pods, moving, operations
from atoll.cli.errors import CommandError
from atoll.cli.options import NoHeaders, Output, Selector, SortBy, Watch, settings, shape
from atoll.cli.printing import show_objects, show_table
from atoll.cli.suggestions import queue_names
from atoll.cli.workloads import Name, find, listed, ours
from atoll.model.ages import age

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer
    from atoll.model.apiresource import ApiResource

Json = dict[str, Any]

app = typer.Typer(no_args_is_help=True, help="Jobs: where they run, why they wait; hold, release, abort.")

HEADERS = ("NAME", "QUEUE", "STATUS", "CLUSTER", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "AGE")


@app.command("list", epilog="Example: atollctl job list -A -o wide; atollctl job list -l team=a --sort-by .spec.queue")
def list_(
    ctx: typer.Context,
    output: Output = None,
    no_headers: NoHeaders = False,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="Only jobs of this queue.", autocompletion=queue_names)
    ] = None,
    selector: Selector = None,
    sort_by: SortBy = None,
    watch: Watch = False,
) -> None:
    """List the Volcano Jobs of a namespace, or of all with -A, and the batch Jobs that Atoll runs."""
    _show(ctx, None, output, no_headers, watch, queue=queue, selector=selector, sort_by=sort_by)


@app.command(epilog="Example: atollctl job get train -n research -o jsonpath='{.status.state.phase}'")
def get(
    ctx: typer.Context,
    name: Name,
    output: Output = None,
    no_headers: NoHeaders = False,
    watch: Watch = False,
) -> None:
    """Show one job."""
    _show(ctx, name, output, no_headers, watch)


app.command(epilog="Example: atollctl job pods train -n research")(job_pods.pods)
app.command(epilog="Example: atollctl job hold train -n research; atollctl job hold -l sweep=7")(operations.hold)
app.command(epilog="Example: atollctl job retry train -n research")(operations.retry)
app.command(epilog="Example: atollctl job release train; atollctl job release job.batch/nightly")(operations.release)
app.command(epilog="Example: atollctl job abort train")(operations.abort)
app.command(epilog="Example: atollctl job resume train")(operations.resume)
app.command(epilog="Example: atollctl job restart train")(operations.restart)
app.command(epilog="Example: atollctl job move train --queue nightly")(moving.move)
app.command(epilog="Example: atollctl job delete train -n research; atollctl job delete -l sweep=7")(operations.delete)


def by_workload(bindings: Iterable[Json]) -> dict[str, Json]:
    """UID of the workload -> its binding."""
    return {uid: item for item in bindings if (uid := ((item.get("spec") or {}).get("resource") or {}).get("uid"))}


def rows(
    jobs: list[Json],
    bindings: Mapping[str, Json],
    now: float,
    *,
    namespaced: bool,
    wide: bool,
    silent: Mapping[str, str] = {},
) -> list[list[object]]:
    """The table's rows, in the order of the API server.

    Args:
        jobs: Volcano Jobs and batch Jobs, with their kinds.
        bindings: by the UID of their workload.
        now: seconds since the epoch.
        namespaced: with a first column for the namespace.
        wide: with the reason as the last column.
        silent: member that is not ready -> since when (RFC 3339).
    """
    result = []
    for job in jobs:
        meta, (phase, counts) = job["metadata"], _standing(job)
        binding = bindings.get(meta.get("uid", "")) or {}
        clusters = ",".join(item["name"] for item in (binding.get("spec") or {}).get("clusters") or ())
        row: list[object] = [
            f"job.batch/{meta['name']}" if _is_batch(job) else meta["name"],
            queue_of(job),
            phase,
            clusters,
            *counts,
            age(meta.get("creationTimestamp"), now),
        ]
        if namespaced:
            row.insert(0, meta.get("namespace"))
        if wide:
            row.append(lost(binding, silent) or ("" if counts[1] else reason_of(binding)))
        result.append(row)
    return result


def _is_batch(job: Json) -> bool:
    return bool(job["apiVersion"] == "batch/v1")


def _standing(job: Json) -> tuple[str, tuple[int, int, int, int]]:
    """Its state in the words of its kind, and its pods: pending, running, succeeded, failed."""
    status = job.get("status") or {}
    counts = {
        key: int(status.get(key) or 0) for key in ("pending", "running", "active", "ready", "succeeded", "failed")
    }
    if not _is_batch(job):
        phase = str((status.get("state") or {}).get("phase") or "Pending")
        return phase, (counts["pending"], counts["running"], counts["succeeded"], counts["failed"])
    from atoll.kinds import Outcome, batch_job

    started = counts["ready"] or counts["succeeded"] or counts["failed"]
    phase = "Suspended" if (job.get("spec") or {}).get("suspend") else "Running" if started else "Pending"
    if outcome := batch_job.KIND.finished(status):
        phase = "Failed" if outcome is Outcome.FAILED else "Complete"
    pending = max(0, counts["active"] - counts["ready"])
    return phase, (pending, counts["ready"], counts["succeeded"], counts["failed"])


def queue_of(job: Json) -> str:
    """The queue that the job names; the webhook has filled it in where Atoll handles the job."""
    if _is_batch(job):
        from atoll.kinds import batch_job

        return batch_job.KIND.queue_of(job)
    return str((job.get("spec") or {}).get("queue") or "default")


def lost(binding: Json, silent: Mapping[str, str]) -> str:
    """That figures of a workload are old, as members do not answer; empty where all do."""
    names = [item["name"] for item in (binding.get("spec") or {}).get("clusters") or ()]
    told = "; ".join(f"{name} not ready since {silent[name]}, figures are of then" for name in names if name in silent)
    if told:
        return told
    from atoll.cli.conditions import condition

    # A user who may not list members reads it off the binding.
    away = condition(binding, "MemberReady")
    return str(away.get("message") or "") if away.get("status") == "False" else ""


async def not_ready(host: ApiServer) -> dict[str, str]:
    """Member -> since when it is not ready (RFC 3339); none where this user may not list members."""
    from atoll.cli.conditions import condition, is_true
    from atoll.kube.errors import Forbidden
    from atoll.model.apiresource import CLUSTERS

    try:
        clusters = await host.list(CLUSTERS)
    except Forbidden:
        return {}
    found = {each["metadata"]["name"]: condition(each, "Ready") for each in clusters}
    return {
        name: str(ready.get("lastTransitionTime", "")) for name, ready in found.items() if ready and not is_true(ready)
    }


def reason_of(binding: Json) -> str:
    """Why the workload of a binding waits, or does not run though it was dispatched; empty when it runs or is over."""
    if not binding:
        return "not seen by atoll-control"
    from atoll.cli.conditions import condition, is_true
    from atoll.cli.seen import held_up, seen
    from atoll.model.decision import Phase
    from atoll.model.verdict import Verdict

    view = seen(binding)
    if view is None:
        return "its binding is not Atoll's"
    if view.finished or is_true(condition(binding, "Running")):
        return ""
    if view.decision.phase is Phase.BOUND:
        why = "; ".join(f"{name}: {text}" for name, text in sorted(held_up(binding).items()))
        bound = is_true(condition(binding, "Bound"))
        text = "bound, containers don't run yet" if bound else "dispatched, pods are not bound yet"
        return f"{text}: {why}" if why else text
    if view.decision.phase.charged:
        return ""
    return Verdict(view.decision.reason, view.decision.blocker).sentence()


def _show(
    ctx: typer.Context,
    name: str | None,
    output: str | None,
    no_headers: bool,
    watch: bool,
    *,
    queue: str | None = None,
    selector: str | None = None,
    sort_by: str | None = None,
) -> None:
    from atoll.cli.connection import call
    from atoll.model.apiresource import BATCH_JOBS, BINDINGS, JOBS

    options, wanted = settings(ctx), shape(output)
    where = options.where if name is None else options.one_namespace
    namespaced = options.all_namespaces and name is None
    headers = (("NAMESPACE",) if namespaced else ()) + HEADERS + (("REASON",) if wanted.wide else ())

    def chosen(jobs: list[Json]) -> list[Json]:
        return sorted(
            (job for job in (jobs if name is not None else ours(jobs)) if queue in (None, queue_of(job))),
            key=lambda job: (job["metadata"]["namespace"], job["metadata"]["name"]),
        )

    async def found_one(host: ApiServer) -> tuple[ApiResource, Json]:
        assert name is not None, "one job is asked for"
        resource, found = await find(host, name, options.one_namespace)
        if resource not in (JOBS, BATCH_JOBS):
            raise CommandError(
                f"{name} is neither a Volcano Job nor a batch Job: `atollctl explain {name}` tells of it"
            )
        return resource, found

    if watch:
        from atoll.cli import watching

        def table(jobs: list[Json], bindings: list[Json]) -> dict[str, list[object]]:
            found = chosen(jobs)
            lines = rows(found, by_workload(bindings), time.time(), namespaced=namespaced, wide=wanted.wide)
            return {job["metadata"]["uid"]: line for job, line in zip(found, lines, strict=True)}

        watching.check(output, sort_by)
        resources: tuple[ApiResource, ...] = (JOBS, BATCH_JOBS)
        one = None
        if name is not None:
            resource, found = call(options, found_one)
            resources, one = (resource,), found["metadata"]["name"]
        watching.watch(
            options,
            resources,
            where,
            one,
            table,
            headers,
            bindings_in=where,
            no_headers=no_headers,
            labels=selector,
        )
        return

    async def read(host: ApiServer) -> tuple[list[Json], list[Json], dict[str, str]]:
        if name is not None:
            jobs = [(await found_one(host))[1]]
        else:
            jobs = await listed(host, where, selector)
        if not wanted.table:
            return jobs, [], {}
        return jobs, await host.list(BINDINGS, where), await not_ready(host) if wanted.wide else {}

    jobs, bindings, silent = call(options, read)
    jobs = chosen(jobs)
    if sort_by is not None:
        from atoll.cli import columns

        jobs = columns.ordered(jobs, sort_by)
    if not wanted.table:
        show_objects(jobs, wanted, one=name is not None, no_headers=no_headers)
        return
    if not jobs:
        print(f"No jobs found{'' if options.where is None else f' in {options.where} namespace'}.", file=sys.stderr)
        return
    lines = rows(jobs, by_workload(bindings), time.time(), namespaced=namespaced, wide=wanted.wide, silent=silent)
    show_table(headers, lines, no_headers=no_headers)
