"""GPUs of which pods take shares: a resource of thousandths that says which of a node's cards it means.

A node offers 1000 of `SHARE` for each of its cards. A pod that asks for up to 1000 gets that of one card, one that asks
for a multiple of 1000 gets so many whole cards, and no node can give anything else. `MEMORY` beside it raises the share
to the bytes' part of the memory of one card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

SHARE: Final = "atoll.sh/gpu-milli"
MEMORY: Final = "atoll.sh/gpu-memory"
ANY: Final = "atoll.sh/any-gpu-milli"
"""Thousandths of GPUs under whatever name: quota alone, no node offers it."""
CARD: Final = 1000
IMPOSSIBLE: Final = CARD + 1
"""Of `SHARE`: no node gives it."""
MOST_CARDS: Final = 64
"""Of a node; more are not used."""


def asked(requests: Mapping[str, int], memory: int | None = None) -> tuple[int, int]:
    """(thousandths of each card, cards) that a pod gets; (0, 0) for none, more than any node has for what can't be.

    Args:
        requests: of the pod.
        memory: bytes of each card of its node, 0 where it is not known; None leaves `MEMORY` out.
    """
    amount, wanted = requests.get(SHARE, 0), requests.get(MEMORY, 0)
    if amount <= 0:
        return 0, 0
    if wanted > 0 and memory is not None:
        part = -(-wanted * CARD // memory) if memory else IMPOSSIBLE
        return min(max(amount, part), IMPOSSIBLE), 1
    if amount <= CARD:
        return amount, 1
    return (CARD, amount // CARD) if not amount % CARD else (CARD, MOST_CARDS + 1)


def number(offered: Mapping[str, int]) -> int:
    """How many cards a node has."""
    return min(offered.get(SHARE, 0) // CARD, MOST_CARDS)


def memory(offered: Mapping[str, int]) -> int:
    """Bytes of each card of a node; 0 where it is not known."""
    count = offered.get(SHARE, 0) // CARD
    return offered.get(MEMORY, 0) // count if count else 0


def chosen(free: Sequence[int], amount: int, count: int) -> tuple[int, ...]:
    """The cards that so much of each of `count` cards is taken of: the fullest that have it; empty where they don't.

    Args:
        free: of each card.
        amount: of one card, above 0.
        count: cards, at least one.
    """
    fitting = sorted((left, card) for card, left in enumerate(free) if left >= amount)
    return tuple(card for _, card in fitting[:count]) if len(fitting) >= count else ()


def parse(text: str) -> tuple[int, ...]:
    """Cards as the annotation of a pod names them, `0,3`; empty where it names none that can be read."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) <= 2 for part in parts):
        return ()
    found = tuple(int(part) for part in parts)
    return found if len(set(found)) == len(found) and max(found) < MOST_CARDS else ()
