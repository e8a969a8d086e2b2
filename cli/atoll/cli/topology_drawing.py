"""A tree of domains as lines of a terminal, and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from atoll.model.topology import Grown

_WIDTH: Final = 150
_HEIGHT: Final = 62
_GAP: Final = 6
_LONGEST: Final = 20
"""Letters of a name that stand in a box."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One domain with all that is below it."""

    name: str
    tier: str
    nodes: tuple[str, ...]
    """All below, sorted."""
    free: int
    """Of the resource asked about, in whole units, on all nodes below."""
    total: int
    below: tuple[Branch, ...]

    @property
    def count(self) -> str:
        """How many nodes."""
        return f"{len(self.nodes)} node{'' if len(self.nodes) == 1 else 's'}"


def branches(grown: Grown, room: Mapping[str, tuple[int, int]]) -> list[Branch]:
    """The domains without a parent, by name.

    Args:
        grown: the tree, and the lowest domain of each node.
        room: node -> free amount of a resource there, and all of it.
    """
    from atoll.model.topology import NO_DOMAIN

    tree = grown.tree
    inside: list[list[str]] = [[] for _ in tree.domains]
    for node, nearest in sorted(grown.lowest.items()):
        for above in tree.ancestors(nearest):
            inside[above].append(node)
    children: dict[int, list[int]] = {}
    for index, domain in enumerate(tree.domains):
        children.setdefault(domain.parent, []).append(index)

    def made(index: int) -> Branch:
        domain = tree.domains[index]
        free, total = (sum(room[node][part] for node in inside[index] if node in room) for part in (0, 1))
        tier = f"tier {domain.tier}" + (f" ({domain.tier_name})" if domain.tier_name else "")
        return Branch(domain.name, tier, tuple(inside[index]), free, total, of(index))

    def of(parent: int) -> tuple[Branch, ...]:
        return tuple(made(each) for each in sorted(children.get(parent, ()), key=lambda i: tree.domains[i].name))

    return list(of(NO_DOMAIN))


def lines(roots: Sequence[Branch], resource: str) -> Iterator[str]:
    """A line for each domain; nodes and free amounts are those of all below."""

    def draw(branch: Branch, lead: str, twig: str) -> Iterator[str]:
        amount = f", {branch.free} of {branch.total} {resource} free" if branch.total else ""
        names = f": {', '.join(branch.nodes)}" if not branch.below and branch.nodes else ""
        yield f"{lead}{twig}{branch.name}  {branch.tier}, {branch.count}{amount}{names}"
        deeper = lead + {"": "", "├─ ": "│  ", "└─ ": "   "}[twig]
        for each in branch.below:
            yield from draw(each, deeper, "└─ " if each is branch.below[-1] else "├─ ")

    for root in roots:
        yield from draw(root, "", "")


def svg(trees: Mapping[str, Sequence[Branch]], resource: str) -> str:
    """A picture of all trees: a box for each domain above those that it holds, greener the more of it is free.

    Args:
        trees: the domains without a parent of each tree, by the tree's name.
        resource: whose free amounts are written; empty for none.
    """
    parts: list[str] = []
    x, deepest = float(_GAP), 0
    for name, roots in trees.items():
        if name:
            parts.append(f'<text x="{x}" y="14" class="tree">tree {escape(name)}</text>')
        for root in roots:
            boxes = list(_boxes(root, resource, x, 0))
            parts.extend(text for text, _ in boxes)
            deepest = max(deepest, *(depth + 1 for _, depth in boxes))
            x += _leaves(root) * (_WIDTH + _GAP)
    height = 20 + deepest * (_HEIGHT + _GAP)
    size = f'width="{x:.0f}" height="{height}" viewBox="0 0 {x:.0f} {height}"'
    style = "text{font:12px sans-serif}.name{font-weight:bold}.tree{font-style:italic}rect{stroke:#333;rx:3px}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            f"<style>{style}</style>",
            *parts,
            "</svg>",
            "",
        ]
    )


def _leaves(branch: Branch) -> int:
    return sum(map(_leaves, branch.below)) or 1


def _boxes(branch: Branch, resource: str, x: float, depth: int) -> Iterator[tuple[str, int]]:
    """The box of a domain and those below it, each with its depth."""
    width = _leaves(branch) * (_WIDTH + _GAP) - _GAP
    y = 20 + depth * (_HEIGHT + _GAP)
    share = branch.free / branch.total if branch.total else 1.0
    # From red for full nodes to green for free ones.
    colour = f"hsl({120 * share:.0f},55%,82%)" if branch.total else "#eee"
    amount = f"{branch.free} of {branch.total} free" if branch.total else ""
    shown = branch.name if len(branch.name) <= _LONGEST * _leaves(branch) else f"{branch.name[: _LONGEST - 1]}…"
    about = f"{branch.name}: {branch.tier}, {branch.count}" + (f", {amount} ({resource})" if amount else "")
    rows = (("name", shown), ("", f"{branch.tier}, {branch.count}"), ("", amount))
    text = "".join(
        f'<text x="{x + 6:.0f}" y="{y + 17 * row:.0f}" class="{kind}">{escape(words)}</text>'
        for row, (kind, words) in enumerate(rows, start=1)
        if words
    )
    box = f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{_HEIGHT}" fill="{colour}"/>'
    yield f"<g><title>{escape(about)}</title>{box}{text}</g>", depth
    for each in branch.below:
        yield from _boxes(each, resource, x, depth + 1)
        x += _leaves(each) * (_WIDTH + _GAP)
