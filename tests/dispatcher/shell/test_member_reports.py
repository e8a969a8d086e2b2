"""What Clusters show of members that are not trusted, without a server."""

from __future__ import annotations

from typing import Any

import orjson

from atoll.dispatcher import objects
from atoll.dispatcher.core.events import Circuit, Failure
from atoll.dispatcher.members import status_patch
from atoll.model import keys

NOW = 1_800_000_000.0
READY = {"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "", "lastTransitionTime": "x"}


def cluster(*conditions: Any, ceiling: str = "", **status: Any) -> objects.ClusterObject:
    meta = {"name": "m", "uid": "u", "resourceVersion": "7", "annotations": {keys.CEILING: ceiling} if ceiling else {}}
    said = {"conditions": [READY, *conditions], **status}
    return objects.decode_cluster(orjson.dumps({"metadata": meta, "status": said}))


def said(patch: Any, type_: str) -> Any:
    return next((each for each in patch["status"]["conditions"] if each["type"] == type_), None)


def test_of_a_member_that_does_what_it_should_nothing_is_written() -> None:
    assert status_patch(cluster(ceiling="cpu=3"), None, {}, NOW) is None


def test_an_open_breaker_is_a_condition_and_a_state_that_the_next_leader_reads() -> None:
    circuit = Circuit(True, 2, NOW + 60, Failure.NOT_REMOVED, True)
    patch = status_patch(cluster(), circuit, {}, NOW)
    assert patch is not None
    assert patch["metadata"] == {"uid": "u", "resourceVersion": "7"}
    assert patch["status"]["conditions"][0] == READY, "control's stay as they are"
    found = said(patch, "TakesWork")
    assert (found["status"], found["reason"]) == ("False", "RemovalNotConfirmed")
    assert "one workload is tried at 2027-01-15T08:01:00Z" in found["message"]
    written = cluster(found, circuit=patch["status"]["circuit"])
    assert objects.circuit_of(written) == Circuit(True, 2, NOW + 60, Failure.NOT_REMOVED)
    assert status_patch(written, circuit, {}, NOW + 5) is None, "said once"
    trial = status_patch(written, Circuit(True, 2, NOW + 60, Failure.NOT_REMOVED), {}, NOW + 61)
    assert said(trial, "TakesWork")["status"] == "Unknown"
    closed = status_patch(written, None, {}, NOW + 90)
    assert said(closed, "TakesWork")["status"] == "True"
    assert closed is not None
    assert closed["status"]["circuit"] is None


def test_a_state_that_can_t_be_read_is_none() -> None:
    assert objects.circuit_of(cluster(circuit={"open": True, "until": "soon"})) is None
    assert objects.circuit_of(cluster()) is None


def test_what_of_its_figures_is_not_used_is_named() -> None:
    patch = status_patch(cluster(), None, {"b": "wrong", "a": "spec.root: no"}, NOW)
    found = said(patch, "CapacityAccepted")
    assert found["message"] == "ClusterCapacity a (and 1 other) is not used: spec.root: no"
    mended = status_patch(cluster(found), None, {}, NOW)
    assert said(mended, "CapacityAccepted")["status"] == "True"


def test_a_ceiling_that_can_t_be_read_keeps_new_work_away_and_says_so() -> None:
    wrong = cluster(ceiling="a lot")
    assert objects.cluster_view(wrong).ceiling == {"pods": 0}
    found = said(status_patch(wrong, None, {}, NOW), "CeilingValid")
    assert "'a lot': write resource=quantity" in found["message"]
    assert objects.cluster_view(cluster(ceiling="nvidia.com/gpu=2, cpu=500m")).ceiling == {
        "nvidia.com/gpu": 2,
        "cpu": 500,
    }


def test_a_taint_without_a_date_counts_from_when_control_saw_it() -> None:
    taint, at = {"key": "broken", "effect": "NoExecute"}, "2026-11-23T10:00:00.000Z"
    dated = {**taint, "key": "other", "timeAdded": "2026-01-01T00:00:00Z"}
    made = {
        "metadata": {"name": "m"},
        "spec": {"taints": [taint, dated, {**taint, "effect": "NoSchedule"}]},
        "status": {"undatedTaints": [{"key": "broken", "since": at}, {"key": "other", "since": at}]},
    }
    view = objects.cluster_view(objects.decode_cluster(orjson.dumps(made)))
    assert view.taints == ({**taint, "timeAdded": at}, dated, {**taint, "effect": "NoSchedule"})
