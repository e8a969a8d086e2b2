"""Members in two regions, and workloads that their policies share out over them."""

from __future__ import annotations

from typing import Any

from atoll.dispatcher.core import ClusterSet, ClusterView
from tests.dispatcher.builders import BindingBuilder, Scene, make_binding, make_capacity, make_queue

PLACES = {
    "a1": ("aws", "eu", "eu-1"),
    "a2": ("aws", "eu", "eu-2"),
    "b1": ("gcp", "us", "us-1"),
    "b2": ("gcp", "us", "us-1"),
}


def scene(*, gpu: int | None = None, **gpus: int) -> Scene:
    """Members a1 and a2 in eu, b1 and b2 in us, with so many GPUs; queue q with so many in all."""
    made = Scene(make_queue("q") if gpu is None else make_queue("q", gpu=gpu))
    for name, free in gpus.items():
        provider, region, zone = PLACES[name]
        fields = {"provider": (provider,), "region": (region,), "zone": (zone,)}
        made.tell(ClusterSet(ClusterView(name, True, {"ring": name[1]}, (), fields)), make_capacity(name, [free]))
    return made


def divided(preference: str = "Weighted", *constraints: Any, **weights: int) -> dict[str, Any]:
    rules = [{"targetCluster": {"clusterNames": [name]}, "weight": weight} for name, weight in weights.items()]
    scheduling = {
        "replicaSchedulingType": "Divided",
        "replicaDivisionPreference": preference,
        "weightPreference": {"staticWeightList": rules} if rules else {"dynamicWeight": "AvailableReplicas"},
    }
    return {"replicaScheduling": scheduling, "spreadConstraints": list(constraints)}


def duplicated(*constraints: Any) -> dict[str, Any]:
    return {"replicaScheduling": {"replicaSchedulingType": "Duplicated"}, "spreadConstraints": list(constraints)}


def shared(name: str, pods: int, sharing: dict[str, Any], **more: Any) -> BindingBuilder:
    copies = sharing["replicaScheduling"]["replicaSchedulingType"] == "Duplicated"
    return make_binding(name).tasks(pods).divided().gang(copies=copies).having(sharing=sharing, **more)


def by(field: str, least: int, most: int) -> dict[str, Any]:
    return {"spreadByField": field, "minGroups": least, "maxGroups": most}


def parts(made: Scene, name: str) -> dict[str, int]:
    return {cluster: sum(counts) for cluster, counts in made.view(name).parts}
