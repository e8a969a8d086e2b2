"""What a verdict says in each case: of every member, of every limit, and what would help."""

from __future__ import annotations

import dataclasses

import pytest

from atoll.dispatcher.core import CapacitySet, Ceiling, ClusterGone, Event, NamespaceSet, NamespaceView, Strategy
from atoll.dispatcher.core.settings import CoreSettings
from atoll.model.query import Account, ChangeKind
from atoll.model.timestamps import rfc3339, to_seconds
from atoll.model.verdict import Blocker
from tests.dispatcher.builders import (
    BACKFILL,
    EARLY,
    GPU,
    LATE,
    NEVER,
    OLD,
    ROOM,
    START,
    BindingBuilder,
    Scene,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
    scene,
    share,
)
from tests.dispatcher.explain.questions import TWO, account, ask, running

SETTLE = CoreSettings().backfill.settle
EXACT = CoreSettings().reasons.exact
NAMED = CoreSettings().reasons.named
PROTECTION = CoreSettings().preemption.protection

STRICT = {"strategy": Strategy.FIFO}


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_full_namespace_is_what_blocks() -> None:
    s = scene(NamespaceSet(NamespaceView("default", {GPU: 3})))
    running(s, make_binding("a").tasks(2))
    found = ask(s, make_binding("x").tasks(2))
    assert (found.starts, found.reason) == (False, "QuotaExceeded")
    assert found.blocker == Blocker("Namespace", "default", GPU, "2", "1")
    assert [(each.kind, each.name, each.shortage) for each in found.limits] == [("Namespace", "default", "1")]
    assert ask(s, make_binding("x").tasks(1)).starts


def test_what_the_members_have_is_a_limit_less_what_is_used() -> None:
    total = CapacitySet(dataclasses.replace(make_capacity("m", [8]).capacity, total={GPU: 8}))
    s = running(Scene(make_queue("q"), make_cluster("m"), total), make_binding("runs").tasks(3))
    [limit] = ask(s, make_binding("x").tasks(6)).limits
    assert (limit.requested, limit.available, limit.shortage) == ("6", "5", "1")
    assert (limit.declared, limit.guaranteed) == (False, False)


def test_a_limit_that_is_not_set_is_told_as_such() -> None:
    """Of 8, 4 are guaranteed to another queue and 4 are used."""
    total = CapacitySet(dataclasses.replace(make_capacity("m", [8]).capacity, total={GPU: 8}))
    s = Scene(make_queue("q"), make_queue("sure", view={"guarantee": {GPU: 4}}), make_cluster("m"), total)
    running(running(s, make_binding("runs").tasks(4)), make_binding("a").tasks(3))
    [limit] = account(s, "a").limits
    assert (limit.kind, limit.name, limit.available, limit.shortage, limit.declared) == ("Queue", "q", "0", "3", False)
    assert limit.guaranteed


def test_where_others_are_guaranteed_the_rest_no_limit_would_help() -> None:
    """Of 8, 6 are guaranteed to another queue; 8 are free, and nothing limits `q` itself."""
    total = CapacitySet(dataclasses.replace(make_capacity("m", [8]).capacity, total={GPU: 8}))
    s = Scene(make_queue("q"), make_queue("sure", view={"guarantee": {GPU: 6}}), make_cluster("m"), total)
    running(s, make_binding("a").tasks(4))
    found = account(s, "a")
    assert found.reason == "QuotaExceeded"
    change = found.changes[0]
    assert [each.kind for each in found.changes] == [ChangeKind.LIMITS, ChangeKind.WISH, ChangeKind.QUEUE]
    assert change.enough
    assert change.message == f"lower guarantees of other queues, by what is short (queue q: 2 {GPU})"


def test_a_limit_and_a_guarantee_beside_it_are_both_named_each_by_what_the_other_leaves_short() -> None:
    """`top` may use 2, of which 1 is guaranteed to the queue beside `q`. With 4 for `top` it leaves 3."""
    total = CapacitySet(dataclasses.replace(make_capacity("m", [8]).capacity, total={GPU: 8}))
    s = Scene(
        make_queue("top", gpu=2, view={"guarantee": {GPU: 1}}),
        make_queue("q", view={"parent": "top"}),
        make_queue("sure", view={"parent": "top", "guarantee": {GPU: 1}}),
        make_cluster("m"),
        total,
    )
    running(s, make_binding("a").tasks(4))
    found = account(s, "a")
    assert [(each.name, each.shortage, each.guaranteed) for each in found.limits] == [
        ("q", "1", True),
        ("top", "2", False),
    ]
    assert found.changes[0].message == (
        f"higher limits, by what is short (queue top: 2 {GPU}), "
        f"and lower guarantees of other queues, by what is short (queue q: 1 {GPU})"
    )


