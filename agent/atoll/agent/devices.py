"""What the agent reads of its member's objects of dynamic resource allocation (resource.k8s.io/v1)."""

from __future__ import annotations

from typing import Any

import msgspec

from atoll.model.objects import Slim

Json = dict[str, Any]
MOST_CONSUMERS = 256
"""Pods that a claim is reserved for at most; the API server takes no more."""
FINALIZER = "resource.kubernetes.io/delete-protection"
"""Keeps a claim with an allocation from being deleted; Kubernetes' controller takes it off with the allocation."""


class Consumer(msgspec.Struct, frozen=True, gc=False):
    """Of a claim."""

    resource: str = ""
    name: str = ""
    uid: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    allocation: Json | None = None
    reserved_for: list[Consumer] = []
    devices: list[Json] = []


class ResourceClaim(Slim, frozen=True):
    """A ResourceClaim."""

    spec: Json = msgspec.field(default_factory=dict)
    status: _Status = _Status()

    @property
    def pods(self) -> list[str]:
        """Keys of the pods that it is reserved for."""
        namespace = self.metadata.namespace
        return [f"{namespace}/{each.name}" for each in self.status.reserved_for if each.resource == "pods"]

    def body(self) -> Json:
        """Its name, annotations and spec, as the API server gave them."""
        return {"metadata": {"name": self.metadata.name, "annotations": self.metadata.annotations}, "spec": self.spec}

    def alike(self, other: ResourceClaim) -> bool:
        """Whether nothing that placing reads differs."""
        mine, theirs = self.metadata, other.metadata
        return (mine.uid, mine.deletion_timestamp, self.status.allocation, self.status.reserved_for) == (
            theirs.uid,
            theirs.deletion_timestamp,
            other.status.allocation,
            other.status.reserved_for,
        )

    def node_terms(self) -> list[Json]:
        """NodeSelectorTerms of the nodes that reach its devices; empty for all nodes."""
        selector = (self.status.allocation or {}).get("nodeSelector") or {}
        return list(selector.get("nodeSelectorTerms") or ())


class _Published(Slim, frozen=True):
    spec: Json = msgspec.field(default_factory=dict)

    def body(self) -> Json:
        """As the API server gave it, without other metadata."""
        return {"metadata": {"name": self.metadata.name, "annotations": self.metadata.annotations}, "spec": self.spec}


class ResourceSlice(_Published, frozen=True):
    """A ResourceSlice, of which `atoll.model.resource_slices` reads the rest."""


class DeviceClass(_Published, frozen=True):
    """A DeviceClass, of which `atoll.model.device_claims` reads the rest."""


class DeviceTaintRule(_Published, frozen=True):
    """A DeviceTaintRule (v1beta2), likewise."""


class KoordinatorDevice(_Published, frozen=True):
    """The devices of the node of its name, of which `atoll.model.koordinator` reads the rest."""


decode_koordinator = msgspec.json.Decoder(KoordinatorDevice).decode
decode_resource_claim = msgspec.json.Decoder(ResourceClaim).decode
decode_slice = msgspec.json.Decoder(ResourceSlice).decode
decode_taint_rule = msgspec.json.Decoder(DeviceTaintRule).decode
decode_device_class = msgspec.json.Decoder(DeviceClass).decode
