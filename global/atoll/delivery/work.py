"""The Work: what control and delivery tell each other about one part of a workload.

The last manifest is the workload; earlier ones must exist first (namespace, PriorityClass,
ServiceAccount, ConfigMaps, Secrets): created when missing, shared, and gone with their last user.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from atoll.kinds import Kind, entire, kind_of
from atoll.model import gang, keys, numbers
from atoll.model.apiresource import (
    CLAIMS,
    CONFIGMAPS,
    NAMESPACES,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from atoll.model.decision import Gone, Spots, decode_gone, decode_spots
from atoll.model.gang import Gang
from atoll.model.lost import OnLost
from atoll.model.namespaces import PROPAGATED, is_system
from atoll.model.objects import Slim
from atoll.model.pod_references import references

Json = dict[str, Any]


class Workload(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """spec.workload."""

    manifests: list[Json] = []


class WorkSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """spec."""

    workload: Workload = Workload()
    suspend_dispatching: bool = False
    preserve_resources_on_deletion: bool = False


class WorkObject(Slim, frozen=True, rename="camel"):
    """A Work."""

    spec: WorkSpec = WorkSpec()
    status: Json = msgspec.field(default_factory=dict)
    refused: str = ""
    """Why the status was not believed (`atoll.delivery.reports`); not part of the object."""

    @property
    def binding_uid(self) -> str:
        return self.metadata.annotations.get(keys.BINDING_UID, "")

    @property
    def epoch(self) -> int:
        return numbers.whole(self.metadata.annotations.get(keys.EPOCH)) or 0

    @property
    def carried(self) -> dict[str, int]:
        """Counts of the workload's earlier dispatches, to which reports add."""
        try:
            return _decode_counts(self.metadata.annotations.get(keys.CARRIED, "{}"))
        except msgspec.MsgspecError:
            return {}

    @property
    def grace(self) -> int | None:
        """Seconds that its pods may take to end; None where none is given."""
        return numbers.whole(self.metadata.annotations.get(keys.GRACE))

    @property
    def question(self) -> Gone | None:
        """What the member is to leave out when it says whether the part would fit; None where it is no question.

        Raises:
            msgspec.MsgspecError: it can't be read.
        """
        text = self.metadata.annotations.get(keys.QUESTION)
        return decode_gone(text) if text is not None else None

    @property
    def expected(self) -> Spots:
        """Nodes on which the part delays no reservation; none where any will do."""
        try:
            return decode_spots(self.metadata.annotations.get(keys.EXPECTED, "[]"))
        except msgspec.MsgspecError:
            return []

    @property
    def exclusive(self) -> bool:
        """Whether it must not run while the host can't be sure of that."""
        labels = (self.manifest.get("metadata") or {}).get("labels") or {}
        return bool(labels.get(keys.ON_LOST) == OnLost.EXCLUSIVE)

    def same_dispatch(self, other: WorkObject) -> bool:
        """Whether it asks for what the other one does, and is not to go."""
        same = (self.metadata.uid, self.epoch) == (other.metadata.uid, other.epoch)
        return same and self.metadata.deletion_timestamp is None and keys.LOST not in self.metadata.annotations

    @property
    def manifest(self) -> Json:
        """The workload itself; empty in a Work that sends nothing."""
        return self.spec.workload.manifests[-1] if self.spec.workload.manifests else {}

    @property
    def reported(self) -> Json:
        """Last report of the member about the workload; empty before the first."""
        for item in self.status.get("manifestStatuses") or ():
            status: Json = item.get("status") or {}
            return status
        return {}

    @property
    def applied(self) -> bool | None:
        """Whether the member has it; None before the first report."""
        for condition in self.status.get("conditions") or ():
            if condition.get("type") == "Applied":
                return bool(condition.get("status") == "True")
        return None

    @property
    def applied_message(self) -> str:
        """Why it was not applied."""
        found = [c.get("message") or "" for c in self.status.get("conditions") or () if c.get("type") == "Applied"]
        return found[0] if found else ""

    @property
    def differences(self) -> tuple[str, str]:
        """Differences of the workload's needs in the member: (reason, text); empty for none."""
        for each in self.status.get("conditions") or ():
            if each.get("type") == "NeedsAgree" and each.get("status") == "False":
                return each.get("reason") or "", each.get("message") or ""
        return "", ""

    @property
    def health(self) -> str:
        """Healthy, Unhealthy or Unknown."""
        for item in self.status.get("manifestStatuses") or ():
            return item.get("health") or "Unknown"
        return "Unknown"


