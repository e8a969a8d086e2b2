"""Usage reports as rows, a notebook's table, or a pandas frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from atoll.cli.errors import CommandError
from atoll.cli.records import By, span_of
from atoll.cli.run_sources import stored
from atoll.client.display import table
from atoll.view import usage as view
from atoll.view.usage import Row

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """What runs held, a row for each resource of each queue, namespace, user, member or class of devices."""

    by: str
    rows: Sequence[Json]
    """`runs`, `evicted`, `waited` (mean, seconds), `resource`, `asked`, `held`, `measured`, `busy` and `lost` (in
    `unit`), and the value of `by`. `asked` by member, and `busy` where no use is measured, are None.
    """

    def to_frame(self) -> Any:
        """The rows as a `pandas.DataFrame`.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas

        return pandas.DataFrame(list(self.rows), columns=list(self._columns))

    @property
    def _columns(self) -> tuple[str, ...]:
        return (self.by, "runs", "evicted", "waited", "resource", "asked", "held", "measured", "busy", "lost", "unit")

    def _repr_html_(self) -> str:
        def cell(value: object) -> object:
            return f"{value:.2f}" if isinstance(value, float) else value

        return table(self._columns, [[cell(row[name]) for name in self._columns] for row in self.rows])


def of_bindings(bindings: Iterable[Json], by: str, since: str) -> Usage:
    """Of the last runs that bindings have; see `AsyncClient.usage`."""
    span = _span(by, since)
    return _usage(view.within(view.of_bindings(bindings), *span), by, span)


def of_store(store: str, namespace: str, by: str, since: str) -> Usage:
    """Of records."""
    span = _span(by, since)
    return _usage(stored(store, span, namespace, [*view.COLUMNS, *view.BY[by]]), by, span)


def _span(by: str, since: str) -> Any:
    if by not in list(By):
        raise ValueError(f"by={by!r}: one of {', '.join(By)}")
    try:
        return span_of(since, None)
    except CommandError as error:
        raise ValueError(str(error)) from error


def _usage(rows: Iterable[Row], by: str, span: Any) -> Usage:
    lines = view.usage(rows, by, *span)
    return Usage(
        by,
        [
            {
                by: key, "runs": line.runs, "evicted": line.evicted, "waited": line.waited / line.runs,
                "resource": resource, "asked": amount.asked, "held": amount.held, "measured": amount.measured,
                "busy": amount.busy if amount.measured else None, "lost": amount.lost, "unit": view.unit(resource),
            }
            for key, line in sorted(lines.items())
            for resource, amount in sorted(line.amounts.items())
        ],
    )  # fmt: skip
