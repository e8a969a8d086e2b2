"""Names -> keys under them, such as claims and the pods that use them."""

from __future__ import annotations

Index = dict[str, dict[str, None]]
"""Keys in the order in which they came; without empty names."""


def index(of: Index, name: str, key: str, *, there: bool) -> None:
    """The key is under that name, or is not any more."""
    if there:
        of.setdefault(name, {})[key] = None
    elif name in of:
        of[name].pop(key, None)
        if not of[name]:
            del of[name]
