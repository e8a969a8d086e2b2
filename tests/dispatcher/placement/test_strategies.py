"""Users' strategies: what they decide, and that one which fails is off from then on."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from atoll.dispatcher.core import Dispatcher, Strategy
from atoll.dispatcher.core.events import StrategyOff
from atoll.dispatcher.strategies.budget import Strategies
from atoll.dispatcher.strategies.installed import Watch
from atoll.model.strategies import Member, Workload
from tests.dispatcher.builders import Scene, dispatched, make_binding, make_capacity, make_cluster, make_queue

EXAMPLE = Path(__file__).parents[3] / "examples" / "strategies" / "atoll_example_strategies.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("atoll_example_strategies", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scene(*, score: Any = None, split: Any = None, lines: int = 5000, gpus: tuple[int, int] = (4, 4)) -> Scene:
    """Queue q with strategies `mine`; member `east` costs more than `west`."""
    made = Scene()
    made.core = Dispatcher(
        strategies=Strategies({"mine": score} if score else {}, {"mine": split} if split else {}, lines=lines)
    )
    view = {"score": "mine" if score else "", "split": "mine" if split else "", "strategy": Strategy.TRAVERSE}
    east, west = gpus
    return made.tell(
        make_queue("q", view=view),
        make_queue("plain"),
        make_cluster("east", labels={"example.com/price": "2.5"}, region="eu"),
        make_cluster("west", labels={"example.com/price": "1.5"}),
        make_capacity("east", [east]),
        make_capacity("west", [west]),
    )


def parts(made: Scene, name: str) -> dict[str, int]:
    return {cluster: sum(counts) for cluster, counts in made.view(name).parts}


def failures(made: Scene) -> list[str]:
    return [failure.why for failure in made.core.state.strategies.take_failures()]


def test_the_member_with_the_highest_score_is_tried_first(example: ModuleType) -> None:
    made = scene(score=example.cheapest, gpus=(4, 8))
    made.submit(make_binding("a"), make_binding("other").queue("plain"))
    assert sorted(dispatched(made.run())) == [("a", "west"), ("other", "east")]


def test_a_member_with_the_highest_score_and_no_room_is_passed_over(example: ModuleType) -> None:
    made = scene(score=example.cheapest, gpus=(4, 2))
    made.submit(make_binding("a").tasks(3))
    assert dispatched(made.run()) == [("a", "east")]


def test_a_gang_is_divided_as_the_strategy_says(example: ModuleType) -> None:
    made = scene(split=example.evenly, gpus=(5, 4))
    made.submit(make_binding("a").tasks(6).divided(), make_binding("b").queue("plain").tasks(1))
    made.run()
    assert parts(made, "a") == {"east": 3, "west": 3}


def test_without_the_strategy_the_largest_member_is_filled() -> None:
    made = scene(gpus=(5, 4))
    made.submit(make_binding("a").tasks(6).divided())
    made.run()
    assert parts(made, "a") == {"east": 5, "west": 1}


def test_a_strategy_sees_what_is_there() -> None:
    seen: list[tuple[Workload, Sequence[Member]]] = []

    def look(workload: Workload, members: Sequence[Member]) -> Mapping[str, int]:
        seen.append((workload, members))
        return {}

    made = scene(split=look, gpus=(5, 4))
    made.submit(make_binding("a").tasks(6).divided(most=2))
    made.run()
    assert parts(made, "a") == {"east": 5, "west": 1}
    [(workload, members), *_] = seen
    assert (workload.queue, workload.sets, workload.most_members, workload.tasks[0].replicas) == ("q", 6, 2, 6)
    assert [(each.name, each.pods, each.sets, each.region) for each in members] == [
        ("east", (5,), 5, ("eu",)),
        ("west", (4,), 4, ("",)),
    ]
    assert failures(made) == []


def raises(workload: Workload, members: Sequence[Member]) -> Mapping[str, Any]:
    raise KeyError("price")


def overruns(workload: Workload, members: Sequence[Member]) -> Mapping[str, Any]:
    while True:
        try:
            workload = workload
        except Exception:
            continue


def lingers(workload: Workload, members: Sequence[Member]) -> Mapping[str, Any]:
    return {"east": sum(1 for _ in range(10**9))}


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        pytest.param(raises, "it raised KeyError: 'price'", id="it raises"),
        pytest.param(overruns, "more than 5000 lines", id="it never ends"),
        pytest.param(lingers, "more than 5000 lines", id="a generator never ends"),
        pytest.param(lambda _, __: 3, "with a int", id="no mapping"),
        pytest.param(
            lambda _, __: {"north": 1}, "'north', which is none of the members", id="a member that is not there"
        ),
        pytest.param(lambda _, __: {"east": 6}, "takes 5 at most", id="more than it may take"),
        pytest.param(lambda _, __: {"east": 5}, "5 sets of 6", id="too few in sum"),
        pytest.param(lambda _, __: {"east": -1, "west": 4}, "-1 sets", id="less than none"),
        pytest.param(lambda _, __: {"east": True}, "True sets", id="no number"),
    ],
)
def test_a_division_that_fails_is_off_and_the_native_one_goes_on(strategy: Any, why: str) -> None:
    asked = []

    def counted(workload: Workload, members: Sequence[Member]) -> Any:
        asked.append(workload)
        return strategy(workload, members)

    made = scene(split=counted, gpus=(5, 4))
    made.submit(make_binding("a").tasks(6).divided())
    made.run()
    assert parts(made, "a") == {"east": 5, "west": 1}
    [told] = failures(made)
    assert why in told
    made.change("a", finished=True)
    made.submit(make_binding("b").tasks(7).divided())
    made.run()
    assert len(asked) == 1
    assert sys.gettrace() is None or "trace" not in repr(sys.gettrace())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param({"north": 1.0}, "none of the members", id="a member that is not there"),
        pytest.param({"east": float("nan")}, "no finite number", id="not a number"),
        pytest.param({"east": "high"}, "no finite number", id="a word"),
    ],
)
def test_scores_that_are_nonsense_are_not_used(answer: dict[str, Any], why: str) -> None:
    made = scene(score=lambda _, __: answer, gpus=(4, 8))
    made.submit(make_binding("a"))
    assert dispatched(made.run()) == [("a", "east")]
    [told] = failures(made)
    assert why in told


def test_a_strategy_that_is_not_installed_is_told_once() -> None:
    made = scene()
    made.tell(make_queue("q", view={"score": "gone"}))
    made.submit(make_binding("a"), make_binding("b"))
    assert len(dispatched(made.run())) == 2
    [told] = failures(made)
    assert told == "it is not installed beside the dispatcher"


def test_what_took_too_long_is_off_once_the_core_is_told(example: ModuleType) -> None:
    made = scene(score=example.cheapest, gpus=(4, 8))
    made.tell(StrategyOff("atoll.score", "mine", "an answer took 3 s"))
    made.submit(make_binding("a"))
    assert dispatched(made.run()) == [("a", "east")]
    assert failures(made) == ["an answer took 3 s"]


def test_time_is_measured_beside_the_core() -> None:
    watch = Watch(0.0, None, None)  # type: ignore[arg-type]
    call = watch.timed("atoll.score", "mine", lambda workload, members: {"east": 1.0})
    assert call(None, ()) == {"east": 1.0}
    [late] = watch.take_late()
    assert (late.group, late.name) == ("atoll.score", "mine")
    assert watch.take_late() == []
