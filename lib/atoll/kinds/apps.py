"""Deployments and StatefulSets: services, admitted by quota and never finished; scaling them changes the charge.

They have no suspend switch, so nobody may reconcile them on the host. In members the controller manager does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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


def _summed(*counts: str) -> Callable[[Mapping[str, Any], Sequence[Json]], Json]:
    """The status of the whole: counts added up, the rest as the first part says."""

    def merged(obj: Mapping[str, Any], statuses: Sequence[Json]) -> Json:
        status = dict(statuses[0])
        for name in counts:
            if amount := sum(number(each, name) for each in statuses):
                status[name] = amount
        if all(number(each, "observedGeneration") for each in statuses):
            # What members count are their own generations.
            status["observedGeneration"] = int(obj["metadata"].get("generation") or 0)
        else:
            status.pop("observedGeneration", None)
        return status

    return merged


def _ordered(obj: Mapping[str, Any]) -> int | None:
    """A StatefulSet starts its pods one by one unless it says otherwise."""
    return None if value_at(obj, ("spec", "podManagementPolicy")) == "Parallel" else 1


def _without_revision(made: Json, _: object) -> None:
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
            "pods of an update that are more than replicas are not charged to the queue; 0 starts none",
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
    made=_without_revision,
    merged=_summed("replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "unavailableReplicas"),
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
    merged=_summed("replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "currentReplicas"),
    claims=lambda obj: bool(value_at(obj, ("spec", "volumeClaimTemplates"))),
    placers=tuple(Placer),
    optional=False,
)
