"""What of a member's ClusterCapacity objects the core is told of."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from atoll.agent.summary import NodeRoom, Summary
from atoll.dispatcher import capacity as bounds
from atoll.dispatcher import objects
from atoll.dispatcher.capacity import Capacities
from atoll.dispatcher.core import CapacityGone, CapacitySet, Event
from atoll.kube import client_metrics
from atoll.model import keys, topology
from atoll.model.vector import MOST_ON_NODE
from tests.fuzz.reports import capacity

Json = dict[str, Any]


class Told:
    """Plays the cache in front of it."""

    def __init__(self) -> None:
        self.capacities = Capacities()
        self.last: dict[str, objects.CapacityObject] = {}

    def put(self, body: Json) -> list[Event]:
        new = objects.read_report(objects.decode_report(orjson.dumps(body)))
        old, self.last[new.metadata.key] = self.last.get(new.metadata.key), new
        return list(self.capacities.changed(old, new))

    def drop(self, body: Json) -> list[Event]:
        old = self.last.pop(f"{body['metadata']['namespace']}/{body['metadata']['name']}")
        return list(self.capacities.changed(old, None))


def node_class(**fields: Any) -> Json:
    return {"domain": "r-1", "profile": 1, "nodes": 2, "free": {"cpu": 1000, "pods": 10}, **fields}


def domains(*more: Json) -> list[Json]:
    return [{"name": "r", "tier": 3}, *more]


def test_a_good_one_is_told_as_it_is() -> None:
    (event,) = Told().put(capacity("a"))
    assert isinstance(event, CapacitySet)
    view = event.capacity
    assert (view.cluster, view.root, view.generation) == ("a", "r", 7)
    assert view.domains == (("r", 2, "", ""), ("r-1", 1, "rack", "r"), ("r-2", 1, "", "r"))
    assert [each.nodes for each in view.classes] == [2, 2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"classes": [node_class(nodes=2_000_000_000)]}, "nodes: 2000000000", id="too many nodes"),
        pytest.param({"classes": [node_class(nodes=-1)]}, "nodes: -1", id="fewer than no nodes"),
        pytest.param({"classes": [node_class(nodes=40_000)] * 2}, "80000 nodes", id="too many nodes together"),
        pytest.param({"classes": [node_class(domain="x")]}, "domain: x is none", id="a domain that is not there"),
        pytest.param({"classes": [node_class(profile=2)]}, "profile: 2 is no index", id="a profile that is not there"),
        pytest.param({"classes": [node_class(profile=-1)]}, "profile: -1 is no index", id="a profile from the end"),
        pytest.param({"classes": [node_class(free={"a b": 1})]}, "no name of a resource", id="a bad resource"),
        pytest.param(
            {"classes": [node_class(free={f"r{n}": 1 for n in range(200)})]}, "200 resources", id="too many resources"
        ),
        pytest.param({"domains": domains({"name": "r", "tier": 1})}, "there twice", id="a name twice"),
        pytest.param({"domains": domains({"name": "", "tier": 1})}, "is empty", id="no name"),
        pytest.param({"domains": domains({"name": "x", "tier": 1})}, "only the root", id="two tops"),
        pytest.param(
            {"domains": domains({"name": "x", "tier": 1, "parent": "y"}, {"name": "y", "tier": 1, "parent": "x"})},
            "higher tier",
            id="a cycle",
        ),
        pytest.param({"domains": domains({"name": "x", "tier": 3, "parent": "r"})}, "higher tier", id="a flat tier"),
        pytest.param({"domains": domains({"name": "x", "tier": 1, "parent": "z"})}, "higher tier", id="no parent"),
        pytest.param({"domains": domains({"name": "x", "tier": -1, "parent": "r"})}, "tier: -1", id="a tier below 0"),
        pytest.param({"root": "other"}, "spec.root: 'other' is none", id="a root that is not there"),
        pytest.param({"generation": -1}, "spec.generation", id="a generation below 0"),
    ],
)
def test_left_out(changes: Json, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    told, before = Told(), client_metrics.refused["ClusterCapacity", "karmada-es-a"]
    told.put(capacity("a"))
    assert told.put(capacity("a", **changes)) == [CapacityGone("a", "r")], "what it said before is not true any more"
    assert client_metrics.refused["ClusterCapacity", "karmada-es-a"] == before + 1
    assert words in capsys.readouterr().out
    (event,) = told.put(capacity("a"))
    assert isinstance(event, CapacitySet)


def test_amounts_are_cut_to_what_sums_can_hold() -> None:
    (event,) = Told().put(capacity("a", classes=[node_class(free={"cpu": 2**63, "memory": -5})]))
    assert isinstance(event, CapacitySet)
    assert event.capacity.classes[0].free == {"cpu": MOST_ON_NODE, "memory": 0}


def test_objects_of_other_namespaces_are_left_alone() -> None:
    body = capacity("a")
    body["metadata"]["namespace"] = "default"
    assert Told().put(body) == []


def test_the_namespace_says_whose_it_is_and_nothing_else() -> None:
    (event,) = Told().put(capacity("a", cluster="b"))
    assert isinstance(event, CapacitySet)
    assert event.capacity.cluster == "a"


def test_a_root_that_changes_its_name_takes_the_old_one_with_it() -> None:
    told = Told()
    told.put(capacity("a"))
    renamed = capacity("a", "s")
    renamed["metadata"]["name"] = "r"
    gone, new = told.put(renamed)
    assert gone == CapacityGone("a", "r")
    assert isinstance(new, CapacitySet)
    assert told.drop(renamed) == [CapacityGone("a", "s")]


def test_two_objects_do_not_speak_of_one_root_or_domain() -> None:
    told = Told()
    told.put(capacity("a"))
    twin = capacity("a")
    twin["metadata"]["name"] = "twin"
    assert told.put(twin) == []
    assert (
        told.put(capacity("a", "s", domains=[{"name": "s", "tier": 2}, {"name": "r-1", "tier": 1, "parent": "s"}]))
        == []
    )
    assert told.drop(twin) == [], "the first one's root stays"


def test_a_member_has_no_more_objects_and_resources_than_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_OBJECTS", 2)
    monkeypatch.setattr(bounds, "MAX_RESOURCES", 4)
    told = Told()
    assert told.put(capacity("a"))
    more = [{"domain": "s-1", "profile": 1, "nodes": 1, "free": {"x/a": 1, "x/b": 1}}]
    assert told.put(capacity("a", "s", classes=more)) == [], "five resources with those of the first"
    assert told.put(capacity("a", "t"))
    assert told.put(capacity("a", "u")) == [], "a third object"
    assert told.put(capacity("b", "u")), "bounds hold per member"


@pytest.mark.parametrize(
    ("bound", "changes", "says"),
    [
        ("MAX_CLASSES", {"classes": [node_class(), node_class(), node_class()]}, "classes"),
        ("MAX_DOMAINS", {"domains": [{"name": "r", "tier": 3}] + [
            {"name": f"r-{n}", "tier": 1, "parent": "r"} for n in range(1, 4)
        ]}, "domains"),
        ("MAX_PROFILES", {"profiles": [{}, {}, {}]}, "profiles"),
        ("MAX_LABELS", {"profiles": [{}, {"labels": dict.fromkeys("abc", "x")}]}, "profiles[1]"),
    ],
)  # fmt: skip
def test_one_object_has_no_more_than_its_bounds_and_what_is_refused_is_known(
    bound: str, changes: Json, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, bound, 2)
    told = Told()
    assert told.put(capacity("a", **changes)) == []
    [why] = told.capacities.refused("a").values()
    assert why == f"spec.{says}: {4 if bound == 'MAX_DOMAINS' else 3} of them; the most is 2"
    told.put(capacity("a", classes=[node_class()], domains=domains({"name": "r-1", "tier": 1, "parent": "r"})))
    assert told.capacities.refused("a") == {}


def test_a_class_without_nodes_is_refused() -> None:
    told = Told()
    assert told.put(capacity("a", classes=[node_class(nodes=0)])) == []
    assert "is not between 1 and" in told.capacities.refused("a")["r"]


def test_a_member_s_objects_together_have_no_more_classes_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_CLASSES", 3)
    told = Told()
    assert told.put(capacity("a"))
    more = [{"domain": "s-1", "profile": 1, "nodes": 1, "free": {"cpu": n}} for n in (1, 2)]
    assert told.put(capacity("a", "s", classes=more)) == [], "four classes with those of the first"


def test_an_object_that_is_too_large_is_not_read() -> None:
    body = capacity("a")
    body["spec"]["x"] = "y" * objects.MAX_CAPACITY
    with pytest.raises(msgspec.ValidationError, match="the most that is read"):
        objects.read_report(objects.decode_report(orjson.dumps(body)))


class Published:
    """A member's objects as its publisher writes them, and what is known of its nodes after each write."""

    def __init__(self) -> None:
        self.told, self.generation = Told(), 0
        self.there: dict[str, Json] = {}

    def publish(self, specs: dict[str, Json], order: Sequence[str] | None = None) -> None:
        """Write a generation, then delete what it does not have; every node is known at every moment, and once."""
        self.generation += 1
        bodies = {
            name: {
                "metadata": {"name": name, "namespace": keys.execution_namespace("m")},
                "spec": {**spec, "generation": self.generation},
            }
            for name, spec in specs.items()
        }
        known = bool(self.there)
        for name in order or sorted(bodies):
            self.told.put(bodies[name])
            if known:
                assert self.nodes() == Counter(TE), f"after {name} of generation {self.generation}"
        for name in [name for name in self.there if name not in bodies]:
            self.told.drop(self.there[name])
            assert self.nodes() == Counter(TE), f"once {name} is deleted"
        self.there = bodies

    def nodes(self) -> Counter[str]:
        classes = [each for view in self.told.capacities.views("m") for each in view.classes]
        return Counter(name for each in classes for name in each.names)


