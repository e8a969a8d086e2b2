"""RayCluster, RayJob and RayService: a head, groups of workers, and what runs on them.

KubeRay accepts no foreign name in `spec.managedBy`: on the host RayClusters and RayJobs stay suspended for ever. A
RayService has no switch: KubeRay must not run on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from atoll.kinds.interface import Json, Outcome, Part, Words
from atoll.kinds.templated import (
    Component,
    Path,
    Reading,
    Templated,
    condition_of,
    count_at,
    number,
    set_at,
    value_at,
)
from atoll.model.apiresource import ApiResource
from atoll.model.vector import pod_requests

_NEEDS = "KubeRay"
_SUBMITTER = {"cpu": 1000, "memory": 2**30, "pods": 1}
"""What the pod that submits a job may request: the limits that KubeRay gives it by default."""
_NO_INDEX = "pods of a Ray cluster have none"
_SUSPENDED = "`spec.suspend`, which stays set"


def _in_cluster(*path: str) -> Callable[[Mapping[str, Any]], list[Component]]:
    """The components of the Ray cluster whose spec is at this path."""

    def components(obj: Mapping[str, Any]) -> list[Component]:
        if not value_at(obj, (*path, "headGroupSpec")):
            raise ValueError(f"{'.'.join(path)}.headGroupSpec: a Ray cluster has a head; give one")
        found = [
            Component(name="ray-head", pods=1, template=(*path, "headGroupSpec", "template"), unnumbered=_NO_INDEX)
        ]
        for index, group in enumerate(value_at(obj, (*path, "workerGroupSpecs")) or ()):
            at: Path = (*path, "workerGroupSpecs", index)
            if group.get("suspend"):
                continue
            hosts = count_at(obj, *at, "numOfHosts")
            found.append(
                Component(
                    name=str(group.get("groupName") or f"worker-{index + 1}"),
                    pods=count_at(obj, *at, "replicas", default=0) * hosts,
                    template=(*at, "template"),
                    count=(*at, "replicas"),
                    unit=hosts,
                    unnumbered=_NO_INDEX,
                )
            )
        return found

    return components


def _fixed(*path: str) -> Callable[[Mapping[str, Any]], Iterator[tuple[str, str]]]:
    """A cluster that makes more pods by itself is refused."""

    def problems(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if value_at(obj, (*path, "enableInTreeAutoscaling")):
            text = "its autoscaler makes pods that no queue is charged for; leave it out and set replicas"
            yield f"{'.'.join(path)}.enableInTreeAutoscaling", text

    return problems


def _read_cluster(status: Mapping[str, Any]) -> Reading:
    state = str(status.get("state") or "")
    ready = number(status, "readyWorkerReplicas")
    return Reading(
        state=state.capitalize(),
        running=ready + 1 if state == "ready" else ready,
        suspended=state == "suspended",
        known=bool(state),
    )


def _read_job(status: Mapping[str, Any]) -> Reading:
    phase = str(status.get("jobDeploymentStatus") or "")
    outcome = None
    if phase in ("Complete", "Failed"):
        good = phase == "Complete" and status.get("jobStatus") not in ("FAILED", "STOPPED")
        outcome = Outcome.SUCCEEDED if good else Outcome.FAILED
    cluster = status.get("rayClusterStatus") or {}
    return Reading(
        state=phase,
        running=_read_cluster(cluster).running if phase == "Running" else 0,
        outcome=outcome,
        ended=status.get("endTime") if outcome is not None else None,
        suspended=phase == "Suspended",
        known=phase not in ("", "Initializing"),
    )


def _read_service(status: Mapping[str, Any]) -> Reading:
    active = value_at(status, ("activeServiceStatus", "rayClusterStatus")) or {}
    ready = condition_of(status, "Ready") is not None or status.get("serviceStatus") == "Running"
    return Reading(
        state="Running" if ready else "",
        running=_read_cluster(active).running,
        known=bool(status.get("conditions") or status.get("serviceStatus")),
    )


def _problems_of_job(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _fixed("spec", "rayClusterSpec")(obj)
    if value_at(obj, ("spec", "clusterSelector")):
        yield "spec.clusterSelector", "a RayJob brings its own cluster, which its queue is charged for: leave it out"
    if value_at(obj, ("spec", "shutdownAfterJobFinishes")) is not True:
        text = "must be true: its cluster would hold nodes that its queue is charged for no more"
        yield "spec.shutdownAfterJobFinishes", text
    if value_at(obj, ("spec", "submissionMode")) not in (None, "K8sJobMode", "HTTPMode"):
        yield "spec.submissionMode", "use K8sJobMode or HTTPMode: the others wait for a user in the member"
    submits = pod_requests(value_at(obj, ("spec", "submitterPodTemplate", "spec")) or {})
    if any(amount > _SUBMITTER.get(name, 0) for name, amount in submits.items()):
        text = "the pod that submits the job is charged to no queue: it may request 1 CPU and 1Gi of memory"
        yield "spec.submitterPodTemplate", text


def _told_of_job(status: Json, reason: str, message: str) -> Json:
    """KubeRay's schema of a RayJob has no conditions: that no generation was observed says that it is not done."""
    waits = {"jobDeploymentStatus": "Suspended", "reason": reason, "message": message} if reason else {}
    return {**status, "observedGeneration": 0, **waits}


def _one_cluster(made: Json, _: Part) -> None:
    """An update makes no second cluster beside the first, which no queue is charged for."""
    set_at(made, ("spec", "upgradeStrategy"), {"type": "None"})


def _warnings_of_job(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if value_at(obj, ("spec", "submissionMode")) in (None, "K8sJobMode"):
        yield "spec.submissionMode", "the pod that submits the job is not charged to the queue; HTTPMode makes none"


def _kind(
    kind: str,
    *cluster: str,
    read: Callable[[Mapping[str, Any]], Reading],
    held: str = _SUSPENDED,
    switch: Path = ("spec", "suspend"),
    **particular: Any,
) -> Templated:
    word = kind.lower()
    return Templated(
        resource=ApiResource("ray.io", "v1", f"{word}s", kind),
        words=Words(title=kind, names=(word, f"{word}s"), held=held, prefix=f"{word}/", needs=_NEEDS),
        route=f"{word}s",
        pods="head, worker groups",
        scales="`replicas` of worker groups",
        components=_in_cluster(*cluster),
        read=read,
        observes=True,
        pods_label="ray.io/cluster" if kind == "RayCluster" else "ray.io/originated-from-cr-name",
        switch=switch,
        **particular,
    )


KINDS = (
    _kind(
        "RayJob",
        "spec",
        "rayClusterSpec",
        read=_read_job,
        problems=_problems_of_job,
        warnings=_warnings_of_job,
        told=_told_of_job,
        host_only=(("spec", "ttlSecondsAfterFinished"), ("spec", "managedBy")),
    ),
    _kind(
        "RayCluster",
        "spec",
        read=_read_cluster,
        service=True,
        problems=_fixed("spec"),
        host_only=(("spec", "managedBy"),),
    ),
    _kind(
        "RayService",
        "spec",
        "rayClusterConfig",
        read=_read_service,
        held="nothing: KubeRay must not run there",
        switch=(),
        service=True,
        problems=_fixed("spec", "rayClusterConfig"),
        made=_one_cluster,
    ),
)
