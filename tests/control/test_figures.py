"""Figures of members as metrics."""

from __future__ import annotations

import orjson
from prometheus_client import CollectorRegistry

from atoll.control import objects
from atoll.control.figures import MemberMetrics, figures

CLUSTER = {
    "metadata": {"name": "east"},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeSummary": {"totalNum": 4, "readyNum": 3},
        "resourceSummary": {
            "allocatable": {"cpu": "1500m", "nvidia.com/gpu": "8"},
            "allocated": {"nvidia.com/gpu": "2", "odd": "?"},
        },
    },
}


class Bindings(list[objects.BindingObject]):
    def by_index(self, index: str, name: str) -> list[objects.BindingObject]:
        assert index == "cluster"
        return [each for each in self if name in [target.name for target in each.spec.clusters]]


class Known:
    """As much of the caches as is read."""

    def __init__(self, *bindings: objects.BindingObject) -> None:
        self.clusters = [objects.decode_cluster(orjson.dumps(CLUSTER))]
        self.bindings = Bindings(bindings)


def binding(name: str, **conditions: str) -> objects.BindingObject:
    found = [{"type": type_, "status": status} for type_, status in conditions.items()]
    metadata = {"name": name, "annotations": {"atoll.sh/gang": "{}"}}
    return objects.decode_binding(
        orjson.dumps({"metadata": metadata, "spec": {"clusters": [{"name": "east"}]}, "status": {"conditions": found}})
    )


def shown(registry: CollectorRegistry) -> dict[str, float]:
    return {
        " ".join([sample.name.removeprefix("atoll_member_"), *sample.labels.values()]): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_what_a_member_has_and_does_is_shown_until_it_leaves() -> None:
    registry = CollectorRegistry()
    metrics = MemberMetrics(registry)
    known = Known(binding("a", Running="True"), binding("b", Running="False"), binding("c", Finished="True"))
    metrics.show(figures(known, {"east": 1_800_000_000.0}))  # type: ignore[arg-type]
    assert shown(registry) == {
        "ready east": 1,
        "nodes east": 4,
        "ready_nodes east": 3,
        "allocatable east cpu": 1.5,
        "allocatable east nvidia.com/gpu": 8,
        "allocated east nvidia.com/gpu": 2,
        "allocated east odd": 0,
        "dispatched east": 2,
        "running east": 1,
        "last_report_timestamp_seconds east": 1_800_000_000.0,
    }
    metrics.show({})
    assert shown(registry) == {}
