"""How tools that wait for a workload judge its object, by the rules that they document.

`kubectl rollout status`, `kubectl wait`, the built-in health checks of Argo CD, and kstatus, which Flux waits with.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def _generations(obj: Json) -> tuple[int, int | None]:
    return obj["metadata"]["generation"], (obj.get("status") or {}).get("observedGeneration")


def _conditions(obj: Json) -> dict[str, Json]:
    return {each["type"]: each for each in (obj.get("status") or {}).get("conditions") or ()}


def _count(obj: Json, name: str) -> int:
    return int((obj.get("status") or {}).get(name) or 0)


def rollout(obj: Json) -> str:
    """Done, Waiting or Failed: `kubectl rollout status`, which knows Deployments and StatefulSets."""
    generation, observed = _generations(obj)
    wanted = obj["spec"].get("replicas", 1)
    if (observed or 0) < generation:
        return "Waiting"
    if obj["kind"] == "Deployment":
        if _conditions(obj).get("Progressing", {}).get("reason") == "ProgressDeadlineExceeded":
            return "Failed"
        updated = _count(obj, "updatedReplicas")
        good = updated >= wanted and _count(obj, "replicas") <= updated <= _count(obj, "availableReplicas")
        return "Done" if good else "Waiting"
    status = obj.get("status") or {}
    good = _count(obj, "readyReplicas") >= wanted and status.get("updateRevision") == status.get("currentRevision")
    return "Done" if good else "Waiting"


def wait(obj: Json, condition: str) -> bool:
    """Whether `kubectl wait --for=condition=...` would end: the condition is true, and not of an older generation."""
    found = _conditions(obj).get(condition, {})
    generation, observed = _generations(obj)
    observed = found.get("observedGeneration", observed)
    return found.get("status") == "True" and (observed is None or observed >= generation)


def argo(obj: Json) -> str:
    """Healthy, Progressing, Degraded or Suspended; empty for a kind without a built-in check."""
    generation, observed = _generations(obj)
    conditions, wanted = _conditions(obj), obj["spec"].get("replicas", 1)
    match obj["kind"], obj["apiVersion"]:
        case "Deployment", "apps/v1":
            if (observed or 0) < generation:
                return "Progressing"
            if conditions.get("Progressing", {}).get("reason") == "ProgressDeadlineExceeded":
                return "Degraded"
            updated = _count(obj, "updatedReplicas")
            good = updated >= wanted and _count(obj, "replicas") <= updated <= _count(obj, "availableReplicas")
            return "Healthy" if good else "Progressing"
        case "StatefulSet", "apps/v1":
            if not observed or observed < generation:
                return "Progressing"
            return "Healthy" if _count(obj, "readyReplicas") >= wanted else "Progressing"
        case "Job", "batch/v1":
            if conditions.get("Failed", {}).get("status") == "True":
                return "Degraded"
            if conditions.get("Complete", {}).get("status") == "True":
                return "Healthy"
            return "Suspended" if conditions.get("Suspended", {}).get("status") == "True" else "Progressing"
    return ""


def kstatus(obj: Json) -> str:
    """Current, InProgress, Failed or Terminating."""
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    generation, observed = _generations(obj)
    if observed is not None and observed != generation:
        return "InProgress"
    conditions = _conditions(obj)
    for type_, verdict in (("Reconciling", "InProgress"), ("Stalled", "Failed")):
        if conditions.get(type_, {}).get("status") == "True":
            return verdict
    match obj["kind"], obj["apiVersion"]:
        case "Deployment", "apps/v1":
            return _kstatus_of_deployment(obj)
        case "StatefulSet", "apps/v1":
            wanted = obj["spec"].get("replicas", 1)
            good = all(_count(obj, name) == wanted for name in ("replicas", "readyReplicas", "currentReplicas"))
            return "Current" if good else "InProgress"
        case "Job", "batch/v1":
            if conditions.get("Failed", {}).get("status") == "True":
                return "Failed"
            suspended = conditions.get("Suspended", {}).get("status") == "True"
            return "Current" if suspended or (obj.get("status") or {}).get("startTime") else "InProgress"
    return "Current"


def _kstatus_of_deployment(obj: Json) -> str:
    conditions, wanted = _conditions(obj), obj["spec"].get("replicas", 1)
    progress = conditions.get("Progressing", {})
    if progress.get("reason") == "ProgressDeadlineExceeded":
        return "Failed"
    counts = ("replicas", "updatedReplicas", "availableReplicas", "readyReplicas")
    good = all(_count(obj, name) == wanted for name in counts)
    done = (progress.get("status"), progress.get("reason")) == ("True", "NewReplicaSetAvailable")
    available = conditions.get("Available", {}).get("status") == "True"
    return "Current" if good and done and available else "InProgress"
