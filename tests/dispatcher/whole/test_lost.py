"""Members that are lost, tainted or drained: what runs there goes back to its queue, whole, and runs elsewhere."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from atoll.dispatcher.core import ClusterSet, Evict
from atoll.model import keys
from atoll.model.verdict import Reason
from tests.dispatcher.builders import make_binding, make_cluster, make_queue, no_execute
from tests.dispatcher.virtual import Town, gpus
from tests.dispatcher.whole.machine import NODES, History


def town(**members: int) -> Town:
    sizes: dict[str, Any] = {name: gpus(size) for name, size in members.items()}
    return Town(make_queue("q"), check=True, **sizes)


def lost(t: Town) -> list[tuple[float, str]]:
    return t.evicted(Reason.MEMBER_LOST)


@pytest.mark.parametrize(
    ("on_lost", "toleration", "fenced", "when"),
    [
        pytest.param("", None, None, 60.0, id="after a minute where nobody says otherwise"),
        pytest.param("requeue", 300.0, None, 300.0, id="after its own toleration"),
        pytest.param("requeue", 0.0, None, 0.0, id="at once where it tolerates nothing"),
        pytest.param("exclusive", None, 100.0, 140.0, id="once its pods have surely ended: fence, grace and margin"),
        pytest.param("exclusive", 200.0, 100.0, 200.0, id="not before its toleration, though they have ended"),
        pytest.param("exclusive", None, None, None, id="never, where nobody ends its pods"),
        pytest.param("wait", 10.0, 10.0, None, id="never, where it waits for its member"),
    ],
)
def test_a_workload_of_a_lost_member_runs_elsewhere(
    on_lost: str, toleration: float | None, fenced: float | None, when: float | None
) -> None:
    t = town(m=8, n=8)
    t.submit(make_binding("w").tasks(4).when_lost(on_lost, toleration).affinity(clusterNames=["m", "n"]))
    t.run(10)
    [member] = dict(t.views["uid-w"].parts)
    t.lose(member, fenced_after=fenced)
    t.run(1000)
    if when is None:
        assert lost(t) == []
        assert t.jobs["uid-w"].starts[-1] < 10
        return
    [(evicted, name)] = lost(t)
    assert name == "w"
    assert evicted == pytest.approx(10 + when, abs=0.1)
    [elsewhere] = dict(t.views["uid-w"].parts)
    assert elsewhere != member
    assert t.started("w") == pytest.approx(10 + when, abs=5)


def test_nothing_moves_when_the_member_is_back_in_time() -> None:
    t = town(m=8, n=8)
    t.submit(make_binding("w").tasks(4).affinity(clusterNames=["m"]))
    t.run(10)
    for _ in range(3):
        t.lose("m")
        t.run(55)
        t.find("m")
        t.run(30)
    assert t.evicted(*Reason) == []


def test_a_gang_goes_whole_also_out_of_the_members_that_are_there() -> None:
    t = town(m=4, n=4, o=8)
    t.submit(make_binding("w").tasks(8).divided(least=2).affinity(clusterNames=["m", "n", "o"]))
    t.run(10)
    parts = dict(t.views["uid-w"].parts)
    assert len(parts) == 2
    away = min(parts)
    t.lose(away)
    t.run(66)
    assert [(round(when), name) for when, name in lost(t)] == [(70, "w")]
    assert away not in dict(t.views["uid-w"].parts)


@pytest.mark.parametrize(
    ("minimum", "least", "goes_on"),
    [
        pytest.param(4, 2, True, id="where the rest is enough"),
        pytest.param(7, 2, False, id="not where its minimum is more"),
        pytest.param(4, 3, False, id="not where it must run in more members"),
    ],
)
def test_an_elastic_gang_goes_on_without_its_lost_part(minimum: int, least: int, *, goes_on: bool) -> None:
    t = town(m=3, n=3, o=3)
    t.submit(make_binding("w").tasks(9, minimum=0).minimum(minimum).divided(least=least))
    t.run(10)
    parts = dict(t.views["uid-w"].parts)
    assert len(parts) == 3
    away = min(parts)
    t.lose(away)
    t.run(66)
    after = dict(t.views["uid-w"].parts)
    if goes_on:
        assert lost(t) == []
        assert after == {name: counts for name, counts in parts.items() if name != away}
        assert t.core.tree.queue("q").used["pods"] == sum(map(sum, after.values()))
        assert any("was away" in line.text for line in t.views["uid-w"].decision.story)
    else:
        assert [name for _, name in lost(t)] == ["w"]


def test_an_elastic_gang_of_which_one_part_is_left_grows_there_again() -> None:
    t = town(m=5, n=5)
    t.submit(make_binding("w").tasks(8, minimum=0).minimum(3).divided())
    t.run(10)
    parts = {name: sum(counts) for name, counts in t.views["uid-w"].parts}
    assert sorted(parts.values()) == [3, 5]
    away = max(parts, key=lambda name: parts[name])
    t.lose(away)
    t.run(120)
    assert [sum(counts) for name, counts in t.views["uid-w"].parts if name != away] == [5]
    assert lost(t) == []


def test_it_keeps_its_age_and_goes_before_what_came_later() -> None:
    t = town(m=4, n=4)
    t.submit(make_binding("old").tasks(4).affinity(clusterNames=["m", "n"]))
    t.run(5)
    [away] = dict(t.views["uid-old"].parts)
    t.submit(make_binding("other").tasks(4), runs=90)
    t.run(5)
    t.submit(make_binding("young").tasks(4))
    t.run(5)
    t.lose(away)
    t.run(200)
    assert t.jobs["uid-old"].starts[-1] > 80
    assert t.started("young") is None


def test_it_is_known_to_the_next_leader() -> None:
    t = town(m=8, n=8)
    t.submit(make_binding("w").tasks(4).affinity(clusterNames=["m", "n"]))
    t.run(10)
    [away] = dict(t.views["uid-w"].parts)
    t.lose(away)
    for _ in range(4):
        t.run(14)
        t.lead_anew()
    t.run(20)
    assert [when for when, _ in lost(t)] == [pytest.approx(70, abs=0.1)]


def test_what_is_stale_goes_before_the_member_gets_work_again() -> None:
    t = town(m=4, n=4)
    t.submit(make_binding("w").tasks(4).affinity(clusterNames=["m", "n"]))
    t.run(10)
    [away] = dict(t.views["uid-w"].parts)
    t.lose(away)
    t.run(100)
    t.submit(make_binding("next").tasks(4))
    t.run(10)
    assert t.started("next") is None
    t.find(away)
    t.run(10)
    assert dict(t.views["uid-next"].parts).keys() == {away}


# -- taints ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tolerations", "when"),
    [
        pytest.param([], 0.0, id="at once where nothing tolerates it"),
        pytest.param([{"key": "broken", "operator": "Exists"}], None, id="never where that has no end"),
        pytest.param([{"operator": "Exists", "tolerationSeconds": 40}], 40.0, id="after that time"),
        pytest.param(
            [{"operator": "Exists", "tolerationSeconds": 40}, {"key": "broken", "tolerationSeconds": 30}],
            30.0,
            id="after the shortest of those that fit",
        ),
        pytest.param([{"key": "other", "operator": "Exists"}], 0.0, id="at once where another one is tolerated"),
    ],
)
def test_a_no_execute_taint_evicts(tolerations: list[dict[str, object]], when: float | None) -> None:
    t = town(m=8)
    t.submit(make_binding("w").tasks(4).tolerating(*tolerations))
    t.run(10)
    t.taint("m", no_execute(at=t.now))
    t.run(35)
    early = t.evicted(Reason.MEMBER_TAINTED)
    t.run(7)
    found = t.evicted(Reason.MEMBER_TAINTED)
    assert early == [each for each in found if each[0] <= 45]
    assert [at for at, _ in found] == ([] if when is None else [pytest.approx(10 + when, abs=0.1)])


def test_a_taint_of_which_nobody_says_since_when_evicts_nothing_yet() -> None:
    t = town(m=8)
    t.submit(make_binding("w").tasks(4))
    t.run(10)
    t.taint("m", {"key": "broken", "effect": "NoExecute"})
    t.run(100)
    assert t.evicted(*Reason) == []


def test_a_no_schedule_taint_evicts_nothing() -> None:
    t = town(m=8)
    t.submit(make_binding("w").tasks(4))
    t.run(10)
    t.taint("m", {"key": "full", "effect": "NoSchedule"})
    t.run(100)
    assert t.evicted(*Reason) == []


# -- drains ------------------------------------------------------------------------------------------------------------


def drained(t: Town) -> list[tuple[float, str]]:
    return t.evicted(Reason.MEMBER_DRAINED)


def test_a_drain_empties_a_member_at_once_whatever_is_tolerated() -> None:
    t = town(m=8, n=8)
    for name in ("a", "b"):
        t.submit(make_binding(name).tasks(4).tolerating({"operator": "Exists"}).affinity(clusterNames=["m"]))
    t.run(10)
    t.taint("m", no_execute(keys.DRAINED, "all", at=t.now), ready=False)
    t.run(60)
    assert [(round(when), name) for when, name in drained(t)] == [(10, "a"), (10, "b")]
    assert not t.sites["m"].pods


def test_a_drain_one_by_one_evicts_the_next_once_the_one_before_is_gone() -> None:
    t = town(m=12, n=12)
    for name in ("a", "b", "c"):
        t.submit(make_binding(name).tasks(4).affinity(clusterNames=["m"]), grace=10)
        t.run(1)
    for name in ("a", "b", "c"):
        t.edit(f"uid-{name}", make_binding(name).tasks(4))
    t.taint("m", no_execute(keys.DRAINED, "one-by-one", at=t.now), ready=False)
    t.run(60)
    found = drained(t)
    assert [name for _, name in found] == ["a", "b", "c"], "the eldest first"
    assert [later - earlier for (earlier, _), (later, _) in itertools.pairwise(found)] == [
        pytest.approx(10, abs=0.5)
    ] * 2


def test_a_drain_one_by_one_evicts_the_rest_at_its_deadline() -> None:
    t = town(m=12, n=12)
    for name in ("a", "b", "c"):
        t.submit(make_binding(name).tasks(4).affinity(clusterNames=["m"]), grace=1000)
        t.run(1)
    t.taint("m", no_execute(keys.DRAINED, "one-by-one-30", at=t.now), ready=False)
    t.run(100)
    assert [(round(when), name) for when, name in drained(t)] == [(3, "a"), (33, "b"), (33, "c")]


def test_a_drain_goes_on_under_the_next_leader() -> None:
    t = town(m=12, n=12)
    for name in ("a", "b", "c"):
        t.submit(make_binding(name).tasks(4).affinity(clusterNames=["m"]), grace=10)
        t.run(1)
    t.taint("m", no_execute(keys.DRAINED, "one-by-one", at=t.now), ready=False)
    for _ in range(10):
        t.run(7)
        t.lead_anew()
    assert {name for _, name in drained(t)} == {"a", "b", "c"}


# -- at random -----------------------------------------------------------------------------------------------------------


class Losing(History):
    """Members are lost, come back, are tainted and drained all the time."""

    def more(self) -> list[tuple[int, Callable[[], object]]]:
        choose = self.random.choice
        return [
            (2, lambda: self.trouble(choose(sorted(NODES)))),
            (1, lambda: self.recover(choose(sorted(NODES)))),
            (2, lambda: self.decide(61.0)),
        ]

    def trouble(self, name: str) -> None:
        taints = self.random.choice(
            [(), (no_execute(at=self.now),), (no_execute(keys.DRAINED, "one-by-one-40", at=self.now),)]
        )
        lost_since = None if taints else self.now
        self.ready[name] = False
        view = make_cluster(name, ready=False, taints=taints).cluster
        self.tell(ClusterSet(dataclasses.replace(view, lost_since=lost_since)))

    def recover(self, name: str) -> None:
        self.set_cluster(name, 1)

    def decide(self, after: float) -> None:
        known = len(self.answers)
        super().decide(after)
        for command in self.answers[known]:
            if isinstance(command, Evict):
                self.decided[command.decision.reason] += 1


def test_long_histories_with_lost_members_keep_every_invariant() -> None:
    decided: Counter[str] = Counter()
    for seed in range(12):
        history = Losing(seed)
        history.play(200)
        decided += history.decided
    assert {Reason.MEMBER_LOST, Reason.MEMBER_TAINTED, Reason.MEMBER_DRAINED} <= decided.keys()


def test_long_histories_of_elastic_gangs_in_several_members_keep_every_invariant() -> None:
    without = 0
    for seed in range(8):
        chance = random.Random(seed)
        t = town(m=6, n=6, o=6)
        for number in range(12):
            pods = chance.randint(4, 12)
            wish = make_binding(f"w{number}").tasks(pods, minimum=0).minimum(chance.randint(2, 4))
            t.submit(wish.divided(least=chance.randint(1, 2)), runs=chance.uniform(30, 300))
            away = chance.choice(["m", "n", "o"])
            if t.sites[away].ready:
                t.lose(away)
            else:
                t.find(away)
            t.run(chance.uniform(5, 120))
            without += sum("was away" in line.text for view in t.views.values() for line in view.decision.story[-1:])
        for name, site in t.sites.items():
            if not site.ready:
                t.find(name)
        t.run(5000)
        assert all(job.ended is not None for job in t.jobs.values()), seed
    assert without
