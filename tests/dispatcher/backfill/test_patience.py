"""Room that is kept for what has waited long: for one of a queue, within what that deserves, from a known time on, and
for a while.
"""

from __future__ import annotations

from msgspec.structs import replace

from atoll.dispatcher.core import Event, QueueSet
from atoll.dispatcher.core.settings import CoreSettings
from atoll.model.timestamps import rfc3339
from tests.dispatcher.builders import (
    BACKFILL,
    GPU,
    NEVER,
    Scene,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    named,
    names,
)

AGAIN = CoreSettings().backfill.again
BY_PATIENCE = CoreSettings().backfill.waiting

BORN = "2027-01-15T08:00:00Z"
HOUR = 3600.0


def patient(name: str = "q", **view: object) -> QueueSet:
    return make_queue(name, view={"patience": 60.0, **view})


def scene(*queues: Event, runs: float | None = HOUR) -> Scene:
    """Half of the GPUs run work of queue `other`, which ends when it says, or nobody knows when."""
    s = Scene(make_cluster("m"), make_capacity("m", [8]), *queues)
    work = make_binding("runs").queue("other").tasks(4)
    assert names(s.submit(work if runs is None else work.runs(runs)).run()) == ["runs"]
    s.bound("runs", generation=NEVER)
    return s


def kept(s: Scene) -> list[str]:
    return [each.removeprefix("uid-") for each in s.core.reservations.made]


def test_capacity_is_reserved_for_one_workload_of_a_queue_at_a_time() -> None:
    s = scene(patient(), make_queue("other"))
    s.submit(*(make_binding(name).tasks(8).created(BORN) for name in ("first", "second")))
    s.run(after=61.0)
    s.run(after=61.0)
    assert kept(s) == ["first"]
    s.gone("first")
    s.run(after=AGAIN)
    s.run(after=AGAIN)
    assert kept(s) == ["second"]


def test_none_is_kept_beyond_what_its_queue_deserves() -> None:
    s = scene(patient(deserved={GPU: 4}), make_queue("other", view={"deserved": {GPU: 4}}))
    s.submit(make_binding("large").tasks(8).created(BORN))
    s.run(after=61.0)
    assert kept(s) == []
    s.submit(make_binding("theirs").queue("other").tasks(4))
    assert names(s.run()) == ["theirs"]


def test_none_is_kept_where_its_start_is_not_known() -> None:
    s = scene(patient(), make_queue("other"), runs=None)
    s.submit(make_binding("large").tasks(8).created(BORN))
    s.run(after=61.0)
    assert kept(s) == []
    s.submit(make_binding("theirs").queue("other").tasks(4))
    assert names(s.run()) == ["theirs"]


def test_it_ends_after_an_hour_though_what_runs_always_says_that_it_is_about_to_end() -> None:
    s = scene(patient(), make_queue("other"), runs=60.0)
    s.submit(make_binding("large").tasks(8).created(BORN))
    s.run(after=61.0)
    assert kept(s) == ["large"]
    s.submit(make_binding("theirs").queue("other").tasks(4))
    waited = 0.0
    while not s.view("theirs").parts and waited < 2 * BY_PATIENCE:
        s.run(after=60.0)
        waited += 60.0
    assert BY_PATIENCE - 120 < waited <= BY_PATIENCE + 120
    s.change("theirs", finished=True)
    s.run(after=1.0)
    assert kept(s) == [], "others have their turn for as long"
    for _ in range(int(BY_PATIENCE / 60) + 2):
        s.run(after=60.0)
    assert kept(s) == ["large"]


def test_the_head_of_a_backfill_queue_keeps_its_room() -> None:
    s = scene(patient(**BACKFILL), make_queue("other"), runs=None)
    s.submit(make_binding("large").tasks(8).created(BORN))
    s.run(after=61.0)
    assert kept(s) == ["large"]


