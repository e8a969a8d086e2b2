"""What to write so that a cluster's HyperNodes are those that a discovery found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from atoll.model import keys
from atoll.model.topology import tree_name

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Changes:
    """Nothing of it is done yet; all lists are by name, in the order in which to write."""

    create: list[Json] = field(default_factory=list)
    update: list[tuple[Json, Json]] = field(default_factory=list)
    """(as it is, as it is to be)."""
    delete: list[Json] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    """Names that are wanted and belong to HyperNodes of somebody else: these stay as they are."""

    def __bool__(self) -> bool:
        """Whether there is something to write."""
        return bool(self.create or self.update or self.delete)


def changes(present: Iterable[Mapping[str, Any]], wanted: Sequence[Json], source: str, tree: str = "") -> Changes:
    """The difference between the HyperNodes of a cluster and those that a source found.

    Args:
        present: all that are there.
        wanted: as `domains.hyper_nodes` gives them.
        source: whose HyperNodes may be changed and deleted.
        tree: in which tree; those of others stay.
    """
    there = {obj["metadata"]["name"]: dict(obj) for obj in present}
    names = {obj["metadata"]["name"] for obj in wanted}
    result = Changes()
    for obj in wanted:
        old = there.get(obj["metadata"]["name"])
        if old is None:
            result.create.append(obj)
        elif (source_of(old), tree_name(old)) != (source, tree):
            result.foreign.append(obj["metadata"]["name"])
        elif old.get("spec") != obj["spec"]:
            result.update.append((old, obj))
    ours = [name for name, obj in sorted(there.items()) if (source_of(obj), tree_name(obj)) == (source, tree)]
    result.delete.extend(there[name] for name in ours if name not in names)
    return result


def source_of(obj: Mapping[str, Any]) -> str:
    """Who found a HyperNode; empty for one that somebody wrote."""
    return str((obj["metadata"].get("labels") or {}).get(keys.TOPOLOGY_SOURCE, ""))
