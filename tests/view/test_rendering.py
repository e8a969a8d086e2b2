"""What the commands print, from objects to tables and explanations."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.model import ages, gang, keys
from atoll.model.decision import Line, Phase
from atoll.model.timestamps import to_seconds
from atoll.model.verdict import Blocker, Reason
from atoll.view import explanation, jobs, queues, tables
from atoll.view.bindings import use_by_queue, views, waiting_line
from tests.view.made import NOW, T0, binding, described, job, queue, told

Json = dict[str, Any]

QUOTA = Blocker("Queue", "research", "nvidia.com/gpu", "16", "4")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (330, "5m30s"), (3599, "59m"), (4 * 3600 + 60, "4h1m"), (30 * 3600, "30h"),
     (2 * 86400 + 3600, "2d1h"), (100 * 86400, "100d"), (800 * 86400, "2y")],
)  # fmt: skip
def test_lengths_of_time_read_as_in_kubectl(seconds: int, text: str) -> None:
    assert ages.duration(seconds) == text


def test_a_table_is_aligned_and_ends_without_spaces() -> None:
    text = tables.table(("NAME", "AGE"), [["a", ""], ["longer", "3s"]])
    assert text.splitlines() == ["NAME     AGE", "a        <none>", "longer   3s"]
    assert tables.table(("NAME",), [["a"]], no_headers=True) == "a"


def test_a_queue_counts_and_charges_by_phase() -> None:
    found = views(
        [
            binding("a", phase=Phase.DISPATCHED, conditions=("Bound",)),
            binding("b", phase=Phase.EVICTING, conditions=("Bound",)),
            binding("c"),
            binding("e", phase=Phase.DISPATCHED),
            binding("d", phase=Phase.DISPATCHED, conditions=("Finished",)),
        ]
    )
    use = use_by_queue(found)["research"]
    assert (use.pending, use.inqueue, use.running) == (1, 1, 2)
    assert use.used == {"cpu": 24000, "nvidia.com/gpu": 48, "atoll.sh/any-gpu-milli": 48000, "pods": 6}


def test_a_queue_is_listed_as_its_status_tells() -> None:
    used = {"cpu": "24", "nvidia.com/gpu": "48", "pods": "6", "memory": "0"}
    busy = told(queue(priority=5, capability={"cpu": "64"}), pending=1, inqueue=1, running=2, allocated=used)
    busy["spec"] |= {"deserved": {"cpu": "32"}, "guarantee": {"resource": {"cpu": "8"}}}
    assert queues.rows([busy, queue("idle")], NOW, wide=True) == [
        ["idle", "Open", 0, 0, 0, 0, "", "", "", "60s", 1, "", ""],
        ["research", "Open", 5, 1, 1, 2, "cpu=24,nvidia.com/gpu=48", "cpu=32", "cpu=64", "60s", 1, "", "cpu=8"],
    ]


def test_a_job_that_is_bound_and_does_not_run_says_so() -> None:
    bound = binding("a", phase=Phase.DISPATCHED, clusters=("east",))
    bound["status"] = {
        "conditions": [{"type": "Bound", "status": "True"}],
        "aggregatedStatus": [
            {"clusterName": "east", "status": {"placement": {"starting": "ImagePullBackOff (pod a-0)"}}}
        ],
    }
    [row] = jobs.rows([job("a", pending=2)], jobs.by_workload([bound]), NOW, namespaced=False, wide=True)
    assert row[-1] == "bound, containers don't run yet: east: ImagePullBackOff (pod a-0)"


def test_jobs_say_where_they_run_and_why_they_wait() -> None:
    found = jobs.by_workload([binding("a", phase=Phase.DISPATCHED, clusters=("east",)), binding("b", blocker=QUOTA)])
    rows = jobs.rows(
        [job("a", state={"phase": "Running"}, running=2), job("b"), job("c")], found, NOW, namespaced=True, wide=True
    )
    assert rows[0] == ["team", "a", "research", "Running", "east", 0, 2, 0, 0, "60s", ""]
    assert rows[1][4] == ""
    assert rows[1][-1] == (
        "it would exceed its queue's capability: queue research has 4 nvidia.com/gpu free for it, 16 needed"
    )
    assert rows[2][-1] == "not seen by atoll-control"


def test_the_line_of_a_queue_is_by_priority_then_age_then_uid() -> None:
    found = views(
        [
            binding("late", submitted="2027-01-15T08:00:00Z"),
            binding("y"),
            binding("x"),
            binding("high", priority=7, submitted="2027-01-15T08:00:00Z"),
            binding("running", phase=Phase.DISPATCHED),
        ]
    )
    assert [item.name for item in waiting_line(found, "research")] == ["high-job", "x-job", "y-job", "late-job"]


MAKERS = {
    "a JobFlow": ("flow.volcano.sh/v1alpha1", "JobFlow"),
    "a HyperJob": ("training.volcano.sh/v1alpha1", "HyperJob"),
    "a CronJob of Volcano": ("batch.volcano.sh/v1alpha1", "CronJob"),
    "a CronJob of Kubernetes": ("batch/v1", "CronJob"),
}


@pytest.mark.parametrize(("version", "kind"), MAKERS.values(), ids=MAKERS)
def test_what_makes_workloads_is_explained_by_these(version: str, kind: str) -> None:
    maker = {**job("nightly"), "apiVersion": version, "kind": kind}
    made = [
        (job("nightly-1", state={"phase": "Completed"}), None),
        (job("nightly-2"), binding("nightly-2", blocker=QUOTA)),
    ]
    data = explanation.explain(explanation.Facts(maker, made=made), NOW)
    assert [(each["name"], "reason" in each) for each in data["makes"]["workloads"]] == [
        ("nightly-1", True),
        ("nightly-2", True),
    ]
    text = explanation.text(data)
    assert "does not run" not in text
    assert "it would exceed its queue's capability" in text


def steps(data: Json) -> dict[str, str]:
    return {step["step"]: step["state"] for step in data["steps"]}


def current(data: Json) -> str | None:
    return next((step["step"] for step in data["steps"] if step["state"] == "current"), None)


def test_a_waiting_workload_has_numbers_and_help() -> None:
    place = told(queue(capability={"nvidia.com/gpu": "20"}), allocated={"nvidia.com/gpu": "16"}, running=1, pending=2)
    data = explanation.explain(explanation.Facts(job(), binding(blocker=QUOTA), [place]), NOW)
    waiting = data["waiting"]
    assert waiting["blocker"] == {
        "kind": "Queue", "name": "research", "resource": "nvidia.com/gpu", "requested": "16", "available": "4"
    }  # fmt: skip
    assert "12 more nvidia.com/gpu" in waiting["help"][0]
    assert current(data) == "queued"
    lines = explanation.text(data).splitlines()
    assert "Queue research: Open, 1 running, 2 waiting" in lines
    assert "  nvidia.com/gpu       16 of 20" in lines
    assert "Waits for 60s" in lines


def test_where_nothing_is_to_be_done_that_is_said_and_why() -> None:
    for reason in (Reason.ASKING_MEMBERS, Reason.AWAITING_VICTIMS, Reason.RECLAIMED):
        lines = explanation.text(
            explanation.explain(explanation.Facts(job(), binding(reason=reason)), NOW)
        ).splitlines()
        assert any(line.startswith("  to do     nothing: ") for line in lines)
        assert not any("would help: nothing" in line for line in lines)


def test_the_run_time_that_a_workload_states_is_shown() -> None:
    found = binding()
    notes = found["metadata"]["annotations"]
    wish = msgspec.structs.replace(gang.decode(notes[keys.GANG]), running_estimate=6 * 3600.0)
    notes[keys.GANG] = gang.encode(wish)
    data = explanation.explain(explanation.Facts(job(), found), NOW)
    assert data["gang"]["runningEstimate"] == "6h"
    assert "  estimate  runs for 6h" in explanation.text(data).splitlines()


def test_how_its_groups_are_apart_and_its_pods_balanced_is_shown() -> None:
    found = binding()
    notes = found["metadata"]["annotations"]
    apart, over = gang.TopologyWish("hard", None, "rack"), gang.TopologyWish("soft", 2)
    wish = msgspec.structs.replace(gang.decode(notes[keys.GANG]), apart=apart, balanced=over)
    notes[keys.GANG] = gang.encode(wish)
    lines = explanation.text(explanation.explain(explanation.Facts(job(), found), NOW)).splitlines()
    assert "  apart     hard, groups in different domains of tier rack" in lines
    assert "  balanced  over domains of tier 2" in lines


def test_a_queue_is_explained_with_the_limits_that_the_dispatcher_knows() -> None:
    mine = binding(phase=Phase.DISPATCHED, reason=Reason.DISPATCHED, clusters=("east",))
    above = {**queue("lab", capability={"cpu": "64"}), "status": {"state": "Closing"}}
    figures = [{"resource": "cpu", "used": "8", "limit": "64"}, {"resource": "memory", "used": "0"}]
    facts = explanation.Facts(
        job(), mine, [told(queue(parent="lab"), inqueue=1), above], verdict={"phase": "Dispatched", "figures": figures}
    )
    lines = explanation.text(explanation.explain(facts, NOW)).splitlines()
    assert "Queue research: Open (lab is Closing), 1 running, 0 waiting" in lines
    assert "  cpu                  8 of 64" in lines
    assert "  memory               0 of unlimited" in lines


def test_a_queue_that_is_invalid_is_explained_with_the_reason() -> None:
    mine = binding(reason=Reason.QUEUE_INVALID)
    data = explanation.explain(explanation.Facts(job(), mine, [told(queue(), "queue research: what a mess")]), NOW)
    assert "  INVALID   queue research: what a mess" in explanation.text(data).splitlines()


def test_what_its_user_may_not_see_is_named() -> None:
    facts = explanation.Facts(job(), leases=None, namespace_labels=None, unseen=("Works (no right to list works)",))
    data = explanation.explain(facts, NOW)
    assert data["why"]["reason"] == "NoBinding"
    assert "  not shown  Works (no right to list works)" in explanation.text(data).splitlines()


@pytest.mark.parametrize(
    ("conditions", "status", "expected"),
    [
        pytest.param((), {}, "dispatched", id="just dispatched"),
        pytest.param(("FullyApplied",), {}, "work delivered", id="applied in the member"),
        pytest.param(("FullyApplied", "Bound"), {}, "pods bound", id="pods have nodes"),
        pytest.param(("FullyApplied", "Bound"), {"running": 2}, "running", id="pods run"),
        pytest.param(("Bound",), {}, "pods bound", id="a later condition implies the earlier ones"),
        pytest.param(("FullyApplied", "Bound", "Finished"), {}, None, id="finished, nothing is current"),
    ],
)
def test_the_way_follows_the_binding(conditions: tuple[str, ...], status: Json, expected: str | None) -> None:
    mine = binding(phase=Phase.DISPATCHED, reason=Reason.DISPATCHED, clusters=("east",), conditions=conditions)
    data = explanation.explain(explanation.Facts(job(**status), mine), NOW)
    assert current(data) == expected
    states = list(steps(data).values())
    assert states == sorted(states, key=["done", "current", "ahead"].index)
    assert "waiting" not in data


def test_clusters_tell_nodes_domain_and_why_pods_wait() -> None:
    report = {
        "clusterName": "east",
        "applied": True,
        "status": {
            "running": 2,
            "placement": {"nodes": {"n1": 2}, "domain": "rack-0", "tier": 1, "waiting": "1 pod has no node"},
        },
    }
    mine = binding(phase=Phase.DISPATCHED, clusters=("east", "west"), reports=(report,))
    data = explanation.explain(explanation.Facts(job(), mine), NOW)
    east, west = data["clusters"]
    assert east["nodes"] == {"n1": 2}
    assert (east["domain"], east["tier"], east["waiting"], east["pods"]) == (
        "rack-0",
        1,
        "1 pod has no node",
        {"running": 2},
    )
    assert west == {"cluster": "west", "replicas": 2, "applied": False, "message": "no Work was made yet"}
    text = explanation.text(data)
    assert "n1 x2" in text
    assert "waits     1 pod has no node" in text


def lease(name: str, renewed: str) -> Json:
    return {
        "metadata": {"name": name},
        "spec": {"holderIdentity": "me", "renewTime": renewed, "leaseDurationSeconds": 15},
    }


def test_what_names_no_queue_where_that_is_asked_for_is_explained() -> None:
    def why(**labels: str) -> str:
        workload: Json = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j", "namespace": "ns", "labels": labels, "creationTimestamp": T0},
            "spec": {"managedBy": keys.CONTROLLER, "template": {"spec": {"containers": [{"name": "c"}]}}},
        }
        facts = explanation.Facts(workload, namespace_labels={keys.ENABLED: "labelled"})
        return str(explanation.explain(facts, NOW)["why"]["reason"])

    assert why() == "NamesNoQueue"
    assert why(**{keys.QUEUE_LABEL: "q"}) == "ControlNotRunning"


@pytest.mark.parametrize(
    ("labels", "leases", "reason"),
    [
        pytest.param({}, [], "NamespaceNotEnabled", id="the namespace is not opted in"),
        pytest.param({keys.ENABLED: "true"}, [], "ControlNotRunning", id="nobody makes bindings"),
        pytest.param(
            {keys.ENABLED: "true"},
            [lease("atoll-control", "2027-01-15T07:50:00Z")],
            "ControlNotRunning",
            id="a stale lease",
        ),
        pytest.param(
            {keys.ENABLED: "true"}, [lease("atoll-control", "2027-01-15T07:59:59Z")], "NoBinding", id="control runs"
        ),
    ],
)
def test_no_binding_is_explained(labels: dict[str, str], leases: list[Json], reason: str) -> None:
    data = explanation.explain(explanation.Facts(job(), leases=leases, namespace_labels=labels), NOW)
    assert data["why"]["reason"] == reason
    assert current(data) == "submitted"
    assert data["why"]["message"] in explanation.text(data)


def test_what_keeps_control_from_making_a_binding_is_named() -> None:
    warning = {"reason": "InvalidWorkload", "note": "it is invalid:\n  claim c: write a number"}
    leases = [lease("atoll-control", "2027-01-15T07:59:59Z")]
    facts = explanation.Facts(job(), leases=leases, namespace_labels={keys.ENABLED: "true"}, warning=warning)
    text = explanation.text(explanation.explain(facts, NOW))
    assert "it is invalid: claim c: write a number (InvalidWorkload)" in text


RUNS = (Reason.DISPATCHED, Reason.GROWN, Reason.SHRUNK, Reason.SIZE_KEPT)


@pytest.mark.parametrize(
    "reason", [reason for reason in Reason if reason not in (*RUNS, Reason.EVICTED, Reason.EVICTION_OVERDUE)]
)
def test_every_reason_to_wait_says_what_would_help(reason: Reason) -> None:
    mine = binding(reason=reason)
    data = explanation.explain(explanation.Facts(job(), mine), NOW)
    if reason is not Reason.DEADLINE_EXCEEDED:
        assert data["waiting"]["help"]


def test_the_story_is_told_in_order() -> None:
    story = (
        Line(T0, Phase.SUSPENDED, Reason.QUOTA_EXCEEDED, "too much"),
        Line(T0, Phase.DISPATCHED, Reason.DISPATCHED, "to east"),
    )
    mine = binding(phase=Phase.DISPATCHED, story=story)
    text = explanation.text(explanation.explain(explanation.Facts(job(), mine), NOW))
    assert text.index("too much") < text.index("to east")


def test_a_gang_that_can_not_be_read_is_explained_all_the_same() -> None:
    mine = binding(reason=Reason.INVALID_GANG)
    mine["metadata"]["annotations"][keys.GANG] = "{"
    data = explanation.explain(explanation.Facts(job(), mine), NOW)
    assert "gang" not in data
    assert explanation.text(data)


def test_what_waits_is_explained_by_the_dispatchers_verdict() -> None:
    verdict = {
        "phase": "Suspended",
        "reason": "QuotaExceeded",
        "message": "it would exceed its queue's capability",
        "since": T0,
        "queue": {
            "queue": "research",
            "position": 3,
            "waiting": 9,
            "ahead": [{"namespace": "a", "name": "b"}],
            "more": 1,
        },
        "changes": [{"kind": "RaiseLimits", "message": "higher limits", "enough": True}],
    }
    facts = explanation.Facts(job(), binding(), [queue()], verdict=verdict)
    data = explanation.explain(facts, NOW)
    waiting = data["waiting"]
    assert (waiting["position"], waiting["of"], waiting["ahead"], waiting["more"]) == (3, 9, ["a/b"], 1)
    assert waiting["help"] == ["higher limits; that is enough, unless one of the 2 ahead of it in its queue takes it"]
    lines = explanation.text(data).splitlines()
    assert "  ahead     1 other, then a/b" in lines
    assert any(line.endswith(f"(since {T0})") for line in lines)


def test_without_the_query_api_the_binding_speaks_and_it_is_said_why() -> None:
    facts = explanation.Facts(job(), binding(blocker=QUOTA), [queue()], hint="nobody serves it")
    data = explanation.explain(facts, NOW)
    assert data["waiting"]["blocker"]["available"] == "4"
    assert "  hint      only what the binding says: nobody serves it" in explanation.text(data).splitlines()


def test_elastic_work_counts_with_the_pods_that_it_was_given() -> None:
    """It asks for 5 pods and runs with 2; its queue may use 16 GPUs."""
    runs = binding(phase=Phase.DISPATCHED, clusters=("m1",))
    wish = gang.Gang(
        queue="research",
        tasks=[gang.Task("worker", 5, 2, {"cpu": 4000, "nvidia.com/gpu": 8, "pods": 1})],
        min_available=2,
        submitted=T0,
    )
    runs["metadata"]["annotations"][keys.GANG] = gang.encode(wish)
    mine = queue(capability={"nvidia.com/gpu": "16"})
    data = described(mine, [mine], [runs], to_seconds(T0))
    [line] = [each for each in data["resources"] if each["resource"] == "nvidia.com/gpu"]
    assert (line["used"], line["limit"]) == ("16", "16")
    [workload] = data["running"]
    assert (workload["pods"], workload["request"]["nvidia.com/gpu"]) == (2, "16")


def test_a_batch_job_shows_the_pods_that_run() -> None:
    report = {"clusterName": "east", "applied": True, "status": {"active": 3, "ready": 2, "succeeded": 1}}
    mine = binding(phase=Phase.DISPATCHED, clusters=("east",), reports=(report,))
    text = explanation.text(explanation.explain(explanation.Facts(job(), mine), NOW))
    assert "  pods      3 active, 2 ready, 1 succeeded" in text.splitlines()


def test_what_came_back_from_where_it_ran_waits_since_then() -> None:
    """It ran for 50 s of the minute since it was submitted."""
    story = (
        Line("2027-01-15T07:59:01Z", Phase.SUSPENDED, Reason.INSUFFICIENT_RESOURCES),
        Line("2027-01-15T07:59:02Z", Phase.DISPATCHED, Reason.DISPATCHED),
        Line("2027-01-15T07:59:50Z", Phase.EVICTING, Reason.PREEMPTED),
        Line("2027-01-15T07:59:52Z", Phase.SUSPENDED, Reason.INSUFFICIENT_RESOURCES),
        Line("2027-01-15T07:59:58Z", Phase.RESERVING, Reason.RESERVING),
        Line("2027-01-15T07:59:59Z", Phase.SUSPENDED, Reason.PART_REFUSED),
    )
    mine = binding(story=story)
    data = explanation.explain(explanation.Facts(job(), mine), NOW)
    assert data["waiting"]["seconds"] == 8
    assert f"Waits for 8s, since it came back to its queue (submitted {T0})" in explanation.text(data).splitlines()
    [pending] = described(queue(), [queue()], [mine], NOW)["pending"]
    assert pending["seconds"] == 8


def test_one_replica_is_not_many_and_what_asks_for_nothing_has_no_line() -> None:
    mine = binding(phase=Phase.DISPATCHED, clusters=("east",))
    mine["spec"]["clusters"][0]["replicas"] = 1
    wish = gang.Gang(queue="research", tasks=[gang.Task("worker", 1, 1, {"pods": 1})], min_available=1, submitted=T0)
    mine["metadata"]["annotations"][keys.GANG] = gang.encode(wish)
    text = explanation.text(explanation.explain(explanation.Facts(job(), mine), NOW))
    assert "Cluster east, 1 replica: work" in text
    assert "  pods      1: worker x1" in text.splitlines()
    assert "request" not in text


def test_moves_that_are_not_made_are_explained() -> None:
    why = "2 pods of 1 gang would leave rack r1 of east: 3.20 pod-hours lost; waiting costs 1.00 pod-hours, at 2027-01-15T08:00:00Z"
    verdict = {"phase": "Suspended", "reason": "NoDomainFits", "message": "no room", "changes": [], "moves": why}
    facts = explanation.Facts(job(), binding(), [queue()], verdict=verdict)
    assert f"  moves     none: {why}" in explanation.text(explanation.explain(facts, NOW)).splitlines()


def test_a_reserved_start_in_the_past_is_overdue() -> None:
    verdict = {
        "phase": "Suspended",
        "reason": "InsufficientResources",
        "message": "no room",
        "reserved": {"cluster": "east", "at": T0},
        "changes": [{"kind": "Finish", "message": "an end", "at": T0}],
    }
    facts = explanation.Facts(job(), binding(), [queue()], verdict=verdict)
    data = explanation.explain(facts, NOW)
    assert data["waiting"]["reserved"]["overdueSeconds"] == 60
    text = explanation.text(data)
    assert f"  reserved  in east, was expected at {T0}, overdue by 60s" in text
    assert f"would help: an end, was expected at {T0}, overdue by 60s" in text


def test_without_the_query_api_the_numbers_are_those_of_their_time() -> None:
    mine = binding(blocker=QUOTA, story=(Line(T0, Phase.SUSPENDED, Reason.QUOTA_EXCEEDED, "too much"),))
    facts = explanation.Facts(job(), mine, [queue()], hint="nobody serves it")
    lines = explanation.text(explanation.explain(facts, NOW)).splitlines()
    assert f"  hint      only what the binding says: nobody serves it; its numbers are of {T0}" in lines


def test_batch_jobs_are_listed_beside_volcano_jobs() -> None:
    batch: Json = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "lab",
            "namespace": "team",
            "uid": "job-lab",
            "creationTimestamp": T0,
            "labels": {keys.QUEUE_LABEL: "research"},
        },
        "spec": {"managedBy": keys.CONTROLLER},
        "status": {"active": 3, "ready": 2, "succeeded": 1, "startTime": T0},
    }
    done = {**batch, "status": {"succeeded": 6, "conditions": [{"type": "Complete", "status": "True"}]}}
    held = {**batch, "spec": {**batch["spec"], "suspend": True}, "status": {}}
    found = jobs.by_workload([binding("lab", phase=Phase.DISPATCHED, clusters=("east",))])
    rows = jobs.rows([batch, done, held], found, NOW, namespaced=False, wide=False)
    assert rows[0] == ["job.batch/lab", "research", "Running", "east", 1, 2, 1, 0, "60s"]
    assert rows[1][2:8] == ["Complete", "east", 0, 0, 6, 0]
    assert rows[2][2:8] == ["Suspended", "east", 0, 0, 0, 0]
