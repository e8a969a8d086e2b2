"""Gangs move out of a rack for a gang that waits for one, if the moves lose less than the wait."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import pytest

from atoll.dispatcher.core import Ask, Dispatch, Evict, Strategy
from atoll.dispatcher.core.settings import CoreSettings, DefragmentationSettings
from atoll.dispatcher.explain.verdicts import account
from atoll.model.verdict import Reason
from tests.dispatcher.builders import HOUR, make_binding, make_queue
from tests.dispatcher.virtual import Town, gpus

RACKS = ("r1", "r1", "r2", "r2")


def having(**more: float) -> CoreSettings:
    return CoreSettings(defragmentation=DefragmentationSettings(**({"hourly": 10} | more)))  # type: ignore[arg-type]


def scattered(settings: CoreSettings, *, pods: int = 2, runs: float = math.inf, **more: object) -> Town:
    """One gang of so many GPUs in each of two racks of 8 GPUs."""
    town = Town(make_queue("q", view=dict(more)), settings=settings, racks={"m": RACKS}, check=True, m=gpus(4, 4, 4, 4))
    town.submit(make_binding("a").tasks(pods).hard(1), runs)
    town.run(1)
    town.submit(make_binding("filler").tasks(8 - pods).hard(1))
    town.run(1)
    town.submit(make_binding("b").tasks(pods).hard(1), runs)
    town.run(1)
    town.delete("uid-filler")
    town.run(1)
    return town


def moved(town: Town) -> list[str]:
    return [name for _, name in town.evicted(Reason.MOVED)]


def test_a_gang_gets_its_rack_by_one_move() -> None:
    town = scattered(having(), runs=10 * HOUR)
    town.run(100)
    town.submit(make_binding("wide").tasks(8).hard(1), HOUR)
    town.run(HOUR / 2)
    assert len(moved(town)) == 1
    assert town.running() == ["a", "b", "wide"]
    [asked] = [c for _, c in town.commands if isinstance(c, Ask)]
    blocker = asked.decision.blocker
    assert blocker is not None
    assert blocker.message.startswith("2 pods of 1 gang leave rack r")
    assert "pod-hours lost; waiting would cost 79." in blocker.message
    [evict] = [c for _, c in town.commands if isinstance(c, Evict)]
    assert blocker.message in evict.decision.story[-1].text
    assert evict.decision.moved


def test_nothing_moves_by_default() -> None:
    town = scattered(CoreSettings(), runs=10 * HOUR)
    town.submit(make_binding("wide").tasks(8).hard(1), HOUR)
    town.run(5 * HOUR)
    assert moved(town) == []
    assert "wide" not in town.running()


def why_not(town: Town) -> str:
    found = account(town.core, "uid-wide")
    assert found is not None
    return found.moves


def test_nothing_moves_if_that_loses_more_than_the_wait_and_explain_has_both_costs() -> None:
    """Both have run for an hour and end in a minute: 2.03 pod-hours against 8 pods for a minute."""
    town = scattered(having(), runs=HOUR + 100)
    town.run(HOUR)
    town.submit(make_binding("wide").tasks(8).hard(1), HOUR)
    assert why_not(town) == ""
    town.run(40)
    text = why_not(town)
    assert text.startswith("2 pods of 1 gang would leave rack r"), text
    assert ": 2.05 pod-hours lost; waiting costs 0.15 pod-hours, at " in text, text
    town.run(2000)
    assert moved(town) == []
    assert "wide" in town.running()
    assert why_not(town) == ""


def test_a_checkpoint_bounds_the_loss() -> None:
    town = scattered(having(unknown=60.0))
    town.run(HOUR)
    town.submit(make_binding("wide").tasks(8).hard(1), HOUR)
    town.run(HOUR)
    assert moved(town) == []
    town = scattered(having(unknown=60.0, checkpoint=120.0))
    town.run(HOUR)
    town.submit(make_binding("wide").tasks(8).hard(1), HOUR)
    town.run(HOUR)
    assert len(moved(town)) == 1


def test_nothing_moves_where_the_lifted_gang_would_have_no_place() -> None:
    town = scattered(having(), pods=3)
    # Two GPUs stay free in each rack, and none of the gangs can go to the other one.
    town.submit(make_binding("full-1").tasks(3).hard(1))
    town.submit(make_binding("full-2").tasks(3).hard(1))
    town.run(100)
    assert town.running() == ["a", "b", "full-1", "full-2"]
    town.submit(make_binding("wide").tasks(4).hard(1), HOUR)
    town.run(5 * HOUR)
    assert moved(town) == []
    assert why_not(town).startswith("no gangs whose moves would free a domain for it, at ")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda each: each.firm(), id="their users forbid it"),
        pytest.param(lambda each: each.priority(1), id="they are of a higher priority"),
        pytest.param(lambda each: each.minimum(1), id="they are elastic"),
    ],
)
def test_gangs_stay_where(change) -> None:
    town = Town(make_queue("q"), settings=having(), racks={"m": RACKS}, check=True, m=gpus(4, 4, 4, 4))
    town.submit(change(make_binding("a").tasks(2).hard(1)))
    town.run(1)
    town.submit(make_binding("filler").tasks(6).hard(1))
    town.run(1)
    town.submit(change(make_binding("b").tasks(2).hard(1)))
    town.run(1)
    town.delete("uid-filler")
    town.run(100)
    town.submit(make_binding("wide").tasks(8).hard(1), HOUR)
    town.run(3 * HOUR)
    assert moved(town) == []


@pytest.mark.parametrize("anew", [False, True], ids=["one leader", "a leader that begins"])
def test_no_more_gangs_move_in_an_hour_than_the_bound(anew: bool) -> None:
    racks = {"m": RACKS, "n": RACKS}
    town = Town(
        make_queue("q"), settings=having(hourly=1), racks=racks, check=True, m=gpus(4, 4, 4, 4), n=gpus(4, 4, 4, 4)
    )
    for number in range(4):
        town.submit(make_binding(f"small-{number}").tasks(2).hard(1))
        town.submit(make_binding(f"filler-{number}").tasks(6).hard(1))
        town.run(1)
    for number in range(4):
        town.delete(f"uid-filler-{number}")
    town.run(100)
    for number in range(3):
        town.submit(make_binding(f"wide-{number}").tasks(8).hard(1))
    town.run(HOUR / 2)
    if anew:
        town.lead_anew()
    town.run(HOUR / 2 - 10)
    assert len(moved(town)) == 1
    texts = [each.moves for number in range(3) if (each := account(town.core, f"uid-wide-{number}")) is not None]
    assert any(each.startswith("1 gang moved in the last hour, and no more may, at ") for each in texts), texts
    town.run(HOUR)
    assert len(moved(town)) == 2


def test_the_kept_place_yields_to_no_higher_priority() -> None:
    """1. The rack is freed by a move. 2. While the moved gang leaves, a gang of a priority above its own comes that
    fits nowhere but in its place. 3. The moved gang gets it.
    """
    town = scattered(having(), runs=10 * HOUR)
    town.grace = 20.0
    town.run(100)
    town.tell(make_queue("p"))
    town.submit(make_binding("wide").queue("p").tasks(8).hard(1).priority(9), HOUR)
    for _ in range(100):
        town.run(1)
        if moved(town):
            break
    town.submit(make_binding("urgent").queue("p").tasks(5).hard(1).priority(5), HOUR)
    town.run(60)
    assert town.running() == ["a", "b", "wide"]


class _Early(Town):
    """Figures are without evicted pods for two seconds before their binding is."""

    def _gone(self, uid: str, epoch: int, names: Sequence[str]) -> None:
        for name in names:
            self._forget(self.sites[name], uid)
            self._publish(name)
        self.after(2.0, lambda: super(_Early, self)._gone(uid, epoch, names))


def test_pods_that_left_the_figures_before_their_binding_do_not_count_twice() -> None:
    """1. The pods of a moved gang are gone from the figures, and its binding still leaves. 2. A gang comes that would fit
    in its next place. 3. The moved gang gets that.
    """
    # The member without racks keeps limits of the whole federation away.
    town = _Early(
        make_queue("q"), settings=having(), racks={"m": RACKS}, check=True, m=gpus(4, 4, 4, 4), n=gpus(4, 4, 4, 4)
    )
    for name in ("a", "filler", "b"):
        town.submit(make_binding(name).tasks(4).hard(1))
        town.run(1)
    town.delete("uid-filler")
    town.run(100)
    town.submit(make_binding("wide").tasks(8).hard(1))
    while not moved(town) or "uid-b" in town.sites["m"].pods:
        town.run(0.1)
    town.submit(make_binding("late").tasks(4).hard(1))
    town.run(60)
    assert town.running() == ["a", "b", "wide"]


def test_a_member_that_refuses_the_claimant_ends_no_gang() -> None:
    town = scattered(having(), runs=10 * HOUR)
    town.answers = lambda *_: False
    town.submit(make_binding("wide").tasks(8).hard(1), HOUR)
    town.run(HOUR)
    assert any(isinstance(c, Ask) for _, c in town.commands)
    assert moved(town) == []


def random_history(seed: int) -> Town:
    """Small gangs leave holes in racks, wide ones come and want a whole rack."""
    random = Random(seed)
    view = {"strategy": random.choice([Strategy.FIFO, Strategy.BACKFILL, *[Strategy.TRAVERSE] * 4])}
    town = Town(
        make_queue("q", view=view),
        make_queue("p"),
        settings=having(hourly=random.choice([1, 3, 20]), pause=10.0),
        racks={"m": RACKS, "n": RACKS},
        check=True,
        m=gpus(4, 4, 4, 4),
        n=gpus(4, 4, 4, 4),
    )

    def submit(number: int, pods: int, runs: float) -> None:
        builder = make_binding(f"g{number}").queue(random.choice("qqp")).priority(random.choice([0, 0, 0, 1]))
        builder = builder.tasks(pods, minimum=random.choice([pods, pods, pods, 1]))
        builder = builder.hard(1) if random.random() < 0.8 else builder
        town.submit(builder, runs, estimate=random.random() < 0.8)

    for number in range(14):
        submit(number, random.choice([2, 2, 3]), 30000.0)
    town.run(10)
    for uid in random.sample(sorted(town.views), 8):
        town.delete(uid)
    town.run(70)
    for number in range(14, 26):
        uids = [uid for uid, each in town.views.items() if not each.finished]
        act = random.random()
        if act < 0.4:
            submit(number, random.choice([7, 8]), random.choice([300.0, 3000.0]))
        elif act < 0.7:
            submit(number, random.choice([1, 2, 3]), random.choice([300.0, 30000.0]))
        elif uids:
            town.delete(random.choice(uids))
        town.run(random.choice([1.0, 60.0, 300.0]))
        judge(town)
    return town


def judge(town: Town) -> None:
    last: dict[str, float] = {}
    for when, command in town.commands:
        if isinstance(command, Evict) and command.decision.reason is Reason.MOVED:
            assert when - last.get(command.uid, -math.inf) >= 6 * HOUR, f"{command.name} moves again and again"
            last[command.uid] = when
            back = [t for t, c in town.commands if isinstance(c, Dispatch) and c.uid == command.uid and t >= when]
            there = command.uid in town.views and not town.views[command.uid].finished
            assert back or not there or town.time - when < 60, f"{command.name} was moved and has no place"
            assert not back or back[0] - when < 60


def test_random_histories_move_nothing_without_a_place_nor_to_and_fro() -> None:
    moves = sum(len(moved(random_history(seed))) for seed in range(12))
    assert moves > 4, "too little moves to judge anything"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20, 1020, 10))
def test_and_many_more(seed: int) -> None:
    for each in range(seed, seed + 10):
        random_history(each)
