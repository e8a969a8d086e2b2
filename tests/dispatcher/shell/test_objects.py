"""How objects of the host become what the core is told."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import orjson
import pytest

from atoll.dispatcher import objects
from atoll.dispatcher.capacity import capacity_view
from atoll.dispatcher.core import (
    BindingSet,
    BindingView,
    Ceiling,
    Dispatch,
    Dispatcher,
    Event,
    Evict,
    Part,
    Pass,
    QueueView,
    Resize,
    Strategy,
)
from atoll.dispatcher.core.events import NodeClass
from atoll.dispatcher.core.quota.tree import Tree
from atoll.dispatcher.writes import patch_of
from atoll.model import decision, gang, keys
from atoll.model.decision import Decision, Phase
from atoll.model.failover import EvictionTask, Failover, Purge
from atoll.model.queue_object import decode_queue
from atoll.model.quotas import Quota, Scope
from atoll.model.verdict import Reason
from tests.dispatcher.builders import GPU, make_capacity, make_cluster, make_queue, problems_of


def queue(spec: dict[str, Any], annotations: dict[str, str] | None = None, **rest: Any) -> QueueView:
    metadata = {"name": "q", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations or {}}
    return objects.queue_view(decode_queue(orjson.dumps({"metadata": metadata, "spec": spec, **rest})))


def test_everything_that_a_queue_says_reaches_the_core() -> None:
    spec = {
        "parent": "lab",
        "capability": {"cpu": "8"},
        "deserved": {"cpu": "4500m"},
        "guarantee": {"resource": {"cpu": "1", "memory": "1Gi"}},
        "weight": 3,
        "priority": 7,
        "reclaimable": False,
        "dequeueStrategy": "fifo",
        "extendClusters": [{"name": "east", "weight": 2, "capacity": {"cpu": "2"}}, {"name": "west"}],
    }
    annotations = {
        keys.CLUSTER_AFFINITY: '{"matchLabels": {"size": "large"}}',
        keys.RUNNING_ESTIMATE: "1h30m",
        keys.SLA_WAITING_TIME: "90s",
    }
    assert queue(spec, annotations) == QueueView(
        name="q",
        capability={"cpu": 8000},
        priority=7,
        parent="lab",
        guarantee={"cpu": 1000, "memory": 2**30},
        deserved={"cpu": 4500},
        weight=3,
        reclaimable=False,
        created="2026-01-01T00:00:00Z",
        strategy=Strategy.FIFO,
        members={"east": Ceiling(2, {"cpu": 2000}), "west": Ceiling()},
        affinity={"matchLabels": {"size": "large"}},
        estimate=5400.0,
        patience=90.0,
    )


@pytest.mark.parametrize(
    ("spec", "annotations", "expected"),
    [
        pytest.param({}, {}, {}, id="nothing is said"),
        pytest.param({"parent": "root"}, {}, {}, id="the root as parent is the same as none"),
        pytest.param({"parent": None, "weight": None, "priority": None}, {}, {}, id="nulls are as if left out"),
        pytest.param(
            {"dequeueStrategy": "fifo"},
            {keys.DEQUEUE_STRATEGY: "backfill"},
            {"strategy": Strategy.BACKFILL},
            id="the annotation's strategy wins",
        ),
    ],
)
def test_defaults(spec: dict[str, Any], annotations: dict[str, str], expected: dict[str, Any]) -> None:
    assert queue(spec, annotations) == QueueView(name="q", capability={}, created="2026-01-01T00:00:00Z", **expected)


@pytest.mark.parametrize(
    ("spec", "annotations", "said"),
    [
        pytest.param({"capability": {"cpu": "much"}}, {}, "spec.capability can't be read", id="a capability"),
        pytest.param({"deserved": {"cpu": "1x"}}, {}, "spec.deserved can't be read", id="an entitlement"),
        pytest.param({"guarantee": {"resource": {"cpu": "x"}}}, {}, "spec.guarantee.resource can't", id="a guarantee"),
        pytest.param({"guarantee": {"resource": {"cpu": "1e400"}}}, {}, "1e400 of cpu is more than", id="too much"),
        pytest.param({"deserved": {"cpu": "9" * 5000}}, {}, "999 of cpu is more than", id="too many digits"),
        pytest.param({"dequeueStrategy": "lifo"}, {}, "'lifo' is none of fifo, traverse, backfill", id="a strategy"),
        pytest.param({}, {keys.DEQUEUE_STRATEGY: "lifo"}, "annotation atoll.sh/dequeue-strategy", id="its annotation"),
        pytest.param({}, {keys.CLUSTER_AFFINITY: "size=large"}, "is not a label selector", id="a cluster affinity"),
        pytest.param({}, {keys.RUNNING_ESTIMATE: "2 days"}, "is not a duration", id="an estimate"),
        pytest.param({}, {keys.SLA_WAITING_TIME: "soon"}, "is not a duration", id="a waiting time"),
        pytest.param({"extendClusters": [{"weight": 2}]}, {}, "without the name of a member", id="a member"),
        pytest.param(
            {"extendClusters": [{"name": "m", "capacity": {"cpu": "x"}}]},
            {},
            "spec.extendClusters[0].capacity can't be read",
            id="a ceiling",
        ),
    ],
)
def test_what_cant_be_read_makes_the_queue_invalid(
    spec: dict[str, Any], annotations: dict[str, str], said: str
) -> None:
    view = queue(spec, annotations)
    assert said in view.problem
    tree = Tree()
    tree.set_queue(view)
    assert tree.standing(tree.queue("q")) == "invalid"
    assert problems_of([view])["q"].startswith("queue q: ")


def test_as_much_as_a_number_can_say_is_no_mistake() -> None:
    assert queue({"capability": {"cpu": 2**63 - 1, "memory": "8Ei"}}).problem == ""


@pytest.mark.parametrize("state", [pytest.param(s, id=s or "none") for s in ("", "Open", "Closing", "Closed")])
def test_only_an_open_queue_is_open(state: str) -> None:
    assert queue({}, status={"state": state}).open is (state in ("", "Open"))


def quota(hard: dict[str, str], *, name: str = "q", **spec: Any) -> objects.QuotaObject:
    return objects.decode_quota(orjson.dumps({"metadata": {"name": name}, "spec": {"hard": hard, **spec}}))


@pytest.mark.parametrize(
    ("quotas", "limits"),
    [
        pytest.param([], {}, id="no quota"),
        pytest.param([quota({"cpu": "2", "memory": "1Gi"})], {"cpu": 2000, "memory": 2**30}, id="plain names"),
        pytest.param([quota({"requests.cpu": "2", "cpu": "3"})], {"cpu": 2000}, id="both spellings: the less"),
        pytest.param(
            [quota({"requests.nvidia.com/gpu": "4"}), quota({"requests.nvidia.com/gpu": "2", "pods": "9"})],
            {"nvidia.com/gpu": 2, "pods": 9},
            id="several quotas: the least of each",
        ),
        pytest.param(
            [
                quota(
                    {
                        "limits.cpu": "1",
                        "count/jobs.batch": "1",
                        "requests.storage": "1Gi",
                        "gold.storageclass.storage.k8s.io/requests.storage": "1Gi",
                        "services": "1",
                    }
                )
            ],
            {},
            id="what no workload requests",
        ),
        pytest.param(
            [quota({"cpu": "1"}, scopeSelector={"matchExpressions": []})], {"cpu": 1000}, id="a selector of everything"
        ),
    ],
)
def test_limits_of_a_namespace(quotas: list[objects.QuotaObject], limits: dict[str, int]) -> None:
    view = objects.namespace_view("ns", {}, quotas)
    assert (view.limits, view.scoped) == (limits, ())


def test_quotas_with_scopes_stand_for_themselves() -> None:
    high = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    view = objects.namespace_view(
        "ns",
        {"team": "a"},
        [
            quota({"pods": "2"}, name="b", scopes=["BestEffort"]),
            quota({"requests.cpu": "1"}, name="a", scopeSelector={"matchExpressions": [high]}),
            quota({"services": "1"}, name="c", scopes=["Terminating"]),
            quota({"cpu": "9"}),
        ],
    )
    assert (view.limits, view.labels) == ({"cpu": 9000}, {"team": "a"})
    assert view.scoped == (
        Quota("a", {"cpu": 1000}, (Scope("PriorityClass", "In", ("high",)),)),
        Quota("b", {"pods": 2}, (Scope("BestEffort"),)),
    )


def test_a_capacity_brings_names_and_total() -> None:
    spec = {
        "generation": 3,
        "profiles": [{"labels": {"a": "b"}}],
        "classes": [{"profile": 0, "nodes": 2, "free": {"cpu": -5}, "names": ["n1", "n2"]}],
        "total": {"cpu": 8000},
    }
    found = capacity_view(
        objects.read_report(
            objects.decode_report(
                orjson.dumps({"metadata": {"namespace": "karmada-es-m", "name": "nodes"}, "spec": spec})
            )
        )
    )
    assert found.total == {"cpu": 8000}
    assert found.classes == (NodeClass("", {"a": "b"}, (), 2, {"cpu": 0}, ("n1", "n2")),)


def test_a_binding_brings_the_nodes_of_its_pods() -> None:
    task = gang.Task("w", 3, 3, {"pods": 1})
    found = objects.binding_view(
        objects.decode_binding(
            orjson.dumps(
                {
                    "metadata": {"uid": "u", "annotations": {keys.GANG: gang.encode(gang.Gang("q", [task], 3))}},
                    "status": {
                        "aggregatedStatus": [
                            {"clusterName": "m", "status": {"placement": {"generation": 4, "nodes": {"a": 1, "b": 2}}}},
                            {"clusterName": "idle", "status": {"placement": {"generation": 4}}},
                        ]
                    },
                }
            )
        )
    )
    assert found is not None
    assert found.nodes == {"m": {"a": 1, "b": 2}}
    assert found.placed == {"m": (4, 3), "idle": (4, 0)}


@pytest.mark.parametrize(
    ("asked", "by_user", "expected"),
    [
        pytest.param("2026-01-01T00:01:00Z", "", "2026-01-01T00:01:00Z", id="a minute after the dispatch"),
        pytest.param("2026-01-01T00:00:59Z", "", "", id="too soon after it"),
        pytest.param("soon", "", "", id="no time"),
        pytest.param("", "2025-12-31T00:00:00Z", "2025-12-31T00:00:00Z", id="by its user"),
        pytest.param("2026-01-01T00:02:00Z", "2026-01-01T00:03:00Z", "2026-01-01T00:03:00Z", id="the latest of both"),
    ],
)
def test_a_member_may_ask_that_a_gang_is_placed_anew(asked: str, by_user: str, expected: str) -> None:
    task = gang.Task("w", 3, 3, {"pods": 1})
    annotations = {
        keys.GANG: gang.encode(gang.Gang("q", [task], 3)),
        keys.DECISION: decision.encode(Decision(dispatched="2026-01-01T00:00:00Z")),
    }
    status = {"placement": {"generation": 4, "nodes": {"a": 3}, "move": asked, "moves": "broken"}}
    raw = {
        "metadata": {"uid": "u", "annotations": annotations},
        "spec": {"rescheduleTriggeredAt": by_user},
        "status": {"aggregatedStatus": [{"clusterName": "m", "status": status}]},
    }
    found = objects.binding_view(objects.decode_binding(orjson.dumps(raw)))
    assert found is not None
    assert (found.rescheduled, dict(found.leaves)) == (expected, {"m": "broken"})


DIVIDED = {"replicaSchedulingType": "Divided"}
WEIGHTED = {**DIVIDED, "replicaDivisionPreference": "Weighted"}
AGGREGATED = {**DIVIDED, "replicaDivisionPreference": "Aggregated"}
COPIES = {"replicaSchedulingType": "Duplicated"}
BY_CLUSTER, BY_ZONE = {"spreadByField": "cluster", "maxGroups": 2}, {"spreadByField": "zone"}
GROUPS = [{"affinityName": "g", "clusterNames": ["a"], "overflowAffinities": [{"clusterNames": ["b"]}]}]


@pytest.mark.parametrize(
    ("placement", "wish", "expected"),
    [
        pytest.param({}, {}, None, id="one member"),
        pytest.param({"replicaScheduling": {}}, {}, None, id="divided"),
        pytest.param(
            {"replicaScheduling": AGGREGATED, "spreadConstraints": [BY_CLUSTER]}, {}, None, id="over clusters"
        ),
        pytest.param({"replicaScheduling": WEIGHTED}, {}, WEIGHTED, id="by weights"),
        pytest.param({"replicaScheduling": WEIGHTED}, {"whole": True}, None, id="a kind that is not divided"),
        pytest.param(
            {"replicaScheduling": {}, "spreadConstraints": [BY_ZONE, BY_CLUSTER]}, {}, AGGREGATED, id="over zones"
        ),
        pytest.param({"replicaScheduling": AGGREGATED, "clusterAffinities": GROUPS}, {}, AGGREGATED, id="overflow"),
        pytest.param({"replicaScheduling": COPIES}, {}, None, id="a job is not copied"),
        pytest.param(
            {"replicaScheduling": COPIES},
            {"whole": True, "copies": True},
            {**COPIES, "replicaDivisionPreference": "Aggregated"},
            id="copies of a service",
        ),
    ],
)
def test_how_a_workload_is_shared_out(placement: dict[str, Any], wish: dict[str, Any], expected: Any) -> None:
    found = _placed(placement, wish)
    assert (found.sharing["replicaScheduling"] if found.sharing is not None else None) == expected
    assert found.sharing is None or found.divided


def test_overflow_tiers_are_tried_in_turn_where_nothing_is_shared_out() -> None:
    suspended = {"suspended": ["c"]}
    apart = _placed({"clusterAffinities": GROUPS}, suspended)
    assert [(each["clusterNames"], each["exclude"]) for each in apart.affinities] == [(["a"], ["c"]), (["b"], ["c"])]
    together = _placed({"clusterAffinities": GROUPS, "replicaScheduling": WEIGHTED}, suspended)
    [group] = together.affinities
    assert (group["exclude"], group["overflowAffinities"][0]["exclude"]) == (["c"], ["c"])


def _placed(placement: dict[str, Any], wish: dict[str, Any]) -> BindingView:
    asked = {
        "queue": "q",
        "minAvailable": 4,
        "tasks": [{"name": "w", "replicas": 4, "minAvailable": 4, "requests": {}}],
    }
    metadata = {"name": "b", "uid": "u", "annotations": {keys.GANG: orjson.dumps({**asked, **wish}).decode()}}
    text = orjson.dumps({"metadata": metadata, "spec": {"placement": placement}})
    found = objects.binding_view(objects.decode_binding(text))
    assert found is not None
    return found


def test_a_binding_brings_where_it_is_unhealthy_what_it_leaves_behind_and_where_it_is_not_to_go() -> None:
    wish = Failover(after=20.0, state={"job-id": "{.jobStatus.jobID}"})
    read = gang.Gang("q", [gang.Task("w", 3, 3, {"pods": 1})], 3, unhealthy=wish)
    since = "2026-01-01T00:00:00Z"
    healthy = {"type": "Healthy", "status": "False", "lastTransitionTime": since, "message": "m: 1 of 3 pods run"}
    task = {"fromCluster": "o", "reason": "Unhealthy", "producer": "p", "purgeMode": "Directly"}
    raw = {
        "metadata": {"uid": "u", "annotations": {keys.GANG: gang.encode(read)}},
        "spec": {"gracefulEvictionTasks": [task], "placement": {"clusterAffinity": {"exclude": ["x"]}}},
        "status": {
            "conditions": [healthy],
            "aggregatedStatus": [
                {"clusterName": "m", "health": "Unhealthy", "status": {"jobStatus": {"jobID": "x7"}}},
                {"clusterName": "n", "health": "Healthy", "status": {}},
            ],
        },
    }
    found = objects.binding_view(objects.decode_binding(orjson.dumps(raw)))
    assert found is not None
    assert (found.unhealthy_at, found.unhealthy) == (since, {"m": "m: 1 of 3 pods run"})
    assert found.state == {"m": {"job-id": "x7"}}
    assert found.affinities == ({"exclude": ["o", "x"]},)
    assert [each.from_cluster for each in found.tasks] == ["o"]


@pytest.mark.parametrize(("finalizers", "cleared"), [([keys.BINDING_FINALIZER], True), (["karmada.io/x"], False)])
def test_a_dispatch_ends_the_record_of_field_managers_of_controls_own_binding(
    finalizers: list[str], cleared: bool
) -> None:
    seen = objects.decode_binding(orjson.dumps({"metadata": {"uid": "u", "finalizers": finalizers}}))
    command = Dispatch("u", "ns", "b", 7, 0, Decision(1, Phase.DISPATCHED, Reason.DISPATCHED))
    assert ({"op": "add", "path": "/metadata/managedFields", "value": [{}]} in patch_of(command, seen)) is cleared


def test_an_eviction_writes_its_tasks() -> None:
    seen = _binding([{"name": "w", "replicas": 1, "minAvailable": 1, "requests": {"pods": 1}}], {"name": "m"})
    decision = Decision(3, Phase.EVICTING, Reason.MEMBER_DRAINED)
    task = EvictionTask("m", "MemberDrained", "p", Purge.GRACEFULLY, grace_period_seconds=60)
    written = {
        op["path"]: op.get("value") for op in patch_of(Evict("u", "ns", "b", 7, 2, decision, tasks=(task,)), seen)
    }
    assert written["/spec/gracefulEvictionTasks"] == [
        {
            "fromCluster": "m",
            "reason": "MemberDrained",
            "producer": "p",
            "purgeMode": "Gracefully",
            "gracePeriodSeconds": 60,
        }
    ]
    assert "/spec/gracefulEvictionTasks" not in {
        op["path"] for op in patch_of(Evict("u", "ns", "b", 7, 2, decision), seen)
    }


def _binding(tasks: list[dict[str, Any]], target: dict[str, Any]) -> objects.BindingObject:
    wish = {"queue": "q", "minAvailable": 1, "tasks": tasks}
    annotations = {keys.GANG: orjson.dumps(wish).decode(), keys.EPOCH: "2"}
    metadata = {"name": "b", "namespace": "ns", "uid": "u", "generation": 7, "annotations": annotations}
    return objects.decode_binding(orjson.dumps({"metadata": metadata, "spec": {"clusters": [target]}}))


@pytest.mark.parametrize(
    ("replicas", "tasks"),
    [
        pytest.param([6], (("w", 4),), id="of a gang of one task its replicas"),
        pytest.param([1, 6], (("w", 1), ("a-name-of-more-than-32-characters-", 4)), id="of others each component"),
    ],
)
def test_what_a_resize_writes_is_what_the_core_is_told(replicas: list[int], tasks: tuple[tuple[str, int], ...]) -> None:
    wishes = [
        {"name": name, "replicas": count, "minAvailable": 1, "requests": {"pods": 1}}
        for (name, _), count in zip(tasks, replicas, strict=True)
    ]
    seen = _binding(wishes, {"name": "m", "replicas": 1})
    decision = Decision(2, Phase.DISPATCHED, Reason.GROWN)
    patch = patch_of(Resize("u", "ns", "b", 7, 2, decision, parts=(Part("m", tasks),)), seen)
    tests = {op["path"]: op["value"] for op in patch if op["op"] == "test"}
    assert tests.pop("/metadata/annotations/atoll.sh~1gang") == seen.metadata.annotations[keys.GANG]
    assert tests == {"/metadata/uid": "u", "/metadata/annotations/atoll.sh~1epoch": "2", "/metadata/generation": 7}
    written = {op["path"]: op["value"] for op in patch if op["op"] != "test"}
    assert set(written) == {"/metadata/annotations/atoll.sh~1decision", "/spec/clusters"}
    view = objects.binding_view(_binding(wishes, written["/spec/clusters"][0]))
    assert view is not None
    assert view.parts == (("m", tuple(count for _, count in tasks)),)


def binding(wish: dict[str, Any], annotations: dict[str, str] | None = None, **rest: Any) -> BindingView:
    """Of a workload that wants this, as told to the core."""
    written = {keys.GANG: orjson.dumps(wish).decode(), **(annotations or {})}
    metadata = {"name": "b", "namespace": "ns", "uid": "u", "generation": 1, "annotations": written}
    view = objects.binding_view(objects.decode_binding(orjson.dumps({"metadata": metadata, **rest})))
    assert view is not None
    return view


def wish_of(task: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A gang of one task; every key of either can be another."""
    made = {"name": "worker", "replicas": 2, "minAvailable": 1, "requests": {GPU: 1, "pods": 1}}
    return {"queue": "q", "minAvailable": 1, "tasks": [{**made, **(task or {})}], **changes}


