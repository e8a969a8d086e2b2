"""Reservations whose time has passed or is not known, and what happens to a member while room is kept there."""

from __future__ import annotations

import dataclasses
import math

import pytest

from atoll.dispatcher.core import BindingSet, CapacitySet, MemberAnswer, Pass
from atoll.dispatcher.core.settings import CoreSettings
from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    BACKFILL,
    EARLY,
    HOUR,
    LATE,
    NEVER,
    OLD,
    START,
    Scene,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    named,
    names,
)

SETTLE = CoreSettings().backfill.settle
AGAIN = CoreSettings().backfill.again


def started(s: Scene, seconds: int) -> list[str]:
    """What starts within so many seconds, one pass in each."""
    return [name for _ in range(seconds) for name in names(s.run(after=1.0))]


def node_of(s: Scene, name: str) -> int:
    """The one on which its one pod is known to run."""
    stay = s.core.reservations.timeline.get(f"uid-{name}")
    assert stay is not None
    [(_, node, _)] = stay.parts["m"][1]
    return node


def place_of(s: Scene, name: str) -> list[int]:
    """The nodes on which one that is promised room is expected."""
    placement = s.core.reservations.spot(s.core.reservations.made[f"uid-{name}"]).placement
    assert placement is not None
    return [node for _, node, _ in placement.pods]


def at(s: Scene, name: str) -> float:
    return s.core.reservations.made[f"uid-{name}"].at - START


# -- unknown ends ------------------------------------------------------------------------------------------------------


def test_two_heads_of_which_is_not_known_when_they_start_do_not_wait_for_each_other() -> None:
    queues = [make_queue("q", view=BACKFILL), make_queue("r", view=BACKFILL), make_queue("z")]
    s = Scene(*queues, make_cluster("m"), named("m", [8, 8, 8]))
    for name in "xyw":
        s.submit(make_binding(name).queue("z").tasks(1, gpu=8))
    assert len(names(s.run())) == 3
    for name in "xyw":
        s.bound(name, generation=2)
    s.tell(named("m", [0, 0, 0], generation=2))
    for name, queue in (("a", "q"), ("b", "r")):
        s.submit(make_binding(name).queue(queue).tasks(1, gpu=8))
    s.run()
    for name in "xw":
        s.change(name, finished=True)
    s.tell(named("m", [8, 0, 8], generation=3))
    assert started(s, 2) == ["a", "b"]


def test_nor_where_it_is_a_limit_that_both_need() -> None:
    top = make_queue("top", gpu=1)
    below = [make_queue(name, view={"parent": "top", **BACKFILL}) for name in "qr"]
    members = (make_cluster("m1"), make_cluster("m2"))
    s = Scene(top, *below, make_queue("z"), *members, named("m1", [9]), named("m2", [9]))
    s.submit(make_binding("x").queue("q").affinity(clusterNames=["m1"]))
    s.submit(make_binding("endless").queue("z").affinity(clusterNames=["m2"]))
    assert len(names(s.run())) == 2
    s.submit(make_binding("a").queue("q").affinity(clusterNames=["m1"]))
    s.run(after=1.0)
    s.submit(make_binding("b").queue("r").affinity(clusterNames=["m2"]))
    started(s, 3)
    s.change("x", finished=True)
    assert started(s, 2) == ["a"]


def test_no_nodes_are_kept_for_one_that_only_waits_for_a_limit() -> None:
    s = Scene(make_queue("q", gpu=1, view=BACKFILL), make_queue("z"), make_cluster("m"), named("m", [100]))
    s.submit(make_binding("runs"))
    s.run()
    s.submit(make_binding("head"))
    s.run()
    assert s.core.reservations.made["uid-head"].limited
    s.submit(make_binding("other").queue("z"))
    assert names(s.run()) == ["other"]
    s.submit(make_binding("small").tasks(1, gpu=0))
    s.change("runs", finished=True)
    assert started(s, 2)[0] == "head"


# -- a time that passes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [110, 150, 200])
def test_a_head_keeps_its_place_however_late_what_runs_before_it_ends(runs: int) -> None:
    """All say 100 s; `a` is the oldest head, beside a stream in another queue."""
    s = Scene(make_queue("q", view=BACKFILL), make_queue("r", view=BACKFILL), make_cluster("m"), named("m", [8]))
    s.submit(make_binding("r0").queue("r").tasks(1, gpu=8).runs(100))
    assert names(s.run(after=1.0)) == ["r0"]
    s.bound("r0", generation=2)
    s.tell(named("m", [0], generation=2))
    s.submit(make_binding("a").queue("q").tasks(1, gpu=8).runs(100).submitted(EARLY))
    s.run(after=1.0)
    for number in range(1, 6):
        s.submit(make_binding(f"r{number}").queue("r").tasks(1, gpu=8).runs(100).submitted(LATE))
    assert started(s, runs) == []
    s.tell(named("m", [8], generation=3))
    s.change("r0", finished=True, placed={"m": (3, 0)})
    assert started(s, 1) == ["a"]


