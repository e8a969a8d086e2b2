"""How often a member's reports are taken in, whatever it writes."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable

import orjson

from atoll.dispatcher import intake
from atoll.dispatcher.capacity import Capacities
from atoll.dispatcher.core import CapacitySet, Event
from atoll.dispatcher.intake import Intake
from atoll.dispatcher.objects import CapacityReport, decode_report
from tests.fuzz.reports import capacity


class Watch:
    """A cache in front of an intake, and the core behind it."""

    def __init__(self) -> None:
        self.capacities = Capacities()
        self.told: dict[str, list[Event]] = {}
        self.replaced: Counter[str] = Counter()
        self._now, self._due = 0.0, list[tuple[float, str, Callable[[str], None]]]()
        self.intake = Intake(self.capacities, self._tell, lambda cluster: self.replaced.update([cluster]), self)
        self.intake.begin()
        self._last: dict[str, CapacityReport] = {}

    def time(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[[str], None], /, *args: str) -> None:
        heapq.heappush(self._due, (self._now + delay, args[0], callback))

    def pass_by(self, seconds: float) -> None:
        end = self._now + seconds
        while self._due and self._due[0][0] <= end:
            self._now, cluster, callback = heapq.heappop(self._due)
            callback(cluster)
        self._now = end

    def _tell(self, cluster: str, events: Iterable[Event]) -> None:
        self.told.setdefault(cluster, []).extend(events)

    def put(self, cluster: str, free: int, root: str = "r", **changes: object) -> None:
        classes = [{"domain": f"{root}-1", "profile": 1, "nodes": 2, "free": {"cpu": free}}]
        report = decode_report(orjson.dumps(capacity(cluster, root, **{"classes": classes, **changes})))
        self.intake.changed(self._last.get(report.metadata.key), report)
        self._last[report.metadata.key] = report

    def free(self, cluster: str) -> list[int]:
        events = self.told.get(cluster, ())
        return [event.capacity.classes[0].free["cpu"] for event in events if isinstance(event, CapacitySet)]


def test_a_member_that_writes_without_end_is_taken_in_at_a_bounded_rate_and_the_latest_counts() -> None:
    watch = Watch()
    for number in range(1000):
        watch.put("liar", number)
        watch.pass_by(0.01)
    watch.pass_by(1)
    assert len(watch.free("liar")) <= intake.BURST + 12 * intake.REFILL
    assert watch.free("liar")[-1] == 999
    assert watch.free("liar") == sorted(watch.free("liar"))
    assert watch.replaced["liar"] > 900


def test_others_do_not_wait_for_it_nor_do_members_that_keep_to_their_rate() -> None:
    watch = Watch()
    for number in range(200):
        watch.put("liar", number)
    for number in range(100):
        watch.put("good", number)
        assert watch.free("good")[-1] == number, "taken in at once"
        watch.pass_by(0.5)
    assert watch.replaced["good"] == 0


def test_other_nodes_than_before_cost_more_in_a_large_report() -> None:
    watch = Watch()
    free = {"cpu": 1, **{f"example.com/{number:0100}": 1 for number in range(500)}}
    assert len(orjson.dumps(free)) * 10 >= intake.BYTES
    for number in range(100):
        nodes = [{"domain": "r-1", "profile": 1, "nodes": 1 + number % 7 + each, "free": free} for each in range(10)]
        watch.put("liar", 0, classes=nodes)
        watch.pass_by(0.1)
    assert len(watch.free("liar")) <= (intake.BURST + 10 * intake.REFILL) / intake.REARRANGED + 2


def test_nodes_of_a_small_member_that_come_one_by_one_are_heard_at_once() -> None:
    watch = Watch()
    for number in range(120):
        watch.put("grows", 0, classes=[{"domain": "r-1", "profile": 1, "nodes": 1 + number, "free": {"cpu": number}}])
        watch.pass_by(0.2)
        assert watch.free("grows")[-1] == number
        watch.pass_by(0.3)
    assert watch.replaced["grows"] == 0


def test_what_can_t_be_read_is_as_if_it_were_not_there_and_says_why() -> None:
    watch = Watch()
    watch.put("a", 1)
    watch.put("a", 2, classes="none")
    assert watch.capacities.views("a") == []
    assert "Expected `array`" in watch.capacities.refused("a")["r"]
    watch.put("a", 3)
    assert watch.free("a")[-1] == 3
    assert watch.capacities.refused("a") == {}
