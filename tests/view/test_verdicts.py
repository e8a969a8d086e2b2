"""What the query API says, as `explain` and `what-if` print it."""

from __future__ import annotations

import msgspec

from atoll.model.query import Account, Change, ChangeKind, Limit, Named, Place, Position, Reserved, Room
from atoll.view import verdicts
from tests.view.made import NOW


def plain(account: Account):
    return msgspec.to_builtins(account)


def test_a_workload_that_would_start() -> None:
    places = [Place("east", 8, "rack-3"), Place("west", 1)]
    status = plain(Account(starts=True, places=places, flavors=["nvidia.com/gpu@h100"]))
    assert verdicts.answer("Job research/train", status, NOW).splitlines() == [
        "Job research/train would start now",
        "  in east: 8 pods, domain rack-3",
        "  in west: 1 pod",
        "  on nodes of flavor nvidia.com/gpu@h100",
    ]


def test_a_workload_that_would_wait() -> None:
    limit = Limit("Queue", "q", "cpu", "8", "2", "6")
    account = Account(
        reason="QuotaExceeded",
        message="it would exceed its queue's capability",
        queue=Position("q", 3, 4),
        limits=[limit],
        clusters=[Room("east", 4, 3, "InsufficientResources", "there is room for 3 of the 4 pods")],
        reserved=Reserved("east", "2026-01-01T00:00:00Z"),
        changes=[
            Change(ChangeKind.LIMITS, "higher limits (queue q: 6 cpu)", True, [limit]),
            Change(ChangeKind.FINISH, "the end of 3 workloads", True, workloads=[Named("a", "b")], more=2, at=AHEAD),
        ],
    )
    assert verdicts.answer("Job n/x", plain(account), NOW).splitlines() == [
        "Job n/x would wait",
        "  reason    QuotaExceeded: it would exceed its queue's capability",
        "  position  3 of 4 in queue q",
        "  limit     queue q: 8 cpu needed, 2 left, 6 short",
        "  member    east: 3 of 4 pods; there is room for 3 of the 4 pods",
        "  reserved  in east from 2026-01-01T00:00:00Z",
        "  would help: higher limits (queue q: 6 cpu); that is enough, unless one of the 2 ahead of it in its queue takes it",
        "  would help: the end of 3 workloads: a/b and 2 more, expected at 2027-01-15T08:05:00Z; that is enough"
        ", unless one of the 2 ahead of it in its queue takes it",
    ]


def test_a_ceiling_is_a_limit_in_its_member() -> None:
    account = Account(limits=[Limit("Queue", "q", "cpu", "8", "2", "6", cluster="east")])
    assert verdicts.details(plain(account)) == ["  limit     queue q in east: 8 cpu needed, 2 left, 6 short"]


def test_only_the_nearest_members_are_printed() -> None:
    account = Account(clusters=[Room(f"m{n}", 2, 1, "InsufficientResources", "room for 1") for n in range(11)])
    lines = verdicts.details(plain(account))
    assert len(lines) == 9
    assert lines[-1] == "  member    3 others with less room for it"


def test_a_single_member_that_is_left_out_is_one() -> None:
    account = Account(clusters=[Room(f"m{n}", 2, 1, "InsufficientResources", "room for 1") for n in range(9)])
    assert verdicts.details(plain(account))[-1] == "  member    1 other with less room for it"


PAST, AHEAD = "2027-01-15T07:55:00Z", "2027-01-15T08:05:00Z"


def test_an_end_that_is_overdue_says_so() -> None:
    changes = [{"kind": "Finish", "message": "an end", "at": at} for at in (AHEAD, PAST)]
    assert verdicts.changes({"changes": changes}, NOW) == [
        f"an end, expected at {AHEAD}",
        f"an end, was expected at {PAST}, overdue by 5m",
    ]


def test_a_reservation_that_is_overdue_says_so() -> None:
    reserved = {"cluster": "east", "at": PAST, "overdueSeconds": 300}
    assert verdicts.details({"reserved": reserved}) == [f"  reserved  in east, was expected at {PAST}, overdue by 5m"]


def test_where_no_member_serves_its_queue_what_those_have_is_no_limit() -> None:
    limit = {"kind": "Queue", "name": "q", "resource": "pods", "requested": "1", "available": "0", "shortage": "1"}
    status = {"reason": "NoClusterMatches", "limits": [{**limit, "declared": False}]}
    assert verdicts.details(status) == []
    [line] = verdicts.details({"reason": "QuotaExceeded", "limits": [limit]})
    assert line == "  limit     queue q: 1 pod needed, 0 left, 1 short"
