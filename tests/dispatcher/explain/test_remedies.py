"""What would help most comes first, and what can never start as things are says so."""

from __future__ import annotations

import dataclasses

import pytest

from atoll.dispatcher.core import CapacitySet, ClusterSet, NamespaceSet, NamespaceView
from atoll.dispatcher.core.events import Ceiling, Event
from atoll.dispatcher.explain import verdicts
from atoll.dispatcher.explain.excess import exceeded
from atoll.model import keys
from atoll.model.query import Account, ChangeKind
from atoll.model.verdict import Reason
from tests.dispatcher.builders import GPU, BindingBuilder, Scene, make_binding, make_capacity, make_cluster, make_queue

_CEILING = Ceiling()
TAINT = {"key": "gpu", "value": "x", "effect": "NoSchedule"}


def totals(name: str, *free: int, **more: object) -> list[Event]:
    """A member that is empty, and says so."""
    capacity = make_capacity(name, free, **more).capacity  # type: ignore[arg-type]
    total = {GPU: sum(free), "pods": 100 * len(free)}
    return [make_cluster(name), CapacitySet(dataclasses.replace(capacity, total=total))]


def racks(name: str, **free: int) -> list[Event]:
    capacity = make_capacity(name, {rack: [gpus] for rack, gpus in free.items()}).capacity
    total = {GPU: sum(free.values()), "pods": 100 * len(free)}
    return [make_cluster(name), CapacitySet(dataclasses.replace(capacity, total=total))]


def told(s: Scene, builder: BindingBuilder) -> Account:
    s.submit(builder)
    s.run()
    found = verdicts.account(s.core, s.view("a").uid)
    assert found is not None
    return found


def a() -> BindingBuilder:
    return make_binding("a")


@pytest.mark.parametrize(
    ("events", "builder", "reason", "first"),
    [
        pytest.param(
            racks("m", r1=4, r2=4), a().tasks(6).hard(1), Reason.NO_DOMAIN_FITS,
            "a highestTierAllowed of 2: cluster m has room for it in a domain of that tier",
            id="a wider tier, rather than larger racks",
        ),
        pytest.param(
            [*totals("m", 8)], a().tasks(6).hard(1), Reason.NO_TOPOLOGY,
            "no networkTopology: cluster m has room for it then",
            id="no topology, rather than HyperNodes",
        ),
        pytest.param(
            [*totals("m", 2), *totals("n", 8)], a().tasks(4).affinity(clusterNames=["m"]), Reason.INSUFFICIENT_RESOURCES,
            "a policy that allows another member: cluster n has room for it",
            id="another member, rather than more nodes",
        ),
        pytest.param(
            [make_cluster("m", taints=[TAINT]), make_capacity("m", [8])], a(), Reason.NO_CLUSTER,
            "a toleration of its taint (clusterTolerations of its policy): cluster m has room for it",
            id="a toleration, rather than another policy",
        ),
        pytest.param(
            [make_cluster("m", taints=[{"key": "atoll.sh/cordoned", "effect": "NoSchedule"}]), make_capacity("m", [8])],
            a(), Reason.NO_CLUSTER,
            "an end of its cordon (atollctl uncordon): cluster m has room for it",
            id="the end of a cordon",
        ),
        pytest.param(
            [*totals("m", 8)], a().tasks(2, node_selector={"zone": "b"}), Reason.NO_NODE_MATCHES,
            "pods without nodeSelector and node affinity: cluster m has room for them",
            id="no selector, rather than other nodes",
        ),
        pytest.param(
            [make_cluster("m"), make_capacity("m", [8], taints=[TAINT])], a(), Reason.NO_NODE_MATCHES,
            "tolerations of the taints of nodes in cluster m",
            id="tolerations of nodes",
        ),
    ],
)  # fmt: skip
def test_a_wish_that_is_enough_to_give_up_comes_before_more_hardware(
    events: list[Event], builder: BindingBuilder, reason: Reason, first: str
) -> None:
    found = told(Scene(make_queue("q"), *events), builder)
    assert found.reason == reason
    assert (found.changes[0].message, found.changes[0].enough) == (first, True)
    assert not any(change.enough for change in found.changes[1:]) or len(found.changes) > 2


