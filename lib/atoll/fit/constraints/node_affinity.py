"""Required node affinity: one of the terms matches, by all of its expressions and fields."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from atoll.model import selectors

REFUSAL = "node(s) didn't match Pod's node affinity/selector"


def accepts(
    terms: Sequence[Mapping[str, Any]], labels: Mapping[str, str], name: str, unknown: Collection[str] = ()
) -> bool:
    """Whether a node with these labels and this name matches; without terms every node does.

    `unknown`: label keys, or the field, with an unknown value of the node: requirements on them count as met.
    """
    return not terms or selectors.node_affinity_matches(terms, labels, name, unknown)
