"""Rows as a table, as kubectl prints them."""

from __future__ import annotations

from collections.abc import Sequence

Rows = Sequence[Sequence[object]]
_NONE = "<none>"


def table(headers: Sequence[str], rows: Rows, *, no_headers: bool = False) -> str:
    """Left-aligned columns, three spaces apart, no line longer than its content; empty cells are `<none>`."""
    cells = [[_NONE if cell in ("", None) else str(cell) for cell in row] for row in rows]
    if not no_headers:
        cells.insert(0, list(headers))
    widths = [max((len(row[index]) for row in cells), default=0) for index in range(len(headers))]
    lines = ("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)
    return "\n".join(lines)