def test_nothing_of_a_workload_is_given_up_where_that_would_not_be_enough() -> None:
    found = told(Scene(make_queue("q"), *racks("m", r1=2, r2=2)), a().tasks(6, node_selector={"zone": "b"}).hard(1))
    assert not any(change.enough for change in found.changes)


def test_nothing_is_given_up_for_members_where_its_queue_has_no_quota() -> None:
    found = told(Scene(make_queue("q", gpu=2), *racks("m", r1=4, r2=4)), a().tasks(6).hard(1))
    assert found.reason == Reason.QUOTA_EXCEEDED
    assert [change.kind for change in found.changes] == [ChangeKind.LIMITS, ChangeKind.ROOM]


@pytest.mark.parametrize(
    ("events", "builder", "never"),
    [
        pytest.param(
            [make_queue("q", gpu=4), *totals("m", 8)], a().tasks(6),
            f"it asks for 6 {GPU}, and queue q may use 4 at most",
            id="more than its queue may use",
        ),
        pytest.param(
            [make_queue("top", gpu=4), make_queue("q", view={"parent": "top"}), *totals("m", 8)], a().tasks(6),
            f"it asks for 6 {GPU}, and queue top may use 4 at most",
            id="more than a queue above may use",
        ),
        pytest.param(
            [make_queue("q"), NamespaceSet(NamespaceView("default", {GPU: 4})), *totals("m", 8)], a().tasks(6),
            f"it asks for 6 {GPU}, and namespace default may use 4 at most",
            id="more than its namespace may use",
        ),
        pytest.param(
            [make_queue("q"), *totals("m", 4, 2), *totals("n", 2)], a().tasks(7),
            "no member that it may use is large enough, even if all that runs there had ended",
            id="more than any member has",
        ),
        pytest.param(
            [make_queue("q"), *totals("m", 4, 2)], a().tasks(1, gpu=6),
            "no member that it may use is large enough, even if all that runs there had ended",
            id="larger than any node",
        ),
        pytest.param(
            [make_queue("q"), *racks("m", r1=4, r2=4)], a().tasks(6).hard(1),
            "no member that it may use is large enough, even if all that runs there had ended",
            id="larger than any domain of its tier",
        ),
        pytest.param(
            [make_queue("q"), *totals("m", 8)], a().tasks(1, node_selector={"zone": "b"}),
            "no node of the members that it may use accepts its pods, whatever ends there",
            id="nodes that there are not",
        ),
    ],
)  # fmt: skip
def test_what_can_never_start_as_things_are_says_so(events: list[Event], builder: BindingBuilder, never: str) -> None:
    s = Scene(*events)
    assert told(s, builder).never == never
    assert verdicts.what_if(s.core, builder.uid("uid-b").build(), s.now).never == never


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([make_queue("q", gpu=6), *totals("m", 8)], id="a quota that is used"),
        pytest.param([make_queue("q"), *totals("m", 4, 4)], id="a member that is full"),
        pytest.param([make_queue("q"), *totals("m", 4, 4), *totals("n", 1)], id="of two one is large enough"),
        pytest.param([make_queue("q"), make_cluster("m"), make_capacity("m", [4, 4])], id="a member of unknown size"),
    ],
)
def test_what_only_waits_for_others_is_not_never(events: list[Event]) -> None:
    s = Scene(*events)
    s.submit(make_binding("runs").tasks(4))
    s.run()
    found = told(s, a().tasks(6))
    assert found.reason in (Reason.QUOTA_EXCEEDED, Reason.INSUFFICIENT_RESOURCES)
    assert found.never == ""


# -- members that it may not use, each by its cause --------------------------------------------------------------------