def decided_beside(view: BindingView) -> Reason | None:
    """Why this one waits; another workload beside it is dispatched."""
    core = Dispatcher()
    other = dataclasses.replace(binding(wish_of()), uid="other", name="other", suspended=True)
    room: list[Event] = [make_queue("q")]
    for member in ("m1", "m2"):
        room += [make_cluster(member), make_capacity(member, [4])]
    for event in [*room, BindingSet(view), BindingSet(other)]:
        core.handle(event)
    commands = core.handle(Pass(1_800_000_000.0))
    core.check()
    assert [command.uid for command in commands if isinstance(command, Dispatch)] == ["other"]
    verdict = core.verdict(view.uid)
    return verdict.reason if verdict is not None else None


@pytest.mark.parametrize(
    "wish",
    [
        pytest.param(wish_of({"replicas": 2**31 - 1}), id="two billion pods, of which one is enough"),
        pytest.param(wish_of({"replicas": 100_001}), id="one more than a member's agent makes"),
        pytest.param(wish_of(tasks=[]), id="no tasks"),
        pytest.param(wish_of({"replicas": -1}), id="less than no pods"),
        pytest.param(wish_of({"minAvailable": -1}), id="a task that needs less than none"),
        pytest.param(wish_of(minAvailable=-1), id="a gang that needs less than none"),
        pytest.param(wish_of({"requests": {GPU: -1000, "pods": 1}}), id="a pod that would give its queue something"),
        pytest.param(wish_of({"requests": {GPU: 2**62, "pods": 1}}), id="amounts of which sums are too large"),
    ],
)
def test_a_wish_beyond_all_measure_is_invalid_and_in_the_way_of_nothing(wish: dict[str, Any]) -> None:
    view = binding(wish, spec={"suspension": {"scheduling": True}})
    assert view.gang is None
    assert decided_beside(view) is Reason.INVALID_GANG