@pytest.mark.parametrize(
    ("hours", "after"), [(0.5, 0.0), (1.0, HOUR + 5)], ids=["another node is free by then", "both times have passed"]
)
def test_a_head_stays_where_it_was_expected_while_it_fits_there(hours: float, after: float) -> None:
    """A node of 9 is free in an hour, those of 8 in two and in three. `elder` gets the first, `younger` the others.

    1. What runs on the second ends at once, and `passes` starts there. 2. By the time at which the first is free, the
    second is as well, and comes first.
    """
    s = Scene(make_queue("q", view=BACKFILL), make_queue("r", view=BACKFILL), make_queue("z", priority=1))
    s.tell(make_cluster("m"), named("m", [8, 8, 9]))
    for number, gpu in ((1, 9), (2, 8), (3, 8)):
        s.submit(make_binding(f"r{number}").queue("z").tasks(1, gpu=gpu).runs(number * HOUR))
        assert names(s.run()) == [f"r{number}"]
        s.bound(f"r{number}", generation=NEVER)
    s.submit(make_binding("elder").tasks(1, gpu=8).runs(10 * HOUR).submitted(EARLY))
    s.run()
    s.submit(make_binding("younger").queue("r").tasks(2, gpu=8).runs(HOUR).submitted(LATE))
    s.run()
    places = {name: place_of(s, name) for name in ("elder", "younger")}
    assert places == {"elder": [2], "younger": [0, 1]}
    s.change("r2", finished=True)
    s.submit(make_binding("passes").queue("z").tasks(1, gpu=8).runs(hours * HOUR))
    assert names(s.run(after=1.0)) == ["passes"]
    s.bound("passes", generation=NEVER)
    assert names(s.run(after=after)) == []
    assert {name: place_of(s, name) for name in places} == places


def test_nor_does_it_lose_its_rank_to_a_younger_one_in_another_member_that_needs_the_same_limit() -> None:
    """Of 8 that three queues have, 4 are free in an hour and 4 in two. 1. `elder` needs all of it then for an hour, and
    `younger` some of it for ten, after that. 2. What is to end in two hours runs on.
    """
    queues = [make_queue(name, view={"parent": "top", **BACKFILL}) for name in "qrx"]
    members = [event for name in "mn" for event in (make_cluster(name), named(name, [16]))]
    s = Scene(make_queue("top", gpu=8), *queues, *members)
    for name, hours in (("one", 1), ("two", 2)):
        s.submit(make_binding(name).queue("x").tasks(1, gpu=4).runs(hours * HOUR).affinity(clusterNames=["m"]))
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    for name, queue, gpu, hours, member in (("elder", "q", 8, 1, "m"), ("younger", "r", 4, 10, "n")):
        s.submit(make_binding(name).queue(queue).tasks(1, gpu=gpu).runs(hours * HOUR).affinity(clusterNames=[member]))
        assert names(s.run()) == []
    assert at(s, "elder") == pytest.approx(2 * HOUR + SETTLE, abs=1)
    assert at(s, "younger") > 3 * HOUR
    s.change("one", finished=True)
    s.run()
    s.now = START + 2 * HOUR
    started(s, 2 * int(SETTLE) + 2)
    assert 2 * HOUR + 60 < at(s, "elder") < at(s, "younger") - HOUR


def test_a_head_that_fits_nowhere_for_a_moment_gets_a_reservation_again() -> None:
    """Two of three nodes are away while the head's time passes; its younger neighbour gives way again."""
    s = Scene(
        *(make_queue(name, view=BACKFILL) for name in "qr"), make_queue("z"), make_cluster("m"), named("m", [9] * 3)
    )
    for name, seconds in (("x", 100.0), ("y", 100.0), ("w", 5000.0)):
        s.submit(make_binding(name).queue("z").tasks(1, gpu=9).runs(seconds).created(EARLY))
    assert len(names(s.run())) == 3
    for name in "xyw":
        s.change(name, placed={"m": (2, 1)}, nodes={"m": {f"m-{node_of(s, name)}": 1}})
    s.tell(named("m", [0, 0, 0], generation=2))
    s.run()
    s.submit(make_binding("head").queue("q").tasks(2, gpu=9).runs(HOUR).submitted(EARLY))
    s.run()
    s.submit(make_binding("later").queue("r").tasks(1, gpu=9).runs(10 * HOUR).submitted(LATE))
    s.run()
    assert at(s, "head") == pytest.approx(100 + SETTLE, abs=1)
    s.now = START + 95
    s.tell(named("m", {"m-0": 0}, generation=3))
    started(s, 12)
    assert "uid-head" not in s.core.reservations.made
    s.tell(named("m", [0, 0, 0], generation=4))
    started(s, 2 * int(AGAIN))
    assert at(s, "head") < HOUR <= at(s, "later")