def test_each_member_that_it_may_not_use_is_named_with_its_cause() -> None:
    s = Scene(
        make_queue("q", view={"members": {"east": _CEILING, "west": _CEILING, "cold": _CEILING, "north": _CEILING}}),
        make_cluster("east", taints=[TAINT]),
        make_cluster("west"),
        make_cluster("cold", taints=[{"key": "atoll.sh/cordoned", "effect": "NoSchedule"}]),
        make_cluster("south"),
        *(make_capacity(name, [8]) for name in ("east", "west", "cold", "south")),
    )
    found = told(s, a().affinity(clusterNames=["east", "cold", "south", "gone"]))
    assert found.reason == Reason.NO_CLUSTER
    assert found.message.removeprefix("no member cluster matches both its policy and its queue: ").split("; ") == [
        "cold: this member is cordoned",
        "east: this member has taint gpu=x:NoSchedule, which its policy's clusterTolerations do not tolerate",
        "gone: no member of this name has joined",
        "north: no member of this name has joined",
        "south: its queue does not use this member",
        "and 1 other",
    ]


def test_a_cause_that_changes_is_told_anew() -> None:
    s = Scene(make_queue("q"), make_cluster("m", taints=[TAINT]), make_capacity("m", [8]))
    told(s, a())
    assert "taint gpu=x" in s.view("a").decision.story[-1].text
    s.tell(ClusterSet(dataclasses.replace(make_cluster("m").cluster, taints=({**TAINT, "value": "y"},))))
    s.run(after=10)
    assert "taint gpu=y" in s.view("a").decision.story[-1].text


def test_without_members_that_is_said() -> None:
    assert told(Scene(make_queue("q")), a()).message.endswith("queue: no member has joined")


def test_a_policy_that_wants_more_members_than_it_lets_it_be_divided_over_says_so() -> None:
    builder = a().divided(least=2)
    view = dataclasses.replace(builder.build(), divided=False)
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [8]))
    s.submit(view)
    s.run()
    found = verdicts.account(s.core, view.uid)
    assert found is not None
    assert found.message.endswith("its policy wants it in 2 clusters and does not let it be divided")


def test_a_limit_is_what_siblings_leave_that_use_more_than_they_are_guaranteed() -> None:
    def child(name: str, **more: object) -> Event:
        return make_queue(name, view={"parent": "top", **more})

    s = Scene(
        *totals("m", 16), make_queue("top", gpu=8, view={"guarantee": {GPU: 4}}),
        child("over", guarantee={GPU: 2}), child("idle", guarantee={GPU: 2}), child("q"),
    )  # fmt: skip
    s.submit(make_binding("b").queue("over").tasks(6)).run()
    assert s.used("over") == 6
    [limit] = exceeded(s.core.tree.queue("q"), GPU, 2)
    assert (limit.name, limit.available, limit.guaranteed) == ("q", "0", True)


def test_where_quota_stops_it_its_user_hears_of_fewer_pods_and_of_queues_with_room() -> None:
    queues = (
        make_queue("q", gpu=3),
        make_queue("wide", gpu=8),
        make_queue("narrow", gpu=2),
        make_queue("shut", gpu=8, is_open=False),
        make_queue("others", gpu=8, view={"namespaces": {"matchLabels": {"team": "b"}}}),
    )
    s = Scene(*queues, make_cluster("m"), make_capacity("m", [8]))
    found = told(s, a().tasks(5)).changes
    [fewer] = [each.message for each in found if each.kind is ChangeKind.WISH]
    [queue] = [each.message for each in found if each.kind is ChangeKind.QUEUE]
    assert fewer.startswith("to start with 3 pods")
    assert queue == "another queue whose limits have room for it: wide"


def test_a_member_whose_cordon_keeps_it_out_is_no_reason_never_to_start() -> None:
    cordon = {"key": keys.CORDONED, "value": "", "effect": "NoSchedule"}
    large = totals("large", 8)[1]
    s = Scene(make_queue("q"), make_cluster("large", taints=[cordon]), large, *totals("small", 1))
    found = told(s, a().tasks(8))
    assert found.never == ""
    assert any(each.enough and "uncordon" in each.message for each in found.changes)


def test_a_member_without_nodes_is_told_as_such() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", []))
    found = told(s, a())
    assert (found.reason, "it has no nodes" in found.message) == ("NoNodeMatches", True)
    assert "selectors" not in found.message
    assert [room.message for room in found.clusters] == ["it has no nodes"]
