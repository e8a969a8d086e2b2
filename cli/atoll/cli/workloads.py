"""Which workloads a command is about: by name, by label, or all of a namespace."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import FAILED, USAGE, CommandError, describe
from atoll.cli.lookup import find, listed, ours
from atoll.cli.options import settings
from atoll.cli.suggestions import job_names

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer
    from atoll.model.apiresource import ApiResource

Json = dict[str, Any]
Work = Callable[["ApiServer", "ApiResource", Json], Awaitable[str]]
"""A verb for a workload, and its words afterwards."""

Name = Annotated[
    str,
    typer.Argument(
        metavar="[KIND/]NAME",
        help="The job; KIND (vcjob, job.batch, pod-group) may be left out where one kind has that name.",
        autocompletion=job_names,
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[[KIND/]NAME...]",
        help="Jobs; KIND (vcjob, job.batch, pod-group) may be left out where one kind has that name.",
        autocompletion=job_names,
    ),
]
Selected = Annotated[
    str | None,
    typer.Option("--selector", "-l", help="Instead of names: all jobs of the namespace with such labels."),
]


def each(ctx: typer.Context, names: Sequence[str] | None, selector: str | None, work: Work) -> None:
    """Do it to each of them, and say of each what became of it; one that fails does not keep the others from it.

    Raises:
        SystemExit: one of several failed.
        CommandError: neither names nor a selector, or both.
        Exception: the only one failed.
    """
    from atoll.cli.connection import call
    from atoll.kinds import BY_GVK

    options = settings(ctx)
    one_way("jobs", names, selector)
    if options.all_namespaces:
        raise CommandError("-A is for lists; choose one namespace with -n", USAGE)
    namespace = options.one_namespace

    async def work_on(host: ApiServer, target: str | Json) -> str:
        if isinstance(target, str):
            return await work(host, *await find(host, target, namespace))
        return await work(host, BY_GVK[target["apiVersion"], target["kind"]].resource, target)

    async def all_of_them(host: ApiServer) -> bool:
        targets: Sequence[str | Json] = names or ours(await listed(host, namespace, selector))
        if not targets:
            print(f"No jobs found in {namespace} namespace with labels {selector}.", file=sys.stderr)
        return await do_all(targets, lambda target: work_on(host, target))

    if call(options, all_of_them):
        raise SystemExit(FAILED)


def one_way(
    what: str,
    names: Sequence[str] | None,
    selector: str | None,
    everything: bool = False,
    *,
    all_allowed: bool = True,
) -> None:
    """Refuse a command line that says in no way, or in several, what it is about.

    Args:
        what: the objects, in words.
        names: of them.
        selector: labels that they have.
        everything: all of them.
        all_allowed: the command has an option for all of them.
    """
    ways = bool(names) + (selector is not None) + everything
    if ways != 1:
        wrong = "name" if not ways else "do not mix several ways: name"
        every = f", or take all with --all-{what}" if what == "queues" and all_allowed else ""
        raise CommandError(f"{wrong} {what}, or select them by label with -l{every}", USAGE)


async def do_all(targets: Sequence[Any], work: Callable[[Any], Awaitable[str]]) -> bool:
    """Do it to one after the other and print what there is to say; whether one of several failed.

    Raises:
        Exception: the only one failed, or the server does not answer.
    """
    from atoll.kube.errors import ApiError, Unreachable

    failed = False
    for target in targets:
        try:
            print(await work(target), flush=True)
        except Unreachable:
            raise
        except (CommandError, ApiError) as error:
            if len(targets) == 1:
                raise
            print(describe(error)[0], file=sys.stderr)
            failed = True
    return failed
