"""`--watch`: a table that goes on, a line for each object whose row changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from atoll.cli.errors import USAGE, CommandError

if TYPE_CHECKING:
    from atoll.cli.options import Settings
    from atoll.kube.reflector import Reflector
    from atoll.kube.transport import ApiServer
    from atoll.model.apiresource import ApiResource
    from atoll.model.objects import Full

Json = dict[str, Any]
Row = Sequence[object]

_INTERRUPTED = 130
_COALESCE = 0.1
"""Seconds for which changes are collected before the table is computed again."""


def check(output: str | None, sort_by: str | None) -> None:
    """Refuse an output that can't go on.

    Raises:
        CommandError: it is no table, or one in an order that changes.
    """
    from atoll.cli.options import shape

    if not shape(output).table:
        raise CommandError(f"--watch prints a table; leave out -o {output}", USAGE)
    if sort_by is not None:
        raise CommandError("--watch prints what changes as it changes; leave out --sort-by", USAGE)


def watch(
    options: Settings,
    resources: Mapping[ApiResource, str],
    namespace: str | None,
    name: str | None,
    table: Callable[[list[Json], list[Json]], Mapping[str, Row]],
    headers: Sequence[str],
    *,
    bindings_in: str | None,
    no_headers: bool,
) -> None:
    """Print a table of objects and keep it up to date until ^C.

    Args:
        options: of this call.
        resources: of the objects, with the label selector of those that count.
        namespace: where they are; None for all.
        name: only this one.
        table: objects and bindings -> the rows by object.
        headers: of the columns.
        bindings_in: namespace of the bindings that the rows depend on; None for all, empty where they depend on none.
        no_headers: leave the header line out.
    """
    from atoll.cli.connection import call
    from atoll.kube import logs
    from atoll.kube.reflector import Reflector
    from atoll.model.apiresource import BINDINGS
    from atoll.model.objects import decode_full

    logs.configure("error", process="atollctl")

    async def work(host: ApiServer) -> None:
        selector = f"metadata.name={name}" if name else ""
        objects = {
            resource: Reflector(
                host, resource, decode_full, namespace=namespace, field_selector=selector, label_selector=labels
            )
            for resource, labels in resources.items()
        }
        bindings = []
        if bindings_in != "":
            bindings.append(Reflector(host, BINDINGS, decode_full, namespace=bindings_in))

        def rows() -> Mapping[str, Row]:
            found = [
                {"apiVersion": resource.api_version, "kind": resource.kind, **each.body}
                for resource, reflector in objects.items()
                for each in reflector
            ]
            return table(found, [each.body for reflector in bindings for each in reflector])

        def show(line: str) -> None:
            print(line, flush=True)

        await follow([*objects.values(), *bindings], rows, headers, no_headers=no_headers, show=show)

    try:
        call(options, work)
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None


async def follow(
    reflectors: Sequence[Reflector[Full]],
    rows: Callable[[], Mapping[str, Row]],
    headers: Sequence[str],
    *,
    no_headers: bool,
    show: Callable[[str], None],
) -> None:
    """Print the table, and then rows as they change, until cancelled.

    Args:
        reflectors: everything that the rows depend on.
        rows: object -> its row, computed from the reflectors; the column AGE does not count as a change.
        headers: of the columns.
        no_headers: leave the header line out.
        show: prints a line.
    """
    changed = asyncio.Event()
    for reflector in reflectors:
        reflector.on_change(lambda *_: changed.set())
    shown: dict[str, list[object]] = {}
    widths = [len(header) for header in headers]
    age = headers.index("AGE") if "AGE" in headers else None
    first = True
    async with asyncio.TaskGroup() as group:
        for reflector in reflectors:
            group.create_task(reflector.run())
        for reflector in reflectors:
            await reflector.synced.wait()
        while True:
            changed.clear()
            fresh = {}
            now = rows()
            for key, row in now.items():
                cells = [cell for column, cell in enumerate(row) if column != age]
                if shown.get(key) != cells:
                    fresh[key] = row
                shown[key] = cells
            for key in shown.keys() - now.keys():
                del shown[key]
            lines = [list(headers)] if first and not no_headers else []
            lines += [["<none>" if cell in ("", None) else str(cell) for cell in row] for row in fresh.values()]
            widths = [max([width, *(len(line[at]) for line in lines)]) for at, width in enumerate(widths)]
            for line in lines:
                show("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
            first = False
            await changed.wait()
            await asyncio.sleep(_COALESCE)
