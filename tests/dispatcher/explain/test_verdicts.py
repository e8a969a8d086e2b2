"""The whole verdict on a workload, and what a workload that is not there would meet."""

from __future__ import annotations

import sys
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.dispatcher.core import BindingSet, Dispatch, Dispatcher, NamespaceSet, NamespaceView, Strategy
from atoll.dispatcher.core.events import Ceiling
from atoll.dispatcher.explain import verdicts
from atoll.model.gang import Partition, TopologyWish
from atoll.model.query import ChangeKind, Named, Place
from atoll.model.together import Together
from tests.dispatcher.builders import (
    EARLY,
    GPU,
    LATE,
    BindingBuilder,
    Scene,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    scene,
)
from tests.dispatcher.explain.questions import TWO, account, ask, running

# -- the verdict -------------------------------------------------------------------------------------------------------


def test_an_unknown_binding_has_none() -> None:
    assert verdicts.account(scene().core, "nobody") is None


def test_quota_names_the_queue_and_by_how_much_it_is_short() -> None:
    s = running(Scene(make_queue("q", gpu=6), *TWO), make_binding("a").tasks(4), make_binding("b").tasks(4))
    found = account(s, "b")
    [limit] = found.limits
    assert (found.reason, limit.name, limit.resource) == ("QuotaExceeded", "q", GPU)
    assert (limit.requested, limit.available, limit.shortage, limit.declared) == ("4", "2", "2", True)
    change, fewer = found.changes
    assert (change.kind, change.enough, fewer.kind) == (ChangeKind.LIMITS, True, ChangeKind.WISH)


def test_all_limits_on_the_path_and_the_namespace_are_named() -> None:
    s = Scene(
        make_queue("top", gpu=2),
        make_queue("q", gpu=3, view={"parent": "top"}),
        NamespaceSet(NamespaceView("default", {GPU: 1})),
        *TWO,
    )
    running(s, make_binding("a").tasks(4))
    assert [(each.kind, each.name, each.shortage) for each in account(s, "a").limits] == [
        ("Queue", "q", "1"),
        ("Queue", "top", "2"),
        ("Namespace", "default", "3"),
    ]


def test_each_member_says_how_many_pods_it_holds_the_nearest_first() -> None:
    s = running(scene(room=TWO), make_binding("a").tasks(9))
    found = account(s, "a")
    assert [(room.cluster, room.fits, room.pods) for room in found.clusters] == [("m1", 8, 9), ("m2", 4, 9)]
    nearest = found.clusters[0]
    assert (nearest.reason, nearest.resource, nearest.shortage) == ("InsufficientResources", GPU, "1")
    change = found.changes[0]
    assert (change.kind, change.enough) == (ChangeKind.ROOM, False)
    assert "1 more pod in cluster m1" in change.message


@pytest.mark.parametrize(
    ("tier", "said"),
    [
        pytest.param("rak", "it has no tier rak; did you mean rack?", id="a misspelt tier"),
        pytest.param("cabinet", "it has no tier cabinet; its tiers are rack, spine", id="a tier like no other"),
    ],
)
def test_a_tier_that_members_lack_is_named(tier: str, said: str) -> None:
    s = running(scene(room=(make_cluster("m"), make_capacity("m", {"rack-a": [2, 2], "rack-b": [4, 4]}))))
    [room] = ask(s, make_binding("a").tasks(1).within(tier)).clusters
    assert (room.reason, room.message, room.fits) == ("NoTopology", said, 0)
    assert ask(s, make_binding("a").tasks(1).within("rack")).starts
    near = Partition(2, TopologyWish(highest_tier_name=tier))
    [room] = ask(s, make_binding("a").tasks(4, partition=near)).clusters
    assert (room.reason, room.message) == ("NoTopology", said), "indices of an array are near each other one by one"
    flat = running(scene(room=(make_cluster("m"), make_capacity("m", [4]))))
    [room] = ask(flat, make_binding("a").tasks(4, partition=near)).clusters
    assert (room.reason, room.message) == ("NoTopology", f"it has no tier {tier}; it has no HyperNodes")


