"""What control reads of the host's objects."""

from __future__ import annotations

from typing import Any

import msgspec

from atoll.model import decision, gang, keys
from atoll.model.decision import Decision, Question
from atoll.model.failover import EvictionTask
from atoll.model.gang import Gang
from atoll.model.objects import Slim

Json = dict[str, Any]


class Reference(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """spec.resource of a binding."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Target(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One of spec.clusters."""

    name: str
    replicas: int = 0
    components: list[Json] = []


class BindingSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """spec; what the detector owns is kept as received, to compare."""

    resource: Reference = Reference()
    reschedule_triggered_at: str = ""
    replicas: int = 0
    components: list[Json] = []
    placement: Json | None = None
    clusters: list[Target] = []
    suspension: Json | None = None
    propagate_deps: bool | None = None
    workload_affinity_groups: Json | None = None
    preserve_resources_on_deletion: bool | None = None
    schedule_priority: Json | None = None
    conflict_resolution: str = "Abort"
    failover: Json | None = None
    graceful_eviction_tasks: list[EvictionTask] = []


class BindingObject(Slim, frozen=True, rename="camel"):
    """A ResourceBinding."""

    spec: BindingSpec = BindingSpec()
    status: Json = msgspec.field(default_factory=dict)

    @property
    def suspended(self) -> bool:
        return bool((self.spec.suspension or {}).get("scheduling"))

    @property
    def reserving(self) -> bool:
        """Whether members are to reserve only."""
        return bool((self.spec.suspension or {}).get("dispatching"))

    @property
    def epoch(self) -> str:
        return self.metadata.annotations.get(keys.EPOCH, "0")

    @property
    def ours(self) -> bool:
        """Whether the detector made it; another system may have bindings for the same workloads."""
        return keys.BINDING_FINALIZER in self.metadata.finalizers or keys.GANG in self.metadata.annotations

    @property
    def gang(self) -> Gang | None:
        try:
            return gang.decode(self.metadata.annotations.get(keys.GANG, ""))
        except msgspec.MsgspecError:
            return None

    @property
    def decision(self) -> Decision:
        try:
            return decision.decode(self.metadata.annotations.get(keys.DECISION))
        except msgspec.MsgspecError:
            return Decision()

    @property
    def question(self) -> Question | None:
        """What members are asked on its behalf while it waits."""
        # Most bindings have none, and this is looked at with every change.
        if not self.suspended or '"question":' not in self.metadata.annotations.get(keys.DECISION, ""):
            return None
        return self.decision.question

    @property
    def evicting(self) -> bool:
        """Whether it was evicted and a member may still have something of it."""
        return self.decision.phase.going and not any(
            c.get("type") == "Released"
            and c.get("status") == "True"
            and int(c.get("observedGeneration") or 0) >= self.metadata.generation
            for c in self.status.get("conditions") or ()
        )

    @property
    def charged(self) -> bool:
        """Whether its queue pays for it: it is dispatched, or a member may still have something of it."""
        return not self.suspended or self.evicting

    @property
    def scattered(self) -> bool:
        """Whether it may get parts in further members while it runs, without decoding its gang."""
        return '"scattered":true' in self.metadata.annotations.get(keys.GANG, "")

    @property
    def runs_well(self) -> bool:
        """Whether the minimum of its present dispatch runs, and is not known to be unhealthy."""
        unhealthy = any(
            (c.get("type"), c.get("status")) == ("Healthy", "False") for c in self.status.get("conditions") or ()
        )
        return not self.suspended and self.condition("Running") and not unhealthy

    def condition(self, type_: str) -> bool:
        """Whether the condition is True."""
        return any(c.get("type") == type_ and c.get("status") == "True" for c in self.status.get("conditions") or ())


class OwnerRef(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A Command's target."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class CommandObject(Slim, frozen=True, rename="camel"):
    """A Command."""

    action: str = ""
    target: OwnerRef | None = None


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """spec of a Lease."""

    renew_time: str | None = None
    lease_duration_seconds: int = 40


class LeaseObject(Slim, frozen=True, rename="camel"):
    """A Lease."""

    spec: LeaseSpec = LeaseSpec()


class ClusterObject(Slim, frozen=True, rename="camel"):
    """A Cluster."""

    spec: Json = msgspec.field(default_factory=dict)
    status: Json = msgspec.field(default_factory=dict)

    @property
    def undated_taints(self) -> list[tuple[str, str]]:
        """(key, value) of its NoExecute taints that don't say since when they are there."""
        taints = [each for each in self.spec.get("taints") or () if each.get("effect") == "NoExecute"]
        found = {(str(each.get("key")), str(each.get("value") or "")) for each in taints if not each.get("timeAdded")}
        return sorted(found)

    @property
    def ready(self) -> Json:
        """Its condition Ready; empty while there is none."""
        return next((each for each in self.status.get("conditions") or () if each.get("type") == "Ready"), {})


decode_binding = msgspec.json.Decoder(BindingObject).decode
decode_command = msgspec.json.Decoder(CommandObject).decode
decode_lease = msgspec.json.Decoder(LeaseObject).decode
decode_cluster = msgspec.json.Decoder(ClusterObject).decode
