"""Which pods move: hot, cold and unknown nodes, the place of each pod, limits, and rest after a move."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.agent.descheduler.plan import Memory, Plan, plan, source_key
from atoll.agent.descheduler.policy import Policy, parse
from atoll.agent.descheduler.rules import Rules
from atoll.agent.descheduler.world import Figures, Subject, World
from atoll.agent.objects import Budget, Node, PodGroup
from atoll.agent.scheduler.core.kept import Place, encode
from atoll.agent.scheduler.core.lifted import pinned
from atoll.model import keys
from atoll.model.objects import Meta
from atoll.model.timestamps import rfc3339_seconds
from tests.agent.builders import make_group, make_node
from tests.agent.descheduler.builders import evictor, load_aware, make_subject, policy

GI = 2**30
WALL = 1_800_000_000.0
NOW = 1000.0
AT_ONCE = Rules(looks=1)
LOADED = load_aware(thresholds={"cpu": 30, "memory": 30}, targetThresholds={"cpu": 80, "memory": 85}, duration="2m")


def three() -> list[Node]:
    return [make_node(name) for name in ("n1", "n2", "n3")]


def use(cpu: float, memory: float = 1.0) -> dict[str, float]:
    """Cores and GiB."""
    return {"cpu": cpu * 1000, "memory": memory * GI}


def look(
    subjects: list[Subject],
    nodes: dict[str, dict[str, float]],
    pods: dict[str, dict[str, float]] | None = None,
    *,
    text: str = LOADED,
    there: list[Node] | None = None,
    memory: Memory | None = None,
    rules: Rules = AT_ONCE,
    taken: float = NOW,
    now: float = NOW,
    problem: str = "",
    **world: Any,
) -> Plan:
    said: Policy = parse(text)
    measured = Figures(nodes, pods or {each.metadata.key: use(1) for each in subjects}, problem, taken)
    figures = {source_key(each): measured for each in said.balances}
    return plan(
        World(there or three(), subjects, **world), said, figures, memory or Memory(), rules, now=now, wall=WALL
    )


def moved(found: Plan) -> list[tuple[str, str, str]]:
    return [(each.key.partition("/")[2], each.node, each.target) for each in found.moves]


def reasons(found: Plan, about: str) -> list[str]:
    return [each.reason for each in found.skips if each.about.endswith(about)]


HOT = {"n1": use(7), "n2": use(1), "n3": use(2)}


def test_a_hot_node_gives_its_lowest_priority_to_the_coldest_node_until_it_is_at_the_target() -> None:
    subjects = [make_subject("low", "n1"), make_subject("high", "n1", priority=9), make_subject("b", "n1", priority=5)]
    found = look(subjects, HOT)
    assert moved(found) == [("low", "n1", "n2")]
    assert found.moves[0].reason == "cpu of n1 is at 88%, above 80%"
    assert found.hot == {"n1"}


def test_the_largest_use_of_what_is_short_goes_first_among_equals() -> None:
    subjects = [make_subject("small", "n1"), make_subject("large", "n1")]
    pods = {"default/small": use(0.1, 9), "default/large": use(1, 0.1)}
    assert moved(look(subjects, HOT, pods)) == [("large", "n1", "n2")]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_a_figure_that_can_not_be_is_unknown_and_not_idle(bad: float) -> None:
    subjects = [make_subject("low", "n1")]
    found = look(subjects, {"n1": use(7), "n2": use(bad), "n3": use(2)})
    assert moved(found) == [("low", "n1", "n3")]
    assert reasons(found, "node n2") == ["its use of cpu is unknown: neither source nor target"]
    assert moved(look(subjects, {"n1": use(bad), "n2": use(1), "n3": use(1)})) == []


def test_a_node_without_figures_takes_nothing_and_gives_nothing() -> None:
    found = look([make_subject("low", "n1")], {"n1": use(7), "n3": use(2)})
    assert moved(found) == [("low", "n1", "n3")]
    assert moved(look([make_subject("low", "n1")], {"n2": use(1), "n3": use(2)})) == []


def test_nothing_moves_on_old_figures_or_none() -> None:
    old = look([make_subject("low", "n1")], HOT, taken=NOW - 181)
    assert moved(old) == []
    assert reasons(old, "LoadAware") == ["figures are 181 s old, more than 180"]
    assert reasons(look([make_subject("low", "n1")], HOT, problem="no answer"), "LoadAware") == [
        "no figures: no answer"
    ]


def test_a_node_must_be_hot_for_several_looks_in_a_row() -> None:
    memory, rules = Memory(), Rules(looks=3)
    subjects = [make_subject("low", "n1")]
    answers = [look(subjects, at, memory=memory, rules=rules) for at in (HOT, HOT, {**HOT, "n1": use(1)}, HOT, HOT)]
    assert [moved(each) for each in answers] == [[]] * 5
    assert reasons(answers[1], "node n1") == ["above the target for 2 of 3 looks"]
    assert moved(look(subjects, HOT, memory=memory, rules=rules)) == [("low", "n1", "n2")]


def test_a_pod_moves_only_where_its_own_use_stays_below_the_target() -> None:
    found = look([make_subject("big", "n1")], HOT, {"default/big": use(6)})
    assert moved(found) == []
    assert reasons(found, "default/big") == ["no cold node takes it and stays below the target"]


def test_a_pod_moves_only_where_its_requests_fit() -> None:
    subjects = [
        make_subject("low", "n1", cpu="6"),
        make_subject("full", "n2", cpu="4"),
        make_subject("f", "n3", cpu="1"),
    ]
    assert moved(look(subjects, HOT)) == [("low", "n1", "n3")]


@pytest.mark.parametrize("own", [[], [{"key": "zone", "operator": "In", "values": ["b"]}]])
def test_a_pod_that_another_scheduler_bound_by_a_plan_leaves_its_planned_node(own: list[dict[str, Any]]) -> None:
    terms = pinned([{"matchExpressions": own}] if own else [], "n1")
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    notes = {keys.PLANNED_NODE: "n1"}
    low = make_subject("low", "n1", notes=notes, affinity=affinity, schedulerName="default-scheduler")
    there = [make_node(name, labels={"zone": zone}) for name, zone in (("n1", "b"), ("n2", "a"), ("n3", "b"))]
    [move] = look([low], HOT, there=there).moves
    assert move.target == ("n3" if own else "n2")
    assert [node for node, _ in move.kept] == [move.target]
    # A pod whose user wants that node alone stays.
    alone = make_subject("low", "n1", affinity=affinity, schedulerName="default-scheduler")
    assert moved(look([alone], HOT, there=there)) == []


def test_places_that_one_look_gave_away_are_taken() -> None:
    subjects = [make_subject("a", "n1", cpu="3"), make_subject("b", "n1", cpu="3"), make_subject("c", "n2", cpu="4")]
    there = [make_node("n1"), make_node("n2")]
    found = look(subjects, {"n1": use(8), "n2": use(1)}, there=there)
    assert moved(found) == [("a", "n1", "n2")]
    assert reasons(found, "default/b") == ["no cold node takes it and stays below the target"]


def test_taints_selectors_and_cordons_are_kept() -> None:
    tainted = msgspec.structs.replace(
        make_node("n2"), spec=msgspec.structs.replace(make_node("n2").spec, unschedulable=True)
    )
    subjects = [make_subject("low", "n1", nodeSelector={"zone": "a"})]
    there = [make_node("n1"), tainted, make_node("n3")]
    assert moved(look(subjects, HOT, there=there)) == []
    there = [make_node("n1"), tainted, make_node("n3", labels={"zone": "a"})]
    assert moved(look(subjects, HOT, there=there)) == [("low", "n1", "n3")]


def test_a_pod_that_must_be_apart_from_others_of_its_kind_does_not_join_them() -> None:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    subjects = [
        make_subject("low", "n1", labels={"app": "a"}, affinity=apart),
        make_subject("other", "n2", labels={"app": "a"}),
    ]
    assert moved(look(subjects, HOT)) == [("low", "n1", "n3")]


STAY: dict[str, tuple[Subject, str]] = {
    "a bare pod": (make_subject("p", "n1", kind=""), "nothing would make it again"),
    "a pod of a DaemonSet": (make_subject("p", "n1", kind="DaemonSet"), "a DaemonSet makes it again"),
    "a mirror pod": (make_subject("p", "n1", notes={"kubernetes.io/config.mirror": "x"}), "its node made it"),
    "a pod that must not be preempted": (
        make_subject("p", "n1", notes={"volcano.sh/preemptable": "false"}),
        "preemptable is false",
    ),
    "a critical pod": (make_subject("p", "n1", priority=2_000_000_001), "is not below 2000000000"),
    "a young pod": (make_subject("p", "n1", created="2027-01-15T07:59:00Z"), "younger than 300 s"),
    "a pod that is not ready": (make_subject("p", "n1", ready=False), "is not ready, or moves"),
    "a pod with data on its node": (make_subject("p", "n1", volumes=[{"emptyDir": {}}]), "evictLocalStoragePods"),
    "a pod with a claim": (
        make_subject("p", "n1", volumes=[{"persistentVolumeClaim": {"claimName": "c"}}]),
        "its volumes may be bound",
    ),
    "a pod of a gang of the host": (
        make_subject("p", "n1", kind="Job", notes={"atoll.sh/binding-uid": "b"}),
        "belongs to a gang of the host",
    ),
    "a pod that runs to completion": (
        make_subject("p", "n1", kind="Job", restartPolicy="Never"),
        "runs to completion, and its work would be lost",
    ),
}


@pytest.mark.parametrize(("subject", "why"), STAY.values(), ids=STAY)
def test_stays(subject: Subject, why: str) -> None:
    found = look([subject], HOT)
    assert moved(found) == []
    [said] = reasons(found, "default/p")
    assert why in said


def test_a_gang_is_not_brought_below_its_minimum() -> None:
    notes = {"scheduling.k8s.io/group-name": "g"}
    subjects = [make_subject("p", "n1", kind="Job", notes=notes)]
    groups: dict[str, PodGroup] = {"default/g": make_group("g", 2)}
    assert "gang default/g" in reasons(look(subjects, HOT, groups=groups), "default/p")[0]
    assert moved(look(subjects, HOT, groups={"default/g": make_group("g", 1)})) == [("p", "n1", "n2")]
    # Pods of a service start and end one by one, whatever its first start waited for.
    service = [make_subject("p", "n1", notes=notes)]
    assert moved(look(service, HOT, groups=groups)) == [("p", "n1", "n2")]


ASK = Rules(looks=1, gangs="ask")


def make_gang(*nodes: str, **spec: Any) -> list[Subject]:
    """Pods of a gang of the host, one on each of these nodes."""
    notes = {"scheduling.k8s.io/group-name": "g", "atoll.sh/binding-uid": "b"}
    return [
        make_subject(f"g{number}", node, owner="job", kind="Job", notes=notes, **spec)
        for number, node in enumerate(nodes)
    ]


GANG: dict[str, PodGroup] = {"default/g": make_group("g", 2)}


def test_a_gang_of_the_host_is_asked_for_whole_with_a_place_for_each_pod() -> None:
    found = look(make_gang("n1", "n1"), {**HOT, "n3": use(2.3)}, groups=GANG, rules=ASK)
    assert moved(found) == []
    [ask] = found.asks
    assert (ask.binding, ask.group, ask.node) == ("b", "default/g", "n1")
    assert ask.places == {"default/g0": "n2", "default/g1": "n2"}
    # Without the rule it stays.
    assert look(make_gang("n1", "n1"), HOT, groups=GANG).asks == []


def test_each_pod_that_leaves_has_a_place_that_is_kept_until_it_may_have_come() -> None:
    alone = make_subject("a", "n1", schedulerName="atoll", priority=3, terminationGracePeriodSeconds=20)
    [move] = look([alone], HOT).moves
    requests = {"cpu": 1000, "memory": GI, "pods": 1}
    assert move.kept == (("n2", Place("of-a", requests, 3, rfc3339_seconds(WALL + 180 + 20))),)
    gang = make_gang("n1", "n1", schedulerName="atoll")
    [ask] = look(gang, {**HOT, "n3": use(2.3)}, groups=GANG, rules=ASK).asks
    assert [(node, place.owner) for node, place in ask.kept] == [(node, "b") for node in ask.places.values()]
    # Another scheduler would not look at it; 0 keeps nothing.
    assert look([make_subject("a", "n1", schedulerName="default-scheduler")], HOT).moves[0].kept == ()
    assert look([alone], HOT, rules=msgspec.structs.replace(AT_ONCE, keep=0)).moves[0].kept == ()


def test_a_place_that_is_kept_for_another_pod_is_taken() -> None:
    there = three()
    place = Place("of-b", {"cpu": 7500, "pods": 1}, 0, rfc3339_seconds(WALL + 1))
    for name, wanted in (
        (encode([place]), "n3"),
        (encode([msgspec.structs.replace(place, until="2026-01-01T00:00:00Z")]), "n2"),
    ):
        notes = {"atoll.sh/kept-places": name}
        there[1] = msgspec.structs.replace(
            there[1], metadata=msgspec.structs.replace(there[1].metadata, annotations=notes)
        )
        assert moved(look([make_subject("a", "n1")], HOT, there=there)) == [("a", "n1", wanted)]


def test_a_node_that_gives_a_gang_is_not_cool_before_the_gang_is_placed_anew() -> None:
    """Its pods have ended and are queued on the host: without the taint they could come back."""
    memory, cooled = Memory(), {**HOT, "n1": use(1)}
    assert "n1" in look([], cooled, memory=memory, rules=ASK).cool
    [ask] = look(make_gang("n1", "n1"), {**HOT, "n3": use(2.3)}, groups=GANG, rules=ASK, memory=memory).asks
    memory.ask(ask, NOW, ASK)
    assert (
        "n1"
        not in look([], cooled, memory=memory, rules=ASK, now=NOW + ASK.settle - 1, taken=NOW + ASK.settle - 1).cool
    )
    assert "n1" in look([], cooled, memory=memory, rules=ASK, now=NOW + ASK.settle, taken=NOW + ASK.settle).cool


def test_a_pod_on_its_own_goes_before_a_gang() -> None:
    found = look([*make_gang("n1"), make_subject("low", "n1", priority=5)], HOT, groups=GANG, rules=ASK)
    assert (moved(found), found.asks) == ([("low", "n1", "n2")], [])


def test_a_gang_without_a_place_for_all_of_it_stays() -> None:
    gang = make_gang("n1", "n1", cpu="4")
    others = [make_subject("o2", "n2", cpu="1"), make_subject("o3", "n3", cpu="5")]
    pods = {each.metadata.key: use(1) for each in gang}
    found = look([*gang, *others], HOT, pods, groups=GANG, rules=ASK)
    assert found.asks == []
    assert reasons(found, "gang default/g") == ["cold nodes have places for 1 of its 2 pods"]


def test_a_gang_stays_for_each_reason_of_one_of_its_pods() -> None:
    def why(gang: list[Subject], **more: Any) -> str:
        found = look(gang, HOT, **{"groups": GANG, "rules": ASK, **more})
        assert found.asks == []
        [said] = reasons(found, "gang default/g")
        return said

    assert why(make_gang("n1", "n2"), pods={"default/g0": use(1)}) == "the use of some of its pods is unknown"
    assert why(make_gang("n1", ""), pods=None) == "some of its pods have no node"
    tree = {"default/g": make_group("g", 2, topology={"mode": "hard", "highestTierAllowed": 1})}
    assert why(make_gang("n1", "n1"), groups=tree) == "its topology can't be planned here"
    young = [*make_gang("n1"), *make_gang("n3", "n3", created="2027-01-15T07:59:00Z")[1:]]
    assert why(young) == "it is younger than 300 s"
    budget = msgspec.convert(
        {"metadata": {"name": "b", "namespace": "default"}, "spec": {"selector": {}},
         "status": {"disruptionsAllowed": 1}}, Budget,
    )  # fmt: skip
    assert why(make_gang("n1", "n1"), budgets=[budget]) == (
        "PodDisruptionBudget default/b allows 1 disruptions now, not 2"
    )
    memory = Memory(asked={"b": NOW - 60})
    assert why(make_gang("n1", "n1"), memory=memory) == "the host was asked less than 300 s ago"


def test_a_budget_counts_what_the_look_takes_already() -> None:
    labels = {"app": "a"}
    subjects = [make_subject("a", "n1", labels=labels), make_subject("b", "n1", labels=labels)]
    budget = msgspec.convert(
        {"metadata": {"name": "b", "namespace": "default"}, "spec": {"selector": {"matchLabels": labels}},
         "status": {"disruptionsAllowed": 1}}, Budget,
    )  # fmt: skip
    found = look(subjects, {**HOT, "n1": use(8)}, budgets=[budget])
    assert moved(found) == [("a", "n1", "n2")]
    assert reasons(found, "default/b") == ["PodDisruptionBudget default/b allows no disruption now"]


def test_pods_of_one_workload_go_one_at_a_time() -> None:
    subjects = [make_subject("a", "n1", owner="rs"), make_subject("b", "n1", owner="rs")]
    found = look(subjects, {**HOT, "n1": use(8)})
    assert moved(found) == [("a", "n1", "n2")]
    assert reasons(found, "default/b") == ["another pod of its workload is not ready, or moves"]
    # Two ReplicaSets of one Deployment are one workload.
    subjects = [make_subject("a", "n1", owner="old"), make_subject("b", "n1", owner="new", ready=False)]
    assert moved(look(subjects, HOT, workloads={"old": "d", "new": "d"})) == []


def test_the_policy_limits_and_the_rules_do() -> None:
    subjects = [make_subject(f"p{number}", "n1") for number in range(4)]
    pods = {each.metadata.key: use(0.5) for each in subjects}
    busy = {**HOT, "n1": use(8)}
    assert len(look(subjects, busy, pods).moves) == 4
    limited = policy(("LoadAware", LOAD), balance=["LoadAware"], maxNoOfPodsToEvictPerNode=1)
    assert len(look(subjects, busy, pods, text=limited).moves) == 1
    assert len(look(subjects, busy, pods, rules=Rules(looks=1, per_namespace=2)).moves) == 2
    assert len(look(subjects, busy, pods, rules=Rules(looks=1, total=3)).moves) == 3


LOAD: dict[str, Any] = {
    "thresholds": {"cpu": 30}, "targetThresholds": {"cpu": 80},
    "metrics": {"type": "prometheus", "address": "http://p"},
}  # fmt: skip


def test_the_article_leaves_priorities_and_namespaces_alone_that_it_names() -> None:
    text = policy(
        ("LoadAware", {**LOAD, "evictableNamespaces": {"exclude": ["default"]}}),
        ("DefaultEvictor", {"nodeFit": True, "ignorePvcPods": True, "priorityThreshold": {"value": 10000}}),
        balance=["LoadAware"],
    )
    subjects = [
        make_subject("a", "n1"),
        make_subject("b", "n1", namespace="work", priority=1000000),
        make_subject("c", "n1", namespace="work", priority=1000),
    ]
    found = look(subjects, HOT, text=text)
    assert moved(found) == [("c", "n1", "n2")]
    assert reasons(found, "default/a") == ["evictableNamespaces leaves its namespace out"]


@pytest.mark.parametrize(
    ("args", "classes", "default", "below"),
    [
        pytest.param({"priorityThreshold": {"value": 10000}}, {}, 0, 10000, id="the policy's threshold"),
        pytest.param({"priorityThreshold": {"name": "b"}}, {"a": 1, "b": 5}, 0, 5, id="the threshold's class"),
        pytest.param({}, {"high": 1000, "higher": 2000}, 0, 1000, id="without one, pods of no class are the lowest"),
        pytest.param({}, {"low": -10, "high": 9}, 0, 0, id="without one, the lowest class"),
        pytest.param({}, {"usual": 50, "high": 90}, 50, 90, id="pods of no class have the default one"),
        pytest.param({}, {"system-node-critical": 2_000_001_000}, 0, None, id="one class alone is not lower"),
    ],
)
def test_pods_of_low_priority_are_to_stay_off_hot_nodes(
    args: dict[str, Any], classes: dict[str, int], default: int, below: int | None
) -> None:
    found = look([make_subject("a", "n1")], HOT, text=evictor(**args), priorities=classes, default_priority=default)
    assert (found.lasting, found.below) == ({"n1"}, below)


def test_a_pod_moves_to_no_node_that_its_placer_finds_too_hot_for_it() -> None:
    there = three()
    taint = {"key": "atoll.sh/hot", "value": "below-10", "effect": "PreferNoSchedule"}
    there[1] = msgspec.structs.replace(there[1], spec=msgspec.structs.replace(there[1].spec, taints=[taint]))
    subjects = [make_subject("low", "n1"), make_subject("high", "n1", priority=10)]
    assert moved(look(subjects, {**HOT, "n1": use(8)}, there=there)) == [("low", "n1", "n3"), ("high", "n1", "n2")]


def test_a_priority_threshold_by_name_needs_its_class() -> None:
    text = evictor(priorityThreshold={"name": "mid"})
    subjects = [make_subject("p", "n1", priority=7)]
    assert moved(look(subjects, HOT, text=text, priorities={"mid": 8})) == [("p", "n1", "n2")]
    assert moved(look(subjects, HOT, text=text, priorities={"mid": 7})) == []
    assert "PriorityClass mid, which is not there" in reasons(look(subjects, HOT, text=text), "profile p")[0]


def test_who_gave_takes_nothing_and_who_took_gives_nothing_for_a_pause() -> None:
    memory, subjects = Memory(), [make_subject("low", "n1")]
    [move] = look(subjects, HOT, memory=memory).moves
    memory.moved(move, NOW, AT_ONCE)
    turned = {"n1": use(1), "n2": use(7), "n3": use(7)}
    back = [make_subject("low2", "n2"), make_subject("x", "n3")]
    later = look(back, turned, memory=memory, now=NOW + 600, taken=NOW + 600)
    assert moved(later) == []
    assert reasons(later, "LoadAware") == ["0 nodes below thresholds may take pods; more than 0 are needed"]
    much_later = look(back, turned, memory=memory, now=NOW + 901, taken=NOW + 901)
    assert len(much_later.moves) == 2


def test_the_replacement_of_a_moved_pod_rests() -> None:
    memory = Memory()
    [move] = look([make_subject("a", "n1", owner="rs")], HOT, memory=memory).moves
    memory.moved(move, NOW, AT_ONCE)
    # The wall clock of these looks stands still: the replacement was made when the pod moved.
    later = NOW + 1800
    fresh = make_subject("b", "n3", owner="rs", created="2027-01-15T07:31:00Z")
    old = make_subject("c", "n3", owner="rs")
    turned = {"n1": use(6), "n2": use(1), "n3": use(7)}
    found = look([fresh], turned, memory=memory, now=later, taken=later)
    assert reasons(found, "default/b") == ["it replaces a moved pod and rests for 3600 s"]
    assert moved(look([old], turned, memory=memory, now=later, taken=later)) == [("c", "n3", "n2")]


def test_the_replacement_rests_though_another_pod_of_its_workload_moved_after_it() -> None:
    memory = Memory()
    for at in (NOW, NOW + 600):
        [move] = look([make_subject("a", "n1", owner="rs")], HOT, memory=memory, now=at, taken=at).moves
        memory.moved(move, at, AT_ONCE)
        memory.moves.clear()
    first = make_subject("b", "n3", owner="rs", created="2027-01-15T07:30:00Z")
    later = NOW + 1800
    found = look([first], {"n1": use(6), "n2": use(1), "n3": use(7)}, memory=memory, now=later, taken=later)
    assert reasons(found, "default/b") == ["it replaces a moved pod and rests for 3600 s"]


def test_pods_that_run_to_completion_go_after_services_and_while_their_work_is_short() -> None:
    service = make_subject("service", "n1")
    batch = make_subject("batch", "n1", kind="Job", restartPolicy="OnFailure", created="2027-01-15T07:50:00Z")
    allowed = make_subject(
        "allowed", "n1", kind="Job", restartPolicy="Never", notes={"descheduler.alpha.kubernetes.io/evict": ""}
    )
    pods = {"default/service": use(0.5), "default/batch": use(3), "default/allowed": use(0.1)}
    young = Rules(looks=1, lost=900)
    assert [name for name, *_ in moved(look([batch, service], HOT, pods, rules=young))] == ["service", "batch"]
    assert [name for name, *_ in moved(look([batch, service, allowed], HOT, pods))] == ["service", "allowed"]


@pytest.mark.parametrize(
    ("scheduler", "others", "goes"),
    [
        pytest.param("default-scheduler", 2, True, id="another scheduler has cool nodes"),
        pytest.param("default-scheduler", 6, False, id="another scheduler may choose a node that gets hot"),
        pytest.param("atoll", 6, True, id="the place is kept"),
    ],
)
def test_a_pod_moves_where_its_node_gains_more_than_others_lose_in_the_mean(
    scheduler: str, others: float, goes: bool
) -> None:
    subjects = [make_subject("p", "n1", schedulerName=scheduler)]
    nodes = {"n1": use(7), "n2": use(1)} | {f"n{number}": use(others) for number in range(3, 8)}
    found = look(subjects, nodes, {"default/p": use(2)}, there=[make_node(name) for name in nodes])
    assert bool(moved(found)) == goes
    if not goes:
        assert reasons(found, "default/p") == ["where its scheduler may put it, its use would do more harm"]


def test_a_move_counts_until_figures_show_it() -> None:
    memory, subjects = Memory(), [make_subject("a", "n1"), make_subject("b", "n1")]
    [move] = look(subjects, HOT, memory=memory).moves
    memory.moved(move, NOW, AT_ONCE)
    found = look([subjects[1]], HOT, memory=memory, now=NOW + 60, taken=NOW + 60)
    assert moved(found) == []
    assert reasons(found, "node n1") == ["pods that left it are not out of the figures yet"]
    assert len(look([subjects[1]], HOT, memory=memory, now=NOW + 301, taken=NOW + 301).moves) == 1


def test_deviation_is_the_distance_from_the_mean_of_measured_nodes() -> None:
    text = load_aware(thresholds={"cpu": 10}, targetThresholds={"cpu": 10}, useDeviationThresholds=True)
    subjects = [make_subject("low", "n1")]
    assert moved(look(subjects, {"n1": use(4), "n2": use(2), "n3": use(0.5)}, text=text)) == [("low", "n1", "n3")]


def test_requests_are_looked_at_where_nothing_measures() -> None:
    args = {"thresholds": {"cpu": 30}, "targetThresholds": {"cpu": 60}}
    text = policy(("LowNodeUtilization", args), balance=["LowNodeUtilization"])
    subjects = [make_subject(f"p{number}", "n1", cpu="2") for number in range(3)]
    assert moved(look(subjects, {}, text=text)) == [("p0", "n1", "n2")]


def test_pods_that_their_node_would_refuse_move_where_they_fit() -> None:
    text = policy(deschedule=["RemovePodsViolatingNodeTaints"])
    first = make_node("n1")
    taints = [{"key": "gone", "effect": "NoSchedule"}]
    first = msgspec.structs.replace(first, spec=msgspec.structs.replace(first.spec, taints=taints))
    subjects = [
        make_subject("a", "n1"),
        make_subject("b", "n1", tolerations=[{"key": "gone", "operator": "Exists"}]),
    ]
    found = look(subjects, {}, text=text, there=[first, make_node("n2")])
    assert moved(found) == [("a", "n1", "n2")]
    affinity = {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]}
    text = policy(("RemovePodsViolatingNodeAffinity", affinity), deschedule=["RemovePodsViolatingNodeAffinity"])
    subjects = [make_subject("a", "n1", nodeSelector={"zone": "a"})]
    there = [make_node("n1"), make_node("n2", labels={"zone": "a"})]
    assert moved(look(subjects, {}, text=text, there=there)) == [("a", "n1", "n2")]


FIGURE = st.one_of(st.floats(0, 8000), st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 0.0]), st.none())


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Node], list[Subject], dict[str, Any], dict[str, Any]]:
    names = [f"n{number}" for number in range(draw(st.integers(1, 5)))]
    nodes = [make_node(name, ready=draw(st.booleans()) or index < 2) for index, name in enumerate(names)]
    subjects = [
        make_subject(
            f"p{number}", draw(st.sampled_from(names)), cpu=str(draw(st.integers(1, 4))),
            owner=draw(st.sampled_from(["x", "y", f"z{number}"])), ready=draw(st.integers(0, 5)) > 0,
        )
        for number in range(draw(st.integers(0, 10)))
    ]  # fmt: skip

    def figures(of: list[str]) -> dict[str, dict[str, float]]:
        found = {}
        for name in of:
            if (cpu := draw(FIGURE)) is not None:
                found[name] = {"cpu": cpu, "memory": float(GI)}
        return found

    return nodes, subjects, figures(names), figures([each.metadata.key for each in subjects])


@settings(max_examples=150, deadline=None)
@given(clusters(), st.integers(1, 3))
def test_every_move_has_a_known_source_above_the_target_and_a_place(cluster: Any, per_node: int) -> None:
    nodes, subjects, known, pods = cluster
    found = look(subjects, known, pods, there=nodes, rules=Rules(looks=1, per_node=per_node))
    # The same input gives the same answer.
    assert found == look(subjects, known, pods, there=nodes, rules=Rules(looks=1, per_node=per_node))
    spent = {each.metadata.name: 8000 for each in nodes}
    after = {name: each["cpu"] for name, each in known.items()}
    for each in subjects:
        spent[each.pod.node] -= each.pod.requests["cpu"]
    ready = {each.metadata.name for each in nodes if each.ready}
    by_key = {each.metadata.key: each for each in subjects}
    for move in found.moves:
        assert move.target in ready
        assert move.target != move.node
        for name in (move.node, move.target):
            assert math.isfinite(known[name]["cpu"])
            assert known[name]["cpu"] >= 0
        assert after[move.node] > 0.8 * 8000
        after[move.node] -= move.use["cpu"]
        after[move.target] += move.use["cpu"]
        assert after[move.target] <= 0.75 * 8000 + 1e-6
        spent[move.node] += by_key[move.key].pod.requests["cpu"]
        spent[move.target] -= by_key[move.key].pod.requests["cpu"]
        assert spent[move.target] >= 0
    assert len({move.key for move in found.moves}) == len(found.moves)
    owners = [by_key[move.key].owner[1] for move in found.moves]
    assert len(set(owners)) == len(owners)
    assert all(sum(move.node == name for move in found.moves) <= per_node for name in spent)
    # Whatever is hot and stays so says why.
    for name in found.hot:
        if not any(move.node == name for move in found.moves):
            assert found.skips


def test_meta_of_subjects_is_the_pods() -> None:
    subject = make_subject("p", "n1")
    assert isinstance(subject.metadata, Meta)
    assert subject.metadata is subject.pod.metadata