def test_a_hard_topology_names_the_best_domain() -> None:
    racks = make_capacity("m", {"rack-a": [2, 2], "rack-b": [4, 4]})
    s = running(scene(room=(make_cluster("m"), racks)), make_binding("a").tasks(9).hard(1))
    [room] = account(s, "a").clusters
    assert (room.reason, room.domain, room.fits) == ("NoDomainFits", "rack-b", 8)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        pytest.param(make_cluster("m2", ready=False), "not ready", id="a member that is not ready"),
        pytest.param(
            make_queue("q", gpu=1, view={"affinity": {"matchLabels": {"x": "y"}}}), "its queue", id="another queue's"
        ),
    ],
)
def test_a_member_that_can_not_take_it_says_why(event: object, said: str) -> None:
    s = running(Scene(make_queue("q", gpu=1), *TWO, event), make_binding("a").tasks(2))  # type: ignore[arg-type]
    assert said in next(room for room in account(s, "a").clusters if room.cluster == "m2").message


def test_its_place_is_counted_over_all_shapes_and_the_nearest_ahead_are_named() -> None:
    s = Scene(make_queue("q", gpu=0), *TWO)
    s.submit(*(make_binding(f"b{n:02}").tasks(1 + n % 3).submitted(f"2026-01-01T00:00:{n:02}Z") for n in range(30)))
    s.run()
    found = account(s, "b25").queue
    assert found is not None
    assert (found.position, found.waiting, found.more) == (26, 30, 15)
    assert found.ahead == [Named("default", f"b{n:02}") for n in range(15, 25)]


def test_since_is_when_the_reason_was_first_written() -> None:
    s = running(Scene(make_queue("q", gpu=0), *TWO), make_binding("a"))
    first = account(s, "a").since
    assert first == s.view("a").decision.story[-1].at
    s.run(after=60)
    assert account(s, "a").since == first


def test_what_waits_for_others_of_its_group_names_the_one_that_does_not_fit() -> None:
    s = scene(room=TWO)
    group = Together("s", 2)
    running(s, make_binding("a").gang(together=group), make_binding("b").tasks(9).gang(together=group))
    found = account(s, "a")
    assert found.blocker is not None
    assert (found.reason, found.blocker.name) == ("GangGroupIncomplete", "b")


def test_where_it_may_go_instead_of_a_queue_with_others_below_is_named() -> None:
    below = [
        make_queue(name, view={"parent": parent}) for name, parent in (("team", "q"), ("b", "team"), ("a", "team"))
    ]
    s = running(Scene(make_queue("q"), *below, *TWO), make_binding("x"))
    [change] = account(s, "x").changes
    assert (change.kind, change.message) == (ChangeKind.QUEUE, "it goes to one of the queues below q: a, b")


def test_a_reservation_is_told() -> None:
    backfill = make_queue("q", view={"strategy": Strategy.BACKFILL})
    s = Scene(backfill, make_cluster("m"), make_capacity("m", [8]))
    running(s, make_binding("runs").tasks(6).runs(100).submitted(EARLY))
    running(s, make_binding("head").tasks(8).runs(10).submitted(LATE))
    reserved = account(s, "head").reserved
    assert reserved is not None
    assert reserved.cluster == "m"
    assert reserved.at


def test_what_does_not_wait_says_only_where_it_is() -> None:
    s = running(scene(), make_binding("a"))
    found = account(s, "a")
    assert (found.phase, found.queue, found.changes) == ("Dispatched", None, [])
    s.submit(make_binding("held").held())
    assert [change.kind for change in account(s, "held").changes] == [ChangeKind.WISH]


# -- what if -----------------------------------------------------------------------------------------------------------


def test_what_fits_starts_where_it_would_be_put() -> None:
    s = scene(room=TWO)
    found = ask(s, make_binding("x").tasks(4))
    assert (found.starts, found.places) == (True, [Place("m2", 4)])
    assert found.queue is not None
    assert (found.queue.position, found.queue.waiting) == (1, 1)
    running(s, make_binding("x").tasks(4))
    assert s.view("x").parts[0][0] == "m2"


def test_it_comes_after_all_that_wait_unless_its_priority_is_higher() -> None:
    s = Scene(make_queue("q", gpu=0), *TWO)
    s.submit(*(make_binding(f"b{n}").submitted(EARLY) for n in range(3)))
    s.run()
    for priority, expected in ((0, (4, 4)), (1, (1, 4))):
        found = ask(s, make_binding("x").created("").priority(priority)).queue
        assert found is not None
        assert (found.position, found.waiting) == expected


@pytest.mark.parametrize(("pods", "reason"), [(0, "NoPods"), (1, "Held")])
def test_what_its_user_keeps_from_running_lacks_nothing_else(pods: int, reason: str) -> None:
    found = ask(scene(), make_binding("x").tasks(pods).held())
    assert (found.reason, found.limits, found.clusters) == (reason, [], [])
    assert [change.kind for change in found.changes] == [ChangeKind.WISH]


