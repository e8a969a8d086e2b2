"""What pods say of each other: required affinity, anti-affinity and topology spread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from atoll.fit import Miss, Nodes, Placement, place
from atoll.fit.company import Company
from atoll.fit.peers import Peers, Site
from atoll.model import pod_rules
from atoll.model.gang import Gang, Task
from tests.fit.builders import make_gang, make_nodes, pods_on

HOST, ZONE = "kubernetes.io/hostname", "zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
Json = dict[str, Any]


def term(key: str, app: str = "a", **more: Any) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def near(*terms: Json) -> Json:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def away(*terms: Json) -> Json:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def spread(key: str, skew: int = 1, **more: Any) -> Json:
    constraint = {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [constraint | {"labelSelector": {"matchLabels": {"app": "a"}}} | more]}


def rules(spec: Json, app: str = "a", namespace: str = "default") -> pod_rules.PodRules:
    labels = {"app": app}
    return pod_rules.of(spec, labels, namespace) or pod_rules.bare(labels, namespace)


def member(
    zones: list[str | None], *there: tuple[int, Json, str], free: int = 4, namespaces: Mapping[str, Any] | None = None
) -> Nodes:
    """Nodes of one rack in these zones, with pods on them: (node, spec, app)."""
    nodes = make_nodes([[free] * len(zones)])
    peers = Peers()
    for number, zone in enumerate(zones):
        peers.set_node(f"n{number}", Site({HOST: f"n{number}"} | ({ZONE: zone} if zone else {}), ()))
    for number, (node, spec, app) in enumerate(there):
        said = pod_rules.of(spec, {"app": app}, "default")
        peers.put(number, f"n{node}", "default", {"app": app}, said)
    for name, labels in (namespaces or {}).items():
        peers.set_namespace(name, labels)
    nodes.company = Company(peers, nodes.names)
    return nodes


def asking(spec: Json, replicas: int = 1, app: str = "a", minimum: int | None = None, **more: Any) -> Gang:
    gang = make_gang(replicas, minimum=minimum)
    tasks = [msgspec.structs.replace(task, rules=rules(spec, app, **more)) for task in gang.tasks]
    return msgspec.structs.replace(gang, tasks=tasks)


def open_to(nodes: Nodes, spec: Json, app: str = "a", **more: Any) -> list[int]:
    [task] = asking(spec, app=app, **more).tasks
    return [number for number, room in enumerate(nodes.room_for(task).tolist()) if room]


ZONES: list[str | None] = ["x", "x", "y", None]
NOTHING: Json = {}


@pytest.mark.parametrize(
    ("there", "spec", "app", "expected"),
    [
        pytest.param([], near(term(ZONE)), "a", [0, 1, 2], id="the first of those that want each other goes where the label is"),
        pytest.param([], near(term(ZONE)), "b", [], id="who wants others waits for them"),
        pytest.param([(2, NOTHING, "a")], near(term(ZONE)), "b", [2], id="others are there: their zone"),
        pytest.param([(0, NOTHING, "a")], near(term(ZONE)), "b", [0, 1], id="all nodes of their zone"),
        pytest.param([(3, NOTHING, "a")], near(term(ZONE)), "a", [0, 1, 2], id="one without the label is in no zone: still the first"),
        pytest.param([(0, NOTHING, "a")], near(term(ZONE), term(HOST)), "b", [0], id="both terms"),
        pytest.param([(0, NOTHING, "a")], near(term(ZONE), term(HOST, "c")), "b", [], id="one pod must meet all terms"),
        pytest.param([(0, NOTHING, "a")], away(term(ZONE)), "b", [2, 3], id="away from their zone; no label, no zone"),
        pytest.param([(0, away(term(ZONE)), "b")], NOTHING, "a", [2, 3], id="those who are there keep others away"),
        pytest.param([(0, away(term(ZONE)), "b")], NOTHING, "b", [0, 1, 2, 3], id="only those that they mean"),
        pytest.param([(0, NOTHING, "a")], spread(ZONE), "a", [2], id="the emptier zone"),
        pytest.param([(0, NOTHING, "a")], spread(ZONE, 2), "a", [0, 1, 2], id="within the skew"),
        pytest.param([(0, NOTHING, "a")], spread(ZONE), "b", [0, 1, 2], id="one that is not counted itself"),
        pytest.param([(0, NOTHING, "a"), (2, NOTHING, "a")], spread(ZONE, minDomains=3), "a", [], id="too few zones: the emptiest has none"),
        pytest.param([(0, NOTHING, "a")], spread(ZONE, minDomains=2), "a", [2], id="enough zones"),
    ],
)  # fmt: skip
def test_where_a_pod_may_be(there: list[tuple[int, Json, str]], spec: Json, app: str, expected: list[int]) -> None:
    assert open_to(member(ZONES, *there), spec, app) == expected


def test_namespaces_that_are_meant() -> None:
    nodes = member(ZONES, (2, NOTHING, "a"), namespaces={"default": {"team": "t"}, "other": {}})
    for said, expected in (
        ({}, []),
        ({"namespaces": ["default"]}, [2]),
        ({"namespaceSelector": {}}, [2]),
        ({"namespaceSelector": {"matchLabels": {"team": "t"}}}, [2]),
        ({"namespaceSelector": {"matchLabels": {"team": "u"}}}, []),
        ({"namespaceSelector": {"matchLabels": {"team": "u"}}, "namespaces": ["default"]}, [2]),
    ):
        assert open_to(nodes, near(term(ZONE, **said)), "b", namespace="other") == expected, said


def test_label_keys_stand_for_the_values_of_the_pod() -> None:
    nodes = member(ZONES, (0, NOTHING, "a"))
    selecting: Json = {"labelSelector": {}, "matchLabelKeys": ["app"]}
    assert open_to(nodes, away({"topologyKey": ZONE, **selecting}), "a") == [2, 3]
    assert open_to(nodes, away({"topologyKey": ZONE, **selecting}), "b") == [0, 1, 2, 3]
    other: Json = {"labelSelector": {}, "mismatchLabelKeys": ["app"]}
    assert open_to(nodes, away({"topologyKey": ZONE, **other}), "b") == [2, 3]
    assert open_to(nodes, spread(ZONE, labelSelector={}, matchLabelKeys=["app"]), "b") == [0, 1, 2]


def test_nodes_that_the_pod_can_not_use_count_as_the_policies_say() -> None:
    zones = member(["x", "y", "z"], (0, NOTHING, "a"), (1, NOTHING, "a"))
    assert zones.company is not None
    peers = zones.company.peers
    peers.set_node("n2", Site({ZONE: "z", HOST: "n2"}, ({"key": "k", "effect": "NoSchedule"},)))
    assert open_to(zones, spread(ZONE)) == [2], "the tainted zone is the emptiest"
    assert open_to(zones, spread(ZONE, nodeTaintsPolicy="Honor")) == [0, 1, 2]
    [task] = asking(spread(ZONE)).tasks
    chosen = msgspec.structs.replace(
        task, node_terms=[{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["x", "y"]}]}]
    )
    zones.company = Company(peers, zones.names)
    assert zones.company.room(chosen) is not None
    assert [bool(each) for each in zones.company.room(chosen).tolist()] == [True, True, True]  # type: ignore[union-attr]


def test_pods_of_a_gang_keep_their_own_rules() -> None:
    zones: list[str | None] = ["x", "x", "y", "y", "z"]
    assert pods_on(place(member(zones), asking(away(term(HOST)), 5))) == dict.fromkeys(range(5), 1)
    assert isinstance(place(member(zones), asking(away(term(HOST)), 6)), Miss)
    assert isinstance(place(member(zones), asking(away(term(ZONE)), 4)), Miss)
    apart = pods_on(place(member(zones), asking(away(term(ZONE)), 3)))
    assert len({zones[node] for node in apart}) == len(apart) == 3


def test_pods_that_must_be_together_go_where_all_of_them_fit() -> None:
    """Zone x is the tightest for one pod, and holds three."""
    zones: list[str | None] = ["x", "y", "y"]
    placed = pods_on(place(member(zones, free=3), asking(near(term(ZONE)), 5)))
    assert {zones[node] for node in placed} == {"y"}
    assert sum(placed.values()) == 5
    miss = place(member(zones, free=3), asking(near(term(ZONE)), 7))
    assert isinstance(miss, Miss)
    assert "affinity" in miss.sentence()


def test_zones_that_only_the_volumes_of_a_pod_rule_out_count_for_its_spreading() -> None:
    """kube-scheduler looks at the pod's own affinity there, which says nothing of its volumes."""
    zones = member(["x", "y", "z"], (0, NOTHING, "a"), (1, NOTHING, "a"))
    [task] = asking(spread(ZONE)).tasks
    reach = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["x", "y"]}]}]
    with_volume = msgspec.structs.replace(task, node_terms=reach, own_terms=[])
    assert zones.company is not None
    room = zones.company.room(with_volume)
    assert room is not None
    assert [bool(each) for each in room.tolist()] == [False, False, True], "z has none, so x may not get two"


