"""Deployments and StatefulSets: services, admitted by quota and never finished; scaling them changes the charge.

They have no suspend switch, so no controller may reconcile them on the host. In members the controller manager does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from atoll.kinds.interface import Json, Words
from atoll.kinds.templated import Component, Path, Reading, Templated, count_at, number, remove_at, set_at, value_at
from atoll.model.apiresource import DEPLOYMENTS, STATEFUL_SETS
from atoll.model.placer import Placer

_TEMPLATE: Path = ("spec", "template")
_COUNT: Path = ("spec", "replicas")
_HELD = "nothing: its controllers must not run there"


def _components(obj: Mapping[str, Any], unnumbered: str = "") -> list[Component]:
    pods = count_at(obj, *_COUNT)
    return [Component(name="main", pods=pods, template=_TEMPLATE, count=_COUNT, unnumbered=unnumbered)]


def _read(status: Mapping[str, Any]) -> Reading:
    ready = number(status, "readyReplicas")
    return Reading(running=ready, known=status.get("observedGeneration") is not None)


def _availability(obj: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[Json]:
    """Condition Available by the counts of the whole, as Kubernetes decides it of one Deployment; of copies each has to
    be available. A Deployment that asks for no pods, and has none, has rolled out.
    """
    pods, found = count_at(obj, *_COUNT), number(status, "availableReplicas")
    if number(status, "replicas") >= 2 * pods > 0:
        return
    good = found >= pods - _may_be_unavailable(obj, pods)
    yield {
        "type": "Available",
        "status": "True" if good else "False",
        "reason": "MinimumReplicasAvailable" if good else "MinimumReplicasUnavailable",
        "message": f"{found} of {pods} replicas are available",
    }
    if not pods and not number(status, "replicas"):
        text = "the Deployment asks for no pods"
        yield {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": text}


def _may_be_unavailable(obj: Mapping[str, Any], pods: int) -> int:
    """Pods that may be missing during an update: `maxUnavailable`, and 1 where neither that nor `maxSurge` lets an
    update begin.
    """
    strategy = value_at(obj, ("spec", "strategy")) or {}
    if strategy.get("type") == "Recreate" or not pods:
        return 0
    said = strategy.get("rollingUpdate") or {}
    surge, missing = (_share(said.get(name, "25%"), pods) for name in ("maxSurge", "maxUnavailable"))
    return min(math.floor(missing) or (0 if math.ceil(surge) else 1), pods)


def _share(said: Any, pods: int) -> float:
    """A number of pods, or percents of them; 0 for anything else."""
    if isinstance(said, str):
        digits = said.removesuffix("%")
        return int(digits) * pods / 100 if digits.isdecimal() and len(digits) < len(said) <= 5 else 0
    return said if type(said) is int and said > 0 else 0


def _ordered(obj: Mapping[str, Any]) -> int | None:
    """A StatefulSet starts its pods one by one unless it says otherwise."""
    return None if value_at(obj, ("spec", "podManagementPolicy")) == "Parallel" else 1


def _in_place(made: Json, _: object) -> None:
    """Pods of an update take the places of others: more than `replicas` are charged to no queue."""
    strategy = value_at(made, ("spec", "strategy")) or {}
    if strategy.get("type") != "Recreate":
        rolling = {"maxUnavailable": "25%", **(strategy.get("rollingUpdate") or {}), "maxSurge": 0}
        if rolling["maxUnavailable"] in (0, "0", "0%"):
            rolling["maxUnavailable"] = 1
        set_at(made, ("spec", "strategy"), {**strategy, "type": "RollingUpdate", "rollingUpdate": rolling})
    annotations = made["metadata"].get("annotations") or {}
    annotations.pop("deployment.kubernetes.io/revision", None)
    remove_at(made, (*_TEMPLATE, "metadata", "creationTimestamp"))


def _claims_stay(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if value_at(obj, ("spec", "volumeClaimTemplates")):
        yield (
            "spec.volumeClaimTemplates",
            "claims stay in the member that it ran in, as they would in one cluster: after an eviction it may run in"
            " another one, with new claims",
        )


def _surge(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    strategy = value_at(obj, ("spec", "strategy")) or {}
    surge = value_at(strategy, ("rollingUpdate", "maxSurge"))
    if strategy.get("type") != "Recreate" and surge not in (0, "0", "0%"):
        yield (
            "spec.strategy.rollingUpdate.maxSurge",
            "has no effect: pods of an update take the places of others, as more than replicas are charged to no queue",
        )


DEPLOYMENT = Templated(
    resource=DEPLOYMENTS,
    words=Words(
        title="Deployment",
        names=("deployment", "deployments", "deploy", "deployment.apps"),
        held=_HELD,
        prefix="deployment/",
        needs="Kubernetes' own controller",
    ),
    route="deployments",
    pods="`replicas`",
    scales="`replicas`",
    components=partial(_components, unnumbered="pods of a Deployment have none"),
    read=_read,
    divisible=True,
    service=True,
    warnings=_surge,
    made=_in_place,
    observes=True,
    counts=("replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "unavailableReplicas"),
    concluded=_availability,
    placers=tuple(Placer),
    optional=False,
)

STATEFUL_SET = Templated(
    resource=STATEFUL_SETS,
    words=Words(
        title="StatefulSet",
        names=("statefulset", "statefulsets", "sts", "statefulset.apps"),
        held=_HELD,
        prefix="statefulset/",
        needs="Kubernetes' own controller",
    ),
    route="statefulsets",
    pods="`replicas`",
    order="one by one unless `podManagementPolicy: Parallel`: the member waits for the first",
    scales="`replicas`",
    components=_components,
    read=_read,
    service=True,
    starts=_ordered,
    warnings=_claims_stay,
    made=lambda made, part: set_at(made, _COUNT, part.counts.get("main", 0)),
    observes=True,
    counts=("replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "currentReplicas"),
    makes_claims=lambda obj: bool(value_at(obj, ("spec", "volumeClaimTemplates"))),
    placers=tuple(Placer),
    optional=False,
)
