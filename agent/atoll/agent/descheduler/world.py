"""What a decision looks at: nodes, pods with a few facts beside `Pod`, budgets, measured use. Values only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from atoll.agent.objects import Budget, Node, Pod, PodGroup, decode_pod
from atoll.model.objects import Slim

CPU: Final = "cpu"
MEMORY: Final = "memory"
_MIRROR: Final = ("kubernetes.io/config.mirror", "kubernetes.io/config.source")


class _Volume(msgspec.Struct, frozen=True, rename="camel"):
    empty_dir: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    volumes: list[_Volume] = []
    resource_claims: list[Any] = []
    restart_policy: str = "Always"


class _Raw(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


_PLAIN: Final = _Spec()
_decoder = msgspec.json.Decoder(_Raw)


class Subject(Slim, frozen=True):
    """A pod, and what only a descheduler reads of it."""

    pod: Pod = Pod(Slim().metadata)
    local: bool = False
    """Whether it keeps data on its node, by emptyDir or hostPath."""
    claims: bool = False
    """Whether it has devices by resourceClaims."""
    completes: bool = False
    """Whether it runs to completion, by its restartPolicy: its work is lost if it leaves before."""

    @property
    def owner(self) -> tuple[str, str]:
        """(kind, UID) of its controller; empty for none."""
        found = next((each for each in self.metadata.owner_references if each.controller), None)
        return (found.kind, found.uid) if found is not None else ("", "")

    @property
    def of_node(self) -> bool:
        """Whether the kubelet made it by itself."""
        return any(key in self.metadata.annotations for key in _MIRROR)


def decode(raw: bytes | msgspec.Raw) -> Subject:
    """The pod that this JSON describes.

    Raises:
        msgspec.MsgspecError: not a pod.
    """
    return subject(decode_pod(raw), _decoder.decode(raw).spec)


def subject(pod: Pod, spec: _Spec = _PLAIN) -> Subject:
    """A pod with these facts beside it."""
    local = any(each.empty_dir is not None or each.host_path is not None for each in spec.volumes)
    return Subject(pod.metadata, pod, local, bool(spec.resource_claims), spec.restart_policy != "Always")


@dataclass(frozen=True, slots=True)
class Figures:
    """Measured use: cores in thousandths, bytes. An absent name is unknown, never idle."""

    nodes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    pods: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By `namespace/name`."""
    problem: str = ""
    """Why nothing is known; empty where something is."""
    taken: float = 0.0
    """When they were taken, on the clock of the decision."""

    def older_than(self, bound: float, now: float) -> bool:
        """Whether they say nothing about the present any more."""
        return now - self.taken > bound


def sane(value: float) -> bool:
    """Whether a figure may be one: no NaN, no infinity, not below 0."""
    return math.isfinite(value) and value >= 0


@dataclass(frozen=True, slots=True)
class World:
    """The cluster at one moment."""

    nodes: Iterable[Node]
    subjects: Iterable[Subject]
    budgets: Iterable[Budget] = ()
    groups: Mapping[str, PodGroup] = field(default_factory=dict)
    """By `namespace/name`."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """PriorityClass -> value."""
    default_priority: int = 0
    """Of pods that name no class."""
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Namespace -> labels."""
    workloads: Mapping[str, str] = field(default_factory=dict)
    """UID of a ReplicaSet -> UID of its Deployment."""
