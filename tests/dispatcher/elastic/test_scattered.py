"""Gangs that grow into further members by whole units, and lose any part but the last one."""

from __future__ import annotations

import random
from typing import Any

from atoll.dispatcher.core.commands import Resize
from atoll.model.verdict import Reason
from tests.dispatcher.builders import BindingBuilder, make_binding, make_queue, no_execute
from tests.dispatcher.virtual import Town, gpus


def array(name: str, slots: int, *, pods: int = 1) -> BindingBuilder:
    """One unit of so many pods starts it."""
    task = {"unit": pods} if pods > 1 else {}
    return make_binding(name).tasks(slots * pods, minimum=pods, **task).scattered()


def town(**members: int) -> Town:
    sizes: dict[str, Any] = {name: gpus(size) for name, size in members.items()}
    return Town(make_queue("q"), check=True, **sizes)


def parts(t: Town, name: str) -> dict[str, int]:
    return {member: sum(counts) for member, counts in t.views[f"uid-{name}"].parts}


def test_it_starts_in_one_member_and_grows_into_the_others() -> None:
    t = town(m=4, n=3, o=3)
    t.submit(array("a", 9))
    t.run(30)
    found = parts(t, "a")
    assert sum(found.values()) == 9
    assert len(found) == 3
    assert t.core.tree.queue("q").used["pods"] == 9


def test_it_grows_by_whole_units_in_each_member() -> None:
    t = town(m=5, n=5)
    t.submit(array("a", 9, pods=2))
    t.run(30)
    assert parts(t, "a") == {"m": 4, "n": 4}


def test_it_has_no_more_members_than_its_policy_allows() -> None:
    t = town(m=2, n=2, o=2)
    t.submit(array("a", 6).scattered(most=2))
    t.run(30)
    assert sorted(parts(t, "a").values()) == [2, 2]


def test_it_goes_on_without_the_part_in_a_lost_member_and_grows_elsewhere() -> None:
    t = town(m=4, n=4, o=4)
    t.submit(array("a", 8))
    t.run(30)
    away = min(parts(t, "a"))
    t.lose(away)
    t.run(100)
    assert away not in parts(t, "a")
    assert sum(parts(t, "a").values()) == 8
    assert t.evicted(*Reason) == []


def test_it_goes_on_without_the_part_in_a_tainted_member() -> None:
    t = town(m=4, n=4)
    t.submit(array("a", 8))
    t.run(30)
    t.taint("n", no_execute(at=t.now))
    t.run(30)
    assert parts(t, "a") == {"m": 4}
    t.taint("n")
    t.run(30)
    assert parts(t, "a") == {"m": 4, "n": 4}
    assert t.evicted(*Reason) == []


def test_a_part_that_does_not_start_is_given_up() -> None:
    t = town(m=4, n=4)
    t.sites["n"].nodes = gpus(0)
    t.submit(array("a", 8))
    t.run(200)
    tries = [c for _, c in t.commands if isinstance(c, Resize) and len(c.parts) == 2]
    assert len(tries) < 5
    assert parts(t, "a") == {"m": 4}
    assert any("had a node in n" in line.text for line in t.views["uid-a"].decision.story)


def test_its_last_parts_go_first_where_its_user_asks_for_less() -> None:
    t = town(m=4, n=4, o=4)
    t.submit(array("a", 12))
    t.run(30)
    first, second, _ = parts(t, "a")
    t.edit("uid-a", array("a", 6))
    t.run(30)
    assert parts(t, "a") == {first: 4, second: 2}
    assert t.core.tree.queue("q").used["pods"] == 6


def test_it_shrinks_for_others_before_anything_is_evicted() -> None:
    t = town(m=4, n=4)
    t.submit(array("a", 8))
    t.run(200)
    assert sum(parts(t, "a").values()) == 8
    t.submit(make_binding("b").tasks(3).priority(10))
    t.run(200)
    assert t.started("b")
    assert sum(parts(t, "a").values()) == 5
    assert t.evicted(*Reason) == []


def test_long_histories_keep_every_invariant() -> None:
    grew = 0
    for seed in range(8):
        chance = random.Random(seed)
        t = town(m=6, n=6, o=6)
        for number in range(14):
            wish = array(f"w{number}", chance.randint(2, 10), pods=chance.randint(1, 2))
            if chance.random() < 0.4:
                wish = make_binding(f"w{number}").tasks(chance.randint(1, 5)).priority(chance.randint(0, 3))
            t.submit(wish, runs=chance.uniform(30, 300))
            away = chance.choice(["m", "n", "o"])
            if chance.random() < 0.3:
                t.lead_anew()
            if t.sites[away].ready:
                t.lose(away)
            else:
                t.find(away)
            t.run(chance.uniform(5, 120))
            grew += sum(len(view.parts) > 1 for view in t.views.values())
        for name, site in t.sites.items():
            if not site.ready:
                t.find(name)
        t.run(6000)
        assert all(job.ended is not None for job in t.jobs.values()), seed
    assert grew
