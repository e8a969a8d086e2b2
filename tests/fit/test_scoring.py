"""Which nodes a scoring prefers, by the formulas of docs/scoring.md, and that it chooses among nodes that fit alone."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest

from atoll.fit import Miss, Nodes, Placement, Profile, place
from atoll.fit.scores import Amounts, of_nodes
from atoll.model.gang import Gang, Task, TopologyWish
from atoll.model.scoring import Scoring, ScoringError, parse
from atoll.model.topology import NO_DOMAIN, Domain, Tree
from tests.fit.builders import make_gang, make_nodes, pods_on

OFFER = {"cpu": 10_000, "memory": 1000, "gpu": 8}


def member(*used: dict[str, int], racks: int = 0) -> Nodes:
    """Nodes of 10 CPUs, 1000 bytes and 8 GPUs, of which so much is in use; in racks of equal size, or in none."""
    free = [{name: amount - each.get(name, 0) for name, amount in OFFER.items()} for each in used]
    domains = [Domain("all", 2), *(Domain(f"rack{number}", 1, 0) for number in range(racks))] if racks else []
    size = len(used) // racks if racks else 0
    lowest = [1 + number // size if racks else NO_DOMAIN for number in range(len(used))]
    names = [f"n{number}" for number in range(len(used))]
    nodes = Nodes(Tree(domains), lowest, names, [Profile()], [0] * len(used), free)
    nodes.capacity = nodes.matrix([OFFER] * len(used))
    return nodes


def gang(pods: int, scoring: str, *, floor: int | None = None, **more: Any) -> Gang:
    request = {"cpu": 1000, "memory": 100, "gpu": 1}
    least = pods if floor is None else floor
    return Gang("", [Task("t", pods, least, request)], least, scoring=scoring, **more)


def value(used: dict[str, int], request: dict[str, int], text: str) -> int:
    return int(of_nodes(request, member(used).amounts(), parse(text))[0])


@pytest.mark.parametrize(
    ("text", "request_", "expected"),
    [
        pytest.param(
            "binpack", {"cpu": 1000, "gpu": 2}, (3000 + 5000) // 2, id="binpack: mean of what the pod asks for"
        ),
        pytest.param(
            "binpack; gpu=3, cpu=1", {"cpu": 1000, "gpu": 2}, (3000 + 3 * 5000) // 4, id="binpack with weights"
        ),
        pytest.param(
            "binpack; gpu=3", {"cpu": 1000, "gpu": 2}, 5000, id="of resources that are named only these count"
        ),
        pytest.param("spread", {"cpu": 1000, "gpu": 2}, 10_000 - 4000, id="spread: what binpack leaves"),
        pytest.param(
            "most", {"cpu": 1000, "gpu": 2}, (3000 + 4000) // 2, id="most: cpu and memory, whatever is asked for"
        ),
        pytest.param("most; gpu=1", {"cpu": 1000, "gpu": 2}, 5000, id="most of the resources that are named"),
        pytest.param("least", {"cpu": 1000}, 10_000 - 3500, id="least: what most leaves"),
        pytest.param("balanced", {"cpu": 1000}, 10_000 - 500, id="balanced: 30 % and 40 % deviate by 5 %"),
        pytest.param("balanced", {"cpu": 2000}, 10_000, id="balanced: equal parts"),
        pytest.param("least=2, balanced", {"cpu": 2000}, 2 * 6000 + 10_000, id="weights"),
        pytest.param("usage", {"cpu": 1000}, 5000, id="usage that was not measured is half"),
    ],
)
def test_a_term_gives(text: str, request_: dict[str, int], expected: int) -> None:
    assert value({"cpu": 2000, "memory": 400, "gpu": 2}, request_, text) == expected


def test_usage_counts_what_was_measured_and_what_came_since() -> None:
    nodes = member({"cpu": 5000}, {"cpu": 5000}, {"cpu": 5000})
    # 1 CPU and 10 % of the memory were in use on the first, 9 CPUs on the second; the third was not measured.
    nodes.measured = np.array([[1000 + 5000, 9000 + 5000, -1], [100 + 1000, 100 + 1000, -1]])
    scoring = Scoring({"usage": 1}, thresholds={"cpu": 80})
    request = {"cpu": 1000, "memory": 100}
    assert of_nodes(request, nodes.amounts(), scoring).tolist() == [10_000 - (2000 + 2000) // 2, 0, 5000]
    nodes.free[nodes.resources.index("cpu"), 0] -= 2000
    assert of_nodes(request, nodes.amounts(), scoring).tolist()[0] == 10_000 - (4000 + 2000) // 2


@pytest.mark.parametrize(
    "text",
    ["", "bestfit", "binpack=0", "binpack=x", "binpack=1, binpack=2", "binpack=1001", "=3", "usage; cpu=1", "x" * 600],
)
def test_a_scoring_that_can_not_be_read_says_why(text: str) -> None:
    with pytest.raises(ScoringError):
        parse(text)


USED = [{"gpu": 0}, {"gpu": 4}, {"gpu": 2}, {"gpu": 8}]


@pytest.mark.parametrize(
    ("scoring", "pods", "expected"),
    [
        pytest.param("binpack", 3, {1: 3}, id="binpack fills the fullest that has room"),
        pytest.param("binpack", 6, {1: 4, 2: 2}, id="and goes on with the next"),
        pytest.param("spread", 4, {0: 3, 2: 1}, id="spread looks again after each pod"),
    ],
)
def test_a_gang_goes_to_the_nodes_that_its_scoring_prefers(scoring: str, pods: int, expected: dict[int, int]) -> None:
    nodes = member(*({"cpu": 1000 * each["gpu"], "memory": 100 * each["gpu"], **each} for each in USED))
    assert pods_on(place(nodes, gang(pods, scoring))) == expected


def test_the_member_s_scoring_holds_where_a_gang_says_nothing() -> None:
    nodes = member({"gpu": 4}, {})
    assert pods_on(place(nodes, gang(1, ""))) == {0: 1}, "the tightest gap"
    nodes.scoring = parse("spread")
    assert pods_on(place(nodes, gang(1, ""))) == {1: 1}
    assert pods_on(place(nodes, gang(1, "binpack"))) == {0: 1}, "its own comes first"


def test_topology_comes_first_where_it_is_asked_for() -> None:
    """Two racks: all but two slots of the first are taken; the second is empty."""
    nodes = member({"gpu": 7}, {"gpu": 7}, {}, {}, racks=2)
    assert pods_on(place(nodes, gang(2, "spread"))) == {2: 1, 3: 1}, "no wish: all nodes are compared"
    near = gang(2, "spread", network_topology=TopologyWish("hard", 1))
    assert pods_on(place(nodes, near)) == {0: 1, 1: 1}, "the tightest rack; inside it, spread"
    assert pods_on(place(nodes, gang(2, "binpack"))) == {0: 1, 1: 1}, "binpack does not tear a gang apart"


def test_a_scoring_changes_where_pods_go_and_never_whether() -> None:
    rng = random.Random(5)
    for _ in range(200):
        nodes = member(*({"gpu": rng.randint(0, 8), "cpu": rng.randint(0, 9) * 1000} for _ in range(6)), racks=2)
        pods = rng.randint(1, 20)
        wish = rng.choice([None, TopologyWish("hard", 1), TopologyWish("soft")])
        plain = place(nodes, gang(pods, "", floor=max(1, pods - 3), network_topology=wish))
        text = rng.choice(["binpack", "spread", "least=2,balanced", "most", "usage", "binpack=3,least;gpu=2"])
        scored = place(nodes, gang(pods, text, floor=max(1, pods - 3), network_topology=wish))
        assert isinstance(plain, Miss) == isinstance(scored, Miss), text
        if isinstance(plain, Placement) and isinstance(scored, Placement):
            assert sum(plain.counts) <= sum(scored.counts) or wish is not None
            taken = nodes.copy()
            taken.put(gang(pods, text).tasks, scored)
            assert (taken.free >= 0).all(), "no node gets more than it has"


def test_nodes_whose_offer_is_not_known_are_placed_on_without_a_scoring() -> None:
    nodes = make_nodes([[4, 2]])
    scored = msgspec.structs.replace(make_gang(1), scoring="spread")
    assert pods_on(place(nodes, scored)) == {1: 1}


def test_amounts_of_one_node_are_the_same_as_among_all() -> None:
    nodes = member(*({"gpu": each} for each in range(8)))
    request = {"gpu": 1, "cpu": 1000}
    for text in ("binpack", "balanced", "least", "usage"):
        among: Amounts = nodes.amounts()
        each = [int(of_nodes(request, among.one(number), parse(text))[0]) for number in range(8)]
        assert each == of_nodes(request, among, parse(text)).tolist()