def test_pods_that_are_larger_than_any_node_are_told_so() -> None:
    """Nodes of 8, one of which is full; whoever ends, none holds 16. Where the nodes are large enough, they fill up."""
    total = CapacitySet(dataclasses.replace(make_capacity("m", [8, 8]).capacity, total={GPU: 16}))
    s = running(scene(room=(make_cluster("m"), total)), make_binding("runs").tasks(8))
    running(s, make_binding("big").tasks(1, gpu=16))
    found = account(s, "big")
    [room] = found.clusters
    assert "no node has more than 8 for it" in room.message
    [change] = found.changes
    assert change.kind is ChangeKind.ROOM
    assert change.message == (
        f"larger nodes, or smaller pods: a pod of task t0 asks for 16 {GPU}, and no node has more than 8 for it in cluster m"
    )
    running(s, make_binding("more").tasks(2, gpu=8))
    [change] = account(s, "more").changes
    assert "room for 1 more pod" in change.message


def test_nothing_is_said_of_the_size_of_nodes_on_which_others_run() -> None:
    """Of 16, 12 are used by somebody else."""
    total = CapacitySet(dataclasses.replace(make_capacity("m", [2, 2]).capacity, total={GPU: 16}))
    s = running(scene(room=(make_cluster("m"), total)), make_binding("a").tasks(1, gpu=4))
    [change] = account(s, "a").changes
    assert "room for 1 more pod" in change.message


def test_what_has_gone_since_the_last_pass_is_no_limit_to_be_raised() -> None:
    s = running(Scene(make_queue("q", gpu=4), *TWO), make_binding("a").tasks(4), make_binding("b").tasks(4))
    s.change("a", finished=True)
    [change] = account(s, "b").changes
    assert (change.kind, change.limits) == (ChangeKind.WAIT, [])


def test_the_numbers_are_those_of_now_though_the_binding_says_others() -> None:
    s = running(running(Scene(make_queue("q", gpu=6), *TWO), make_binding("a").tasks(4)), make_binding("b").tasks(4))
    running(s, make_binding("c").tasks(1))
    told, found = s.view("b").decision.blocker, account(s, "b").blocker
    assert told is not None
    assert found is not None
    assert (told.available, found.available) == ("2", "1")


def test_the_member_that_comes_nearest_now_is_named_though_the_binding_names_another() -> None:
    s = running(Scene(make_queue("q"), *TWO), make_binding("a").tasks(10))
    running(s, make_binding("b").tasks(6))
    told, found = s.view("a").decision.blocker, account(s, "a")
    assert told == Blocker("Cluster", "m1", "pods", "10", "8")
    assert found.blocker == Blocker("Cluster", "m2", "pods", "10", "4")
    assert "cluster m2 holds 4 of the 10 pods" in found.message


def test_a_reservation_without_a_known_time_has_none() -> None:
    s = Scene(make_queue("q", view=BACKFILL), *ROOM)
    running(running(s, make_binding("runs").tasks(6)), make_binding("head").tasks(8))
    reserved = account(s, "head").reserved
    assert reserved is not None
    assert (reserved.cluster, reserved.at) == ("m", "")


def test_what_follows_from_a_limit_above_is_no_limit_of_its_own() -> None:
    s = Scene(make_queue("top", gpu=2), make_queue("q", view={"parent": "top"}), *TWO)
    running(s, make_binding("a").tasks(4))
    found = account(s, "a")
    assert [(each.name, each.declared) for each in found.limits] == [("top", True)]
    assert (found.reason, found.blocker) == ("QuotaExceeded", Blocker("Queue", "top", GPU, "4", "2", bound="above"))


