"""Workloads that are unhealthy where they run, and services that leave a member gracefully."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from atoll.dispatcher.core import Evict
from atoll.model.failover import EvictionTask, Failover, Purge
from atoll.model.timestamps import rfc3339, rfc3339_seconds, to_seconds
from atoll.model.verdict import Blocker, Reason
from tests.dispatcher.builders import Scene, make_binding, make_capacity, make_cluster, make_queue, no_execute
from tests.dispatcher.virtual import Town, gpus

WISH = Failover(Purge.DIRECTLY, None, 120.0)


def running(wish: Failover | None = WISH, leaving: Failover | None = None) -> tuple[Town, str]:
    """A federation in which `w` runs for ten seconds; and its member."""
    t = Town(make_queue("q"), check=True, m=gpus(8), n=gpus(8))
    t.submit(make_binding("w").tasks(4).gang(unhealthy=wish, leaving=leaving))
    t.run(10)
    [member] = dict(t.views["uid-w"].parts)
    return t, member


def say(t: Town, member: str, why: str = "1 of 4 pods run") -> None:
    """Control says that it is unhealthy from now on; or healthy again."""
    since = rfc3339(t.now) if why else ""
    t.see(dataclasses.replace(t.views["uid-w"], unhealthy_at=since, unhealthy={member: why} if why else {}))


def failed(t: Town) -> list[float]:
    return [when for when, _ in t.evicted(Reason.UNHEALTHY)]


def tasks(t: Town, reason: Reason) -> list[Any]:
    [command] = [c for _, c in t.commands if isinstance(c, Evict) and c.decision.reason is reason]
    return [
        (task.from_cluster, task.purge_mode, task.grace_period_seconds, task.suppress_deletion)
        for task in command.tasks
    ]


def test_a_workload_that_stays_unhealthy_is_evicted_and_kept_from_there() -> None:
    t, member = running()
    say(t, member)
    t.run(119)
    assert failed(t) == []
    t.run(2)
    assert failed(t) == [pytest.approx(130, abs=0.2)]
    assert tasks(t, Reason.UNHEALTHY) == [(member, Purge.DIRECTLY, 600, None)]
    assert t.views["uid-w"].decision.refused.counts == {member: 1}  # type: ignore[union-attr]
    [command] = [each for _, each in t.commands if isinstance(each, Evict)]
    assert command.decision.blocker == Blocker("Cluster", member, message="1 of 4 pods run")


def test_one_that_is_healthy_again_in_time_stays() -> None:
    t, member = running()
    say(t, member)
    t.run(100)
    say(t, member, "")
    t.run(300)
    assert failed(t) == []


@pytest.mark.parametrize(("seconds", "times"), [(0, 1), (-2, 0)])
def test_only_what_is_unhealthy_since_this_dispatch_is_evicted(seconds: int, times: int) -> None:
    t, member = running()
    view = t.views["uid-w"]
    since = rfc3339_seconds(to_seconds(view.decision.dispatched) + seconds)
    t.see(dataclasses.replace(view, unhealthy_at=since, unhealthy={member: "1 of 4 pods run"}))
    t.run(121)
    assert len(failed(t)) == times


def test_one_whose_policy_says_nothing_stays() -> None:
    t, member = running(wish=None)
    say(t, member)
    t.run(1000)
    assert failed(t) == []


def test_the_time_goes_on_under_the_next_leader() -> None:
    t, member = running()
    say(t, member)
    for _ in range(4):
        t.run(25)
        t.lead_anew()
    t.run(25)
    assert failed(t) == [pytest.approx(130, abs=0.2)]


def test_what_a_lost_member_said_last_evicts_nothing() -> None:
    t, member = running(wish=Failover(after=20.0))
    say(t, member)
    t.lose(member)
    t.run(55)
    assert failed(t) == []
    t.run(10)
    assert [round(when) for when, _ in t.evicted(Reason.MEMBER_LOST)] == [70]


def test_labels_of_the_next_copy_follow_from_the_status_of_this_one() -> None:
    t, member = running()
    t.see(dataclasses.replace(t.views["uid-w"], state={member: {"job-id": "x7"}}))
    say(t, member)
    t.run(200)
    assert t.views["uid-w"].decision.preserved == {"job-id": "x7"}
    [command] = [c for _, c in t.commands if isinstance(c, Evict)]
    assert command.tasks[0].preserved_label_state == {"job-id": "x7"}
    assert command.tasks[0].clusters_before_failover == [member]


@pytest.mark.parametrize(
    ("leaving", "expected"),
    [
        pytest.param(Failover(Purge.GRACEFULLY), [(Purge.GRACEFULLY, 600, None)], id="gracefully"),
        pytest.param(Failover(Purge.GRACEFULLY, 30.0), [(Purge.GRACEFULLY, 30, None)], id="for as long as it says"),
        pytest.param(Failover(Purge.GRACEFULLY, 1e9), [(Purge.GRACEFULLY, 600, None)], id="not for ever"),
        pytest.param(None, [], id="directly"),
    ],
)
def test_how_a_tainted_member_is_left(leaving: Failover | None, expected: list[Any]) -> None:
    t, member = running(leaving=leaving)
    t.taint(member, no_execute(at=t.now))
    t.run(5)
    assert tasks(t, Reason.MEMBER_TAINTED) == [(member, *each) for each in expected]


def test_what_is_not_bound_yet_leaves_a_tainted_member_without_a_task() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("w").tasks(4).gang(leaving=Failover(Purge.GRACEFULLY)))
    s.run()
    s.tell(make_cluster("m", taints=[no_execute()]))
    [command] = s.run(after=5)
    assert isinstance(command, Evict)
    assert (command.decision.reason, command.tasks) == (Reason.MEMBER_TAINTED, ())


def test_what_keeps_it_from_another_member_stays() -> None:
    t, member = running(leaving=Failover(Purge.GRACEFULLY))
    kept = [EvictionTask(name, "", "tests", Purge.DIRECTLY, "", 4) for name in ("far", member)]
    t.see(dataclasses.replace(t.views["uid-w"], tasks=tuple(kept)))
    t.taint(member, no_execute(at=t.now))
    t.run(5)
    found = [each[:2] for each in tasks(t, Reason.MEMBER_TAINTED)]
    assert found == [("far", Purge.DIRECTLY), (member, Purge.GRACEFULLY)]


def test_a_lost_member_is_left_without_a_task() -> None:
    t, member = running(leaving=Failover(Purge.GRACEFULLY))
    t.lose(member)
    t.run(70)
    assert tasks(t, Reason.MEMBER_LOST) == []
