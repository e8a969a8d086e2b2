"""`atollctl job`: the Volcano Jobs and batch Jobs of the federation, with where they run and why they wait."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli import job_events, job_logs, job_pods, job_sessions, moving, operations, scaling
from atoll.cli.errors import USAGE, CommandError
from atoll.cli.lookup import find, listed, not_ready, ours, selectors, served_kinds
from atoll.cli.options import NoHeaders, Output, Selector, SortBy, Watch, settings, shape
from atoll.cli.printing import show_objects, show_table
from atoll.cli.suggestions import queue_names
from atoll.cli.workloads import Name
from atoll.model.keys import MOST_SUBMITTER, SUBMITTED_BY
from atoll.view.jobs import HEADERS, by_workload, queue_of, rows

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer
    from atoll.model.apiresource import ApiResource

Json = dict[str, Any]

app = typer.Typer(no_args_is_help=True, help="Jobs: where they run, why they wait; hold, release, abort.")


@app.command(
    "list",
    epilog="Example: atollctl job list -A -o wide; atollctl job list --me; atollctl job list -l a=b --sort-by .kind",
)
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
    me: Annotated[bool, typer.Option("--me", help="Only jobs that I submitted.")] = False,
) -> None:
    """List the workloads that Atoll runs of a namespace, or of all with -A."""
    _show(ctx, None, output, no_headers, watch, queue=queue, selector=selector, sort_by=sort_by, me=me)


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
app.command(epilog="Example: atollctl job logs train --task worker --index 0 --follow")(job_logs.logs)
app.command("exec", epilog="Example: atollctl job exec train --task worker --index 0 -- nvidia-smi")(job_sessions.exec_)
app.command(epilog="Example: atollctl job port-forward train 6006 --task worker --index 0")(job_sessions.port_forward)
app.command(epilog="Example: atollctl job events train -n research")(job_events.events)
app.command(epilog="Example: atollctl job hold train -n research; atollctl job hold -l sweep=7")(operations.hold)
app.command(epilog="Example: atollctl job retry train; atollctl job retry jobarray/sweep --index 3,17-20")(
    operations.retry
)
app.command(epilog="Example: atollctl job reschedule deployment/web -n research")(operations.reschedule)
app.command(epilog="Example: atollctl job release train; atollctl job release job.batch/nightly")(operations.release)
app.command(epilog="Example: atollctl job abort train")(operations.abort)
app.command(epilog="Example: atollctl job resume train")(operations.resume)
app.command(epilog="Example: atollctl job restart train")(operations.restart)
app.command(epilog="Example: atollctl job move train --queue nightly")(moving.move)
app.command(epilog="Example: atollctl job scale train --task worker --replicas 6")(scaling.scale)
app.command(epilog="Example: atollctl job delete train -n research; atollctl job delete -l sweep=7")(operations.delete)


@app.command(
    hidden=True, epilog="Example: atollctl job delete train", context_settings={"ignore_unknown_options": True}
)
def cancel(words: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Name the commands that end a job, which users of other systems look for here."""
    what = " ".join(words or ["NAME"])
    raise CommandError(
        f"there is no `job cancel`: `atollctl job delete {what}` stops it and removes it; `job abort` of a Volcano Job"
        " stops it and keeps it; `job hold` keeps it from running until `job release`",
        USAGE,
    )


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
    me: bool = False,
) -> None:
    from atoll.cli.connection import call
    from atoll.kinds import BY_RESOURCE, known
    from atoll.model.apiresource import BINDINGS

    options, wanted = settings(ctx), shape(output)
    where = options.where if name is None else options.one_namespace
    namespaced = options.all_namespaces and name is None
    user = call(options, myself) if me else None
    headers = (("NAMESPACE",) if namespaced else ()) + HEADERS + (("REASON",) if wanted.wide else ())

    def chosen(jobs: list[Json]) -> list[Json]:
        return sorted(
            (
                job
                for job in (jobs if name is not None and not watch else ours(jobs))
                if queue in (None, queue_of(job)) and user in (None, submitter(job))
            ),
            key=lambda job: (job["metadata"]["namespace"], job["metadata"]["name"]),
        )

    async def found_one(host: ApiServer) -> tuple[ApiResource, Json]:
        assert name is not None, "one job is asked for"
        resource, found = await find(host, name, options.one_namespace)
        if resource not in BY_RESOURCE:
            *others, last = (kind.words.title for kind in known())
            raise CommandError(f"{name} is no {', '.join(others)} or {last}: `atollctl explain {name}` tells of it")
        return resource, found

    if watch:
        from atoll.cli import watching

        def table(jobs: list[Json], bindings: list[Json]) -> dict[str, list[object]]:
            found = chosen(jobs)
            lines = rows(found, by_workload(bindings), time.time(), namespaced=namespaced, wide=wanted.wide)
            return {job["metadata"]["uid"]: line for job, line in zip(found, lines, strict=True)}

        watching.check(output, sort_by)
        there = call(options, served_kinds)
        resources, one = {each: text for each, text in selectors(selector).items() if each in there}, None
        if name is not None:
            resource, found = call(options, found_one)
            one, assembly = found["metadata"]["name"], BY_RESOURCE[resource].assembly
            resources = {resource: f"{assembly.selector}={one}" if assembly is not None else ""}
            one = one if assembly is None else None
        watching.watch(
            options,
            resources,
            where,
            one,
            table,
            headers,
            bindings_in=where,
            no_headers=no_headers,
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


async def myself(host: ApiServer) -> str:
    """The name by which the host knows the user, as records have it."""
    from atoll.model.apiresource import SUBJECT_REVIEWS

    review = {"apiVersion": SUBJECT_REVIEWS.api_version, "kind": SUBJECT_REVIEWS.kind, "metadata": {}}
    return str((await host.create(SUBJECT_REVIEWS, review))["status"]["userInfo"]["username"])[:MOST_SUBMITTER]


def submitter(job: Json) -> str:
    """Who created a workload; empty where it does not say."""
    return str((job["metadata"].get("annotations") or {}).get(SUBMITTED_BY) or "")