def test_a_limit_that_is_set_blocks_whatever_follows_from_what_the_members_have() -> None:
    """Of 8, 4 are guaranteed to another queue; 3 are free. `q` may use 6, so 4 by what is there."""
    total = CapacitySet(dataclasses.replace(make_capacity("m", [3]).capacity, total={GPU: 8}))
    sure = make_queue("sure", view={"guarantee": {GPU: 4}})
    s = Scene(make_queue("q", gpu=6), sure, make_cluster("m"), total)
    running(s, make_binding("a").tasks(7), make_binding("b").tasks(5))
    assert account(s, "a").blocker == Blocker("Queue", "q", GPU, "7", "6")
    assert account(s, "b").blocker == Blocker("Cluster", "m", "pods", "5", "3")


@pytest.mark.parametrize(
    ("pods", "enough", "kinds"),
    [
        pytest.param(8, True, [ChangeKind.LIMITS, ChangeKind.WISH], id="where there is room"),
        pytest.param(20, False, [ChangeKind.LIMITS, ChangeKind.ROOM], id="where there is none either"),
    ],
)
def test_whether_higher_limits_alone_would_do(pods: int, enough: bool, kinds: list[ChangeKind]) -> None:
    s = running(Scene(make_queue("q", gpu=2), *TWO), make_binding("a").tasks(pods))
    changes = account(s, "a").changes
    assert [change.kind for change in changes] == kinds
    assert changes[0].enough is enough
    assert f"queue q: {pods - 2} {GPU}" in changes[0].message
    assert ("there must be room as well" in changes[0].message) is not enough


# -- order -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waiting", "asked", "starts"),
    [
        pytest.param([make_binding("head").tasks(20)], make_binding("x").created(LATE), False, id="behind the head"),
        pytest.param([make_binding("head").tasks(20)], make_binding("x").priority(1), True, id="before the head"),
        pytest.param([], make_binding("x"), True, id="where nobody waits"),
    ],
)
def test_in_a_strict_queue_only_the_first_may_start(
    waiting: list[BindingBuilder], asked: BindingBuilder, starts: bool
) -> None:
    s = running(Scene(make_queue("q", view=STRICT), *TWO), *waiting)
    found = ask(s, asked)
    assert found.starts is starts
    assert found.reason == ("" if starts else "BehindHead")
    if not starts:
        assert found.blocker == Blocker("Queue", "q")
        assert [change.kind for change in found.changes] == [ChangeKind.QUEUE]


def test_in_any_other_queue_who_comes_later_may_pass() -> None:
    s = running(scene(room=TWO), make_binding("head").tasks(20).submitted(EARLY))
    assert ask(s, make_binding("x").submitted(LATE)).starts


def test_what_was_not_looked_at_yet_waits_for_the_next_pass() -> None:
    s = scene(room=TWO).submit(make_binding("a"))
    found = account(s, "a")
    assert (found.reason, found.since) == ("Submitted", "")
    assert [(change.kind, change.message) for change in found.changes] == [
        (ChangeKind.WAIT, "the next pass of the dispatcher looks at it")
    ]


@pytest.mark.parametrize(
    ("queues", "reason", "words"),
    [
        pytest.param([make_queue("q", is_open=False)], "QueueClosed", "is opened", id="closed"),
        pytest.param([make_queue("q", view={"problem": "odd"})], "QueueInvalid", "fix queue q", id="not readable"),
        pytest.param(
            [make_queue("q"), make_queue("below", view={"parent": "q"})], "QueueNotLeaf", "below q", id="not a leaf"
        ),
    ],
)
def test_a_queue_that_admits_nothing_says_what_to_do(queues: list[Event], reason: str, words: str) -> None:
    s = running(Scene(*queues, *TWO), make_binding("a"))
    for found in (account(s, "a"), ask(s, make_binding("x"))):
        assert found.reason == reason
        assert [change.kind for change in found.changes] == [ChangeKind.QUEUE]
        assert words in found.changes[0].message


# -- members -----------------------------------------------------------------------------------------------------------


