"""What explain says of devices that are free and do not go together."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model.claim_shapes import words
from tests.dispatcher.builders import make_capacity, make_cluster, scene
from tests.dispatcher.claiming import OTHERS, PAIR, pairs, saying
from tests.dispatcher.explain.questions import ask

RACKS = make_capacity("m", {"r1": [4, 4], "r2": [4, 4, 4]})


def test_pods_nodes_and_domain_are_named_with_the_need() -> None:
    s = scene(room=(make_cluster("m"), saying(RACKS, [0, 0, 1, 0, 2])))
    [room] = ask(s, pairs("a", 8)).clusters
    assert room.message.endswith(
        "devices that go together (1 gpu with one root) are free for 3 pods, on 2 nodes of r2; 8 needed"
    )


def test_of_a_gang_that_must_be_in_one_domain_the_nearest_one_is_judged() -> None:
    s = scene(room=(make_cluster("m"), saying(RACKS, [2, 0, 1, 1, 1])))
    [room] = ask(s, pairs("a", 4).hard(1)).clusters
    assert "are free for 3 pods, on 3 nodes of r2; 4 needed" in room.message


@pytest.mark.parametrize(
    "room",
    [
        pytest.param(RACKS, id="nothing is known"),
        pytest.param(saying(RACKS, [1] * 5, OTHERS), id="of another shape"),
        pytest.param(saying(RACKS, [20] * 5), id="enough of them"),
    ],
)
def test_nothing_is_said_where_that_is_not_known_or_not_the_reason(room: Any) -> None:
    [found] = ask(scene(room=(make_cluster("m"), room)), pairs("a", 40)).clusters
    assert "devices" not in found.message


def test_where_none_fits_no_node_is_named() -> None:
    [found] = ask(scene(room=(make_cluster("m"), saying(RACKS, [0] * 5))), pairs("a", 2)).clusters
    assert found.message.endswith("are free for 0 pods; 2 needed")


def test_words_of_a_shape_are_bounded() -> None:
    assert words(PAIR) == "1 gpu with one root"
    ways = [{"name": "a", "deviceClassName": "big"}, {"name": "b", "deviceClassName": "small", "count": 2}]
    requests: list[Any] = [{"name": "r", "firstAvailable": ways}]
    constraints = [{"distinctAttribute": "x/numa"}]
    claims = [{"name": "c", "spec": {"devices": {"requests": requests, "constraints": constraints}}}]
    assert words(claims) == "1 big or 2 small with different values of numa"
    assert len(words([{"name": "c", "spec": {"devices": {"requests": requests * 32}}}])) < 250


def test_all_devices_are_named_with_their_number():
    every = {"deviceClassName": "gpu", "allocationMode": "All", "count": 8}
    assert (
        words([{"spec": {"devices": {"requests": [{"name": "r", "exactly": every}]}}}])
        == "all gpu of a node with exactly 8"
    )
