"""Cases of Karmada's resource interpreter: what a workload needs and refers to, how many pods a member is sent, and what
statuses say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atoll.kinds import BY_GVK, Kind, Part, Report, entire
from atoll.kinds.templated import Templated, value_at
from atoll.model import keys, quantity
from atoll.model.apiresource import SERVICE_ACCOUNTS
from atoll.model.gang import Gang
from atoll.model.pod_references import references

Json = dict[str, Any]
_COUNTS: Mapping[str, tuple[str, ...]] = {
    "apps": (
        "replicas",
        "readyReplicas",
        "availableReplicas",
        "updatedReplicas",
        "currentReplicas",
        "unavailableReplicas",
    ),
    "batch": ("active", "succeeded", "failed"),
    "batch.volcano.sh": ("pending", "running", "succeeded", "failed", "terminating", "unknown"),
}
"""Group of a kind that may run in several members -> counts of its status that are added up."""
_FIELD = {"Job": "parallelism"}
"""Kind -> the field of its spec that says how many pods it has, where that is not `replicas`."""


class NotCompared(Exception):
    """Nothing of Atoll answers this case; the message says why."""


def interpret(case: Json) -> list[str]:
    """Cases of `karmada-interpret`: what differs, nothing where all is equal.

    Raises:
        NotCompared: the case is neither passed nor failed.
    """
    group, _, name = case["kind"].rpartition("/")
    kind, expect = BY_GVK.get((group, name)), case["expect"]
    if kind is None:
        raise NotCompared(f"Atoll does not run {name}")
    if kind.assembly is not None:
        raise NotCompared(f"a {name} is not a workload by itself")
    if not expect.get("supported", True) or "error" in expect:
        raise NotCompared("upstream has no answer")
    compare = _COMPARED.get(case["operation"])
    if compare is None:
        raise NotCompared(f"{case['operation']}: members' objects and statuses are taken as they are")
    return compare(kind, case)


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
        raise NotCompared("a field that is absent is filled in by the API server before it is read")
    task = _gang(kind, case["object"]).tasks[0].name
    made = kind.rewrite(case["object"], Part("m", {task: case["replicas"]}, case["replicas"]))
    found = made["spec"].get(field)
    return [f"{field}: {found} instead of {wanted}"] if found != wanted else []


def _health(kind: Kind, case: Json) -> list[str]:
    status, upstream = case["object"].get("status") or {}, case["expect"].get("healthy")
    healthy = kind.healthy(status)
    if healthy is None or value_at(status, ("state", "phase")) == "Terminated":
        raise NotCompared("health: nothing is said yet, or the workload was terminated")
    if healthy and isinstance(kind, Templated) and kind.service:
        raise NotCompared("health: whether all replicas of a service are up is told by counts")
    return [f"healthy: {healthy} instead of {upstream}"] if healthy != upstream else []


def _aggregated(kind: Kind, case: Json) -> list[str]:
    obj, wanted = case["object"], case["expect"].get("status") or {}
    reports = [Report(each["clusterName"], each.get("status") or {}) for each in case.get("statusItems") or ()]
    labels = {**(obj["metadata"].get("labels") or {}), keys.QUEUE_LABEL: "q"}
    status = kind.aggregate(
        {**obj, "metadata": {**obj["metadata"], "labels": labels}}, reports, waiting=("", ""), now=""
    )
    counts = _COUNTS.get(kind.resource.group)
    if counts is None:
        if len(reports) != 1:
            raise NotCompared(f"status: a {kind.resource.kind} runs in one member")
        # The member's own status is shown; upstream writes zeros out.
        differing = {name: status.get(name) for name, value in wanted.items() if not _within(value, status.get(name))}
        return [f"status: {differing} instead of {wanted}"] if differing else []
    found = {name: status.get(name, 0) for name in counts}
    said = {name: wanted.get(name, 0) for name in counts}
    return [f"counts: {found} instead of {said}"] if found != said else []


def _within(wanted: Any, found: Any) -> bool:
    """Whether all that is wanted is there, among more; nothing and zero are one."""
    if isinstance(wanted, dict):
        inside: Mapping[str, Any] = found if isinstance(found, dict) else {}
        return all(_within(value, inside.get(name)) for name, value in wanted.items())
    if isinstance(wanted, list):
        # Upstream tells of conditions in words of its own.
        bare = [{key: value for key, value in each.items() if key not in ("reason", "message")} for each in wanted]
        return all(any(_within(each, other) for other in found or ()) for each in bare)
    return bool(wanted == found or not (wanted or found))


def _dependencies(kind: Kind, case: Json) -> list[str]:
    obj = case["object"]
    namespace = obj["metadata"].get("namespace")
    named = [(each.resource, each.name) for each in references(entire(kind, obj))]
    named += [(resource, name) for resource, name in kind.namespaced_needs(obj) if resource == SERVICE_ACCOUNTS]
    # Every namespace has its default account; upstream leaves it out.
    named = [each for each in named if each != (SERVICE_ACCOUNTS, "default")]
    found = sorted({(each.api_version, each.kind, namespace, name) for each, name in named})
    said = [tuple(each[field] for field in ("apiVersion", "kind", "namespace", "name"))
            for each in case["expect"].get("dependencies") or ()]  # fmt: skip
    return [f"dependencies: {found} instead of {said}"] if found != sorted(said) else []


_COMPARED = {
    "InterpretComponent": _components,
    "InterpretReplica": _components,
    "ReviseReplica": _revised,
    "InterpretHealth": _health,
    "AggregateStatus": _aggregated,
    "InterpretDependency": _dependencies,
}
"""Operation -> what compares it."""
