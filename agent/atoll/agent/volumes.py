"""What a member's claims, volumes and storage classes say of where a pod can run: values, read as kube-scheduler does.

A pod waits while a claim of it is missing, lost or not bound; a volume's node affinity is the pod's own. A claim whose
class waits for its first consumer is provided for the node that was planned (`atoll.agent.scheduler.claims`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from atoll.agent.objects import Pod, PodClaim
from atoll.model.objects import Slim

Json = dict[str, Any]

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a claim: its first consumer's node, written by who places; the provisioner makes a volume for it."""
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_ZONES = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_ZONES_OF_NODES = (*_ZONES, "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region")
_NOWHERE: Json = {"matchExpressions": [{"key": key, "operator": "DoesNotExist"} for key in _ZONES_OF_NODES]}
"""A node that names no zone and no region takes a volume of any, as in kube-scheduler."""
_MOST_TERMS = 64
"""Of a pod's node affinity and its volumes' together."""


class _ClaimSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()


class _Phase(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class Claim(Slim, frozen=True):
    """A PersistentVolumeClaim."""

    spec: _ClaimSpec = _ClaimSpec()
    status: _Phase = _Phase()

    @property
    def bound(self) -> bool:
        """Whether it and its volume know each other."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations

    @property
    def exclusive(self) -> bool:
        """Whether one pod at a time may use it."""
        return "ReadWriteOncePod" in self.spec.access_modes

    @property
    def of_one_node(self) -> bool:
        """Whether pods of one node at a time may use it."""
        return bool(self.spec.access_modes) and set(self.spec.access_modes) <= {"ReadWriteOnce", "ReadWriteOncePod"}

    def alike(self, other: Claim) -> bool:
        """Whether nothing that placing reads differs."""
        mine, theirs = self.metadata, other.metadata
        return (mine.uid, mine.deletion_timestamp, mine.controller_uid, self.spec, self.status, self.bound) == (
            theirs.uid, theirs.deletion_timestamp, theirs.controller_uid, other.spec, other.status, other.bound
        )  # fmt: skip


class _Required(msgspec.Struct, frozen=True, rename="camel"):
    node_selector_terms: list[Json] = []


class _Affinity(msgspec.Struct, frozen=True):
    required: _Required | None = None


class _Reference(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    name: str = ""


class _Csi(msgspec.Struct, frozen=True, rename="camel", gc=False):
    driver: str = ""
    volume_handle: str = ""


class _VolumeSpec(msgspec.Struct, frozen=True, rename="camel"):
    csi: _Csi | None = None
    node_affinity: _Affinity | None = None
    claim_ref: _Reference | None = None


class Volume(Slim, frozen=True):
    """A PersistentVolume."""

    spec: _VolumeSpec = _VolumeSpec()

    @property
    def claim(self) -> str:
        """`namespace/name` of the claim that it is for; empty where it is for none."""
        reference = self.spec.claim_ref
        return f"{reference.namespace}/{reference.name}" if reference is not None else ""

    def alike(self, other: Volume) -> bool:
        """Whether nothing that placing reads differs."""
        return (self.spec, self.metadata.labels) == (other.spec, other.metadata.labels)

    def terms(self) -> list[list[Json]]:
        """NodeSelectorTerms of the nodes that reach it; each list must be met."""
        found: list[list[Json]] = []
        affinity = self.spec.node_affinity
        if affinity is not None and affinity.required is not None:
            # Terms that there are none of are met by nothing.
            found.append(affinity.required.node_selector_terms or [{}])
        zones = [(key, self.metadata.labels[key]) for key in _ZONES if key in self.metadata.labels]
        return [*found, *([{"matchExpressions": [_among(key, value.split("__"))]}, _NOWHERE] for key, value in zones)]


class _Expression(msgspec.Struct, frozen=True):
    key: str = ""
    values: list[str] = []


class _Allowed(msgspec.Struct, frozen=True, rename="camel"):
    match_label_expressions: list[_Expression] = []


class StorageClass(Slim, frozen=True, rename="camel"):
    """A StorageClass."""

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[_Allowed, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether it makes a volume only once a pod that uses it has a node."""
        return self.volume_binding_mode == "WaitForFirstConsumer"

    def terms(self) -> list[list[Json]]:
        """NodeSelectorTerms of the nodes that it has volumes for; each list must be met."""
        allowed = [
            {"matchExpressions": [_among(each.key, each.values) for each in term.match_label_expressions]}
            for term in self.allowed_topologies
            if term.match_label_expressions
        ]
        return [allowed] if allowed else []


IN_USE = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
"""kube-scheduler's words."""


class _Count(msgspec.Struct, frozen=True, gc=False):
    count: int | None = None


class _Driver(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    allocatable: _Count | None = None


class _CsiNodeSpec(msgspec.Struct, frozen=True):
    drivers: tuple[_Driver, ...] = ()


class CsiNode(Slim, frozen=True):
    """A CSINode."""

    spec: _CsiNodeSpec = _CsiNodeSpec()

    @property
    def limits(self) -> dict[str, int]:
        """Driver -> volumes that the node can attach, of drivers with a limit."""
        known = [(each.name, each.allocatable.count) for each in self.spec.drivers if each.allocatable is not None]
        return {name: count for name, count in known if count is not None}


decode_claim = msgspec.json.Decoder(Claim).decode
decode_volume = msgspec.json.Decoder(Volume).decode
decode_csi_node = msgspec.json.Decoder(CsiNode).decode
decode_class = msgspec.json.Decoder(StorageClass).decode


def _among(key: str, values: list[str]) -> Json:
    return {"key": key, "operator": "In", "values": values}


@dataclass(frozen=True)
class Reach:
    """Where a pod can run for its claims."""

    problem: str = ""
    """Why nowhere now; empty where somewhere."""
    terms: list[list[Json]] = field(default_factory=list)
    """nodeSelectorTerms; each list must be met."""
    unbound: tuple[str, ...] = ()
    """`namespace/name` of claims that get their volume once the pod's node is chosen."""


@dataclass(frozen=True)
class Storage:
    """Known claims of a member; looked up on request."""

    claim: Callable[[str], Claim | None]
    volume: Callable[[str], Volume | None]
    storage_class: Callable[[str], StorageClass | None]

    def reach(self, pod: Pod) -> Reach:
        """Where the pod can run for its claims."""
        terms: list[list[Json]] = []
        unbound: list[str] = []
        for each in pod.claims:
            found = self._reach_of(pod, each)
            if found.problem:
                return found
            terms += found.terms
            unbound += found.unbound
        return Reach("", terms, tuple(unbound))

    def attached(self, key: str) -> tuple[str, str] | None:
        """(driver, handle) of the volume that a claim, by `namespace/name`, has or will have; None where no driver
        attaches it.
        """
        claim = self.claim(key)
        if claim is None:
            return None
        if claim.spec.volume_name:
            volume = self.volume(claim.spec.volume_name)
            csi = volume.spec.csi if volume is not None else None
            return (csi.driver, csi.volume_handle) if csi is not None else None
        made_of = self.storage_class(claim.spec.storage_class_name or "")
        return (made_of.provisioner, f"claim {key}") if made_of is not None else None

    def _reach_of(self, pod: Pod, wanted: PodClaim) -> Reach:
        key, name = f"{pod.metadata.namespace}/{wanted.name}", wanted.name
        claim = self.claim(key)
        if claim is None:
            if wanted.ephemeral:
                return Reach(f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"')
            return Reach(f'persistentvolumeclaim "{name}" not found')
        if wanted.ephemeral and claim.metadata.controller_uid != pod.metadata.uid:
            return Reach(f'persistentvolumeclaim "{name}" was not made for the pod of this ephemeral volume')
        if claim.metadata.deletion_timestamp is not None:
            return Reach(f'persistentvolumeclaim "{name}" is being deleted')
        if claim.status.phase == "Lost":
            lost = claim.spec.volume_name
            return Reach(f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{lost}"')
        if not claim.bound:
            return self._reach_of_unbound(pod, claim, key)
        volume = self.volume(claim.spec.volume_name)
        if volume is None:
            return Reach(f'persistentvolume "{claim.spec.volume_name}" of persistentvolumeclaim "{name}" not found')
        return Reach("", volume.terms())

    def _reach_of_unbound(self, pod: Pod, claim: Claim, key: str) -> Reach:
        name, called = claim.metadata.name, claim.spec.storage_class_name or ""
        made_of = self.storage_class(called) if called else None
        if called and made_of is None and not claim.spec.volume_name:
            return Reach(f'persistentvolumeclaim "{name}" is not bound: storageclass "{called}" not found')
        if made_of is None or not made_of.waits or claim.spec.volume_name:
            return Reach(f'pod has unbound immediate PersistentVolumeClaims: persistentvolumeclaim "{name}"')
        if pod.held:
            # Who binds it chooses, or asks for, the volume too.
            return Reach("", made_of.terms())
        if made_of.provisioner == _NO_PROVISIONER:
            return Reach(
                f'persistentvolumeclaim "{name}" waits for its first consumer, and storageclass "{called}" makes no'
                " volumes: Atoll's placer chooses none; bind the claim to one, or use a member where kube-scheduler"
                " places"
            )
        return Reach("", made_of.terms(), (key,))


def narrowed(pod: Pod, terms: Iterable[list[Json]]) -> Pod | None:
    """The pod with these nodeSelectorTerms besides its own; None where they are too many to be met together."""
    lists = [each for each in (pod.node_terms, *terms) if each]
    if lists == ([pod.node_terms] if pod.node_terms else []):
        return pod
    count = 1
    for each in lists:
        count *= len(each)
    if count > _MOST_TERMS:
        return None
    return msgspec.structs.replace(
        pod, node_terms=[_both(chosen) for chosen in itertools.product(*lists)], own_terms=pod.node_terms
    )


def _both(terms: Iterable[Json]) -> Json:
    """A term that is met where all of these are; one that nothing meets makes it so."""
    chosen = list(terms)
    if any(not each.get("matchExpressions") and not each.get("matchFields") for each in chosen):
        return {}
    together = {
        name: [item for each in chosen for item in each.get(name) or ()] for name in ("matchExpressions", "matchFields")
    }
    return {name: items for name, items in together.items() if items}


__all__ = ["SELECTED_NODE", "Claim", "Reach", "Storage", "StorageClass", "Volume", "narrowed"]
