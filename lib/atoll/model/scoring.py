"""Which of the nodes that may take a pod are preferred, as annotations and scheduler configurations say it.

Written as `binpack`, or with weights and the only resources that count:
`binpack=5, balanced=1; nvidia.com/gpu=10, cpu=1`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from atoll.model import keys
from atoll.model.queues import upwards

TERMS: Final = ("binpack", "spread", "most", "least", "balanced", "usage", "fragmentation")
"""What a scoring may be made of; each has its formula in `atoll.fit.scores`."""
PREFERENCES: Final = {
    "nodeAffinity": 2,
    "podAffinity": 2,
    "podTopologySpread": 2,
    "taintToleration": 3,
    "imageLocality": 1,
}
"""What pods themselves say they prefer -> its weight, as kube-scheduler has it."""
_PACKING = frozenset({"binpack", "most"})
MOST_WEIGHT: Final = 1000
_LONGEST: Final = 512


class ScoringError(ValueError):
    """A scoring can't be read; the message says why."""


class Scoring(msgspec.Struct, frozen=True, omit_defaults=True):
    """Weights of terms; the highest sum wins."""

    terms: dict[str, int] = {}
    """Term -> weight above 0; without any, pods go to the tightest gap."""
    resources: dict[str, dict[str, int]] = {}
    """Term -> resource -> weight above 0: the only ones that it looks at, where that is not left to the term."""
    preferences: dict[str, int] = {}
    """Of `PREFERENCES` -> weight from 0 on, where it is another than there."""
    thresholds: dict[str, int] = {}
    """cpu and memory -> percent of measured use from which on a node comes last, for `usage`."""

    @property
    def packs(self) -> bool:
        """Whether a node never loses by a pod that it gets, so that nodes are filled one after the other; else pods are
        dispersed.
        """
        return set(self.terms) <= _PACKING

    def but(self, own: Scoring) -> Scoring:
        """The member's, with the terms and resources of a workload's own."""
        return Scoring(own.terms, own.resources, self.preferences, self.thresholds)

    def weight(self, preference: str) -> int:
        """Of what pods say they prefer."""
        return self.preferences.get(preference, PREFERENCES[preference])


@lru_cache(maxsize=1024)
def parse(text: str) -> Scoring:
    """A scoring from its text.

    Raises:
        ScoringError: it is none.
    """
    if len(text) > _LONGEST:
        raise ScoringError(f"is longer than {_LONGEST} characters")
    said, _, counted = text.partition(";")
    terms = _weights(said)
    if not terms:
        raise ScoringError(f"names no term; there are {', '.join(TERMS)}")
    if unknown := sorted(set(terms) - set(TERMS)):
        raise ScoringError(f"has {unknown[0]!r}, which is no term; there are {', '.join(TERMS)}")
    resources, looking = _weights(counted), terms.keys() - {"usage", "fragmentation"}
    if resources and not looking:
        raise ScoringError("names resources, which neither usage nor fragmentation looks at")
    return Scoring(terms, dict.fromkeys(sorted(looking), resources) if resources else {})


def _weights(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in text.split(","):
        name, equals, weight = (part.strip() for part in each.partition("="))
        if not name and not equals:
            continue
        if equals and not (weight.isascii() and weight.isdecimal() and len(weight) <= 4):
            raise ScoringError(f"has {each.strip()!r}, which is not NAME=WEIGHT")
        if not name or name in found:
            raise ScoringError(f"has {name!r} twice" if name else f"has {each.strip()!r}, which has no name")
        found[name] = int(weight) if equals else 1
        if not 0 < found[name] <= MOST_WEIGHT:
            raise ScoringError(f"has a weight of {name} that is not from 1 to {MOST_WEIGHT}")
    return found


def of_workload(
    annotations: Mapping[str, str], queue: str, find: Callable[[str], tuple[Mapping[str, str], str] | None]
) -> str:
    """The text that holds for a workload: its own, else that of its queue or the nearest one above that has one.

    Args:
        annotations: of the workload.
        queue: its name.
        find: (annotations, parent) of a queue, None where there is none.
    """
    said = (notes.get(keys.NODE_SCORING, "") for notes in (annotations, *upwards(queue, find)))
    return next((text for text in said if _readable(text)), "")


def _readable(text: str) -> bool:
    try:
        parse(text)
    except ScoringError:
        return False
    return True