def test_a_divided_one_says_how_many_pods_go_where() -> None:
    found = ask(scene(room=TWO), make_binding("x").tasks(12).divided())
    assert found.places == [Place("m1", 8), Place("m2", 4)]


@pytest.mark.parametrize(
    ("builder", "said"),
    [
        pytest.param(
            make_binding("x").tasks(18).divided(),
            ["room for 6 more pods in the members that it may be divided over"],
            id="what all of them lack",
        ),
        pytest.param(
            make_binding("x").tasks(18).divided(most=1), ["room for 10 more pods in cluster m1"], id="of one alone"
        ),
        pytest.param(
            make_binding("x").tasks(12),
            ["room for 4 more pods in cluster m1", "a policy that lets it be divided"],
            id="it may not be divided",
        ),
        pytest.param(make_binding("x").tasks(18), ["room for 10 more pods in cluster m1"], id="nor would that help"),
    ],
)
def test_what_could_be_divided_lacks_what_its_members_lack_together(builder: BindingBuilder, said: list[str]) -> None:
    changes = [each.message for each in ask(scene(room=TWO), builder).changes]
    assert len(changes) == len(said)
    assert all(change.startswith(text) for change, text in zip(changes, said, strict=True))


def with_head(*, quota: int, room: int, due: int) -> Scene:
    """A queue in which six run, and so many are due once they have ended."""
    s = Scene(make_queue("q", gpu=quota, view={"strategy": Strategy.BACKFILL}), make_cluster("m"))
    running(s.tell(make_capacity("m", [room])), make_binding("runs").tasks(6).runs(100).submitted(EARLY))
    return running(s, make_binding("head").tasks(due).runs(10).submitted(LATE))


@pytest.mark.parametrize(
    ("s", "pods"),
    [
        pytest.param(scene(), 8, id="all that there is room for"),
        pytest.param(scene(room=(make_cluster("m"), make_capacity("m", [20]))), 12, id="all that it asks for"),
        pytest.param(scene(make_queue("q", gpu=5)), 5, id="what its queue may use"),
        pytest.param(
            Scene(make_queue("q", view={"members": {"m1": Ceiling(1, {GPU: 3}), "m2": Ceiling()}}), *TWO),
            4,
            id="what has room in the member that it goes to",
        ),
        pytest.param(
            Scene(make_queue("q", view={"members": {"m1": Ceiling(1, {GPU: 6})}}), *TWO), 6, id="under a ceiling"
        ),
        pytest.param(scene(NamespaceSet(NamespaceView("default", {GPU: 3}))), 3, id="what its namespace may use"),
        pytest.param(with_head(quota=8, room=32, due=6), 2, id="what leaves a head its quota"),
        pytest.param(with_head(quota=99, room=10, due=8), 2, id="what leaves a head its room"),
    ],
)
def test_an_elastic_one_says_how_many_of_its_pods_start(s: Scene, pods: int) -> None:
    builder = make_binding("x").tasks(12, minimum=2).created("2026-01-03T00:00:00Z")
    s.run()
    before = memory(s.core)
    found = ask(s, builder)
    assert memory(s.core) == before
    assert (found.starts, sum(place.pods for place in found.places)) == (True, pods)
    [began] = [command for command in s.submit(builder).run() if isinstance(command, Dispatch)]
    assert found.places == [Place(part.cluster, part.pods) for part in began.parts]


def test_the_steps_of_an_elastic_one_are_whole_sets_in_its_domain() -> None:
    racks = make_capacity("m", {"rack-a": [3], "rack-b": [6, 5]})
    s = Scene(make_queue("q", gpu=9), make_cluster("m"), racks)
    builder = make_binding("x").tasks(1, gpu=2).tasks(8, minimum=2).tasks(4, minimum=1).hard(1)
    [place] = ask(s, builder).places
    [began] = [command for command in s.submit(builder).run() if isinstance(command, Dispatch)]
    assert (place.cluster, place.pods) == (began.parts[0].cluster, began.parts[0].pods)
    assert place.domain == "rack-b"


def test_its_victims_leave_room_for_the_minimum_alone() -> None:
    s = running(scene(), *(make_binding(f"low{n}").tasks(4) for n in range(2)))
    for n in range(2):
        s.bound(f"low{n}", generation=2)
    s.now += 3600
    [change, *_] = ask(s, make_binding("x").tasks(8, minimum=4).priority(5)).changes
    assert (change.kind, len(change.workloads)) == (ChangeKind.EVICT, 1)
    assert change.message == "1 workload evicted by the dispatcher"


