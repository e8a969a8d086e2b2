"""`atollctl job`: the Volcano Jobs of the federation, with where they run and why they wait."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli import operations
from atoll.cli.options import Format, NoHeaders, Output, Watch, settings
from atoll.cli.printing import age, show_objects, show_table

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

Json = dict[str, Any]

app = typer.Typer(no_args_is_help=True, help="Jobs: where they run, why they wait; hold, release, abort.")

HEADERS = ("NAME", "QUEUE", "STATUS", "CLUSTER", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "AGE")

_GROUP = "batch.volcano.sh"


@app.command("list", epilog="Example: atollctl job list -A -o wide")
def list_(
    ctx: typer.Context,
    output: Output = None,
    no_headers: NoHeaders = False,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="Only jobs of this queue.")] = None,
    watch: Watch = False,
) -> None:
    """List jobs of a namespace, or of all with -A."""
    _show(ctx, None, output, no_headers, queue, watch)


@app.command(epilog="Example: atollctl job get train -n research")
def get(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the job.")],
    output: Output = None,
    no_headers: NoHeaders = False,
    watch: Watch = False,
) -> None:
    """Show one job."""
    _show(ctx, name, output, no_headers, None, watch)


app.command(epilog="Example: atollctl job hold train -n research")(operations.hold)
app.command(epilog="Example: atollctl job release train; atollctl job release job.batch/nightly")(operations.release)
app.command(epilog="Example: atollctl job abort train")(operations.abort)
app.command(epilog="Example: atollctl job resume train")(operations.resume)
app.command(epilog="Example: atollctl job restart train")(operations.restart)
app.command(epilog="Example: atollctl job delete train -n research")(operations.delete)


def rows(
    jobs: list[Json], bindings: Mapping[str, Json], now: float, *, namespaced: bool, wide: bool
) -> list[list[object]]:
    """The table's rows, in the order of the API server.

    Args:
        jobs: Volcano Jobs.
        bindings: by the UID of their workload.
        now: seconds since the epoch.
        namespaced: with a first column for the namespace.
        wide: with the reason as the last column.
    """
    result = []
    for job in jobs:
        meta, status = job["metadata"], job.get("status") or {}
        binding = bindings.get(meta.get("uid", "")) or {}
        clusters = ",".join(item["name"] for item in (binding.get("spec") or {}).get("clusters") or ())
        row: list[object] = [
            meta["name"],
            queue_of(job),
            (status.get("state") or {}).get("phase") or "Pending",
            clusters,
            *(status.get(key) or 0 for key in ("pending", "running", "succeeded", "failed")),
            age(meta.get("creationTimestamp"), now),
        ]
        if namespaced:
            row.insert(0, meta.get("namespace"))
        if wide:
            row.append(reason_of(binding))
        result.append(row)
    return result


def queue_of(job: Json) -> str:
    """The queue that the job names; the webhook has filled it in where Atoll handles the job."""
    return str((job.get("spec") or {}).get("queue") or "default")


def reason_of(binding: Json) -> str:
    """Why the workload of a binding waits; empty when it does not."""
    if not binding:
        return "not seen by atoll-control"
    from atoll.cli.bindings import views
    from atoll.model.verdict import Verdict

    for view in views([binding]):
        if view.finished or view.decision.phase.charged:
            return ""
        return Verdict(view.decision.reason, view.decision.blocker).sentence()
    return "its binding is not Atoll's"


def _show(
    ctx: typer.Context, name: str | None, output: Format | None, no_headers: bool, queue: str | None, watch: bool
) -> None:
    from atoll.cli.bindings import by_workload
    from atoll.cli.connection import call
    from atoll.model.apiresource import BINDINGS, JOBS

    options = settings(ctx)
    data = output not in (None, Format.WIDE)
    where = options.where if name is None else options.one_namespace
    wide, namespaced = output is Format.WIDE, options.all_namespaces and name is None
    headers = (("NAMESPACE",) if namespaced else ()) + HEADERS + (("REASON",) if wide else ())

    def chosen(jobs: list[Json]) -> list[Json]:
        return jobs if queue is None else [job for job in jobs if queue_of(job) == queue]

    if watch:
        from atoll.cli import watching

        def table(jobs: list[Json], bindings: list[Json]) -> dict[str, list[object]]:
            found = chosen(jobs)
            lines = rows(found, by_workload(bindings), time.time(), namespaced=namespaced, wide=wide)
            return {job["metadata"]["uid"]: line for job, line in zip(found, lines, strict=True)}

        watching.check_output(output)
        watching.watch(options, JOBS, where, name, table, headers, bindings_in=where, no_headers=no_headers)
        return

    async def read(host: ApiServer) -> tuple[list[Json], list[Json]]:
        jobs = [await host.get(JOBS, name, where)] if name else await host.list(JOBS, where)
        return jobs, [] if data else await host.list(BINDINGS, where)

    jobs, bindings = call(options, read)
    jobs = chosen(jobs)
    if output is not None and data:
        show_objects(jobs, output, one=name is not None, group=_GROUP)
        return
    if not jobs:
        print(f"No jobs found{'' if options.where is None else f' in {options.where} namespace'}.", file=sys.stderr)
        return
    found = rows(jobs, by_workload(bindings), time.time(), namespaced=namespaced, wide=wide)
    show_table(headers, found, no_headers=no_headers)
