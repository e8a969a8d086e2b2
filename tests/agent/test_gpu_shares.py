"""Parts of cards in a member: memory in bytes counts by the cards of each node."""

from __future__ import annotations

from typing import Any

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core import Bind, MemberCore
from atoll.agent.scheduler.core.events import Event, NodeSet, Pass, PodGone, PodSet, Whose
from tests.agent.builders import make_node, make_pod
from tests.agent.telling import of


def pod(name: str, **limits: str) -> Pod:
    named = {key.replace("__", "/").replace("_", "-"): amount for key, amount in limits.items()}
    return make_pod(name, spec={"containers": [{"name": "c", "resources": {"limits": named}}]})


class Told:
    """A member's core, and the nodes that its pods were bound to."""

    def __init__(self) -> None:
        self.core = MemberCore()
        self.bound: dict[str, str] = {}
        self._moment = 0.0

    def tell(self, *events: Event) -> None:
        self._moment += 1
        for event in (*events, Pass(self._moment)):
            for bind in of(Bind, self.core.handle(event)):
                self.bound |= {key: node for key, _, node in bind.pods}

    def come(self, name: str, **limits: str) -> None:
        self.tell(PodSet(pod(name, **limits), Whose.OURS))

    def cards_of(self, name: str) -> tuple[int, tuple[int, ...]]:
        return self.core.room.cards.of(f"default/{name}")


CARD: dict[str, Any] = {"atoll.sh/gpu-milli": "1000"}


def test_memory_is_a_larger_part_of_a_smaller_card() -> None:
    told = Told()
    told.tell(NodeSet(make_node("small", labels={"nvidia.com/gpu.memory": "16384"}, **CARD)))
    told.tell(NodeSet(make_node("large", labels={"nvidia.com/gpu.memory": "81920"}, **CARD)))
    told.tell(NodeSet(make_node("unknown", **CARD)))
    for at in range(4):
        told.come(f"p{at}", **{"atoll.sh/gpu-memory": "40Gi"})
    assert told.bound == {"default/p0": "large", "default/p1": "large"}, "40Gi are half of 80Gi, and more than 16Gi"
    assert told.cards_of("p0") == (500, (0,))
    told.tell(PodGone("default/p0"))
    assert told.bound["default/p2"] == "large", "it waited for that"


def test_two_sizes_share_a_card_until_it_is_full() -> None:
    told = Told()
    told.tell(NodeSet(make_node("n", labels={"nvidia.com/gpu.memory": "16384"}, **CARD)))
    told.come("memory", **{"atoll.sh/gpu-memory": "8Gi"})
    told.come("milli", **{"atoll.sh/gpu-milli": "500"})
    told.come("more", **{"atoll.sh/gpu-milli": "1"})
    assert [told.cards_of(name)[1] for name in ("memory", "milli", "more")] == [(0,), (0,), ()]
