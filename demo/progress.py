"""Progress for people: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo.drive import Step

_LINE_EVERY_S = 10.0


@contextlib.contextmanager
def progress(console: Console, total: int) -> Iterator[Step]:
    """Give what shows (submitted, running, final) of `total` jobs."""
    if not console.is_terminal:
        yield _lines(console, total)
        return
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar:
        submitted_bar = bar.add_task("submitted", total=total, note="")
        final_bar = bar.add_task("completed", total=total, note="")

        def step(submitted: int, running: int, final: int) -> None:
            bar.update(submitted_bar, completed=submitted)
            bar.update(final_bar, completed=final, note=f"{running} running")

        yield step


def _lines(console: Console, total: int) -> Step:
    last = time.monotonic() - _LINE_EVERY_S

    def step(submitted: int, running: int, final: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_EVERY_S or final == total:
            last = time.monotonic()
            console.print(f"  {submitted}/{total} submitted, {running} running, {final} final", highlight=False)

    return step
