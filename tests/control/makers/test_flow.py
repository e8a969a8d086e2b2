"""Which Jobs of a JobFlow are made when, and what the flow says meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.control.makers.flow import merged, plan
from atoll.control.makers.making import Plan
from atoll.model import keys, probes
from atoll.model.apiresource import JOB_FLOWS

Json = dict[str, Any]


def step(name: str, *targets: str, probe: Json | None = None, patch: Json | None = None) -> Json:
    depends = {"targets": list(targets), **({"probe": probe} if probe else {})}
    return {"name": name, **({"dependsOn": depends} if targets else {}), **({"patch": patch} if patch else {})}


def make_flow(*steps: Json, status: Json | None = None, **spec: Any) -> Json:
    metadata = {"name": "f", "namespace": "ns", "uid": "flow"}
    return {"metadata": metadata, "spec": {"flows": list(steps), **spec}, **({"status": status} if status else {})}


def template(name: str) -> Json:
    tasks = [{"name": "w", "replicas": 2, "template": {"spec": {"containers": [{"name": "c", "image": name}]}}}]
    return {"metadata": {"name": name, "labels": {"team": "a"}}, "spec": {"queue": "q", "tasks": tasks}}


def job(phase: str, *, owner: str = "flow", pods: Json | None = None, **status: Any) -> Json:
    counted = {"taskStatusCount": {"w": {"phase": pods}}} if pods else {}
    return {
        "metadata": {
            "name": "?",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"uid": owner, "controller": True}],
        },
        "spec": template("t")["spec"],
        "status": {"state": {"phase": phase}, **counted, **status},
    }


def look(flow: Json, *, refused: dict[str, str] | None = None, missing: tuple[str, ...] = (), **jobs: Any) -> Plan:
    """Jobs by the name of their step."""
    named = {f"f-{name}": each for name, each in jobs.items()}
    return plan(flow, lambda name: None if name in missing else template(name), named.get, refused or {})


def made(found: Plan) -> list[str]:
    return [each["metadata"]["name"] for each in found.create]


DIAMOND = [step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c")]
RUNS = {"taskStatusList": [{"taskName": "w", "phase": "Running"}]}
CASES: list[tuple[str, Json, dict[str, Json], list[str], str, str]] = [
    ("what depends on nothing is made", make_flow(*DIAMOND), {}, ["f-a"], "Pending", "b: a has not started"),
    ("what follows waits while it runs", make_flow(*DIAMOND), {"a": job("Running")}, [], "Running", "b: a is Running"),
    ("both branches of a diamond", make_flow(*DIAMOND), {"a": job("Completed")}, ["f-b", "f-c"], "Running", "d: b has"),
    (
        "all targets are waited for",
        make_flow(*DIAMOND),
        {"a": job("Completed"), "b": job("Completed"), "c": job("Running")},
        [],
        "Running",
        "d: c is Running",
    ),
    (
        "all are Completed",
        make_flow(step("a"), step("b", "a")),
        {"a": job("Completed"), "b": job("Completed")},
        [],
        "Succeed",
        "",
    ),
    (
        "one that failed fails the flow, and nothing more is made",
        make_flow(step("a"), step("b", "a"), step("c")),
        {"a": job("Completed"), "c": job("Failed")},
        [],
        "Failed",
        "f-c is Failed",
    ),
    ("a terminated one, too", make_flow(step("a"), step("b")), {"a": job("Terminated")}, [], "Failed", "f-a is Term"),
    ("an aborted one can be resumed", make_flow(step("a")), {"a": job("Aborted")}, [], "Running", ""),
    (
        "a probe is met before the target ends",
        make_flow(step("a"), step("b", "a", probe=RUNS)),
        {"a": job("Running", pods={"Running": 1, "Succeeded": 1})},
        ["f-b"],
        "Running",
        "",
    ),
    (
        "a probe counts pods",
        make_flow(step("a"), step("b", "a", probe=RUNS)),
        {"a": job("Running", pods={"Running": 1, "Pending": 1})},
        [],
        "Running",
        "b: 1 of 2 pods of task w of a are Running",
    ),
    (
        "a probe of a task that there is not",
        make_flow(step("a"), step("b", "a", probe={"taskStatusList": [{"taskName": "x", "phase": "Running"}]})),
        {"a": job("Running")},
        [],
        "Running",
        "b: a has no task x",
    ),
    (
        "a Job of that name of another",
        make_flow(step("a")),
        {"a": job("Running", owner="x")},
        [],
        "Pending",
        "a: there is",
    ),
]


@pytest.mark.parametrize(
    ("flow", "jobs", "create", "phase", "message"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_steps(flow: Json, jobs: dict[str, Any], create: list[str], phase: str, message: str) -> None:
    found = look(flow, **jobs)
    assert made(found) == create
    state = found.status["state"]
    assert state["phase"] == phase
    assert state.get("message", "").startswith(message) if message else "message" not in state


def test_a_template_that_is_missing_is_waited_for() -> None:
    found = look(make_flow(step("a"), step("b")), missing=("b",))
    assert (made(found), found.status["state"]["message"]) == (["f-a"], "b: there is no JobTemplate b")


def test_a_job_belongs_to_its_flow_and_says_what_made_it() -> None:
    [found] = look(make_flow(step("a"))).create
    assert found["metadata"]["ownerReferences"][0]["kind"] == JOB_FLOWS.kind
    assert found["metadata"]["labels"] == {
        "team": "a",
        "volcano.sh/createdByJobTemplate": "ns.a",
        "volcano.sh/createdByJobFlow": "ns.f",
    }
    assert found["spec"]["queue"] == "q"


def test_a_patch_changes_the_template_of_its_step_alone() -> None:
    patch = {"jobSpec": {"queue": "other", "tasks": [{"name": "w", "replicas": 5}, {"name": "x"}], "minSuccess": 1}}
    [found] = look(make_flow(step("a", patch=patch))).create
    spec = found["spec"]
    assert (spec["queue"], spec["minSuccess"], [task["name"] for task in spec["tasks"]]) == ("other", 1, ["w", "x"])
    assert spec["tasks"][0]["replicas"] == 5
    assert spec["tasks"][0]["template"] == template("a")["spec"]["tasks"][0]["template"]


@pytest.mark.parametrize(
    ("base", "patch", "result"),
    [
        ({"a": 1, "b": 2}, {"a": None, "b": 3}, {"b": 3}),
        ([{"name": "a", "x": 1}], [{"name": "a", "y": 2}], [{"name": "a", "x": 1, "y": 2}]),
        ([1, 2], [3], [3]),
        ([{"x": 1}], [{"name": "a"}], [{"name": "a"}]),
        ([], [{"name": "a"}], [{"name": "a"}]),
    ],
    ids=["null removes", "lists by name", "other lists are replaced", "of unlike items", "an empty one"],
)
def test_merge(base: Any, patch: Any, result: Any) -> None:
    assert merged(base, patch) == result


def test_what_is_completed_and_gone_is_remembered() -> None:
    """1. a is Completed and the status says so. 2. Its time to live ends. 3. b begins, and a is not made again."""
    flow = make_flow(step("a"), step("b", "a"))
    flow["status"] = look(flow, a=job("Completed", runningDuration="3s")).status
    found = look(flow)
    assert made(found) == ["f-b"]
    assert found.status["completedJobs"] == ["f-a"]
    assert found.status["conditions"]["f-a"]["runningDuration"] == "3s"


def test_what_is_removed_before_its_end_is_made_again() -> None:
    flow = make_flow(step("a"))
    flow["status"] = look(flow, a=job("Running")).status
    assert made(look(flow)) == ["f-a"]


def test_jobs_go_with_the_success_where_that_is_asked_for_and_are_not_made_again() -> None:
    flow = make_flow(step("a"), jobRetainPolicy="delete")
    done = look(flow, a=job("Completed"))
    assert done.delete == ["f-a"]
    flow["status"] = done.status
    after = look(flow)
    assert (after.delete, after.create, after.status["state"]["phase"]) == ([], [], "Succeed")
    assert look(make_flow(step("a"), jobRetainPolicy="delete"), a=job("Failed")).delete == []


def test_a_flow_that_failed_stays_failed() -> None:
    flow = make_flow(step("a"), step("b", "a"))
    flow["status"] = look(flow, a=job("Failed")).status
    after = look(flow)
    assert (made(after), after.status["state"]["phase"], after.status["state"]["message"]) == (
        [],
        "Failed",
        "f-a is Failed",
    )


def test_what_admission_refuses_is_said_and_tried_again() -> None:
    found = look(make_flow(step("a")), refused={"f-a": "queue q is closed"})
    assert (made(found), found.status["state"]["message"]) == (["f-a"], "a: queue q is closed")


def test_a_flow_on_its_way_out_makes_nothing() -> None:
    flow = make_flow(step("a"))
    flow["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert (look(flow).create, look(flow).status["state"]["phase"]) == ([], "Terminating")


def test_its_end_is_told_once() -> None:
    flow = make_flow(step("a"))
    first = look(flow, a=job("Completed"))
    assert [each.reason for each in first.news] == ["Succeed"]
    flow["status"] = first.status
    assert look(flow, a=job("Completed")).news == []


# -- requests ----------------------------------------------------------------------------------------------------------

PROBED = {
    "httpGetList": [{"taskName": "w", "path": "/ready", "port": 80, "httpHeader": {"name": "X-A", "value": "b"}}],
    "tcpSocketList": [{"taskName": "w", "port": 22}],
}


def probed(*outcomes: Json, phase: str = "Running") -> Json:
    """The Job of step `a` as the flow made it, with what came of its probes."""
    flow = make_flow(step("a"), step("b", "a", probe=PROBED))
    [made_first] = look(flow).create
    found = job(phase, probes=list(outcomes))
    found["metadata"]["annotations"] = made_first["metadata"]["annotations"]
    return found


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (probed({"answered": 2}, {"answered": 2}), ""),
        (probed(phase="Completed"), ""),
        (
            probed({"answered": 1, "message": "m1: pod x: refused"}, {"answered": 2}),
            "b: 1 of 2 pods answer on port 80 of task w (/ready) of a (m1: pod x: refused)",
        ),
        (probed(), "b: 0 of 2 pods answer on port 80 of task w (/ready) of a (no member has tried it)"),
        (
            job("Running", probes=[{"answered": 2}, {"answered": 2}]),
            "b: port 80 of task w (/ready) of a is not tried: its Job was made before the flow asked for that",
        ),
    ],
    ids=["all answer", "it is Completed", "one does not answer", "nothing was tried", "it does not know of the probe"],
)
def test_a_step_waits_until_pods_answer(target: Json, message: str) -> None:
    found = look(make_flow(step("a"), step("b", "a", probe=PROBED)), a=target)
    assert made(found) == ([] if message else ["f-b"])
    assert found.status["state"].get("message", "") == message


def test_a_job_carries_what_later_steps_ask_of_it_once() -> None:
    flow = make_flow(step("a"), step("b", "a", probe=PROBED), step("c", "a", probe=PROBED))
    [found] = look(flow).create
    assert len(probes.decode(found["metadata"]["annotations"][keys.PROBES])) == 2
    assert keys.PROBES not in found["metadata"]["labels"]
