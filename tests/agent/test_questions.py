"""Would a part fit if others were gone? Answers that keep no nodes."""

from __future__ import annotations

import msgspec

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core.holds import Holds, describe
from atoll.agent.scheduler.core.room import Room
from atoll.agent.scheduler.core.settings import MemberCoreSettings
from atoll.model.decision import Gone
from atoll.model.gang import Gang
from tests.agent.builders import make_pod
from tests.agent.holding import assert_refused, assert_reserved, free, held, part, pods, racks, view

TTL = MemberCoreSettings().holds.ttl


def busy(pods: int = 4, uid: str = "victim") -> Room:
    """One pod of 8 GPUs on each of so many nodes, all of one workload."""
    room = racks()
    for index, node in enumerate([*free(room)][:pods]):
        room.pod_changed(None, make_pod(f"{uid}-{index}", gpu=8, node=node, binding=uid, index=index))
    return room


def _placed(room: Room) -> list[Pod]:
    return [make_pod(f"victim-{i}", gpu=8, node=node, binding="victim", index=i) for i, node in enumerate(free(room))]


def ask(room: Room, gang: Gang, gone: Gone) -> Holds:
    holds = Holds(room)
    holds.hold("b", 1, gang, "train", "default", 0.0, gone=gone)
    return holds


def test_a_part_that_fits_once_others_are_gone_is_told_so_and_keeps_nothing() -> None:
    room = busy()
    before = (free(room), room.version)
    holds = ask(room, part(8), {"victim": None})
    hold = held(holds)
    assert (hold.state, hold.requested, hold.available, hold.nodes) == ("Fits", 8, 8, {})
    assert (free(room), room.version) == before
    assert holds.changed == {"b"}
    assert describe(hold, "")["state"] == "Fits"


def test_a_part_that_does_not_fit_even_then_is_refused_with_the_nearest_miss() -> None:
    room = busy(3)
    room.pod_changed(None, make_pod("foreign", gpu=1, node="r1n1"))
    hold = assert_refused(ask(room, part(8), {"victim": None}), "room for 7 of the 8")
    assert (hold.state, hold.requested, hold.available) == ("Refused", 8, 7)


def test_topology_counts_as_if_they_were_gone() -> None:
    room = busy()
    assert_refused(ask(room, part(5, tier=1), {"victim": None}), "holds 4 of the 5")
    assert held(ask(room, part(4, tier=1), {"victim": None})).fits


def test_who_is_not_named_stays() -> None:
    room = busy(2, "victim")
    room.pod_changed(None, make_pod("other", gpu=8, node="r1n0", binding="other"))
    assert_refused(ask(room, part(8), {"victim": None, "not-here": None}), "room for 6 of the 8")


def test_what_is_kept_for_others_stays_theirs() -> None:
    room = busy(2)
    holds = Holds(room)
    holds.hold("first", 1, part(4), "other", "default", 0.0)
    holds.hold("b", 1, part(8), "train", "default", 0.0, gone={"victim": None})
    assert_refused(holds, "room for 4 of the 8")


def test_one_that_shrinks_leaves_the_pods_of_the_highest_indices() -> None:
    room = busy(4)
    assert held(ask(room, part(4, tier=1), {"victim": {"w": 2}})).fits, "the second rack is free"
    assert_refused(ask(room, part(4, tier=1), {"victim": {"w": 3}}))


def test_pods_without_an_index_shrink_by_name() -> None:
    room = racks()
    for index, node in enumerate(free(room)):
        pod = make_pod(f"p{index}", gpu=8, node=node, binding="victim")
        meta = msgspec.structs.replace(pod.metadata, labels={})
        room.pod_changed(None, msgspec.structs.replace(pod, metadata=meta))
    assert held(ask(room, part(4, tier=1), {"victim": {"w": 2}})).fits
    assert_refused(ask(room, part(4, tier=1), {"victim": {"w": 3}}))


def test_a_node_that_is_overbooked_has_less_to_give() -> None:
    room = busy()
    room.pod_changed(None, make_pod("foreign", gpu=4, node="r0n0"))
    assert_refused(ask(room, part(8), {"victim": None}), "room for 7 of the 8")


def test_an_answer_follows_what_happens() -> None:
    room = busy()
    holds = ask(room, part(8), {"victim": None})
    foreign = make_pod("foreign", gpu=4, node="r0n0")
    holds.changed.clear()
    room.pod_changed(None, foreign)
    assert not holds.check(), "nothing was lost that was kept"
    assert_refused(holds)
    assert holds.changed == {"b"}
    room.pod_changed(foreign, None)
    holds.check()
    holds.retry()
    assert held(holds).fits


def test_a_question_becomes_a_hold_only_by_a_newer_epoch() -> None:
    room = busy()
    holds = ask(room, part(4), {"victim": None})
    assert holds.claim(view(room, 4, pods(4))) == [], "its pods are not those of a hold"
    holds = ask(room, part(4), {"victim": None})
    for pod in _placed(room):
        room.pod_changed(pod, None)
    holds.hold("b", 2, part(4), "train", "default", 1.0)
    assert_reserved(holds, 4)


def test_a_question_ends_when_it_is_not_renewed() -> None:
    holds = ask(busy(), part(4), {"victim": None})
    holds.expire(TTL)
    assert holds.get("b") is None