def test_a_gang_is_spread_as_it_says() -> None:
    zones: list[str | None] = ["x", "x", "x", "y", "z"]
    placed = pods_on(place(member(zones, free=9), asking(spread(ZONE), 8)))
    found: dict[str | None, int] = {}
    for node, count in placed.items():
        found[zones[node]] = found.get(zones[node], 0) + count
    assert sorted(found.values()) == [2, 3, 3]
    assert isinstance(place(member(zones, free=2), asking(spread(ZONE), 9)), Miss), "z holds two, so x three"


def test_a_task_that_wants_another_one_beside_it_waits_for_its_turn() -> None:
    """The follower is the greedier one, and would be first."""
    leader = msgspec.structs.replace(asking(NOTHING, app="a").tasks[0], name="leader")
    follower = Task("follower", 2, 2, {"gpu": 2, "pods": 1}, rules=rules(near(term(HOST)), "b"))
    gang = Gang("q", [leader, follower], 3)
    outcome = place(member(["x", "y"], free=5), gang)
    assert isinstance(outcome, Placement)
    assert len({node for _, node, _ in outcome.pods}) == 1
    assert isinstance(place(member(["x", "y"], free=4), gang), Miss)


def liking(kind: str, weight: int, *, key: str = ZONE, app: str = "a") -> Json:
    preferred = [{"weight": weight, "podAffinityTerm": term(key, app)}]
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def in_zone(zone: str, weight: int = 10) -> Json:
    return {"weight": weight, "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}}


def zone_of(nodes: Nodes, spec: Json, app: str = "b", preferences: list[Json] | None = None) -> set[str | None]:
    gang = asking(spec, app=app)
    tasks = [msgspec.structs.replace(task, preferences=preferences or []) for task in gang.tasks]
    return {XY[node] for node in pods_on(place(nodes, msgspec.structs.replace(gang, tasks=tasks)))}


XY: list[str | None] = ["x", "x", "y", "y"]


def test_a_pod_goes_where_it_prefers_to_be() -> None:
    empty, one = member(XY), member(XY, (2, NOTHING, "a"))
    assert zone_of(empty, NOTHING, preferences=[in_zone("y")]) == {"y"}
    assert zone_of(empty, NOTHING, preferences=[in_zone("y"), in_zone("x", 20)]) == {"x"}
    assert zone_of(one, liking("podAffinity", 5)) == {"y"}
    assert zone_of(member(XY, (0, NOTHING, "a")), liking("podAntiAffinity", 5)) == {"y"}
    assert zone_of(member(XY, (0, NOTHING, "a")), spread(ZONE, whenUnsatisfiable="ScheduleAnyway")) == {"y"}


def test_what_pods_that_are_there_prefer_of_a_new_one_counts_where_it_says_something_itself() -> None:
    wish = liking("podAffinity", 5, app="nobody")
    assert zone_of(member(XY, (2, liking("podAffinity", 5, app="b"), "a")), wish) == {"y"}
    assert zone_of(member(XY, (0, liking("podAntiAffinity", 5, app="b"), "a")), wish) == {"y"}


def test_what_is_required_goes_before_what_is_preferred() -> None:
    nodes = member(XY, (2, NOTHING, "a"))
    assert zone_of(nodes, away(term(ZONE)), preferences=[in_zone("y")]) == {"x"}


def test_a_gang_is_near_together_first_and_then_where_it_prefers() -> None:
    """Two racks: the first is the tighter one, the second in the zone that is preferred."""
    nodes = make_nodes([[2, 2], [3, 3]])
    peers = Peers()
    for number, zone in enumerate(["x", "x", "y", "y"]):
        peers.set_node(f"n{number}", Site({ZONE: zone}, ()))
    nodes.company = Company(peers, nodes.names)
    gang = make_gang(4)
    assert set(pods_on(place(nodes, gang))) == {0, 1}
    wishing = [msgspec.structs.replace(task, preferences=[in_zone("y")]) for task in gang.tasks]
    assert set(pods_on(place(nodes, msgspec.structs.replace(gang, tasks=wishing)))) == {2, 3}
    large = make_gang(7)
    wishing = [msgspec.structs.replace(task, preferences=[in_zone("y")]) for task in large.tasks]
    placed = pods_on(place(nodes, msgspec.structs.replace(large, tasks=wishing)))
    assert (placed[2], placed[3]) == (3, 3), "more than a rack: all that there is of what is preferred"