def test_the_nearest_members_are_tried_and_the_others_are_counted() -> None:
    sizes = range(1, EXACT + 3)
    s = scene(room=[each for n in sizes for each in (make_cluster(f"m{n:02}"), make_capacity(f"m{n:02}", [n]))])
    rooms = ask(s, make_binding("x").tasks(20)).clusters
    assert [(room.cluster, room.fits) for room in rooms] == [(f"m{n:02}", n) for n in reversed(sizes)]
    # Which resource is short is known where it was tried.
    assert [room.cluster for room in rooms if not room.resource] == ["m02", "m01"]
    assert rooms[-1].message == "there is room for 1 of the 20 pods that must start together"
    assert {room.reason for room in rooms} == {"InsufficientResources"}


def test_a_member_where_it_fits_comes_first_and_says_so() -> None:
    s = running(Scene(make_queue("q", gpu=0), *TWO), make_binding("a").tasks(4))
    assert [(room.cluster, room.reason, room.message) for room in account(s, "a").clusters] == [
        ("m1", "", "it has room"),
        ("m2", "", "it has room"),
    ]


def test_a_member_that_its_policy_leaves_out_says_so() -> None:
    s = running(Scene(make_queue("q", gpu=0), *TWO), make_binding("a").affinity(clusterNames=["m2"]))
    assert [(room.cluster, room.reason) for room in account(s, "a").clusters] == [
        ("m2", ""),
        ("m1", "NoClusterMatches"),
    ]


def test_a_member_that_one_of_several_affinities_allows_is_allowed() -> None:
    turns = tuple({"affinityName": name, "clusterNames": [name]} for name in ("m1", "m2"))
    s = Scene(make_queue("q", gpu=0), *TWO)
    s.see(dataclasses.replace(make_binding("a").build(), affinities=turns))
    s.run()
    assert [(room.cluster, room.reason) for room in account(s, "a").clusters] == [("m1", ""), ("m2", "")]


def test_since_when_is_asked_of_the_last_time_that_it_was_so() -> None:
    s = Scene(make_queue("q", gpu=0), *TWO).submit(make_binding("a"))
    times = []
    for is_open in (True, False, True):
        s.tell(make_queue("q", is_open=is_open, gpu=0))
        s.run(after=60.0)
        times.append(s.view("a").decision.story[-1].at)
    assert account(s, "a").since == times[-1]


def test_a_member_that_failed_it_says_so() -> None:
    s = running(scene(), make_binding("a"))
    s.run(after=31.0)
    s.change("a", released=s.view("a").generation)
    s.run()
    found = account(s, "a")
    [room] = found.clusters
    assert (found.reason, room.reason) == ("ClustersAvoided", "ClustersAvoided")
    assert [change.kind for change in found.changes] == [ChangeKind.WAIT]


@pytest.mark.parametrize("left", [1, 0])
def test_a_ceiling_in_a_member_says_what_it_leaves(left: int) -> None:
    s = Scene(make_queue("q", view={"members": {"m": Ceiling(capability={GPU: 4})}}), *ROOM)
    running(running(s, make_binding("runs").tasks(4 - left)), make_binding("a").tasks(2))
    [room] = account(s, "a").clusters
    assert (room.reason, room.fits) == ("QuotaExceeded", 2)
    assert room.message == f"the ceiling of queue q there leaves {left} {GPU}"


def test_a_ceiling_that_lacks_a_single_one_is_a_limit() -> None:
    s = Scene(make_queue("q", view={"members": {"m": Ceiling(capability={GPU: 4})}}), *ROOM)
    running(running(s, make_binding("runs").tasks(4)), make_binding("a"))
    assert [(limit.cluster, limit.shortage) for limit in account(s, "a").limits] == [("m", "1")]


def test_a_ceiling_that_is_just_high_enough_is_none() -> None:
    ceiling = Ceiling(capability={GPU: 1, "pods": 2})
    s = running(Scene(make_queue("q", view={"members": {"m": ceiling}}), *ROOM), make_binding("a").tasks(2))
    assert [(limit.resource, limit.shortage) for limit in account(s, "a").limits] == [(GPU, "1")]


def test_the_first_of_a_strict_queue_is_behind_no_other() -> None:
    s = Scene(make_queue("q", view={"strategy": Strategy.FIFO}), *ROOM).submit(make_binding("a").tasks(9))
    assert account(s, "a").reason == "InsufficientResources"


