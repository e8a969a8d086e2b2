"""Which Jobs of a HyperJob are made, and what its status says."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.control.makers.hyper import plan
from atoll.control.makers.making import Plan
from atoll.model import keys
from atoll.model.together import Together, read, write

Json = dict[str, Any]
NOW = "2026-01-01T00:00:00Z"
TEMPLATE: Json = {
    "queue": "q",
    "minAvailable": 3,
    "tasks": [
        {"name": "server", "replicas": 1, "template": {"spec": {}}},
        {"name": "worker", "replicas": 4, "minAvailable": 2, "template": {"spec": {}}},
    ],
}


def group(name: str = "t", replicas: int = 2, *, mode: str = "", **more: Any) -> Json:
    split = {"splitPolicy": {"mode": mode}} if mode else {}
    return {"name": name, "replicas": replicas, "templateSpec": TEMPLATE, **split, **more}


def hyper(*groups: Json, status: Json | None = None, **spec: Any) -> Json:
    metadata = {"name": "h", "namespace": "ns", "uid": "u", "generation": 4}
    return {"metadata": metadata, "spec": {"replicatedJobs": list(groups), **spec}, "status": status or {}}


def job(name: str, phase: str) -> Json:
    return {"metadata": {"name": name}, "status": {"state": {"phase": phase, "message": "so"}}}


def look(obj: Json, *jobs: Json, taken: tuple[str, ...] = ()) -> Plan:
    return plan(obj, jobs, taken.__contains__, NOW)


def made(found: Plan) -> list[str]:
    return [each["metadata"]["name"] for each in found.create]


def test_a_job_is_made_of_each_replica_for_its_members() -> None:
    found = look(hyper(group(clusterNames=["east", "west"]), group("d", 1)))
    assert made(found) == ["h-t-0", "h-t-1", "h-d-0"]
    first, _, last = found.create
    assert first["spec"] == TEMPLATE
    assert first["metadata"]["annotations"] == {keys.ONLY_CLUSTERS: "east,west"}
    assert last["metadata"]["annotations"] == {}
    assert first["metadata"]["labels"] == {"volcano.sh/hyperjob-name": "h", "volcano.sh/replicatedjob-name": "t"}
    assert first["metadata"]["ownerReferences"][0]["controller"] is True
    assert found.status["splitCount"] == 3
    assert found.status["replicatedJobsStatus"][0]["pending"] == 2


@pytest.mark.parametrize(
    ("spec", "least", "most"),
    [
        pytest.param({}, (9, 3, 6), "any", id="all replicas, over any number of members"),
        pytest.param({"minAvailable": 2, "maxDomains": 2}, (6, 2, 4), "2", id="two replicas, over two members"),
    ],
)
def test_auto_is_one_gang_of_all_replicas(spec: Json, least: tuple[int, int, int], most: str) -> None:
    found = look(hyper(group(replicas=3, mode="auto"), **spec))
    [only] = found.create
    assert only["metadata"]["name"] == "h-t-0"
    assert only["metadata"]["annotations"] == {keys.DIVIDED: most}
    server, worker = only["spec"]["tasks"]
    assert (server["replicas"], worker["replicas"]) == (3, 12)
    assert (only["spec"]["minAvailable"], server["minAvailable"], worker["minAvailable"]) == least


def together(*jobs: Json) -> dict[str, Together | None]:
    return {
        each["metadata"]["name"]: read((each["metadata"].get("annotations") or {}).get(keys.TOGETHER)) for each in jobs
    }


def test_the_jobs_of_so_many_replicas_start_together() -> None:
    found = look(hyper(group(), group("d", 3, mode="auto"), minAvailable=4))
    assert together(*found.create) == {
        "h-t-0": Together("u", 4),
        "h-t-1": Together("u", 4),
        "h-d-0": Together("u", 4, 3),
    }
    assert found.create[2]["spec"]["minAvailable"] == 9, "of a Job that is one of several all replicas start"
    assert set(together(*look(hyper(group())).create).values()) == {None}
    assert set(together(*look(hyper(group(mode="auto"), minAvailable=2)).create).values()) == {None}


def test_the_jobs_of_several_groups_keep_to_so_many_members() -> None:
    found = look(hyper(group(), group("d", 3, mode="auto"), maxDomains=2))
    assert together(*found.create) == {
        "h-t-0": Together("u", 1, 1, 2),
        "h-t-1": Together("u", 1, 1, 2),
        "h-d-0": Together("u", 1, 3, 2),
    }
    assert found.create[2]["metadata"]["annotations"][keys.DIVIDED] == "2"


def test_what_ended_and_is_gone_is_not_waited_for() -> None:
    obj = hyper(group(replicas=3), minAvailable=3)
    jobs = look(obj).create
    for each in jobs:
        each["status"] = {"state": {"phase": "Running"}}
    assert look(obj, *jobs).note == []
    jobs[0]["status"]["state"]["phase"] = "Completed"
    ended = look(obj, *jobs)
    assert ended.note == []
    assert look({**obj, "status": ended.status}, *jobs[1:]).note == [
        (name, {keys.TOGETHER: write(Together("u", 2))}) for name in ("h-t-1", "h-t-2")
    ]


def test_a_changed_minimum_is_told_to_what_has_not_ended() -> None:
    jobs = look(hyper(group(), minAvailable=2)).create
    jobs[1]["status"] = {"state": {"phase": "Completed"}}
    assert look(hyper(group()), *jobs).note == [("h-t-0", {keys.TOGETHER: None})]


def test_a_job_that_ended_and_is_gone_never_runs_again() -> None:
    before = look(hyper(group()), job("h-t-0", "Completed"), job("h-t-1", "Running"))
    assert made(before) == []
    after = look(hyper(group(), status=before.status), job("h-t-1", "Running"))
    assert made(after) == []
    assert after.status["replicatedJobsStatus"][0]["jobStates"]["h-t-0"]["phase"] == "Completed"


def test_a_job_that_was_removed_before_its_end_is_made_again() -> None:
    before = look(hyper(group()), job("h-t-0", "Running"), job("h-t-1", "Running"))
    assert made(look(hyper(group(), status=before.status), job("h-t-1", "Running"))) == ["h-t-0"]


@pytest.mark.parametrize(
    ("phases", "condition"),
    [
        pytest.param(("Completed", "Completed"), "Completed", id="all are Completed"),
        pytest.param(("Completed", "Failed"), "Failed", id="one failed and all have ended"),
        pytest.param(("Terminated", "Completed"), "Failed", id="a terminated one, too"),
        pytest.param(("Running", "Failed"), None, id="others still run"),
        pytest.param(("Aborted", "Completed"), None, id="an aborted one can be resumed"),
    ],
)
def test_it_ends_once_all_its_jobs_have(phases: tuple[str, str], condition: str | None) -> None:
    found = look(hyper(group()), job("h-t-0", phases[0]), job("h-t-1", phases[1]))
    assert [each["type"] for each in found.status.get("conditions", ())] == ([condition] if condition else [])
    assert [each.reason for each in found.news] == ([condition] if condition else [])


def test_what_has_ended_stays_so_and_makes_nothing() -> None:
    done = look(hyper(group()), job("h-t-0", "Completed"), job("h-t-1", "Completed")).status
    later = look(hyper(group(replicas=3), status=done))
    assert (made(later), later.delete, later.news) == ([], [], [])
    assert later.status["conditions"] == done["conditions"]


def test_a_name_that_another_has_taken_is_waited_for() -> None:
    found = look(hyper(group()), taken=("h-t-0",))
    assert made(found) == ["h-t-1"]
    assert found.status["replicatedJobsStatus"][0]["pending"] == 2


def test_jobs_beyond_fewer_replicas_go() -> None:
    found = look(hyper(group(replicas=1)), job("h-t-0", "Running"), job("h-t-1", "Running"))
    assert found.delete == ["h-t-1"]


def test_one_that_is_deleted_makes_nothing() -> None:
    obj = hyper(group())
    obj["metadata"]["deletionTimestamp"] = NOW
    assert made(look(obj)) == []
