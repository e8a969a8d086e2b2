"""A queue that nobody made is known for as long as somebody names it: users may name as many as they like."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import msgspec
import pytest

from atoll.dispatcher.core import QueueGone, Strategy
from atoll.dispatcher.core.quota.queue import Queue
from tests.dispatcher.builders import Scene, make_binding, make_queue, scene
from tests.dispatcher.memory import remembered


def queues(s: Scene) -> set[str]:
    """What the core knows after the next pass."""
    s.run()
    s.core.check()
    return set(s.core.tree.queues) - {"root"}


def traces(s: Scene, names: Iterable[str]) -> list[str]:
    """Which of these queues are remembered anywhere, once another one was looked at."""
    s.tell(make_queue("elsewhere"))
    s.submit(make_binding("later").queue("elsewhere").tasks(99))
    s.run()
    s.gone("later")
    s.tell(QueueGone("elsewhere"))
    s.run()
    return remembered(s.core, names)


def test_thousands_of_queues_that_are_only_named_are_forgotten_with_their_workloads() -> None:
    s = scene()
    names = [f"no-such-{number}" for number in range(200)]
    for name in names:
        s.submit(make_binding(name).queue(name))
    assert queues(s) == {"q", *names}
    for name in names:
        s.gone(name)
    assert queues(s) == {"q"}
    assert traces(s, names) == []


@pytest.mark.parametrize("how", ["waits", "held"])
def test_a_queue_is_known_while_it_is_named(how: str) -> None:
    s = scene()
    for name in ("a", "b"):
        binding = make_binding(name).queue("none")
        s.submit(binding.held() if how == "held" else binding)
    s.gone("a")
    assert queues(s) == {"q", "none"}
    s.gone("b")
    assert queues(s) == {"q"}


def test_a_workload_that_moves_takes_the_last_mention_along() -> None:
    s = scene()
    s.submit(make_binding("a").queue("none"))
    assert queues(s) == {"q", "none"}
    s.submit(make_binding("a").queue("other"))
    assert queues(s) == {"q", "other"}


def test_what_runs_in_a_queue_that_was_deleted_keeps_it_until_it_ends() -> None:
    s = scene()
    s.submit(make_binding("a").tasks(4))
    assert queues(s) == {"q"}
    s.tell(QueueGone("q"))
    assert queues(s) == {"q"}
    assert s.core.tree.queues["q"].used
    s.gone("a")
    assert queues(s) == set()
    assert traces(s, ["q"]) == []


def test_a_queue_that_was_deleted_and_a_parent_that_never_was_are_forgotten() -> None:
    s = scene()
    s.tell(make_queue("leaf", view={"parent": "missing"}))
    assert queues(s) == {"q", "leaf", "missing"}
    s.tell(make_queue("leaf", view={"parent": "other"}))
    assert queues(s) == {"q", "leaf", "other"}
    s.tell(QueueGone("leaf"))
    assert queues(s) == {"q"}
    s.tell(QueueGone("never-seen"))
    assert queues(s) == {"q"}


def test_a_queue_that_is_named_again_is_another_node_that_works() -> None:
    """1. It is forgotten. 2. A workload names it again. 3. It is made: the workload starts."""
    s = scene()
    s.submit(make_binding("a").queue("late"))
    before = s.core.tree.queues["late"]
    s.gone("a")
    assert "late" not in queues(s)
    s.submit(make_binding("b").queue("late"))
    assert queues(s) == {"q", "late"}
    assert s.core.tree.queues["late"] is not before
    s.tell(make_queue("late", gpu=8))
    assert [command.name for command in s.run()] == ["b"]
    s.core.check()


def test_one_that_is_named_again_before_the_next_pass_stays() -> None:
    s = scene()
    s.submit(make_binding("a").queue("late"))
    node: Queue = s.core.tree.queues["late"]
    s.run()
    s.gone("a")
    s.submit(make_binding("b").queue("late"))
    assert queues(s) == {"q", "late"}
    assert s.core.tree.queues["late"] is node


def test_its_metrics_are_told_to_go() -> None:
    s = scene()
    s.submit(make_binding("a").queue("none"))
    s.run()
    s.gone("a")
    s.decide()
    assert "none" in [node.name for node in s.core.changes.queues]


def test_one_that_has_ended_names_its_queue_until_it_is_gone() -> None:
    s = scene()
    s.submit(replace(make_binding("a").queue("none").build(), finished=True))
    assert queues(s) == {"q", "none"}
    s.gone("a")
    assert queues(s) == {"q"}


@pytest.mark.parametrize("seed", range(4))
def test_after_any_history_only_what_is_there_or_named_is_known(seed: int) -> None:
    """Queues come, move below others that may not be there, and go; workloads name any of them. Each step is checked."""
    chance = random.Random(seed)
    s = scene()
    known = ["q", "a", "b", "c", "d", "e"]
    for step in range(400):
        match chance.randrange(10):
            case 0 | 1:
                view = {"parent": chance.choice(["", "", *known]), "strategy": chance.choice(list(Strategy))}
                s.tell(make_queue(chance.choice(known), gpu=chance.randrange(1, 9), view=view))
            case 2:
                s.tell(QueueGone(chance.choice(known)))
            case 3 | 4 | 5:
                binding = make_binding(f"w{step}").queue(chance.choice(known)).tasks(chance.randrange(1, 4))
                s.submit(binding.held() if chance.random() < 0.2 else binding)
            case 6 | 7 if s.views:
                s.gone(chance.choice(list(s.views.values())).name)
            case 8 if waiting := [each for each in s.views.values() if each.suspended]:
                view_of = chance.choice(waiting)
                assert view_of.gang is not None
                moved = msgspec.structs.replace(view_of.gang, queue=chance.choice(known))
                s.see(replace(view_of, gang=moved))
            case _:
                s.run(after=chance.choice([0.001, 1.0, 31.0]))
        if chance.random() < 0.3:
            s.run()
            unknown = [each for each in s.core.tree.queues.values() if s.core.tree.unnamed(each)]
            assert not unknown
    for view_of in list(s.views.values()):
        s.gone(view_of.name)
    for name in known:
        s.tell(QueueGone(name))
    assert queues(s) == set()


def test_what_waits_no_more_is_not_looked_at_again() -> None:
    s = scene()
    for number in range(3):
        s.submit(make_binding(f"b{number}").queue(f"nowhere-{number}"))
        s.run()
        assert len(s.core.state.outsiders) == 1
        s.gone(f"b{number}")
        s.run()
    assert not len(s.core.state.outsiders)
