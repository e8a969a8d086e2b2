"""Who wrote what for whom, read from audit logs: counted exactly, or the targets mean nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from atoll.local import audit
from atoll.model.apiresource import BINDINGS, CAPACITIES, JOBS, LEASES, PODS, WORKS, ApiResource
from bench import accounting, dispatch
from bench.host import DISPATCHER_ACCOUNT

CONTROL = "system:serviceaccount:atoll-system:atoll-control"
AGENT = "system:serviceaccount:karmada-es-east:atoll-agent"
REVIEWS = ApiResource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)


@pytest.fixture
def log(tmp_path):
    """Reads events through the real reader."""

    def read(*events: dict[str, Any]) -> list[audit.Event]:
        path = tmp_path / "audit.log"
        path.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))
        return list(audit.read(path))

    return read


def event(
    at: float,
    verb: str,
    resource: ApiResource,
    key: str,
    body: Any = None,
    *,
    sub: str = "",
    user: str = CONTROL,
    code: int = 200,
) -> dict[str, Any]:
    """A request answered `at` seconds after the epoch."""
    when = datetime.fromtimestamp(at, UTC).isoformat()
    namespace, _, name = key.rpartition("/")
    return {
        "stage": "ResponseComplete", "verb": verb, "requestReceivedTimestamp": when, "stageTimestamp": when,
        "user": {"username": user},
        "objectRef": {
            "resource": resource.plural, "namespace": namespace, "name": name, "subresource": sub,
            "apiGroup": resource.group,
        },
        "responseStatus": {"code": code},
        **({} if body is None else {"requestObject": body}),
    }  # fmt: skip


def binding(at: float, name: str) -> dict[str, Any]:
    return event(at, "create", BINDINGS, f"ns/{name}-job", {"spec": {"resource": {"name": name}}}, code=201)


def work(at: float, name: str, namespace: str = "ns") -> dict[str, Any]:
    told = {"atoll.sh/binding": f"{name}-job", "atoll.sh/binding-namespace": namespace}
    return event(at, "create", WORKS, f"karmada-es-east/{name}-w", {"metadata": {"annotations": told}}, code=201)


def resumed(at: float, name: str, value: bool = False, code: int = 200, user: str = CONTROL) -> dict[str, Any]:
    body = [{"op": "add", "path": "/spec/suspension/scheduling", "value": value}]
    return event(at, "patch", BINDINGS, f"ns/{name}-job", body, code=code, user=user)


def status(at: float, name: str, phase: str) -> dict[str, Any]:
    body = [{"op": "add", "path": "/status", "value": {"state": {"phase": phase}}}]
    return event(at, "patch", JOBS, f"ns/{name}", body, sub="status")


HOST = [
    event(10, "create", JOBS, "ns/a", {}, user="admin", code=201),
    binding(11, "a"),
    resumed(12, "a"),
    work(13, "a"),
    event(17, "patch", WORKS, "karmada-es-east/a-w", {}, sub="status", user=AGENT),
    status(18, "a", "Running"),
    status(20, "a", "Completed"),
    event(21, "patch", BINDINGS, "ns/a-job", {}, sub="status"),
]
EAST = [
    event(14, "create", JOBS, "ns/a", {}, user=AGENT, code=201),
    event(15, "create", PODS, "ns/a-worker-0", user=AGENT, code=201),
    event(16, "create", PODS, "ns/a-worker-0", {"target": {"name": "n"}}, sub="binding", user=AGENT, code=201),
]


def test_a_workload_reaches_every_stage_once(log):
    times = accounting.stages(log(*HOST), {"east": log(*EAST)}, "ns")
    assert {stage: reached.get("a") for stage, reached in times.items()} == {
        "created": 10, "binding created": 11, "dispatched": 12, "work created": 13, "in the member": 14,
        "pod created": 15,
        "pod bound": 16, "running on the host": 18, "completed on the host": 20,
    }  # fmt: skip
    assert accounting.latencies(times, "created", "pod bound") == [6]


def test_a_stage_that_is_skipped_or_repeated_counts_from_its_first_sign(log):
    host = [*HOST[:5], status(19, "a", "Completed"), resumed(25, "a"), status(26, "a", "Completed")]
    times = accounting.stages(log(*host), {}, "ns")
    assert times["running on the host"]["a"] == times["completed on the host"]["a"] == 19
    assert times["dispatched"]["a"] == 12
    assert times["pod bound"] == {}


def test_an_eviction_or_a_refused_decision_dispatches_nothing(log):
    host = [HOST[0], HOST[1], resumed(12, "a", value=True), resumed(13, "a", code=422)]
    assert accounting.stages(log(*host), {}, "ns")["dispatched"] == {}


def test_other_namespaces_and_other_kinds_of_job_are_left_out(log):
    batch = ApiResource("batch", "v1", "jobs", "Job")
    host = [
        event(1, "create", batch, "ns/b", {}),
        event(2, "create", JOBS, "other/c", {}),
        work(3, "a", namespace="other"),
    ]
    assert accounting.owners(log(*host), "ns") == {}
    assert accounting.spread({"east": log(*EAST), "west": log(event(1, "create", JOBS, "other/c"))}, "ns") == {
        "east": 1,
        "west": 0,
    }


def test_a_work_belongs_to_its_workload_even_if_its_line_comes_first(log):
    assert accounting.owners(log(work(13, "a"), binding(14, "a"), HOST[0]), "ns") == {
        ("jobs", "ns/a"): "a", ("resourcebindings", "ns/a-job"): "a", ("works", "karmada-es-east/a-w"): "a",
    }  # fmt: skip


def test_each_write_counts_up_to_the_moment_that_it_was_needed_for(log):
    times = accounting.stages(log(*HOST), {"east": log(*EAST)}, "ns")
    found = accounting.writes(log(*HOST), times, "ns", {"a"})
    # Job, binding, decision, Work; then the member's report and two statuses; then the binding's last one.
    assert (found.until_bound["a"], found.until_completed["a"], found.total["a"]) == (4, 7, 8)
    assert found.by_kind["atoll-control", "create", "works"] == 1
    assert found.by_kind["karmada-es-east:atoll-agent", "patch", "works/status"] == 1
    assert (found.unowned, found.refused) == (0, 0)


def test_a_refused_write_costs_as_much_as_one_that_is_not(log):
    host = [*HOST, resumed(12.5, "a", code=422)]
    times = accounting.stages(log(*host), {"east": log(*EAST)}, "ns")
    found = accounting.writes(log(*host), times, "ns", {"a"})
    assert (found.until_bound["a"], found.refused) == (5, 1)


@pytest.mark.parametrize(
    ("extra", "unowned"),
    [
        pytest.param(event(15, "update", LEASES, "atoll-system/l"), 0, id="a lease is no cost of a workload"),
        pytest.param(event(15, "patch", CAPACITIES, "karmada-es-east/root"), 0, id="nor is capacity"),
        pytest.param(event(15, "create", REVIEWS, "x"), 0, id="a review writes nothing"),
        pytest.param(event(15, "get", JOBS, "ns/a"), 0, id="nor does a read"),
        pytest.param(
            event(15, "create", ApiResource("", "v1", "events", "Event"), "ns/e"), 0, id="Events are left out"
        ),
        pytest.param(
            event(9, "create", JOBS, "ns/earlier", {}), 0, id="what was before the first workload is left out"
        ),
        pytest.param(
            event(15, "create", ApiResource("", "v1", "secrets", "Secret"), "ns/s"),
            1,
            id="anything else counts as of no workload",
        ),
        pytest.param(event(15, "patch", JOBS, "other/a", {}), 1, id="so does a workload of the same name elsewhere"),
    ],
)
def test_what_belongs_to_no_workload(log, extra, unowned):
    times = accounting.stages(log(*HOST), {"east": log(*EAST)}, "ns")
    found = accounting.writes(log(*HOST, extra), times, "ns", {"a"})
    assert (found.total["a"], found.unowned) == (8, unowned)


@pytest.mark.parametrize(
    ("pod", "job"),
    [
        ("a-worker-0", "a"),
        ("a-worker-1-worker-12", "a-worker-1"),
        ("a-worker-x", None),
        ("a-other-0", None),
    ],
)
def test_the_job_of_a_pod(pod, job):
    assert accounting.workload_of_pod(pod) == job


def test_decisions_are_told_from_reasons_and_from_what_others_write(log):
    mine = DISPATCHER_ACCOUNT
    reason = [{"op": "add", "path": "/metadata/annotations/atoll.sh~1decision", "value": "{}"}]
    turn = dispatch.account(
        log(
            event(1, "patch", BINDINGS, "ns/a-job", reason, user=mine),
            resumed(2, "a", code=422, user=mine),
            resumed(3, "a", user=mine),
            resumed(4, "b"),
            resumed(5, "a", value=True, user=mine),
            event(6, "update", LEASES, "ns/l", user=mine),
        ),
        "ns",
    )
    # Taking it back is a decision too, and no second resumption.
    assert (turn.resumed, turn.patches, turn.refused, turn.reasons) == ({"ns/a-job": 3}, 3, 1, 1)
    assert len(turn.bodies) == 1


def test_who_resumes_in_place_of_the_dispatcher_is_counted_alone(log):
    events = log(resumed(1, "a", user=DISPATCHER_ACCOUNT), resumed(2, "b", user="admin"))
    assert dispatch.account(events, "ns", "admin").resumed == {"ns/b-job": 2}


def test_reads_of_our_accounts_in_the_window_are_counted_by_kind(log):
    events = log(
        event(1, "get", LEASES, "atoll-system/atoll-control"),
        event(2, "get", LEASES, "atoll-system/atoll-control"),
        event(2, "list", PODS, "ns/", user="admin"),
        event(2, "patch", BINDINGS, "ns/a-job"),
        event(9, "get", LEASES, "atoll-system/atoll-control"),
    )
    assert accounting.reads(events, 1.5, 5) == {("atoll-control", "get", "leases"): 1}


def test_every_request_about_a_workload_counts_by_writer_verb_and_resource(log):
    uid = "-0f0c2b1e-6a5d-4c43-9e77-0123456789ab"
    events, groups = (ApiResource(*each, namespaced=True) for each in (
        ("events.k8s.io", "v1", "events", "Event"), ("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"),
    ))  # fmt: skip
    host = log(*HOST, event(19, "create", events, "ns/a.0123456789ab", code=201), work(30, "b", namespace="other"))
    east = log(
        *EAST,
        event(15, "create", groups, f"ns/a{uid}", user="system:serviceaccount:atoll-system:atoll-agent", code=201),
        event(19, "get", JOBS, "ns/a", user="admin"),
        event(19, "patch", JOBS, "other/a", user=AGENT),
    )
    times = accounting.stages(host, {"east": east}, "ns")
    found = accounting.requests(host, host, times, "ns")
    assert found.total["atoll-control", "create", "events"] == found.total["atoll-agent", "patch", "works/status"] == 1
    assert found.total["atoll-control", "patch", "jobs/status"] == 2
    assert (found.until_bound.total(), found.until_completed.total(), found.total.total()) == (4, 8, 9)
    found = accounting.requests(east, host, times, "ns")
    assert found.total["admin", "get", "jobs"] == found.total["atoll-agent", "create", "podgroups"] == 1
    assert (found.until_bound.total(), found.total.total()) == (4, 5)
