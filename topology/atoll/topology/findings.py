"""Problems of HyperNodes, for their status and for admission."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from atoll.model.topology import Built, build

Json = dict[str, Any]

_LAST = "9999"
"""Creation time of the judged object: the objects that are there came first, and keep their places."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What HyperNodes say together."""

    built: Built
    wrong: Mapping[str, str]
    """HyperNode -> what of it is left out of the tree, and why."""
    unknown: Mapping[str, str]
    """HyperNode -> members that do not exist; they count as soon as they do."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What admission says of one HyperNode."""

    refusals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def look(hyper_nodes: Sequence[Mapping[str, Any]], node_labels: Mapping[str, Mapping[str, str]]) -> Findings:
    """The tree of all right HyperNodes, and problems of the others.

    Args:
        hyper_nodes: the objects, in any order.
        node_labels: name and labels of every node.
    """
    built = build(hyper_nodes, node_labels)
    wrong = dict(built.problems)
    for name, cycle in _cycles(hyper_nodes):
        text = f"its members lead back to it: {' -> '.join(cycle)}"
        wrong[name] = f"{text}; {wrong[name]}" if name in wrong else text
    names = {obj["metadata"]["name"] for obj in hyper_nodes}
    unknown = {}
    for obj in hyper_nodes:
        missing = sorted(
            f"{kind} {name}"
            for kind, name in _named(obj)
            if name not in (names if kind == "HyperNode" else node_labels)
        )
        if missing:
            more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
            unknown[obj["metadata"]["name"]] = f"no such member yet: {', '.join(missing[:8])}{more}"
    return Findings(built, wrong, unknown)


def judge(
    present: Sequence[Mapping[str, Any]], node_labels: Mapping[str, Mapping[str, str]], wanted: Mapping[str, Any]
) -> Judgement:
    """What admission says: refused is what would be wrong with it, or with another one because of it, and is not yet.

    Members that do not exist are no reason to refuse: files name the upper domains before the lower ones.

    Args:
        present: all HyperNodes that are there.
        node_labels: name and labels of every node.
        wanted: the HyperNode as it is to be.
    """
    name = wanted["metadata"]["name"]
    here = next((obj for obj in present if obj["metadata"]["name"] == name), None)
    since = here["metadata"].get("creationTimestamp") if here is not None else _LAST
    labels = wanted["metadata"].get("labels") or {}
    new = {"metadata": {"name": name, "creationTimestamp": since, "labels": labels}, "spec": wanted.get("spec") or {}}
    before = look(present, node_labels).wrong
    after = look([*(obj for obj in present if obj is not here), new], node_labels)
    # Both ends of one problem say the same.
    refusals: dict[str, None] = {}
    for each in sorted(after.wrong, key=lambda found: (found != name, found)):
        refusals |= dict.fromkeys(part for part in after.wrong[each].split("; ") if part not in before.get(each, ""))
    return Judgement(list(refusals), [after.unknown[name]] if name in after.unknown else [])


def _named(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Type and name of the members that are named exactly."""
    for member in obj["spec"].get("members") or ():
        if name := ((member.get("selector") or {}).get("exactMatch") or {}).get("name"):
            yield str(member.get("type")), name


def _cycles(hyper_nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """HyperNodes whose members lead back to them, each with a way."""
    below = {
        obj["metadata"]["name"]: [name for kind, name in _named(obj) if kind == "HyperNode"] for obj in hyper_nodes
    }
    # Where nothing below leads on, nothing leads back.
    while ends := [name for name, children in below.items() if not any(child in below for child in children)]:
        for name in ends:
            del below[name]
    told: set[str] = set()
    for start in below:
        cycle = _way_back(start, below) if start not in told else []
        told.update(cycle)
        for name in cycle[:-1]:
            yield name, cycle


def _way_back(start: str, below: Mapping[str, Sequence[str]]) -> list[str]:
    """From a HyperNode by its members to itself, both ends included; empty where there is no way."""
    above: dict[str, str] = {}
    reached = [start]
    for here in reached:
        for child in below.get(here, ()):
            if child == start:
                way = [here]
                while way[-1] != start:
                    way.append(above[way[-1]])
                return [*reversed(way), start]
            if child not in above:
                above[child] = here
                reached.append(child)
    return []