def test_while_one_rests_another_that_asks_for_the_same_has_its_turn() -> None:
    s = scene(patient(), make_queue("other"), runs=60.0)
    s.submit(*(make_binding(name).tasks(8).created(BORN) for name in ("first", "second")))
    s.run(after=61.0)
    assert kept(s) == ["first"]
    seen: list[str] = []
    for _ in range(int(2 * BY_PATIENCE / 60) + 5):
        s.run(after=60.0)
        assert s.core.next_deadline is not None
        assert s.core.next_deadline > s.now, "it would be looked at again and again"
        seen += [each for each in kept(s) if each not in seen[-1:]]
    assert seen == ["first", "second", "first"]


def test_a_new_leader_keeps_it_for_the_same_one_and_for_no_longer() -> None:
    s = Scene(make_cluster("m"), named("m", [8, 8]), patient(), make_queue("other"))
    s.submit(make_binding("runs").queue("other").tasks(1, gpu=8).runs(60)).run()
    s.tell(named("m", [0, 8], generation=2))
    s.change("runs", placed={"m": (2, 1)}, nodes={"m": {"m-0": 1}})
    s.submit(*(make_binding(name).tasks(2, gpu=8).runs(HOUR).created(BORN) for name in ("first", "second")))
    s.run(after=61.0)
    s.run(after=BY_PATIENCE - 60.0)
    assert kept(s) == ["first"]
    decision = s.view("second").decision
    s.change("second", decision=replace(decision, kept=s.view("first").decision.kept))  # as leaders wrote it once
    s.restart()
    s.run(after=1.0)
    assert kept(s) == ["first"]
    s.run(after=60.0)
    s.run(after=AGAIN)
    assert kept(s) == ["second"]


def test_the_head_of_a_backfill_queue_that_waits_for_hours_is_looked_at_in_time_and_not_at_once() -> None:
    s = scene(patient(**BACKFILL), make_queue("other"), runs=10 * HOUR)
    s.submit(make_binding("large").tasks(8).created(BORN))
    for _ in range(3):
        s.run(after=HOUR)
        assert kept(s) == ["large"]
        assert s.core.next_deadline is None or s.core.next_deadline > s.now


def test_a_head_that_is_none_any_more_keeps_its_room_for_as_long_as_others_that_have_waited() -> None:
    s = scene(patient(**BACKFILL), make_queue("other"), runs=10 * HOUR)
    s.submit(make_binding("large").tasks(8).runs(HOUR).created(BORN))
    s.run(after=61.0)
    s.submit(make_binding("elder").tasks(8).runs(HOUR).created("2020-01-01T00:00:00Z"))
    for _ in range(2):
        s.run(after=BY_PATIENCE / 2 - 60.0)
        assert kept(s) == ["large", "elder"]
    s.run(after=121.0)
    assert kept(s) == ["elder"]


def test_an_elder_head_that_fits_nowhere_frees_what_the_one_before_had_reserved() -> None:
    """The elder gets no reservation, so what the younger one's reservation kept out may start at once."""
    s = scene(make_queue("q", view=BACKFILL), make_queue("other"))
    s.submit(make_binding("younger").tasks(8))
    s.run()
    assert kept(s) == ["younger"]
    s.submit(make_binding("late").queue("other").tasks(4))
    assert names(s.run()) == []
    s.submit(make_binding("elder").tasks(16).created("2020-01-01T00:00:00Z"))
    assert names(s.run()) == ["late"]
    assert kept(s) == []


def test_a_workload_that_is_given_more_patience_waits_longer() -> None:
    s = scene(patient(), make_queue("other"))
    s.submit(make_binding("waits").tasks(8).created(BORN))
    s.run()
    s.submit(make_binding("waits").tasks(8).created(BORN).patient(150.0))
    s.run(after=100.0)
    assert kept(s) == []
    s.run(after=100.0)
    assert kept(s) == ["waits"]


def test_capacity_is_reserved_in_the_very_pass_that_is_due_then() -> None:
    s = scene(patient(), make_queue("other"))
    s.submit(make_binding("waits").tasks(8).created(rfc3339(s.now)))
    s.run()
    due = s.core.next_deadline
    assert due is not None
    s.run(after=due - s.now)
    assert kept(s) == ["waits"]
