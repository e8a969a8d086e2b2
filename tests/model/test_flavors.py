"""Flavors: what the annotation may say, which nodes are of which, and what a workload may get."""

from __future__ import annotations

import pytest

from atoll.model import flavors
from atoll.model.gang import Gang, Task
from atoll.model.selectors import node_affinity_matches

GPU, HCA = "nvidia.com/gpu", "rdma/hca"
TEXT = '{"nvidia.com/gpu": {"h100": "gpu=h100", "a100": "gpu=a100"}}'
FLAVORS = flavors.parse(TEXT)


def gang(*tasks: Task) -> Gang:
    return Gang("q", list(tasks), sum(task.replicas for task in tasks))


def task(name: str = "t", gpus: int = 2, **more: object) -> Task:
    return Task(name, 1, 1, {"pods": 1, **({GPU: gpus} if gpus else {})}, **more)  # type: ignore[arg-type]


def asked(variant: flavors.Variant) -> list[dict[str, int]]:
    return [{name: n for name, n in each.requests.items() if "@" in name} for each in variant.gang.tasks]


def test_the_annotation_is_read_and_written_alike() -> None:
    assert flavors.parse(flavors.text(FLAVORS)) == FLAVORS
    assert [*FLAVORS[GPU]] == ["h100", "a100"], "in the order in which they are tried"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("h100", "is not of the form", id="no JSON"),
        pytest.param('{"nvidia.com/gpu": "h100"}', "is not of the form", id="another form"),
        pytest.param('{"cpu": {"fast": "cpu=fast"}}', "'cpu' is no extended resource", id="no device"),
        pytest.param('{"nvidia.com/gpu": {"H100": "gpu=h100"}}', "'H100' can't name a flavor", id="a bad name"),
        pytest.param('{"nvidia.com/gpu": {"other": "gpu=h100"}}', "'other' can't name a flavor", id="what is built in"),
        pytest.param('{"nvidia.com/gpu": {"h100": "gpu"}}', "'gpu' is no label of nodes", id="no label"),
        pytest.param(
            '{"nvidia.com/gpu": {"h100": "gpu=x", "a100": "gpu=x"}}', "another flavor of nvidia.com/gpu", id="twice"
        ),
    ],
)
def test_what_the_annotation_may_not_say(text: str, words: str) -> None:
    with pytest.raises(flavors.FlavorError, match=words):
        flavors.parse(text)


@pytest.mark.parametrize(
    ("labels", "unknown", "name"),
    [
        ({"gpu": "h100"}, (), f"{GPU}@h100"),
        ({"gpu": "t4"}, (), f"{GPU}@other"),
        ({}, (), f"{GPU}@other"),
        ({}, ("gpu",), None),
        ({"gpu": "a100"}, ("gpu",), f"{GPU}@a100"),
    ],
)
def test_a_node_is_of_one_flavor_or_of_an_unknown_one(
    labels: dict[str, str], unknown: tuple[str, ...], name: str | None
) -> None:
    assert list(flavors.offered(FLAVORS, labels, unknown)) == ([(GPU, name)] if name else [])


@pytest.mark.parametrize(
    ("wish", "names"),
    [
        pytest.param(task(), ["h100", "a100", "other"], id="nothing is said"),
        pytest.param(task(node_selector={"gpu": "a100"}), ["a100"], id="a selector of its label"),
        pytest.param(task(node_selector={"gpu": "t4"}), ["other"], id="a selector of another value"),
        pytest.param(task(node_selector={"zone": "a"}), ["h100", "a100", "other"], id="a selector of another label"),
        pytest.param(
            task(node_terms=[{"matchExpressions": [{"key": "gpu", "operator": "NotIn", "values": ["h100"]}]}]),
            ["a100", "other"],
            id="an affinity against one",
        ),
        pytest.param(
            task(node_terms=[{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h100", "a100"]}]}]),
            ["h100", "a100"],
            id="an affinity to two",
        ),
        pytest.param(
            task(node_terms=[{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]),
            ["h100", "a100", "other"],
            id="an affinity to any",
        ),
    ],
)
def test_which_flavors_a_workload_may_get(wish: Task, names: list[str]) -> None:
    found = flavors.variants(gang(wish), FLAVORS)
    assert [asked(each) for each in found] == [[{f"{GPU}@{name}": 2}] for name in names]
    assert bool(found[0].assigned) == (len(names) > 1), "what is open must be kept to the nodes of what it gets"


def test_what_asks_for_no_such_resource_has_no_flavor() -> None:
    assert flavors.variants(gang(task(gpus=0)), FLAVORS) == [flavors.Variant(gang(task(gpus=0)))]


def test_tasks_that_say_their_flavor_keep_it_and_the_open_ones_get_one_together() -> None:
    wish = gang(task("a", node_selector={"gpu": "h100"}), task("b"), task("c"), task("d", gpus=0))
    found = flavors.variants(wish, FLAVORS)
    assert [[[*each.values(), *each] for each in asked(variant)] for variant in found] == [
        [[2, f"{GPU}@h100"], [2, f"{GPU}@{name}"], [2, f"{GPU}@{name}"], []] for name in ("h100", "a100", "other")
    ]
    assert [each.tasks for each in found[1].assigned] == [["b", "c"]]
    assert flavors.required(found[1].assigned, "a") == []


def test_flavors_of_two_resources_are_combined() -> None:
    both = flavors.parse('{"nvidia.com/gpu": {"h100": "gpu=h100"}, "rdma/hca": {"ib": "net=ib"}}')
    wish = gang(Task("t", 1, 1, {GPU: 8, HCA: 1}))
    found = [sorted(each) for variant in flavors.variants(wish, both) for each in asked(variant)]
    assert found == [[f"{GPU}@{gpu}", f"{HCA}@{hca}"] for gpu in ("h100", "other") for hca in ("ib", "other")]


@pytest.mark.parametrize("flavor", ["h100", "a100", "other"])
@pytest.mark.parametrize("label", ["h100", "a100", "t4", None])
@pytest.mark.parametrize("own", [[], [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]])
def test_pods_are_kept_to_the_nodes_of_their_flavor(flavor: str, label: str | None, own: list[dict]) -> None:
    wish = gang(task(node_terms=own))
    [variant] = [each for each in flavors.variants(wish, FLAVORS) if each.assigned[0].flavor == flavor]
    terms = flavors.pinned(own, flavors.required(variant.assigned, "t"))
    labels = {"zone": "a", **({"gpu": label} if label else {})}
    assert node_affinity_matches(terms, labels, "n") == (flavor == (label if label in ("h100", "a100") else "other"))
    assert not node_affinity_matches(terms, {**labels, "zone": "b"}, "n") or not own


def test_an_affinity_that_nothing_meets_is_still_met_by_nothing() -> None:
    [variant, *_] = flavors.variants(gang(task(node_terms=[{}])), FLAVORS)
    terms = flavors.pinned([{}], flavors.required(variant.assigned, "t"))
    assert not node_affinity_matches(terms, {"gpu": "h100"}, "n")
