"""Labels and annotations that look like Atoll's and that nothing reads: most are misspelt."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from atoll.admission.problems import Json, Problem, mapping
from atoll.model import keys, spelling

PREFIX: Final = "atoll.sh/"
_KNOWN: Final = frozenset(
    name
    for value in vars(keys).values()
    for name in (value if isinstance(value, tuple) else (value,))
    if isinstance(name, str) and (name.startswith(PREFIX) or name in keys.WAITING_TIMES)
)
_SLA: Final = ("sla-", "volcano.sh/sla-")
"""Beginnings of names of Volcano's plugin sla."""
_QUEUES: Final = frozenset((f"{PREFIX}queue", f"{PREFIX}queue-name"))
"""Names by which users mean `keys.QUEUE_LABEL`."""


def unread(obj: Json, old: Json | None, path: str = "") -> Iterator[Problem]:
    """Labels and annotations of a workload, or of a pod template, that no kind reads, to warn of.

    Args:
        obj: with metadata.
        old: the same before a change, whose names were warned of then.
        path: of the object.
    """
    for where, name in _new(obj, old):
        if name in _KNOWN:
            continue
        meant = f"; did you mean label {keys.QUEUE_LABEL}?" if name in _QUEUES else spelling.meant(name, sorted(_KNOWN))
        yield Problem(f"{path}metadata.{where}[{name}]", f"has no effect: Atoll reads none of that name{meant}")


def unread_of_queue(queue: Json, old: Json | None, read: Collection[str]) -> Iterator[Problem]:
    """The same of a queue; `read` has the annotations that a queue may have."""
    for where, name in _new(queue, old):
        if where == "annotations" and name in read:
            continue
        own = f"{PREFIX}{name.rpartition('/')[2]}"
        meant = f"; did you mean annotation {own}?" if own in read else spelling.meant(own, sorted(read))
        yield Problem(f"metadata.{where}[{name}]", f"has no effect on a queue{meant}")


def _new(obj: Json, old: Json | None) -> Iterable[tuple[str, str]]:
    """(`labels` or `annotations`, name) of what looks like Atoll's and was not there before."""
    now, before = mapping(obj.get("metadata")), mapping(mapping(old).get("metadata"))
    return [
        (where, name)
        for where in ("labels", "annotations")
        for name in mapping(now.get(where))
        if (name.startswith(PREFIX) or (name.startswith(_SLA) and spelling.near(name, keys.WAITING_TIMES)))
        and name not in mapping(before.get(where))
    ]