MOST_SENT: Final = 1280 * 1024
"""Bytes of a workload with its needs, and of objects that its pods refer to, in a Work: a store takes 1.5 MiB, and the
rules of a namespace and the overriders that were applied go with it.
"""
_decode_counts = msgspec.json.Decoder(dict[str, int]).decode
decode_work = msgspec.json.Decoder(WorkObject).decode


def identifier(work: WorkObject, kind: Kind) -> Json:
    """What names the workload among the manifests of its Work."""
    resource, metadata = kind.resource, work.manifest.get("metadata") or {}
    return {
        "ordinal": len(work.spec.workload.manifests) - 1,
        "group": resource.group,
        "version": resource.version,
        "kind": resource.kind,
        "resource": resource.plural,
        "namespace": metadata.get("namespace", ""),
        "name": metadata.get("name", ""),
    }


def gang_of(work: WorkObject, kind: Kind) -> Gang:
    """The gang of the part, as control sent it.

    Works that release 0.1 made have none: then it is what the manifest asks for. Goes with release 0.3.
    """
    try:
        return gang.decode(work.metadata.annotations.get(keys.GANG, ""))
    except msgspec.MsgspecError:
        return kind.gang(work.manifest, priority=0)


_REFERRED_TO = (CONFIGMAPS, SECRETS, CLAIMS, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES)
"""Objects that pods refer to, which go along with them."""
_NEEDS = {
    (each.api_version, each.kind)
    for each in (NAMESPACES, PRIORITY_CLASSES, SERVICE_ACCOUNTS, *_REFERRED_TO, *PROPAGATED.values())
}


def stranger(work: WorkObject) -> str:
    """Why a Work is not one that Atoll's control made, in words; empty for one that may be."""
    metadata, manifest = work.metadata, work.manifest
    about = manifest.get("metadata")
    if not isinstance(about, dict) or not all(isinstance(about.get(each), str) for each in ("name", "namespace")):
        return "it sends nothing that has a namespace and a name"
    if not work.binding_uid or not work.epoch:
        return f"annotations {keys.BINDING_UID} and {keys.EPOCH} don't say of which decision it is"
    group = str(manifest.get("apiVersion", "")).rpartition("/")[0]
    expected = work_name(about["namespace"], about["name"], str(manifest.get("kind", "")), group)
    if metadata.name != expected:
        return f"it sends {about['namespace']}/{about['name']}, of which the Work is called {expected}"
    if is_system(about["namespace"]):
        return f"namespace {about['namespace']} belongs to the cluster's own machinery"
    for need in work.spec.workload.manifests[:-1]:
        if (need.get("apiVersion"), need.get("kind")) not in _NEEDS:
            return f"it sends a {need.get('kind')} besides, which no workload of Atoll's needs"
        needed = need.get("metadata") or {}
        referred_to = any(need["kind"] == each.kind for each in _REFERRED_TO)
        if referred_to and (need["kind"], needed.get("name")) not in _referred(work):
            return f"it sends a {need['kind']} besides, which its pods don't refer to"
        place = needed.get("name") if need["kind"] == NAMESPACES.kind else needed.get("namespace", about["namespace"])
        if place != about["namespace"]:
            return f"it sends a {need['kind']} for namespace {place} besides"
    return ""


def _referred(work: WorkObject) -> set[tuple[str, str]]:
    """References of its pods, and the image pull secrets of their accounts."""
    accounts = [each for each in work.spec.workload.manifests[:-1] if each.get("kind") == SERVICE_ACCOUNTS.kind]
    lists = [found for each in accounts if isinstance(found := each.get("imagePullSecrets"), list)]
    pulling = [secret.get("name") for found in lists for secret in found if isinstance(secret, dict)]
    found = {(each.resource.kind, each.name) for each in references(_entire(work.manifest))}
    return found | {(SECRETS.kind, str(name)) for name in pulling}


def _entire(manifest: Json) -> Mapping[str, Any]:
    kind = kind_of(manifest)
    return entire(kind, manifest) if kind is not None else manifest


def work_name(namespace: str, name: str, kind: str, group: str) -> str:
    """A name that differs for different workloads and stays readable: at most 253 characters."""
    digest = hashlib.sha256(f"{group}/{kind}/{namespace}/{name}".encode()).hexdigest()[:10]
    return f"{name[:242]}-{digest}"
