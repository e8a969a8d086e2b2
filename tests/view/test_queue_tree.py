"""The subtree of `queue describe`: figures as the dispatcher computes them, and who borrows from whom."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model import keys
from atoll.model.decision import Phase
from atoll.model.verdict import Reason
from atoll.view import queue_description, queue_tree
from atoll.view.bindings import views
from atoll.view.queues import rows
from tests.view.made import NOW, binding, described, queue, told

Json = dict[str, Any]


def member(name: str, cpu: int, **labels: str) -> tuple[Json, Json]:
    """A Cluster and its capacity."""
    spec = {"generation": 1, "root": "", "classes": [], "total": {"cpu": cpu * 1000}}
    return (
        {"metadata": {"name": name, "labels": labels}},
        {"metadata": {"name": "nodes", "namespace": f"karmada-es-{name}"}, "spec": spec},
    )


def describe(name: str, queues: list[Json], *bindings: Json, members: tuple[tuple[Json, Json], ...] = ()) -> Json:
    [mine] = [each for each in queues if each["metadata"]["name"] == name]
    return described(
        mine,
        queues,
        list(bindings),
        NOW,
        clusters=[cluster for cluster, _ in members],
        capacities=[capacity for _, capacity in members],
    )


# A binding of the builder is in queue research and asks for 8 CPUs and 16 GPUs.
LAB = [
    queue("lab", capability={"cpu": "24"}),
    queue("research", parent="lab", deserved={"cpu": "4"}),
    queue("audio", parent="lab", deserved={"cpu": "12"}, guarantee={}),
    queue("text", parent="lab", deserved={"cpu": "6"}),
]
RUNS = binding("a", phase=Phase.DISPATCHED, reason=Reason.DISPATCHED, clusters=("east",))


def test_a_parent_shows_what_is_below_it() -> None:
    data = describe("lab", LAB, RUNS, binding("b"))
    assert data["children"] == ["audio", "research", "text"]
    [cpu, _] = data["resources"]
    assert (cpu["used"], cpu["limit"], cpu["share"]) == ("8", "24", 0.333)
    below = {each["name"]: each for each in data["tree"]["children"]}
    assert (below["research"]["running"], below["research"]["pending"]) == (1, 1)
    assert below["audio"]["resources"] == [
        {"resource": "cpu", "used": "0", "limit": "24", "deserved": "12", "share": 0.0}
    ]


def test_what_the_dispatcher_can_not_read_hides_nothing_else() -> None:
    odd = binding("odd")
    odd["status"] = {"aggregatedStatus": [{"clusterName": "east", "status": {"placement": "there"}}]}
    cluster, capacity = member("east", 8)
    broken = {**capacity, "spec": {**capacity["spec"], "classes": [{"nodes": "many"}]}}
    data = describe("lab", LAB, RUNS, odd, members=((cluster, broken),))
    assert [each["running"] for each in data["tree"]["children"] if each["name"] == "research"] == [1]


def test_a_borrower_names_those_who_lend_the_largest_first() -> None:
    [cpu, _] = describe("research", LAB, RUNS)["resources"]
    assert (cpu["deserved"], cpu["borrowed"], cpu["lenders"]) == ("4", "4", ["audio", "text"])
    text = queue_description.text(describe("lab", LAB, RUNS))
    assert "[########................] 8 of 24 (33%)  (deserves 4, borrows 4 from audio, text)" in text


def test_lenders_are_looked_for_above_when_all_siblings_use_what_they_deserve() -> None:
    queues = [
        queue("lab", deserved={"cpu": "4"}),
        queue("research", parent="lab", deserved={"cpu": "4"}),
        queue("other", deserved={"cpu": "8"}),
    ]
    [cpu, _] = describe("research", queues, RUNS)["resources"]
    assert cpu["lenders"] == ["other"]


def test_without_capability_the_members_are_the_limit() -> None:
    large, small = member("east", 64, size="large"), member("west", 16, size="small")
    [cpu, _] = describe("research", [queue()], RUNS, members=(large, small))["resources"]
    assert (cpu["limit"], cpu["share"]) == ("80", 0.1)
    only = queue(extendClusters=[{"name": "west"}])
    [cpu, _] = describe("research", [only], RUNS, members=(large, small))["resources"]
    assert cpu["limit"] == "16"


def test_an_invalid_queue_says_why_and_taints_what_is_below() -> None:
    queues = [queue("lab", parent="nowhere"), queue("research", parent="lab")]
    data = describe("lab", queues, binding("b"))
    assert data["problem"] == "queue lab: its parent nowhere does not exist"
    assert data["tree"]["children"][0]["problem"] == data["problem"]
    text = queue_description.text(data)
    assert "  INVALID     queue lab: its parent nowhere does not exist" in text
    assert "research: 0 running, 1 waiting, INVALID" in text


@pytest.mark.parametrize("phase", [pytest.param(each, id=str(each)) for each in Phase])
def test_only_what_is_charged_is_used_and_what_waits_is_wanted(phase: Phase) -> None:
    made = binding("a", phase=phase, clusters=("east",) if phase.charged else ())
    node = queue_tree.build([queue()], views([made]), [], []).queue("research")
    assert node.used.get("cpu", 0) == (8000 if phase.charged else 0)
    assert node.wanted.get("cpu", 0) == 8000


# -- states ----------------------------------------------------------------------------------------------------------


def in_state(item: Json, state: str) -> Json:
    return {**item, "status": {"state": state}}


@pytest.mark.parametrize(
    ("queues", "state"),
    [
        pytest.param([queue("lab"), queue(parent="lab")], "Open", id="all open"),
        pytest.param([in_state(queue(), "Closing")], "Closing", id="its own state"),
        pytest.param(
            [in_state(queue("lab"), "Closing"), queue(parent="lab")], "Open (lab is Closing)", id="the parent"
        ),
        pytest.param(
            [in_state(queue("top"), "Closed"), queue("lab", parent="top"), queue(parent="lab")],
            "Open (top is Closed)",
            id="one further up",
        ),
        pytest.param(
            [in_state(queue("lab"), "Closed"), in_state(queue(parent="lab"), "Closed")], "Closed", id="both closed"
        ),
        pytest.param([queue(parent="nowhere")], "Open (invalid)", id="a parent that does not exist"),
        pytest.param([queue(weight="two")], "Open (invalid)", id="a field that can't be read"),
    ],
)
def test_the_state_says_why_an_open_queue_takes_nothing(queues: list[Json], state: str) -> None:
    assert queue_tree.states(queues)["research"] == state
    if "invalid" not in state:
        [row] = [row for row in rows(queues, NOW, wide=False) if str(row[0]).strip() == "research"]
        assert row[1] == state
    data = describe("research", queues)
    assert data["state"] == state.split()[0]
    assert queue_description.text(data).startswith(f"Queue research: {state}, weight ")


def test_the_list_believes_the_dispatcher_about_what_is_invalid() -> None:
    [row] = rows([told(queue(), "its parent nowhere does not exist")], NOW, wide=False)
    assert row[1] == "Open (invalid)"


# -- what can't be read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        pytest.param({"weight": "two"}, "$.spec.weight", id="a weight in words"),
        pytest.param({"capability": ["cpu"]}, "$.spec.capability", id="a list of limits"),
        pytest.param({"parent": 7}, "$.spec.parent", id="a number as parent"),
        pytest.param({"extendClusters": {"name": "east"}}, "$.spec.extendClusters", id="members that are no list"),
        pytest.param(["weight"], "$.spec", id="a spec that is a list"),
    ],
)
def test_a_queue_that_can_not_be_read_is_described_with_the_reason_and_hides_no_other(spec: Any, where: str) -> None:
    broken = {**queue(), "spec": spec}
    queues = [queue("lab", capability={"cpu": "24"}), broken, queue("audio", parent="lab")]
    data = describe("research", queues, binding("b"))
    assert data["problem"].startswith("queue research: can't be read: ")
    assert where in data["problem"]
    assert f"  INVALID     {data['problem']}" in queue_description.text(data).splitlines()
    assert [each["binding"] for each in data["pending"]] == ["b-job"]
    assert [row[0] for row in rows(queues, NOW, wide=True)] == ["lab", "  audio", "research"]
    assert "problem" not in describe("audio", queues)


def test_a_parent_shows_a_child_that_can_not_be_read() -> None:
    data = describe("lab", [queue("lab"), queue(parent="lab", weight="two"), queue("audio", parent="lab")])
    assert ["problem" in each for each in data["tree"]["children"]] == [False, True]


# -- members ---------------------------------------------------------------------------------------------------------


def test_members_that_serve_a_queue_and_those_that_do_not_exist() -> None:
    east, west = member("east", 64, size="large"), member("west", 16, size="small")
    named = [queue(extendClusters=[{"name": "west"}, {"name": "north"}])]
    data = describe("research", named, members=(east, west))
    assert (data["members"], data["missingMembers"]) == (["west"], ["north"])
    lines = queue_description.text(data).splitlines()
    assert "  members     west" in lines
    assert "  MISSING     north: spec.extendClusters names it, and there is no such member (yet)" in lines
    none = describe("research", [queue(extendClusters=[{"name": "north"}])], members=(east, west))
    assert "  members     none" in queue_description.text(none).splitlines()
    assert not {"members", "missingMembers"} & describe("research", [queue()], members=(east, west)).keys()


def test_an_idle_child_without_limits_shows_those_above_it() -> None:
    [cpu] = describe("idle", [queue("lab", capability={"cpu": "64"}), queue("idle", parent="lab")])["resources"]
    assert (cpu["used"], cpu["limit"]) == ("0", "64")


def test_a_selector_that_matches_no_member_is_told_with_what_to_do() -> None:
    east = member("east", 64, size="large")
    mine = queue()
    mine["metadata"]["annotations"] = {keys.CLUSTER_AFFINITY: '{"matchLabels": {"size": "huge"}}'}
    data = describe("research", [mine], members=(east,))
    assert data["unserved"].startswith("no member matches the selector of queue research (size=huge): ")
    assert "atollctl queue update research --clusters" in data["unserved"]
    lines = queue_description.text(data).splitlines()
    assert f"  NO MEMBER   {data['unserved']}" in lines
    assert data["resources"] == []
    assert "  nothing is used, and nothing can be" in lines
    below = describe("idle", [mine, queue("idle", parent="research")], members=(east,))
    assert below["unserved"] == data["unserved"]


def test_the_root_has_nothing_above_it() -> None:
    data = describe("root", [queue("root", capability={"cpu": "8"}), queue("lab")])
    assert "parent" not in data
    assert queue_description.text(data).startswith("Queue root: Open, weight 1, priority 0\n")


def test_workloads_go_to_the_leaves_below() -> None:
    tree = [queue("lab"), queue("vision", parent="lab"), queue("a", parent="vision"), queue("b", parent="lab")]
    lines = queue_description.text(describe("lab", tree)).splitlines()
    assert "  divided into b, vision: workloads go to a, b" in lines


def test_a_queue_by_fair_share_shows_the_shares_and_who_goes_next() -> None:
    mine = queue(capability={"cpu": "32"})
    mine["metadata"]["annotations"] = {keys.ORDER: "fair-namespaces", keys.FAIR_HALF_LIFE: "24h"}
    runs = binding("a", phase=Phase.DISPATCHED, reason=Reason.DISPATCHED, clusters=("east",))
    first, second = binding("b"), binding("c")
    second["metadata"]["namespace"] = "other"
    odd = {"metadata": {"name": "other", "annotations": {keys.FAIR_WEIGHT: "many"}}}
    data = described(mine, [mine], [runs, first, second], NOW, namespaces=[odd])
    assert [(each["namespace"], each["part"]) for each in data["shares"]] == [("other", 0.0), ("team", 0.25)]
    assert [each["binding"] for each in data["pending"]] == [second["metadata"]["name"], first["metadata"]["name"]]
    lines = queue_description.text(data).splitlines()
    assert "  order       fair-namespaces" in lines
    assert any("'many' is not a number" in line for line in lines)
    assert any("half-life of 24h" in line for line in lines)


def test_durations_and_the_default_policy_are_shown() -> None:
    mine = queue()
    mine["metadata"]["annotations"] = {
        keys.RUNNING_ESTIMATE: "2h",
        keys.SLA_WAITING_TIME: "30m",
        keys.PROTECTED_FOR: "10m",
        keys.DEFAULT_POLICY: "spread",
        keys.RECLAIM_UNPREEMPTABLE: "false",
    }
    data = describe("research", [mine])
    shown = ("runningEstimate", "slaWaitingTime", "protectedFor", "defaultPolicy")
    assert [data[key] for key in shown] == ["2h", "30m", "10m", "spread"]
    lines = queue_description.text(data).splitlines()
    assert "  reclaim firm false" in lines
    assert {"  estimate    2h", "  sla         30m", "  protected   10m", "  policy      spread"} < set(lines)
