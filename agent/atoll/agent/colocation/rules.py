"""Settings of colocation."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from atoll.model.settings import Section, number, seconds, words


def _share(text: str) -> msgspec.Meta:
    return msgspec.Meta(title="share", description=text, ge=0, le=1, extra={"flag": ""})


class Colocation(Section, frozen=True):
    """Reclaimed capacity of nodes, and the bounds above which offline pods leave (docs/colocation.md)."""

    mode: Annotated[
        Literal["off", "dry-run", "on", "withdraw"],
        words(
            "on: publish reclaimed capacity and evict offline pods under pressure. dry-run: report alone. withdraw:"
            " remove the resources as their pods end; before off, which leaves nodes as they are."
        ),
    ] = "off"
    nodes: Annotated[str, words("Label selector of the nodes with reclaimed capacity; empty: all.")] = ""
    percentile: Annotated[float, _share("Of online use over the window: a higher one leaves less.")] = 0.95
    window: Annotated[float, seconds("Of online use; kept in memory, so that a new leader begins anew.", above=0)] = (
        3600.0
    )
    least: Annotated[int, number("Looks of a node before its amounts may rise: few say nothing of peaks.")] = 5
    reserve_cpu: Annotated[float, _share("Of allocatable CPU, kept free for sudden online use.")] = 0.1
    reserve_memory: Annotated[float, _share("The same of memory, which no kernel throttles.")] = 0.15
    change: Annotated[float, _share("Of an allocatable amount: smaller changes are not written to nodes.")] = 0.05
    cpu: Annotated[float, _share("Of allocatable CPU: pressure begins where online use is above it.")] = 0.75
    memory: Annotated[float, _share("Of allocatable memory: pressure begins where the node's use is above it.")] = 0.85
    margin: Annotated[float, _share("Below these bounds, where pressure ends.")] = 0.1
    looks: Annotated[
        int, number("In a row above a bound before pressure begins; kubelets' conditions act at once.")
    ] = 2
    settle: Annotated[
        float, seconds("After an eviction, in which its node gives no other: longer than the figures' window.", above=0)
    ] = 360.0
    per_node: Annotated[int, number("Gangs and single pods that leave one node in a look.")] = 3
    total: Annotated[int, number("Gangs and single pods that leave all nodes in a look.")] = 20
