"""Objects as the host has them: jobs, bindings, queues."""

from __future__ import annotations

from typing import Any

from atoll.model import decision, gang, keys
from atoll.model.decision import Decision, Line, Phase
from atoll.model.verdict import Blocker, Reason
from atoll.view import queue_description

Json = dict[str, Any]

NOW = 1_800_000_000.0
T0 = "2027-01-15T07:59:00Z"


def job(name: str = "train", **status: Any) -> Json:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "team", "uid": f"job-{name}", "creationTimestamp": T0},
        "spec": {"queue": "research"},
        "status": status,
    }


def binding(
    name: str = "train",
    *,
    phase: Phase = Phase.SUSPENDED,
    reason: Reason = Reason.QUOTA_EXCEEDED,
    blocker: Blocker | None = None,
    priority: int = 0,
    submitted: str = T0,
    clusters: tuple[str, ...] = (),
    conditions: tuple[str, ...] = (),
    reports: tuple[Json, ...] = (),
    story: tuple[Line, ...] = (),
) -> Json:
    wish = gang.Gang(
        queue="research",
        tasks=[gang.Task("worker", 2, 2, {"cpu": 4000, "nvidia.com/gpu": 8, "pods": 1})],
        min_available=2,
        priority=priority,
        submitted=submitted,
    )
    told = Decision(epoch=1, phase=phase, reason=reason, blocker=blocker, story=list(story))
    return {
        "metadata": {
            "name": f"{name}-job",
            "namespace": "team",
            "uid": f"binding-{name}",
            "creationTimestamp": T0,
            "annotations": {keys.GANG: gang.encode(wish), keys.DECISION: decision.encode(told), keys.EPOCH: "1"},
        },
        "spec": {
            "resource": {"uid": f"job-{name}"},
            "suspension": {"scheduling": phase is Phase.SUSPENDED},
            "clusters": [{"name": cluster, "replicas": 2} for cluster in clusters],
        },
        "status": {
            "conditions": [{"type": item, "status": "True", "lastTransitionTime": T0} for item in conditions],
            "aggregatedStatus": list(reports),
        },
    }


def queue(name: str = "research", **spec: Any) -> Json:
    return {"metadata": {"name": name, "creationTimestamp": T0}, "spec": spec, "status": {"state": "Open"}}


def told(item: Json, problem: str = "", **status: Any) -> Json:
    """A queue with the status that the dispatcher has written."""
    valid = {"type": "Valid", "status": "False" if problem else "True", "message": problem}
    return {**item, "status": {**item["status"], **status, "conditions": [valid]}}


def described(item: Json, queues: list[Json], bindings: list[Json], now: float, **more: Any) -> Json:
    """A queue among others as `queue describe` shows it."""
    others = [each for each in queues if each["metadata"]["name"] != item["metadata"]["name"]]
    return queue_description.describe(item, queue_description.read([item, *others], bindings, **more), now)
