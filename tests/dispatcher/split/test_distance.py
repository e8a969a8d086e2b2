"""A divided gang goes to as few members as hold it, and of these to the ones that are nearest to each other."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest

from atoll.dispatcher.core import ClusterSet
from atoll.dispatcher.core.events import ClusterView
from atoll.dispatcher.split import Division, divide_natively
from atoll.dispatcher.split.distance import LEVELS, Place, apart, place_of
from atoll.model import keys
from atoll.model.gang import Gang, Task
from tests.dispatcher.builders import Scene, make_binding, make_capacity, make_queue
from tests.fit.builders import make_nodes


def gang(pods: int) -> Gang:
    return Gang("q", [Task("t", pods, pods, {"gpu": 1, "pods": 1})], pods)


def place(site: str = "", *, provider: str = "", region: str = "", zone: str = "") -> Place:
    return place_of(site, {"provider": (provider,), "region": (region,), "zone": (zone,)})


@pytest.mark.parametrize(
    ("one", "other", "level"),
    [
        pytest.param(place("f1", zone="a"), place("f1", zone="b"), "site", id="one site"),
        pytest.param(place(region="eu", zone="a"), place(region="eu", zone="a"), "zone", id="one zone"),
        pytest.param(place(region="eu", zone="a"), place(region="us", zone="a"), None, id="zones of two regions"),
        pytest.param(place(region="eu", zone="a"), place(region="eu", zone="b"), "region", id="one region"),
        pytest.param(place(provider="x", region="eu"), place(provider="y", region="eu"), None, id="two providers"),
        pytest.param(place(provider="x", region="eu"), place(provider="x", region="us"), "provider", id="one provider"),
        pytest.param(place(), place(), None, id="nothing is said"),
    ],
)
def test_how_far_members_are_apart(one: Place, other: Place, level: str | None) -> None:
    expected = len(LEVELS) if level is None else LEVELS.index(level)
    assert apart(["a", "b"], {"a": one, "b": other}) == expected


def test_the_best_choice_beside_all_others() -> None:
    """Fewest members first, then the nearest level that they share: every choice is tried."""
    random = Random(7)
    divided = 0
    for _ in range(300):
        free = {f"m{number}": random.choice([1, 2, 3, 4, 6]) for number in range(random.randint(2, 6))}
        places = {
            name: place(
                random.choice(["", "", "f1"]),
                provider=random.choice(["x", "y"]),
                region=random.choice(["", "eu", "us"]),
                zone=random.choice(["", "a", "b"]),
            )
            for name in free
        }
        pods = random.randint(2, sum(free.values()))
        nodes = {name: make_nodes([[gpus]]) for name, gpus in free.items()}
        found = divide_natively(gang(pods), nodes, places=places)
        assert isinstance(found, Division)
        able = [
            chosen
            for size in range(1, len(free) + 1)
            for chosen in itertools.combinations(free, size)
            if sum(free[name] for name in chosen) >= pods
        ]
        fewest = min(map(len, able))
        assert len(found.clusters) == fewest
        if fewest == 1:
            continue
        nearest = min(apart(chosen, places) for chosen in able if len(chosen) == fewest)
        assert apart(found.clusters, places) == nearest, (free, places, pods)
        divided += 1
    assert divided > 100


def cluster(name: str, **fields: str) -> ClusterSet:
    site = fields.pop("site", "")
    labels: dict[str, Any] = {keys.SITE: site} if site else {}
    return ClusterSet(ClusterView(name, True, labels, (), {key: (value,) for key, value in fields.items()}))


def test_the_dispatcher_reads_it_from_clusters() -> None:
    """Without places the largest two are used; north and south are of one region."""
    free = {"east": 8, "north": 6, "south": 5, "west": 7}
    regions = {"east": "us", "north": "eu", "south": "eu", "west": "asia"}
    made = Scene(make_queue("q"), *(make_capacity(name, [gpus]) for name, gpus in free.items()))
    made.tell(*(cluster(name, region=regions[name]) for name in free))
    made.submit(make_binding("a").tasks(10).divided())
    made.run()
    assert dict(made.view("a").parts) == {"north": (6,), "south": (4,)}


def test_a_site_is_nearer_than_a_region() -> None:
    free = {"east": 8, "north": 6, "south": 5, "west": 7}
    made = Scene(make_queue("q"), *(make_capacity(name, [gpus]) for name, gpus in free.items()))
    made.tell(cluster("east", region="us", site="f"), cluster("west", region="asia", site="f"))
    made.tell(cluster("north", region="eu"), cluster("south", region="eu"))
    made.submit(make_binding("a").tasks(10).divided())
    made.run()
    assert [name for name, _ in made.view("a").parts] == ["east", "west"]