def test_who_was_to_go_and_stays_is_counted_as_running_by_all_again() -> None:
    """Of 8 `stays` has 4 for ten hours, `half` 2 for half an hour, `one` 2 for an hour."""
    queues = [make_queue(name, view={"parent": "top", **BACKFILL}) for name in "qt"]
    s = Scene(
        make_queue("top", gpu=8),
        *queues,
        make_queue("x", view={"parent": "top", "reclaimable": False}),
        make_cluster("m"),
        make_capacity("m", [64]),
    )
    for name, pods, hours in (("stays", 4, 10.0), ("half", 2, 0.5), ("one", 2, 1.0)):
        wanted = make_binding(name).queue("x").tasks(pods).runs(hours * HOUR)
        s.submit(wanted if name == "stays" else wanted.firm())
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.now += OLD
    s.submit(make_binding("high").queue("x").tasks(4).priority(1).runs(10 * HOUR))
    s.write(*s.decide())
    s.submit(make_binding("head").queue("q").tasks(4).runs(HOUR))
    s.write(*s.decide())
    s.answer("high", m=MemberAnswer(False, requested=4, available=0))
    s.write(*s.decide())
    s.gone("high")
    s.write(*s.decide())
    s.now = START + HOUR / 2
    s.change("half", finished=True)
    s.write(*s.decide())
    s.submit(make_binding("passes").queue("t").tasks(2).runs(20 * HOUR).submitted(LATE))
    assert names(s.run()) == []


# -- the member is another one -----------------------------------------------------------------------------------------


def test_capacity_is_reserved_though_another_member_brings_a_resource_that_no_member_had() -> None:
    s = Scene(
        make_queue("q", view=BACKFILL),
        make_queue("z"),
        *(make_cluster("m"), make_cluster("other")),
        *(named("m", [8, 8, 8]), named("other", [1])),
    )

    def submit(name: str, queue: str, pods: int, gpu: int, hours: float) -> None:
        wanted = make_binding(name).queue(queue).tasks(pods, gpu=gpu).runs(hours * HOUR).submitted(LATE)
        s.submit(wanted.affinity(clusterNames=["m"]))

    for name, queue, pods, gpu, hours in (("runs", "q", 1, 8, 1), ("head", "q", 3, 8, 1), ("asks", "z", 1, 4, 5)):
        submit(name, queue, pods, gpu, hours)
        s.run()
    capacity = named("other", [1], generation=2).capacity
    classes = [dataclasses.replace(each, free={**each.free, "rdma/hca": 4}) for each in capacity.classes]
    s.tell(CapacitySet(dataclasses.replace(capacity, classes=tuple(classes))))
    submit("too", "z", 2, 3, 5)
    assert names(s.run()) == []
    assert at(s, "head") == pytest.approx(HOUR + SETTLE, abs=1)


def test_a_claimants_room_may_be_on_a_node_without_a_name_that_is_lost() -> None:
    s = Scene(make_queue("q"), make_queue("z"), make_cluster("m"), make_capacity("m", [2, 8, 8]))
    s.submit(make_binding("low").tasks(2, gpu=8))
    s.run()
    s.bound("low", generation=2)
    s.tell(make_capacity("m", [2, 0, 0], generation=2))
    s.run()
    s.now += OLD
    s.submit(make_binding("high").tasks(2, gpu=8).priority(1).submitted(LATE))
    s.write(*s.decide())
    assert s.core.reservations.claims["uid-high"].placement is not None
    s.tell(make_capacity("m", [2, 0], generation=3))
    s.submit(make_binding("small").queue("z").tasks(1, gpu=1).submitted(LATE))
    assert names(s.run()) == []