@pytest.mark.parametrize(
    "expressions",
    [
        pytest.param("zone in (a)", id="a text"),
        pytest.param(["zone"], id="a list of texts"),
        pytest.param([{"key": "zone", "operator": "In", "values": 5}], id="a number as the values"),
        pytest.param([{"key": ["zone"], "operator": "Exists"}], id="a list as the key"),
        pytest.param([{"operator": "Exists"}], id="no key, which the webhook refuses as well"),
        pytest.param([{"key": "zone", "operator": "Is"}], id="an operator that there is not"),
    ],
)
@pytest.mark.parametrize("kind", ["matchExpressions", "matchFields"])
def test_a_node_affinity_of_the_wrong_form_is_invalid_and_in_the_way_of_nothing(kind: str, expressions: Any) -> None:
    view = binding(wish_of({"nodeTerms": [{kind: expressions}]}), spec={"suspension": {"scheduling": True}})
    assert decided_beside(view) is Reason.INVALID_GANG


def test_a_node_affinity_as_kubernetes_has_it_is_a_wish() -> None:
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    terms = [
        {"matchExpressions": [expression], "matchFields": None},
        {},
        {"matchExpressions": [{**expression, "x": 1}]},
    ]
    assert binding(wish_of({"nodeTerms": terms})).gang is not None


