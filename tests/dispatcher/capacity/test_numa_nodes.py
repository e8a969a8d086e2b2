"""What NUMA nodes of each kind of node have rules out on the host what no node could ever align."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from atoll.dispatcher.core import CapacitySet, Dispatch, Explain
from atoll.model.numa import Cells, Policy
from tests.dispatcher.builders import make_binding, make_capacity, make_cluster, scene

SINGLE = Cells(Policy.SINGLE, ("cpu",), ((8,), (8,)), ((8,), (8,)))


@pytest.mark.parametrize(
    ("wish", "fits"),
    [
        pytest.param({"aligned": [{"cpu": 8}]}, True, id="one NUMA node has as many"),
        pytest.param({"aligned": [{"cpu": 9}]}, False, id="none ever has"),
        pytest.param({"aligned": [{"cpu": 8}, {"cpu": 8}]}, True, id="each container by itself"),
        pytest.param({"aligned": [{"cpu": 2}], "numa": "restricted"}, False, id="another policy"),
        pytest.param({"aligned": [{"gpu": 9}]}, True, id="nothing is known of such devices"),
        pytest.param({}, True, id="shares of CPUs"),
    ],
)
def test_what_no_node_could_ever_align_is_sent_to_no_member_and_told(wish: dict[str, Any], fits: bool) -> None:
    published = make_capacity("m", [4, 4]).capacity
    classes = tuple(dataclasses.replace(each, numa=SINGLE) for each in published.classes)
    capacity = CapacitySet(dataclasses.replace(published, classes=classes, aligns=True))
    s = scene(room=(make_cluster("m"), capacity))
    [command] = s.submit(make_binding("a").tasks(1, **wish)).run()
    assert isinstance(command, Dispatch) == fits
    if not fits:
        assert isinstance(command, Explain)
        blocker = command.decision.blocker
        assert blocker is not None
        assert "even if it were empty" in blocker.message