@pytest.mark.parametrize(
    ("pods", "said"), [(2, "1 workload shrunk"), (4, "2 workloads shrunk"), (6, "2 workloads evicted or shrunk")]
)
def test_what_keeps_its_minimum_is_shrunk(pods: int, said: str) -> None:
    s = running(scene(), *(make_binding(f"low{n}").tasks(4, minimum=2) for n in range(2)))
    for n in range(2):
        s.bound(f"low{n}", generation=2)
    s.now += 3600
    [change, *_] = ask(s, make_binding("x").tasks(pods).priority(5)).changes
    assert change.message == f"{said} by the dispatcher"


def test_a_member_whose_ceiling_holds_the_minimum_has_room_for_it() -> None:
    ceilings = {"members": {"m1": Ceiling(1, {GPU: 2}), "m2": Ceiling(1, {GPU: 1})}}
    s = running(Scene(make_queue("q", gpu=0, view=ceilings), *TWO), make_binding("x").tasks(4, minimum=2))
    assert {room.cluster: room.reason for room in account(s, "x").clusters} == {"m1": "", "m2": "QuotaExceeded"}


@pytest.mark.parametrize(
    ("queue", "reason"),
    [
        pytest.param(None, "QueueNotFound", id="no such queue"),
        pytest.param(make_queue("q", is_open=False), "QueueClosed", id="a closed one"),
    ],
)
def test_a_queue_that_admits_nothing(queue: object, reason: str) -> None:
    s = Scene(*TWO)
    if queue is not None:
        s.tell(queue)  # type: ignore[arg-type]
    nodes = dict(s.core.tree.queues)
    found = ask(s, make_binding("x"))
    assert (found.starts, found.reason, found.changes[0].kind) == (False, reason, ChangeKind.QUEUE)
    assert s.core.tree.queues == nodes


def test_the_smallest_change_is_a_limit_or_the_end_of_the_fewest() -> None:
    s = Scene(make_queue("q", gpu=8), *TWO)
    running(s, make_binding("small").tasks(1).runs(10), make_binding("large").tasks(4).runs(50))
    found = ask(s, make_binding("x").tasks(5))
    limits, ends = (each for each in found.changes if each.kind is not ChangeKind.WISH)
    assert (limits.kind, limits.enough, limits.limits[0].shortage) == (ChangeKind.LIMITS, True, "2")
    assert (ends.kind, ends.enough, ends.workloads) == (ChangeKind.FINISH, True, [Named("default", "large")])
    assert ends.at


def test_of_two_that_would_do_the_one_that_ends_first() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [4, 4])))
    running(s, make_binding("late").tasks(4).runs(500), make_binding("soon").tasks(4).runs(5))
    [room, ends] = sorted(ask(s, make_binding("x").tasks(3)).changes, key=lambda change: change.enough)
    assert room.kind is ChangeKind.ROOM
    assert ends.workloads == [Named("default", "soon")]


def test_what_the_dispatcher_would_evict_by_itself() -> None:
    s = running(scene(), make_binding("low").tasks(8))
    s.bound("low", generation=2)
    s.now += 3600
    changes = ask(s, make_binding("x").tasks(8).priority(5)).changes
    assert (changes[0].kind, changes[0].workloads) == (ChangeKind.EVICT, [Named("default", "low")])


def test_where_no_end_would_help_the_nearest_member_is_named() -> None:
    s = running(scene(room=TWO), make_binding("a").tasks(4))
    found = ask(s, make_binding("x").tasks(20))
    assert [change.kind for change in found.changes] == [ChangeKind.ROOM]
    assert "m1" in found.changes[0].message


def test_room_that_is_kept_for_another_is_not_free() -> None:
    s = Scene(make_queue("q", view={"strategy": Strategy.BACKFILL}), make_cluster("m"), make_capacity("m", [8]))
    running(s, make_binding("runs").tasks(6).runs(100).submitted(EARLY))
    running(s, make_binding("head").tasks(8).runs(10).submitted(LATE))
    found = ask(s, make_binding("x").tasks(1).runs(1000).submitted(LATE))
    assert (found.reason, found.message) == (
        "WouldDelayHead", "it would delay a workload with a reservation: queue q",
    )  # fmt: skip
    assert [room.message for room in found.clusters] == [
        "the capacity there is reserved for a workload of queue q that comes before it"
    ]
    start = next(change for change in found.changes if change.kind is ChangeKind.WAIT)
    assert (start.message, start.workloads) == (
        "the start of 1 workload with a reservation, of queue q", [Named("default", "head")],
    )  # fmt: skip
    assert ask(s, make_binding("x").tasks(1).runs(10).submitted(LATE)).starts