LINE = {"at": "2026-01-01T00:00:00.000Z", "phase": "Bound", "reason": "Dispatched"}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"deadline": "soon"}, id="a deadline that is no time"),
        pytest.param({"deadline": "0001-01-01T00:00:00"}, id="a deadline that can't be computed with"),
        pytest.param({"story": [{**LINE, "at": "yesterday"}]}, id="a line of the story"),
        pytest.param({"story": [{**LINE, "at": ""}]}, id="a line of the story without one"),
        pytest.param({"story": [LINE, {**LINE, "at": "24:00"}]}, id="any line of the story"),
        pytest.param({"evicted": [{**LINE, "at": "soon"}]}, id="a time at which it went for others"),
        pytest.param({"phase": "Reserving", "deadline": "2026-13-01T00:00:00Z"}, id="a hold"),
    ],
)
def test_a_decision_with_a_time_that_is_none_is_as_if_it_was_not_there(changes: dict[str, Any]) -> None:
    text = orjson.dumps({"epoch": 1, "phase": "Bound", "reason": "Dispatched", **changes}).decode()
    spec = {"clusters": [{"name": "m1", "replicas": 2}]}
    view = binding(wish_of(), {keys.EPOCH: "1", keys.DECISION: text}, spec=spec)
    assert decided_beside(view) is None
    assert view.decision == Decision()


