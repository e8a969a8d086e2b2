"""Kubeflow's training jobs of its first operator, and MPIJobs: replicas by role, a run policy, conditions.

Their operators accept no foreign name in `runPolicy.managedBy`: on the host they stay suspended for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from atoll.kinds.interface import Outcome, Words
from atoll.kinds.templated import OF_HOST, Component, Reading, Templated, condition_of, count_at, number, value_at
from atoll.model.apiresource import ApiResource

_SWITCH = ("spec", "runPolicy", "suspend")
_MINIMUM = ("spec", "elasticPolicy", "minReplicas")


def _kind(kind: str, field: str, *, version: str = "v1", first: str, needs: str = "the training operator") -> Templated:
    """One of the kinds.

    Args:
        kind: as in manifests.
        field: of its spec that holds the replicas.
        version: of group kubeflow.org.
        first: the role whose pods are listed first; the others follow by name.
        needs: what a member must run.
    """
    roles = ("spec", field)
    mpi = kind == "MPIJob"

    def components(obj: Mapping[str, Any]) -> list[Component]:
        found = value_at(obj, roles) or {}
        named = sorted(found, key=lambda role: (role != first, role))
        return [
            Component(
                name=role if mpi else role.lower(),
                pods=count_at(obj, *roles, role, "replicas"),
                template=(*roles, role, "template"),
                minimum=value_at(obj, _MINIMUM) if role == "Worker" else None,
                count=(*roles, role, "replicas"),
            )
            for role in named
        ]

    def starts(obj: Mapping[str, Any]) -> int | None:
        """An MPIJob's launcher may be made when the workers are ready."""
        if value_at(obj, ("spec", "launcherCreationPolicy")) != "WaitForWorkersReady":
            return None
        return sum(each.pods for each in components(obj) if each.name != "Launcher") or None

    def over(_: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, int]:
        counts = status.get("replicaStatuses") or {}
        return {role if mpi else role.lower(): number(each, "succeeded") for role, each in counts.items()}

    return Templated(
        resource=ApiResource("kubeflow.org", version, f"{kind.lower()}s", kind),
        words=Words(
            title=kind,
            names=(kind.lower(), f"{kind.lower()}s"),
            held="`spec.runPolicy.suspend`, which stays set",
            prefix=f"{kind.lower()}/",
            needs=needs,
        ),
        route=f"{kind.lower()}s",
        pods="launcher, workers" if mpi else "the roles of its replica specs",
        order="`launcherCreationPolicy: WaitForWorkersReady`: the member waits for the workers" if mpi else "",
        fewer="" if mpi else "`elasticPolicy.minReplicas`",
        scales="`replicas` of Worker",
        components=components,
        read=_read,
        over=over,
        released_when="those that have succeeded, by role",
        pods_label="training.kubeflow.org/job-name",
        switch=_SWITCH,
        starts=starts if mpi else None,
        problems=_problems,
        warnings=_warnings,
        host_only=(
            ("spec", "runPolicy", "ttlSecondsAfterFinished"),
            ("spec", "runPolicy", "managedBy"),
            ("spec", "runPolicy", "schedulingPolicy"),
        ),
    )


def _read(status: Mapping[str, Any]) -> Reading:
    ended = condition_of(status, "Succeeded", "Failed")
    last = next((each["type"] for each in reversed(status.get("conditions") or ()) if each.get("status") == "True"), "")
    counts = [each for each in (status.get("replicaStatuses") or {}).values() if isinstance(each, Mapping)]
    outcome = None
    if ended is not None:
        outcome = Outcome.SUCCEEDED if ended["type"] == "Succeeded" else Outcome.FAILED
    return Reading(
        state=ended["type"] if ended is not None else "" if last in OF_HOST else last,
        running=sum(number(each, "active") for each in counts),
        succeeded=sum(number(each, "succeeded") for each in counts),
        failed=sum(number(each, "failed") for each in counts),
        outcome=outcome,
        ended=status.get("completionTime") or (ended.get("lastTransitionTime") if ended is not None else None),
        suspended=outcome is None and condition_of(status, "Suspended") is not None,
        known=bool(status.get("conditions")),
        # Active pods need not run.
        pods=False,
    )


def _problems(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    policy = value_at(obj, ("spec", "elasticPolicy")) or {}
    workers = next((count_at(obj, *path) for path in _workers(obj)), None)
    most = policy.get("maxReplicas")
    if most is not None and workers is not None and most > workers:
        text = f"{most}: the queue is charged for the {workers} replicas of Worker; raise those instead"
        yield "spec.elasticPolicy.maxReplicas", text
    minimum = policy.get("minReplicas")
    if minimum is not None and (type(minimum) is not int or minimum < 1):
        yield "spec.elasticPolicy.minReplicas", f"{minimum!r} is no whole number of 1 or more"


def _warnings(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if value_at(obj, ("spec", "runPolicy", "schedulingPolicy")):
        text = "has no effect: the queue is a label, and all pods start together unless elasticPolicy.minReplicas says"
        yield "spec.runPolicy.schedulingPolicy", f"{text} how many Workers need to"
    if value_at(obj, ("spec", "runPolicy", "managedBy")):
        yield "spec.runPolicy.managedBy", "has no effect: the member's operator runs it"


def _workers(obj: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for field, roles in (obj.get("spec") or {}).items():
        if field.endswith("ReplicaSpecs") and "Worker" in roles:
            yield "spec", field, "Worker", "replicas"


KINDS = (
    _kind("PyTorchJob", "pytorchReplicaSpecs", first="Master"),
    _kind("TFJob", "tfReplicaSpecs", first="Chief"),
    _kind("XGBoostJob", "xgbReplicaSpecs", first="Master"),
    _kind("JAXJob", "jaxReplicaSpecs", first="Worker"),
    _kind("MPIJob", "mpiReplicaSpecs", version="v2beta1", first="Launcher", needs="the MPI operator"),
)
