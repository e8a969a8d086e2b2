"""Fields without effect: each exists, each is told of where it is written, and all others are read by somebody."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from atoll.api import effects
from atoll.api.effects import WITHOUT_EFFECT, Found, without_effect
from tests.api.schemas import nodes, schema

ROOT = Path(__file__).parents[2]
READERS = ("agent/atoll", "lib/atoll", "global/atoll", "dispatcher/atoll", "webhook/atoll")
OF_USERS = (
    "Job",
    "Queue",
    "PodGroup",
    "PropagationPolicy",
    "ClusterPropagationPolicy",
    "OverridePolicy",
    "ClusterOverridePolicy",
    "HyperNode",
)
MEANS_NOTHING_ALONE = {
    "partitionPolicy", "volumeClaim", "dataSource", "dataSourceRef", "guarantee", "queue", "minResources",
    "priorityClassName", "affinityName",
}  # fmt: skip
"""Groups of other fields, names that only people read, and what is handed on whole."""
HANDED_ON = ("spec.volumes[].volumeClaim.",)
"""Below these, whatever is there is given to Kubernetes."""


def code() -> str:
    files = [path for folder in READERS for path in (ROOT / folder).rglob("*.py")]
    return "\n".join(path.read_text("utf-8") for path in files)


def snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", lambda match: "_" + match[1].lower(), name)


@pytest.mark.parametrize("kind", sorted(WITHOUT_EFFECT))
def test_every_field_of_the_table_is_in_the_schema(kind: str) -> None:
    known = {path.removeprefix(".") for path, _ in nodes(schema(kind))}
    assert [each.path for each in WITHOUT_EFFECT[kind] if each.path not in known] == []
    paths = [each.path for each in WITHOUT_EFFECT[kind]]
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize("kind", OF_USERS)
def test_every_other_field_is_read_somewhere(kind: str) -> None:
    """A field that nobody reads has no effect: it belongs in the table."""
    text = code()
    idle = tuple(each.path for each in WITHOUT_EFFECT.get(kind, ()))
    unread = []
    for path, _ in nodes(schema(kind)):
        path = path.removeprefix(".")
        name = path.rpartition(".")[2].removesuffix("[]")
        if not path.startswith("spec.") or name == "*" or name in MEANS_NOTHING_ALONE:
            continue
        if path.startswith((*idle, *HANDED_ON)):
            continue
        if f'"{name}"' not in text and not re.search(rf"\b{snake(name)}\b", text):
            unread.append(path)
    assert unread == []


@pytest.mark.parametrize(
    ("kind", "spec", "found"),
    [
        pytest.param(
            "Queue",
            {"extendClusters": [{"name": "a"}, {"weight": 1}, {"weight": 2}]},
            ["spec.extendClusters[2].weight"],
            id="of some clusters",
        ),
        pytest.param("PropagationPolicy", {"preemption": "Never", "conflictResolution": "Abort"}, [], id="defaults"),
        pytest.param(
            "PropagationPolicy",
            {
                "failover": {"application": {"purgeMode": "Directly"}, "cluster": {"purgeMode": "Gracefully"}},
                "placement": {"workloadAffinity": {"affinity": {"groupByLabelKey": "app"}}},
            },
            ["spec.failover.cluster.purgeMode"],
            id="of a policy",
        ),
        pytest.param("Queue", {"affinity": {"nodeGroupAffinity": {}}}, ["spec.affinity"], id="of a queue"),
    ],
)
def test_what_is_told_of(kind: str, spec: dict[str, Any], found: list[str]) -> None:
    told = without_effect(kind, {"spec": spec})
    assert sorted(each.path for each in told) == found
    assert all(isinstance(each, Found) and each.instead for each in told)


@pytest.mark.parametrize("kind", sorted(WITHOUT_EFFECT))
def test_sentences_read_well(kind: str) -> None:
    for idle in WITHOUT_EFFECT[kind]:
        assert not idle.instead.endswith("."), idle.path
        assert len(f"{idle.path}: has no effect: {idle.instead}") < 256, "an API server cuts longer warnings"


def test_any_object_is_taken() -> None:
    for obj in ({}, {"spec": None}, {"spec": {"tasks": "x"}}, {"spec": {"tasks": [1, None]}}):
        assert effects.without_effect("Job", obj) == []
