"""Cases of Karmada's resource interpreter: what a workload needs, and how many pods a member is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atoll.kinds import BY_GVK, Kind, Part, Report
from atoll.kinds.templated import Templated, value_at
from atoll.model import keys, quantity
from atoll.model.gang import Gang

Json = dict[str, Any]
COMPARED = ("InterpretComponent", "InterpretReplica", "ReviseReplica", "InterpretHealth", "AggregateStatus")
"""Operations that a kind of Atoll has an answer to."""
_COUNTS = ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "currentReplicas")
_FIELD = {"Job": "parallelism"}
"""Kind -> the field of its spec that says how many pods it has, where that is not `replicas`."""


def interpret(case: Json) -> list[str]:
    """Cases of `karmada-interpret`; what differs, nothing where all is equal or Atoll has no such answer."""
    group, _, name = case["kind"].rpartition("/")
    kind, expect = BY_GVK.get((group, name)), case["expect"]
    if (
        kind is None
        or kind.assembly is not None
        or not expect.get("supported", True)
        or "error" in expect
        or case["operation"] not in COMPARED
    ):
        return []
    operation = case["operation"]
    if operation in ("InterpretComponent", "InterpretReplica"):
        return _components(kind, case)
    if operation == "ReviseReplica":
        return _revised(kind, case)
    if operation == "InterpretHealth":
        return _health(kind, case)
    return _aggregated(kind, case)


def _gang(kind: Kind, obj: Json) -> Gang:
    return kind.gang({**obj, "spec": obj.get("spec") or {}}, priority=0)


def _components(kind: Kind, case: Json) -> list[str]:
    gang, expect = _gang(kind, _as_upstream_reads(case["object"])), case["expect"]
    wanted = expect.get("components")
    if wanted is None:
        wanted = [{"name": gang.tasks[0].name, **expect}]
        if _unsized(kind, case["object"]):
            # Upstream takes a Job without parallelism for one without pods; the API server fills in 1.
            wanted[0]["replicas"] = gang.replicas
    found = {task.name: [task.replicas, _asked(task.requests)] for task in gang.tasks}
    said = {each["name"]: [each.get("replicas", 0), _requests(each)] for each in wanted}
    if kind.resource.group == "batch.volcano.sh":
        # Upstream counts the minimum of a task for its pods, and calls a task without a name otherwise.
        found, said = ({str(i): [asked] for i, (_, asked) in enumerate(each.values())} for each in (found, said))
    if _has_sidecars(case["object"]):
        found, said = ({name: each[:-1] for name, each in one.items()} for one in (found, said))
    return [f"components: {found} instead of {said}"] if found != said else []


def _has_sidecars(obj: Any) -> bool:
    """Whether an init container stays beside the others: upstream's scripts count it as one that ends."""
    if isinstance(obj, dict):
        inits = obj.get("initContainers")
        if isinstance(inits, list) and any(each.get("restartPolicy") == "Always" for each in inits):
            return True
        obj = list(obj.values())
    return isinstance(obj, list) and any(map(_has_sidecars, obj))


def _as_upstream_reads(obj: Json) -> Json:
    """Without what upstream's script for Spark does not look at, and what asks for more pods than it says."""
    spec = {name: value for name, value in obj["spec"].items() if name != "dynamicAllocation"}
    for role in ("driver", "executor"):
        if isinstance(spec.get(role), dict):
            spec[role] = {name: value for name, value in spec[role].items() if name != "coreRequest"}
    first = value_at(obj, ("spec", "dynamicAllocation", "initialExecutors"))
    if first is not None:
        spec["executor"].setdefault("instances", first)
    return {**obj, "spec": spec}


def _unsized(kind: Kind, obj: Json) -> bool:
    field = _FIELD.get(kind.resource.kind, "replicas")
    return (obj.get("spec") or {}).get(field) is None


def _asked(requests: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in requests.items() if name != "pods" and amount}


def _requests(component: Json) -> dict[str, int]:
    found = (component.get("replicaRequirements") or {}).get("resourceRequest") or {}
    return {name: amount for name, text in found.items() if (amount := quantity.ceil_units(name, text))}


def _revised(kind: Kind, case: Json) -> list[str]:
    field = _FIELD.get(kind.resource.kind, "replicas")
    wanted = case["expect"]["revised"]["spec"].get(field)
    if wanted is None:
        # Upstream leaves a field alone that is absent; there the API server has filled it in.
        return []
    task = _gang(kind, case["object"]).tasks[0].name
    made = kind.rewrite(case["object"], Part("m", {task: case["replicas"]}, case["replicas"]))
    found = made["spec"].get(field)
    return [f"{field}: {found} instead of {wanted}"] if found != wanted else []


def _health(kind: Kind, case: Json) -> list[str]:
    status, upstream = case["object"].get("status") or {}, case["expect"].get("healthy")
    healthy = kind.healthy(status)
    if healthy is None or value_at(status, ("state", "phase")) == "Terminated":
        return []
    if healthy and isinstance(kind, Templated) and kind.service:
        # Upstream asks whether all replicas are up; that is told by counts here.
        return []
    return [f"healthy: {healthy} instead of {upstream}"] if healthy != upstream else []


def _aggregated(kind: Kind, case: Json) -> list[str]:
    if kind.resource.group != "apps":
        return []
    obj, wanted = case["object"], case["expect"].get("status") or {}
    reports = [Report(each["clusterName"], each.get("status") or {}) for each in case.get("statusItems") or ()]
    labels = {**(obj["metadata"].get("labels") or {}), keys.QUEUE_LABEL: "q"}
    status = kind.aggregate(
        {**obj, "metadata": {**obj["metadata"], "labels": labels}}, reports, waiting=("", ""), now=""
    )
    found = {name: status.get(name, 0) for name in _COUNTS}
    said = {name: wanted.get(name, 0) for name in _COUNTS}
    return [f"counts: {found} instead of {said}"] if found != said else []
