"""When pods leave tainted devices, as Kubernetes' device-taint-eviction controller decides."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.model.device_taints import end_of_toleration, eviction
from atoll.model.devices import DeviceId, Taint, Toleration
from atoll.model.timestamps import to_seconds

SINCE = "2026-01-01T00:00:00Z"
START = to_seconds(SINCE)
TAINT = Taint("broken", "ecc", "NoExecute", SINCE)


@pytest.mark.parametrize(
    ("tolerations", "end"),
    [
        pytest.param([], START, id="nothing tolerates it"),
        pytest.param([{"operator": "Exists"}], math.inf, id="for any time"),
        pytest.param([{"key": "broken", "operator": "Exists", "tolerationSeconds": 30}], START + 30, id="for 30 s"),
        pytest.param([{"operator": "Exists", "tolerationSeconds": -5}], START, id="below 0 is 0"),
        pytest.param(
            [{"operator": "Exists", "tolerationSeconds": 30}, {"operator": "Exists"}],
            START + 30,
            id="the shortest counts",
        ),
        pytest.param([{"key": "other", "operator": "Exists", "tolerationSeconds": 30}], START, id="another key"),
        pytest.param([{"operator": "Exists", "effect": "NoSchedule"}], START, id="another effect"),
        pytest.param([{"key": "broken", "value": "heat"}], START, id="another value"),
    ],
)
def test_end_of_toleration(tolerations: list[dict[str, Any]], end: float) -> None:
    assert end_of_toleration(TAINT, map(Toleration.of, tolerations)) == end


@given(st.lists(st.one_of(st.none(), st.integers(-10, 10**6)), max_size=6))
def test_no_toleration_ends_before_the_taint_came(seconds: list[int | None]) -> None:
    """Nor does one more toleration for any time change a bounded one."""
    found = [Toleration("", "Exists", "", "", each) for each in seconds]
    end = end_of_toleration(TAINT, found)
    assert end >= START
    if seconds:
        assert end_of_toleration(TAINT, [*found, Toleration("", "Exists", "", "")]) == end


def test_the_first_device_that_evicts_is_named() -> None:
    """Of three devices one has a taint that only keeps others out, and two evict, the second one earlier."""
    earlier = TAINT._replace(since="2025-12-31T00:00:00Z", value="")
    taints = {"a": (TAINT._replace(effect="NoSchedule"),), "b": (TAINT,), "c": (earlier,)}

    def allocation(*names: str, **more: Any) -> dict[str, Any]:
        results = [{"request": "r", "driver": "d", "pool": "p", "device": each, **more} for each in names]
        return {"devices": {"results": results}}

    def of(device: DeviceId) -> tuple[Taint, ...]:
        return taints[device.name]

    found = eviction(allocation("a", "b", "c"), of)
    assert found is not None
    assert (found.at, found.why) == (to_seconds(earlier.since), "device d/p/c has taint broken:NoExecute")
    alone = eviction(allocation("b"), of)
    assert alone is not None
    assert alone.why == "device d/p/b has taint broken=ecc:NoExecute"
    assert eviction(allocation("a"), of) is None
    assert eviction(allocation("b", "c", tolerations=[{"operator": "Exists"}]), of) is None
    assert eviction({}, of) is None
