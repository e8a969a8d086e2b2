"""The LeaderWorkerSet: groups of a leader and its workers, as a service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from atoll.kinds.interface import Json, Words
from atoll.kinds.templated import Component, Reading, Templated, condition_of, count_at, number, set_at, value_at
from atoll.model.apiresource import ApiResource

_GROUP = ("spec", "leaderWorkerTemplate")
_COUNT = ("spec", "replicas")
_SURGE = ("spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge")


def _components(obj: Mapping[str, Any]) -> list[Component]:
    groups, size = count_at(obj, "spec", "replicas"), count_at(obj, *_GROUP, "size")
    alone = value_at(obj, (*_GROUP, "leaderTemplate")) is None
    each = size if alone else max(size - 1, 0)
    workers = Component(
        name="worker", pods=groups * each, template=(*_GROUP, "workerTemplate"), count=_COUNT, unit=each
    )
    if alone:
        return [workers]
    return [Component(name="leader", pods=groups, template=(*_GROUP, "leaderTemplate"), count=_COUNT), workers]


def _starts(obj: Mapping[str, Any]) -> int | None:
    """The leaders, where workers wait for them to be ready."""
    if value_at(obj, ("spec", "startupPolicy")) != "LeaderReady":
        return None
    return count_at(obj, "spec", "replicas") or None


def _read(status: Mapping[str, Any]) -> Reading:
    ready = number(status, "readyReplicas")
    return Reading(
        state="Available" if condition_of(status, "Available") else "",
        running=ready,
        known=bool(status.get("conditions") or status.get("replicas")),
        pods=False,
    )


def _no_groups(obj: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[Json]:
    """Without groups all of them are ready."""
    if not count_at(obj, *_COUNT) and not number(status, "replicas"):
        text = "the LeaderWorkerSet asks for no groups"
        yield {"type": "Available", "status": "True", "reason": "AllGroupsReady", "message": text}


def _in_place(made: Json, _: object) -> None:
    """Groups of an update take the places of others: more than `replicas` are charged to no queue."""
    if value_at(made, _SURGE):
        set_at(made, _SURGE, 0)


def _warnings(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if value_at(obj, _SURGE):
        text = "has no effect: groups of an update take the places of others, as more are charged to no queue"
        yield ".".join(map(str, _SURGE)), text


KIND = Templated(
    resource=ApiResource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet"),
    words=Words(
        title="LeaderWorkerSet",
        names=("leaderworkerset", "leaderworkersets", "lws"),
        held="nothing: its controller must not run there",
        prefix="leaderworkerset/",
        needs="the LeaderWorkerSet controller",
    ),
    route="leaderworkersets",
    pods="leaders, workers",
    order="`startupPolicy: LeaderReady`: the member waits for the leaders",
    scales="`replicas`, by groups",
    components=_components,
    read=_read,
    pods_label="leaderworkerset.sigs.k8s.io/name",
    service=True,
    observes=True,
    concluded=_no_groups,
    made=_in_place,
    warnings=_warnings,
    starts=_starts,
    sets=lambda obj, component: component.unit,
    sets_label="leaderworkerset.sigs.k8s.io/group-index",
)
