"""How long an agent may be silent, and when it ends what is exclusive."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from atoll.control.clusters import dated, fenced, patience
from atoll.control.objects import ClusterObject, LeaseObject, decode_cluster, decode_lease
from atoll.control.settings import ClusterSettings
from atoll.model import keys
from atoll.model.timestamps import rfc3339

LONGEST_LEASE = ClusterSettings().longest_lease


@pytest.mark.parametrize(("says", "counts"), [(40, 40), (1, 1), (0, 1), (-5, 1), (2**31 - 1, LONGEST_LEASE)])
def test_a_lease_lasts_no_longer_than_the_host_allows(says: int, counts: int) -> None:
    lease = decode_lease(orjson.dumps({"metadata": {"name": "atoll-agent"}, "spec": {"leaseDurationSeconds": says}}))
    assert patience(lease, LONGEST_LEASE) == counts


@pytest.mark.parametrize(
    ("says", "at"),
    [
        pytest.param({keys.READYZ: "ok", keys.FENCE: "60"}, 1060.0, id="so long after it was heard"),
        pytest.param({keys.READYZ: "timed out", keys.FENCE: "60"}, None, id="not where it can't reach its member"),
        pytest.param({keys.READYZ: "ok"}, None, id="not where it says nothing of that"),
        pytest.param({keys.READYZ: "ok", keys.FENCE: "soon"}, None, id="not where that can't be read"),
        pytest.param({keys.READYZ: "ok", keys.FENCE: "nan"}, None, id="not where that is no number"),
        pytest.param({keys.READYZ: "ok", keys.FENCE: "1e9"}, None, id="not where that is beyond belief"),
    ],
)
def test_an_agent_that_is_silent_ends_what_is_exclusive(says: dict[str, str], at: float | None) -> None:
    lease = _lease("first", says)
    expected = {} if at is None else {"fencedAt": rfc3339(at), "heartbeat": "first"}
    assert fenced({}, lease, 1000.0) == expected


def test_the_time_of_the_fence_stands_until_the_agent_had_contact_again() -> None:
    """1. The agent is silent from 1000 on. 2. Control restarts at 1030. 3. While none ran, the agent was heard once."""
    says = {keys.READYZ: "ok", keys.FENCE: "60"}
    known = fenced({}, _lease("first", says), 1000.0)
    assert fenced(known, _lease("first", says), 1030.0) == known
    assert fenced(known, _lease("second", says), 1030.0)["fencedAt"] == rfc3339(1090.0)


def test_a_taint_that_does_not_say_since_when_is_dated_once_and_goes_with_it() -> None:
    taint = {"key": "broken", "effect": "NoExecute"}
    spec = {"taints": [taint, {"key": "full", "effect": "NoSchedule"}, {**taint, "key": "x", "timeAdded": rfc3339(5)}]}
    first = dated(_cluster(spec, []), 1000.0)
    assert first == [{"key": "broken", "since": rfc3339(1000.0)}]
    assert dated(_cluster(spec, first), 2000.0) == first
    assert dated(_cluster({}, first), 2000.0) == []


def _cluster(spec: dict[str, Any], undated: list[dict[str, Any]]) -> ClusterObject:
    made = {"metadata": {"name": "m"}, "spec": spec, "status": {"undatedTaints": undated}}
    return decode_cluster(orjson.dumps(made))


def _lease(renewed: str, says: dict[str, str]) -> LeaseObject:
    made = {"metadata": {"name": "atoll-agent", "annotations": says}, "spec": {"renewTime": renewed}}
    return decode_lease(orjson.dumps(made))
