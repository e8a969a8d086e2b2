"""Which strategies are installed: entry points of this Python environment, for admission and for the dispatcher."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points


def found(group: str) -> dict[str, EntryPoint]:
    """Name -> entry point; nothing of it is loaded."""
    return {each.name: each for each in sorted(entry_points(group=group), key=lambda each: each.name)}