def test_what_runs_is_where_it_is_though_a_node_joins_before_it_is_reported() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), named("m", {"m-1": 8, "m-2": 8, "m-3": 8}))
    for name, node in (("x", "m-1"), ("y", "m-2")):
        s.submit(make_binding(name).tasks(1, gpu=8).runs(HOUR))
        s.run()
        s.change(name, placed={"m": (2, 1)}, nodes={"m": {node: 1}})
    s.tell(named("m", {"m-1": 0, "m-2": 0, "m-3": 8}, generation=2))
    s.run()
    # Without `check`, which would bring the figures up to date.
    s.core.handle(named("m", {"m-0": 8, "m-1": 0, "m-2": 0, "m-3": 8}, generation=3))
    s.core.handle(BindingSet(make_binding("new").tasks(1, gpu=3).build()))
    s.core.handle(BindingSet(dataclasses.replace(s.view("x"), placed={"m": (3, 1)})))
    s.core.handle(Pass(s.now + 1))
    member = s.core.members.by_name["m"]
    for name, node in (("x", "m-1"), ("y", "m-2")):
        assert member.nodes.names[node_of(s, name)] == node


# -- the workload is another one ---------------------------------------------------------------------------------------


def test_capacity_is_reserved_for_what_a_user_asks_for_now() -> None:
    s = Scene(
        *(make_queue(name, view=BACKFILL) for name in "qr"), make_queue("z"), make_cluster("m"), named("m", [8, 8])
    )
    s.submit(make_binding("runs").tasks(1, gpu=8).runs(HOUR))
    s.run()
    s.submit(make_binding("head").tasks(2, gpu=8).runs(HOUR))
    s.run()
    assert at(s, "head") == pytest.approx(HOUR + SETTLE, abs=1)
    other = make_binding("head").queue("r").affinity(clusterNames=["nowhere"]).tasks(2, gpu=8).runs(HOUR).build()
    s.change("head", gang=other.gang, affinities=other.affinities, generation=6)
    s.submit(make_binding("long").queue("z").tasks(1, gpu=8).runs(5 * HOUR).submitted(LATE))
    assert "long" in names(s.run())
    assert not s.core.reservations.made


def test_looking_at_reservations_leaves_no_doubt_behind() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), named("m", [8, 8]))
    s.submit(make_binding("runs").tasks(1, gpu=8).runs(HOUR))
    s.run()
    s.submit(make_binding("head").tasks(2, gpu=8).runs(HOUR))
    s.run()
    s.tell(named("m", {"m-0": 0}, generation=2))
    promise = s.core.reservations.made["uid-head"]
    with s.core.reservations.untouched():
        s.core.members.refresh()
        assert s.core.reservations.spot(promise).placement is None
        assert promise.lost < math.inf
    assert promise.lost == math.inf


def test_a_head_of_which_only_limits_were_kept_finds_its_limit_raised_beside_one_that_gets_a_reservation() -> None:
    """1. A head is stopped by its queue's limit alone, nobody knows until when. 2. Another one is promised the node of 8.
    3. The limit is raised: what is free there is that one's, and nothing is kept for the first in any member.
    """
    s = Scene(make_queue("q", view=BACKFILL, gpu=4), make_queue("r", view=BACKFILL), make_cluster("m"))
    s.tell(make_capacity("m", [8, 4]))
    s.submit(make_binding("unknown").tasks(1, gpu=4))
    assert names(s.run()) == ["unknown"]
    s.submit(make_binding("known").queue("r").tasks(1, gpu=4).runs(HOUR))
    assert names(s.run()) == ["known"]
    s.submit(make_binding("limited").tasks(1, gpu=4).submitted(LATE))
    assert names(s.run()) == []
    assert s.core.reservations.made["uid-limited"].limited
    s.submit(make_binding("wide").queue("r").tasks(1, gpu=8).submitted(EARLY))
    assert names(s.run()) == []
    s.tell(make_queue("q", view=BACKFILL, gpu=8))
    assert names(s.run()) == []
    assert s.verdict("limited") is Reason.WOULD_DELAY


def test_of_members_that_are_as_good_the_one_before_is_kept() -> None:
    s = Scene(make_queue("q", view=BACKFILL), *(make_cluster(name) for name in "mn"), *(named(n, [8]) for n in "mn"))
    s.submit(*(make_binding(f"in-{n}").tasks(1, gpu=8).runs(HOUR).affinity(clusterNames=[n]) for n in "mn"))
    assert len(names(s.run())) == 2
    s.submit(make_binding("head").tasks(1, gpu=8))
    s.run()
    before = s.core.reservations.made["uid-head"]
    assert before.member.name == "m"
    s.run(after=HOUR + 2 * SETTLE)
    again = s.core.reservations.made["uid-head"]
    assert (again is before, again.at > before.at, again.member.name) == (False, True, "m")