TE = [f"te{number}" for number in range(1, 9)]
DOCUMENTS = Path(__file__).parents[2] / "documents"


def specs_of(hyper_nodes: Sequence[Json], nodes: Sequence[str] = TE) -> dict[str, Json]:
    built = topology.build(hyper_nodes, {name: {} for name in nodes})
    free = {"cpu": 4000, "pods": 10}
    return Summary(
        "m", [NodeRoom(name, {}, [], free, free, built.lowest.get(name, -1)) for name in nodes], built.tree
    ).specs()


def test_the_member_is_known_whole_whatever_the_order_in_which_its_hyper_nodes_come() -> None:
    """Every step of each of the 5040 orders: from each set of them to that with one more."""
    files = [DOCUMENTS / name for name in ("003-racks.yaml", "003-upper.yaml")]
    trees = [each for file in files for each in yaml.safe_load_all(file.read_text())]
    assert len(trees) == 7
    known = {
        chosen: specs_of([tree for number, tree in enumerate(trees) if chosen & 1 << number]) for chosen in range(128)
    }
    for chosen, more in itertools.product(known, range(7)):
        if chosen & 1 << more:
            continue
        for turned in (1, -1):
            member = Published()
            member.publish(known[chosen])
            after = known[chosen | 1 << more]
            member.publish(after, sorted(after)[::turned])
            assert sorted(view.root for view in member.told.capacities.views("m")) == sorted(
                spec["root"] for spec in after.values()
            )


