"""What of nodes and pods is read, and what follows for HyperNodes: lost nodes, free slots, gangs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys, quantity, vector
from atoll.model.apiresource import NODES, PODS
from atoll.model.objects import Slim
from atoll.model.timestamps import to_seconds
from atoll.model.vector import Vector
from atoll.topology.health import Health
from atoll.topology.observed import Cluster, Gang


class _Condition(msgspec.Struct, frozen=True, rename="camel", gc=False):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class _NodeSpec(msgspec.Struct, frozen=True, gc=False):
    unschedulable: bool = False


class _NodeStatus(msgspec.Struct, frozen=True):
    allocatable: dict[str, str | int | float] = {}
    conditions: list[_Condition] = []


class Node(Slim, frozen=True):
    """A node."""

    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


class _PodStatus(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class _RawPod(Slim, frozen=True):
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: _PodStatus = _PodStatus()


class Pod(Slim, frozen=True):
    """A pod that is on a node, or ended there."""

    node: str = ""
    ended: bool = False
    requests: Vector = msgspec.field(default_factory=dict)
    gang: Gang = Gang("", "", "")


decode_node = msgspec.json.Decoder(Node).decode
_decode_pod = msgspec.json.Decoder(_RawPod).decode


def decode_pod(raw: bytes | msgspec.Raw) -> Pod:
    """What of a pod counts.

    Raises:
        msgspec.MsgspecError: not a pod, or one with a request that is no quantity.
    """
    pod = _decode_pod(raw)
    try:
        requests = vector.pod_requests(pod.spec)
    except ValueError as error:
        raise msgspec.ValidationError(f"pod {pod.metadata.key}: {error}") from error
    return Pod(
        pod.metadata,
        str(pod.spec.get("nodeName") or ""),
        pod.status.phase in ("Succeeded", "Failed"),
        requests,
        _gang(pod),
    )


def _gang(pod: _RawPod) -> Gang:
    meta = pod.metadata
    if group := meta.annotations.get(keys.GROUP_NAME):
        return Gang(meta.namespace, "PodGroup", group)
    owner = next((each for each in meta.owner_references if each.controller), None)
    return Gang(meta.namespace, owner.kind, owner.name) if owner else Gang(meta.namespace, "Pod", meta.name)


class Watched:
    """The nodes and pods of a cluster, kept up to date."""

    def __init__(self, api: ApiServer, *, slot: Vector, recovery: float, changed: Callable[[], None]) -> None:
        """No I/O happens here; run `nodes` and `pods`.

        Args:
            api: the cluster.
            slot: what one slot takes of a node.
            recovery: seconds that a node must be Ready before it counts again.
            changed: called at every change.
        """
        self.nodes: Reflector[Node] = Reflector(api, NODES, decode_node)
        self.pods: Reflector[Pod] = Reflector(api, PODS, decode_pod, field_selector="spec.nodeName!=")
        self.health = Health(recovery)
        self._slot, self._changed = slot, changed
        self.pods.add_index("node", lambda pod: [pod.node] if not pod.ended else [])
        self.nodes.on_change(self._node_changed)
        self.pods.on_change(lambda old, new: changed())

    @property
    def synced(self) -> bool:
        """Whether all nodes and pods were seen."""
        return self.nodes.synced.is_set() and self.pods.synced.is_set()

    def labels(self) -> Mapping[str, Mapping[str, str]]:
        """Name and labels of every node."""
        return {node.metadata.name: node.metadata.labels for node in self.nodes}

    def seen(self) -> Cluster:
        """Present knowledge."""
        slots, gangs = {}, {}
        for node in self.nodes:
            name = node.metadata.name
            pods = self.pods.by_index("node", name)
            offered = quantity.capacity(node.status.allocatable)
            used = vector.total(pod.requests for pod in pods)
            total = self._fits(offered)
            left = self._fits({each: amount - used.get(each, 0) for each, amount in offered.items()})
            slots[name] = (0 if node.spec.unschedulable else left, total)
            gangs[name] = Counter(pod.gang for pod in pods)
        return Cluster(dict(self.health.lost), slots, gangs)

    def _fits(self, amounts: Vector) -> int:
        return max(0, min(amounts.get(name, 0) // need for name, need in self._slot.items()))

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            if old is not None:
                self.health.gone(old.metadata.name)
        else:
            condition = next((each for each in new.status.conditions if each.type == "Ready"), _Condition())
            self.health.observe(
                new.metadata.name,
                ready=condition.status == "True",
                since=to_seconds(condition.last_transition_time or new.metadata.creation_timestamp),
                created=to_seconds(new.metadata.creation_timestamp),
                now=time.time(),
            )
        self._changed()
