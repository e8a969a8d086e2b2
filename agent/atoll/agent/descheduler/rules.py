"""Bounds beside a policy: when a node acts, what one look may move, and how long all rests after a move."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from atoll.model.settings import Section, number, seconds, words


class Rules(Section, frozen=True):
    """Bounds of each look; limits of the policy replace its own of the same name."""

    looks: Annotated[
        int, number("In a row above the target before a node gives pods: peaks pass, and moves cost.", most=1000)
    ] = 3
    margin: Annotated[
        float,
        msgspec.Meta(
            title="share",
            description="That a target must stay below targetThresholds with the pod, and a node to count as cool.",
            ge=0,
            lt=1,
            extra={"flag": ""},
        ),
    ] = 0.05
    settle: Annotated[
        float,
        seconds("For which a move is added to figures that may not show it; longer than their window.", above=0),
    ] = 300.0
    pause: Annotated[
        float,
        seconds("For which a node that gave pods takes none, and one that took pods gives none: nothing bounces."),
    ] = 900.0
    rest: Annotated[
        float,
        seconds("For which a pod rests that replaces a moved one: its scheduler may know nothing of use."),
    ] = 3600.0
    lost: Annotated[
        float,
        seconds(
            "That a pod which runs to completion may have run and still moves: its work is lost. 0: none of them moves."
        ),
    ] = 0.0
    youngest: Annotated[float, seconds("That a pod must have lived; minPodAge may ask for more.")] = 300.0
    stale: Annotated[
        float, seconds("After which figures say nothing any more: nothing is evicted on older ones.", above=0)
    ] = 180.0
    gangs: Annotated[
        Literal["off", "ask"],
        words(
            "ask: a gang of the host that has a place elsewhere, whole, is put back to its queue by the host, with its"
            " age; it starts from its last checkpoint. One in a look."
        ),
    ] = "off"
    keep: Annotated[
        float,
        seconds(
            "For which a place is kept on its node for a pod that leaves, beside the seconds that the pod may take to"
            " end; Atoll's placer alone heeds it. 0: places are planned and not kept."
        ),
    ] = 180.0
    per_node: Annotated[int, number("Pods that leave one node in a look.")] = 5
    per_namespace: Annotated[int, number("Pods of one namespace that move in a look.")] = 10
    total: Annotated[int, number("Pods that move in a look.")] = 20