def test_who_would_overtake_a_reservation_has_not_done_so_by_asking() -> None:
    s = Scene(make_queue("q", view={"strategy": Strategy.BACKFILL}), make_cluster("m"), make_capacity("m", [8]))
    running(s, make_binding("runs").tasks(6).runs(100).submitted(EARLY))
    running(s, make_binding("head").tasks(8).runs(10).submitted(LATE))
    assert ask(s, make_binding("x").tasks(1).runs(1000).priority(5)).starts
    assert not s.core.reservations.made["uid-head"].overtaken


def test_a_strict_queue_lets_nothing_pass() -> None:
    s = Scene(make_queue("q", view={"strategy": Strategy.FIFO}), *TWO)
    running(s, make_binding("head").tasks(20).submitted(EARLY))
    assert ask(s, make_binding("x").submitted(LATE)).reason == "BehindHead"


def test_questions_are_quick_however_many_wait() -> None:
    """By operations that follow the number of shapes: a hundred times as many workloads cost about the same."""

    def calls(count: int) -> int:
        s = Scene()
        for event in (make_queue("q", gpu=0), *TWO):
            s.core.handle(event)
        for n in range(count):
            s.core.handle(BindingSet(make_binding(f"b{n}").tasks(1 + n % 7).build()))
        made = 0

        def counted(_frame: FrameType, event: str, _arg: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        asked = make_binding("x").tasks(3).build()
        before = sys.getprofile()
        sys.setprofile(counted)
        try:
            verdicts.account(s.core, f"uid-b{count - 1}")
            verdicts.what_if(s.core, asked, s.now)
        finally:
            sys.setprofile(before)
        return made

    assert calls(5_000) < 2 * calls(200)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "pass", "pass", "finish", "publish"]),
        st.sampled_from(["kept", "free"]),
        st.integers(1, 5),
        st.sampled_from([None, 1, 30, 1000]),
        st.integers(0, 2),
    ),
    min_size=5,
    max_size=40,
)


def memory(core: Dispatcher) -> object:
    """All that decisions follow from, without what is only kept to be quick."""
    return (
        {name: (dict(node.used), dict(node.wanted), str(node.used_in)) for name, node in core.tree.queues.items()},
        [(p.uid, p.member.name, p.at, p.first, p.overtaken, p.lost) for p in core.reservations.made.values()],
        core.reservations.latest_end,
        [(group.leaf.name, list(group.members), group.parked, group.told) for group in core.waiting.all()],
        {name: (member.nodes.free.tolist(), sorted(member.inflight)) for name, member in core.members.by_name.items()},
        (core.members.table.version, core.members.table.counts.tolist()),
        core.next_deadline,
    )


@given(STEPS)
@settings(max_examples=80, derandomize=True)
def test_questions_leave_nothing_behind_whatever_capacity_is_reserved(
    steps: list[tuple[str, str, int, int | None, int]],
) -> None:
    """A history in which everything is asked after every event, and again without: the same commands."""
    s = Scene(
        make_queue("kept", gpu=9, view={"strategy": Strategy.BACKFILL}),
        make_queue("free", view={"protection": 0.0}),
        *TWO,
    )
    generation = 1
    for number, (act, queue, pods, seconds, priority) in enumerate(steps):
        least = pods if priority else max(pods - 2, 1)
        builder = make_binding(f"b{number}").queue(queue).tasks(pods, minimum=least).priority(priority)
        builder = builder if seconds is None else builder.runs(seconds)
        if act == "submit":
            s.submit(builder)
        elif act == "pass":
            s.run(after=float(pods * 3))
        elif act == "finish":
            live = [view for view in s.views.values() if view.parts and not view.finished]
            if live:
                s.change(live[pods % len(live)].name, finished=True)
        else:
            generation += 1
            s.tell(make_capacity("m2", [pods % 5], generation=generation))
        before = memory(s.core)
        for uid in s.views:
            assert verdicts.account(s.core, uid) is not None
        verdicts.what_if(s.core, builder.build(), s.now)
        assert memory(s.core) == before
        s.core.check()
    again = Dispatcher()
    assert [again.handle(event) for event in s.log] == s.answers
