"""Usage reports as rows, a notebook's table, or a pandas frame."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from atoll.cli.errors import CommandError
from atoll.cli.records import By, span_of
from atoll.cli.run_sources import Source, Span, of_host, of_store, queues_of
from atoll.client.display import table
from atoll.kube.transport import ApiServer
from atoll.view import usage as view
from atoll.view.usage import Line

Json = dict[str, Any]

_COLUMNS = ("runs", "evicted", "waited", "resource", "asked", "held", "measured", "busy", "lost", "unit")
_OF_TREE = ("subtree", "deserved", "share", "borrowed", "lent")


@dataclass(frozen=True, slots=True)
class Usage:
    """What runs held, a row for each resource of each queue, namespace, user, member or class of devices."""

    by: str
    rows: Sequence[Json]
    """`runs`, `evicted`, `waited` (mean, seconds), `resource`, `asked`, `held`, `measured`, `busy` and `lost` (in
    `unit`), and the value of `by`. `asked` by member, and `busy` where no use is measured, are None. With `tree` also
    `subtree` (held with the queues below), `deserved`, `share` of it, `borrowed` and `lent`, all of the queue with the
    ones below it; None where it deserves none of the resource.
    """
    tree: bool = False
    """By queue, with the runs of all namespaces: rows have figures against the queue tree."""

    def to_frame(self) -> Any:
        """The rows as a `pandas.DataFrame`.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas

        return pandas.DataFrame(list(self.rows), columns=list(self._columns))

    @property
    def _columns(self) -> tuple[str, ...]:
        return (self.by, *_COLUMNS, *(_OF_TREE if self.tree else ()))

    def _repr_html_(self) -> str:
        def cell(value: object) -> object:
            return f"{value:.2f}" if isinstance(value, float) else value

        return table(self._columns, [[cell(row[name]) for name in self._columns] for row in self.rows])


async def gather(host: ApiServer, namespace: str, by: str, since: str, store: str | None, queue: str) -> Usage:
    """The report; see `AsyncClient.usage`."""
    if by not in list(By):
        raise ValueError(f"by={by!r}: one of {', '.join(By)}")
    try:
        span = span_of(since, None)
    except CommandError as error:
        raise ValueError(str(error).removeprefix("--")) from error
    if store is None:
        source = await of_host(host, span, namespace, queue, say=_warn)
    else:
        queues = await queues_of(host, _warn) if queue else None
        columns = [*view.COLUMNS, *view.BY[by]]
        source = of_store(store, span, None if queue else namespace, queue, queues, columns)
    # Rows of a store are read as they are added up.
    return await asyncio.to_thread(_usage, source, by, span)


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)


def _usage(source: Source, by: str, span: Span) -> Usage:
    report = source.against_tree(span) if by == By.QUEUE else None
    if report is None:
        lines = view.usage(source.rows, by, *span)
        return Usage(by, [_row(by, key, line, name) for key, line in lines.items() for name in sorted(line.amounts)])
    rows = []
    for key, line in report.own.items():
        for resource in sorted(line.amounts):
            held = report.lines[key].amounts[resource].held
            figures = dict(zip(_OF_TREE, (held, *report.figures(key, resource)), strict=True))
            rows.append({**_row(by, key, line, resource), **figures})
    return Usage(by, rows, tree=True)


def _row(by: str, key: str, line: Line, resource: str) -> Json:
    amount = line.amounts[resource]
    return {
        by: key, "runs": line.runs, "evicted": line.evicted, "waited": line.wait, "resource": resource,
        "asked": amount.asked, "held": amount.held, "measured": amount.measured,
        "busy": amount.busy if amount.measured else None, "lost": amount.lost, "unit": view.unit(resource),
    }  # fmt: skip