def test_where_room_is_missing_is_told_with_the_domain_and_what_there_is_too_little_of() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", {"r1": [1], "r2": [2]}))
    found = account(running(s, make_binding("a").tasks(3).hard(1)), "a")
    assert "room for 1 more pod in cluster m, domain r2" in found.changes[-1].message
    found = account(running(s, make_binding("b").tasks(5)), "b")
    assert f"room for 2 more pods in cluster m, such as 2 {GPU}" in found.changes[-1].message


def test_room_that_is_kept_for_another_says_so() -> None:
    s = Scene(make_queue("q", view=BACKFILL), *ROOM)
    running(s, make_binding("runs").tasks(6).runs(100))
    running(s, make_binding("head").tasks(8).runs(10).submitted(EARLY), make_binding("a").runs(1000).submitted(LATE))
    found = account(s, "a")
    assert found.clusters[0].message == (
        "the capacity there is reserved for a workload of queue q that comes before it"
    )
    assert [change.kind for change in found.changes] == [ChangeKind.WISH, ChangeKind.WAIT]


def test_a_domain_where_it_would_go_is_named() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", {"r1": [4], "r2": [8]})))
    [place] = ask(s, make_binding("x").tasks(6)).places
    assert (place.cluster, place.pods, place.domain) == ("m", 6, "r2")


@pytest.mark.parametrize(
    ("builder", "reason", "kind"),
    [
        pytest.param(
            make_binding("x").affinity(clusterNames=["none"]), "NoClusterMatches", ChangeKind.POLICY, id="a policy"
        ),
        pytest.param(
            make_binding("x").tasks(1, node_selector={"disk": "ssd"}), "NoNodeMatches", ChangeKind.WISH, id="its wish"
        ),
    ],
)
def test_what_must_be_changed_of_it(builder: BindingBuilder, reason: str, kind: ChangeKind) -> None:
    found = ask(scene(), builder)
    assert (found.reason, {change.kind for change in found.changes}) == (reason, {kind})


# -- others ------------------------------------------------------------------------------------------------------------


def test_not_more_than_a_few_of_many_that_must_end_are_named() -> None:
    more = 3
    s = scene(room=(make_cluster("m"), make_capacity("m", [NAMED + more])))
    running(s, *(make_binding(f"b{n:02}").runs(100.0 + n) for n in range(NAMED + more)))
    changes = ask(s, make_binding("x").tasks(NAMED + more)).changes
    ends = changes[0]
    assert (ends.kind, len(ends.workloads), ends.more) == (ChangeKind.FINISH, NAMED, more)
    assert ends.message == f"the end of {NAMED + more} workloads"
    assert to_seconds(ends.at) == pytest.approx(START + 100 + NAMED + more - 1 + SETTLE, abs=1)


def test_an_end_that_is_not_known_has_no_time() -> None:
    s = running(scene(), make_binding("a").tasks(8))
    [ends, _] = ask(s, make_binding("x").tasks(8)).changes
    assert (ends.kind, ends.message, ends.at) == (ChangeKind.FINISH, "the end of 1 workload", "")


@pytest.mark.parametrize("age", [1.0, OLD], ids=["what has just started", "what runs for long"])
def test_its_victims_depend_on_its_age(age: float) -> None:
    s = running(scene(), make_binding("low").tasks(8))
    s.bound("low", generation=NEVER)
    found = ask_later(s, make_binding("x").tasks(8).priority(1), age)
    assert (ChangeKind.EVICT in found) is (age == OLD)
    assert ChangeKind.FINISH in found


def ask_later(s: Scene, builder: BindingBuilder, seconds: float) -> list[ChangeKind]:
    s.now += seconds
    return [change.kind for change in ask(s, builder).changes]


def protections(found: Account) -> list[tuple[str, list[str]]]:
    """(message, names) of changes that end a protection."""
    return [
        (change.message, [each.name for each in change.workloads])
        for change in found.changes
        if "protected" in change.message
    ]


def test_a_waiter_says_until_when_its_possible_victim_is_protected() -> None:
    s = running(scene(), make_binding("low").tasks(8))
    s.bound("low", generation=NEVER)
    begun = s.now
    running(s, make_binding("high").tasks(8).priority(1))
    text = f"eviction of 1 workload, protected until {rfc3339(begun + PROTECTION)}"
    assert protections(account(s, "high")) == [(text, ["low"])]
    [change] = [each for each in account(s, "high").changes if "protected" in each.message]
    assert (change.kind, change.enough) == (ChangeKind.WAIT, False)
    assert protections(ask(s, make_binding("x").tasks(8).priority(1))) == [(text, ["low"])], "a question says the same"
    s.now = begun + PROTECTION + 1
    assert protections(account(s, "high")) == [], "the dispatcher may evict it by now"