@pytest.mark.parametrize("phase", ["Dispatched", "Bound"], ids=["as it is written", "as earlier versions wrote it"])
def test_a_decision_says_that_it_is_dispatched(phase: str) -> None:
    text = orjson.dumps(
        {"epoch": 1, "phase": phase, "reason": "Dispatched", "story": [{**LINE, "phase": phase}]}
    ).decode()
    spec = {"clusters": [{"name": "m1", "replicas": 2}]}
    decision = binding(wish_of(), {keys.EPOCH: "1", keys.DECISION: text}, spec=spec).decision
    assert [decision.phase, decision.story[0].phase] == [Phase.DISPATCHED, Phase.DISPATCHED]
    assert b'"phase":"Dispatched"' in msgspec.json.encode(decision)


def test_a_wish_submitted_at_no_time_is_invalid_and_in_the_way_of_nothing() -> None:
    view = binding(wish_of(submitted="yesterday", patience=60.0), spec={"suspension": {"scheduling": True}})
    assert decided_beside(view) is Reason.INVALID_GANG


@pytest.mark.parametrize("epoch", [pytest.param(e, id=i) for e, i in (("²", "a power"), ("9" * 5000, "too long"))])
def test_a_binding_with_an_epoch_that_is_no_number_is_seen(epoch: str) -> None:
    assert binding(wish_of(), {keys.EPOCH: epoch}).epoch == 0