def test_the_member_is_known_whole_whatever_the_order_in_which_seven_objects_are_written() -> None:
    racks = [
        {
            "metadata": {"name": f"rack-{number}"},
            "spec": {"tier": 1, "members": [{"type": "Node", "selector": {"exactMatch": {"name": name}}}]},
        }
        for number, name in enumerate(TE[:6])
    ]
    flat, divided = specs_of([]), specs_of(racks)
    assert (len(flat), len(divided)) == (1, 7), "six racks, and the nodes outside of them"
    for order in itertools.permutations(divided):
        member = Published()
        member.publish(flat)
        member.publish(divided, order)
    member.publish(flat)


def test_a_leader_that_begins_in_the_middle_of_a_change_knows_no_node_twice() -> None:
    racks, whole = (
        specs_of([each for name in files for each in yaml.safe_load_all((DOCUMENTS / name).read_text())])
        for files in (["003-racks.yaml"], ["003-racks.yaml", "003-upper.yaml"])
    )
    bodies = [
        {"metadata": {"name": name, "namespace": "karmada-es-m"}, "spec": {**spec, "generation": generation}}
        for generation, specs in ((1, racks), (2, whole))
        for name, spec in specs.items()
    ]
    for order in itertools.permutations(bodies):
        member = Published()
        for body in order:
            member.told.put(body)
            assert max(member.nodes().values()) == 1
        assert member.nodes() == Counter(TE)


@given(st.lists(st.tuples(st.sets(st.sampled_from(TE)), st.randoms(use_true_random=False)), min_size=1, max_size=6))
def test_nodes_that_are_lost_and_come_back_count_whatever_the_order_of_the_objects(
    history: list[tuple[set[str], random.Random]],
) -> None:
    """The last of a generation lets all of it count, though only figures of that object changed."""
    racks = [each for each in yaml.safe_load_all((DOCUMENTS / "003-racks.yaml").read_text())][:2]
    told = Told()
    for generation, (there, chance) in enumerate(history, 1):
        specs = specs_of(racks, sorted(there))
        for name in chance.sample(sorted(specs), len(specs)):
            metadata = {"name": name, "namespace": keys.execution_namespace("m")}
            told.put({"metadata": metadata, "spec": {**specs[name], "generation": generation}})
        for name in told.last.keys() - {f"karmada-es-m/{name}" for name in specs}:
            told.drop({"metadata": {"name": name.partition("/")[2], "namespace": "karmada-es-m"}})
        views = told.capacities.views("m")
        assert {view.root: view.generation for view in views} == {spec["root"]: generation for spec in specs.values()}
        assert {name for view in views for each in view.classes for name in each.names} == there