@pytest.mark.parametrize(
    ("pods", "named", "last"),
    [(2, ["old"], 0.0), (6, ["old", "new"], 10.0), (20, [], 0.0)],
    ids=["of one", "of both", "of both is not enough"],
)
def test_a_protection_counts_where_the_eviction_may_be_enough(pods: int, named: list[str], last: float) -> None:
    s = running(scene(), make_binding("old").tasks(4))
    s.bound("old", generation=NEVER)
    begun = s.now
    s.now += 10
    running(s, make_binding("new").tasks(4))
    s.bound("new", generation=NEVER)
    running(s, make_binding("high").tasks(pods).priority(1))
    found = protections(account(s, "high"))
    assert [names for _, names in found] == ([named] if named else [])
    for text, _ in found:
        assert to_seconds(text.rpartition(" ")[2]) == pytest.approx(begun + last + PROTECTION, abs=1)
        assert ("the last one" in text) is (len(named) > 1)


@pytest.mark.parametrize(
    "builder",
    [make_binding("high").tasks(8), make_binding("high").tasks(8).priority(1).gang(preempts=False)],
    ids=["of no higher priority", "that evicts nobody"],
)
def test_no_protection_matters_to_a_waiter_without_victims(builder: BindingBuilder) -> None:
    s = running(scene(), make_binding("low").tasks(8))
    s.bound("low", generation=NEVER)
    running(s, builder)
    assert protections(account(s, "high")) == []


def test_a_protected_workload_of_another_queue_is_named_with_the_time_of_its_queue() -> None:
    s = Scene(share("q", 8), share("other", 0, protection=300.0), *TWO)
    running(s, make_binding("low").queue("other").tasks(8))
    s.bound("low", generation=NEVER)
    begun = s.now
    running(s, make_binding("x").tasks(8))
    text = f"eviction of 1 workload, protected until {rfc3339(begun + 300)}"
    assert protections(account(s, "x")) == [(text, ["low"])]


def test_the_end_of_work_where_its_queue_may_not_go_does_not_help() -> None:
    s = Scene(make_queue("q", view={"members": {"m1": Ceiling()}}), make_queue("other"), *TWO)
    running(s, make_binding("b").queue("other").tasks(4).affinity(clusterNames=["m2"]))
    assert names(s.run()) == []
    assert [change.kind for change in ask(s, make_binding("x").tasks(9)).changes] == [ChangeKind.ROOM]


def test_nothing_is_asked_to_end_for_what_a_closed_queue_holds_up() -> None:
    s = Scene(make_queue("q", is_open=False), make_queue("other"), *TWO)
    running(s, make_binding("b").queue("other").tasks(8))
    assert [change.kind for change in ask(s, make_binding("x").tasks(9)).changes] == [ChangeKind.QUEUE]


def test_a_question_marks_no_queue_as_changed() -> None:
    s = running(scene(room=TWO), make_binding("b").tasks(8))
    s.core.tree.take_changed()
    s.core.waiting.take_changed()
    ask(s, make_binding("x").tasks(9))
    assert (s.core.tree.take_changed(), s.core.waiting.take_changed()) == ([], [])


def test_a_taint_and_a_policy_keep_from_a_member_under_their_own_names_and_members_that_left_are_not_listed() -> None:
    taint = {"key": "maintenance", "value": "today", "effect": "NoSchedule"}
    s = Scene(
        make_queue("q"),
        make_cluster("tainted", taints=[taint]),
        make_cluster("other"),
        make_cluster("left"),
        *(make_capacity(name, [8]) for name in ("tainted", "other", "left")),
    )
    s.tell(ClusterGone("left"))
    s.submit(make_binding("a").affinity(clusterNames=["tainted"]))
    s.run()
    assert {room.cluster: room.message for room in account(s, "a").clusters} == {
        "tainted": "this member has taint maintenance=today:NoSchedule, which its policy's clusterTolerations do not"
        " tolerate",
        "other": "its policy does not allow this member",
    }
