"""What the agent reads of its member's objects: values, so that the pure parts of the agent need no API server."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from atoll.model import (
    cards,
    hami,
    images,
    joint,
    keys,
    koordinator,
    needs,
    numa,
    placer,
    pod_rules,
    ports,
    quantity,
    selectors,
    vector,
)
from atoll.model.conditions import condition
from atoll.model.gang import DeviceWish
from atoll.model.numa import CPU, Policy, Together
from atoll.model.objects import Meta, Slim
from atoll.model.pod_rules import PodRules
from atoll.model.ports import HostPort
from atoll.model.reports import readable
from atoll.model.topology import AVAILABLE
from atoll.model.vector import Vector

FINISHED = ("Succeeded", "Failed")
SERVICES = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
"""Kinds of controllers whose pods start and end one by one."""
_LAST_LINES = 5
_LAST_OUTPUT = 400
"""Characters of the last output of a container in reports."""


class _Resources(msgspec.Struct, frozen=True, gc=False):
    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    resources: _Resources = _Resources()
    restart_policy: str = ""
    image: str = ""
    ports: list[dict[str, Any]] = []


class _NamedClaim(msgspec.Struct, frozen=True, rename="camel", gc=False):
    claim_name: str = ""


class _Present(msgspec.Struct, frozen=True, gc=False):
    """An object of which nothing is read."""


class _Volume(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    persistent_volume_claim: _NamedClaim | None = None
    ephemeral: _Present | None = None


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    preemption_policy: str | None = None
    scheduling_gates: list[dict[str, Any]] = []
    containers: list[_Container] = []
    init_containers: list[_Container] = []
    overhead: dict[str, str | int | float] = {}
    resources: _Resources | None = None
    node_selector: dict[str, str] = {}
    affinity: dict[str, Any] | None = None
    tolerations: list[dict[str, Any]] = []
    topology_spread_constraints: list[dict[str, Any]] = []
    resource_claims: list[dict[str, Any]] = []
    host_network: bool = False
    volumes: list[_Volume] = []
    termination_grace_period_seconds: int | None = None


class _Terminated(msgspec.Struct, frozen=True, rename="camel", gc=False):
    exit_code: int = 0
    reason: str | None = None
    message: str | None = None
    finished_at: str | None = None


class _Waiting(msgspec.Struct, frozen=True, gc=False):
    reason: str | None = None
    message: str | None = None


class _State(msgspec.Struct, frozen=True, gc=False):
    terminated: _Terminated | None = None
    waiting: _Waiting | None = None
    running: dict[str, Any] | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    restart_count: int = 0
    started: bool | None = None
    allocated_resources: dict[str, str | int | float] = {}
    resources: _Resources | None = None
    state: _State | None = None
    last_state: _State | None = None


class _PodCondition(msgspec.Struct, frozen=True, rename="camel", gc=False):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class _MadeClaim(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str = ""
    resource_claim_name: str | None = None


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = "Pending"
    reason: str | None = None
    start_time: str | None = None
    nominated_node_name: str | None = None
    ip: str | None = msgspec.field(name="podIP", default=None)
    conditions: list[_PodCondition] = []
    container_statuses: list[_ContainerStatus] = []
    init_container_statuses: list[_ContainerStatus] = []
    allocated_resources: dict[str, str | int | float] = {}
    resources: _Resources | None = None
    resource_claim_statuses: list[_MadeClaim] = []


class _RawPod(Slim, frozen=True):
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class Starting(msgspec.Struct, frozen=True):
    """Why a pod that has a node does not run yet."""

    reason: str
    """As the kubelet calls it: ContainerCreating, PodInitializing, ImagePullBackOff."""
    text: str
    """The container, and the kubelet's own words."""
    since: str
    """RFC 3339: when the kubelet took the pod; empty where it has not."""

    @property
    def ordinary(self) -> bool:
        """Whether every pod passes through that."""
        return self.reason in ("", "ContainerCreating", "PodInitializing")


class PodClaim(NamedTuple):
    """A PersistentVolumeClaim that a pod mounts."""

    name: str
    """In the pod's namespace."""
    ephemeral: bool = False
    """Whether it is made for this pod alone."""


class PodResourceClaim(NamedTuple):
    """A ResourceClaim that a pod uses."""

    name: str
    """In the pod."""
    claim: str
    """In the pod's namespace; empty while it is not made."""
    made: bool = False
    """Whether it is made for this pod alone, of a template."""
    charged: Mapping[str, int] | None = None
    """Devices by resource of their class that the host charges for it; None where the host charges for none."""


class ExtendedRequest(NamedTuple):
    """Of a container, for a resource that some DeviceClass may stand for."""

    container: str
    resource: str
    name: str
    """As kube-scheduler names the request of the claim."""
    number: int
    first: bool
    """Whether it is of an init container."""


class Pod(msgspec.Struct, frozen=True, eq=False):
    """A pod, reduced to what placing and counting need."""

    metadata: Meta
    node: str = ""
    """Where it is bound; empty while it is not."""
    phase: str = "Pending"
    scheduler: str = ""
    priority: int = 0
    gated: bool = False
    """Whether a gate other than ours keeps it from being placed."""
    held: bool = False
    """Whether our gate does, which is lifted when its gang has a plan."""
    requests: Vector = {}
    """Integer units, `pods: 1` included."""
    node_selector: dict[str, str] = {}
    node_terms: list[dict[str, Any]] = []
    tolerations: list[dict[str, Any]] = []
    reason: str = ""
    """Why it is in this phase, where the kubelet says so (`Evicted`, `NodeLost`)."""
    exit_codes: tuple[int, ...] = ()
    """Of the containers that ended badly, in their order, init containers last; never 0."""
    restarts: int = 0
    """Of all its containers."""
    since: str = ""
    """When it got into this phase or was restarted last (RFC 3339), as far as the status tells; else empty."""
    failure: str = ""
    """Of a pod that failed: its first container that ended badly, why, and its last output, as a sentence."""
    unscheduled: tuple[str, str] | None = None
    """(reason, message) of its condition PodScheduled where that is False and its scheduler wrote it."""
    starting: Starting | None = None
    """Reason why its first container has not started; None once it runs, or while it has no node."""
    nominated: str = ""
    """The node on which its scheduler evicts others for it; empty where it has one, or none is chosen."""
    disrupted: bool = False
    """Whether its condition says that it ended for a reason that is none of its own."""
    needs: tuple[str, ...] = ()
    """Its requirements that our scheduler does not look at (`atoll.model.needs`), sorted."""
    claims: tuple[PodClaim, ...] = ()
    """Mounted claims."""
    own_terms: list[dict[str, Any]] | None = None
    """Its `node_terms` as its user wrote them, where its volumes' terms were added."""
    grace: int = 30
    """Seconds that it may take to end once it is deleted."""
    ports: list[HostPort] = []
    """Of its node, that it takes for itself."""
    rules: PodRules | None = None
    """Its rules about pods beside it; None for none."""
    preferences: list[dict[str, Any]] = []
    """preferredSchedulingTerms of its node affinity."""
    ready: bool = False
    """Whether its condition Ready holds."""
    ip: str = ""
    """Its address, as its kubelet says."""
    stranger: bool = False
    """Whether it names a binding that it does not belong to (`atoll.agent.owners`)."""
    attach: dict[str, int] = {}
    """Driver -> volumes of its claims, where some node has a limit of them; known once it is looked at."""
    shared: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Driver -> handles of the ones that other pods use as well; likewise."""
    preempts: bool = True
    """Whether others may be evicted for it (`preemptionPolicy`)."""
    images: tuple[str, ...] = ()
    """Of its containers, one for each, as nodes name them."""
    aligned: list[dict[str, int]] = []
    """As `Task.aligned`."""
    devices_in: str = ""
    """As `Task.devices_in`; empty for pods without devices."""
    resource_claims: tuple[PodResourceClaim, ...] = ()
    """In its order."""
    extended: tuple[ExtendedRequest, ...] = ()
    """In the order of its containers, init containers first."""
    devices: list[dict[str, Any]] = []
    """As `Task.claims`; known once it is looked at."""
    device_claims: tuple[str, ...] = ()
    """`namespace/name` of each of these."""
    joint: DeviceWish | None = None
    """As `Task.joint`."""
    gpus: tuple[hami.Container, ...] = ()
    """What each of its containers asks of GPUs under HAMi's names; empty for pods without any."""
    joins: tuple[str, ...] = ()
    """The same of claims that another pod of its gang gets devices for."""

    @property
    def numa(self) -> str:
        """The policy of the topology manager that its node must have; empty for any, as for pods without own CPUs."""
        said = self.metadata.annotations.get(keys.NUMA_POLICY, "")
        return said if said not in ("", Policy.NONE) and any(CPU in each for each in self.aligned) else ""

    @property
    def of_daemon_set(self) -> bool:
        """Whether it can run on one node alone."""
        return any(each.controller and each.kind == "DaemonSet" for each in self.metadata.owner_references)

    @property
    def finished(self) -> bool:
        """Whether it has ended and holds nothing any more."""
        return self.phase in FINISHED

    @property
    def terminating(self) -> bool:
        """Whether it was deleted."""
        return self.metadata.deletion_timestamp is not None

    def placed_alike(self, other: Pod) -> bool:
        """Whether the two differ in nothing that placing and counting read, with any other status."""
        mine, theirs = self.metadata, other.metadata
        return (
            (mine.uid, mine.deletion_timestamp, mine.labels, mine.annotations)
            == (theirs.uid, theirs.deletion_timestamp, theirs.labels, theirs.annotations)
            and (self.node, self.phase, self.scheduler, self.priority, self.gated, self.held, self.nominated)
            == (other.node, other.phase, other.scheduler, other.priority, other.gated, other.held, other.nominated)
            and self.stranger == other.stranger
            and self.resource_claims == other.resource_claims
            and self.requests == other.requests
            and self.node_selector == other.node_selector
            and self.node_terms == other.node_terms
            and self.tolerations == other.tolerations
        )

    @property
    def task(self) -> str:
        """Role in its gang; empty where it has none."""
        return self.metadata.annotations.get(keys.TASK_SPEC) or self.metadata.labels.get(keys.TASK_SPEC, "")

    @property
    def gang_task(self) -> str:
        """The task of its binding's gang that it counts for: its own, but for pods of a pod group."""
        return self.metadata.annotations.get(keys.GANG_TASK) or self.task

    @property
    def cards(self) -> tuple[int, ...]:
        """The GPUs of its node that it has a share of; empty without a report."""
        text = self.metadata.annotations.get(keys.GPU_CARDS)
        if text:
            return cards.parse(text)
        handed = self.metadata.annotations.get(keys.KOORDINATOR_DEVICES)
        return koordinator.minors(handed) if handed else ()

    @property
    def handed(self) -> str:
        """GPUs of its node that HAMi's annotation gives it; empty without one."""
        return self.metadata.annotations.get(hami.ALLOCATED, "")

    @property
    def parts(self) -> tuple[koordinator.Part, ...]:
        """The other devices of its node that Koordinator's annotation gives it."""
        handed = self.metadata.annotations.get(keys.KOORDINATOR_DEVICES)
        return koordinator.others(handed) if handed else ()

    @property
    def named_binding(self) -> str:
        """UID of the binding that it says it was dispatched by."""
        return self.metadata.annotations.get(keys.BINDING_UID, "")

    @property
    def binding_uid(self) -> str:
        """UID of the binding that it was dispatched by; empty where there is none."""
        return "" if self.stranger else self.named_binding

    @property
    def planned_node(self) -> str:
        """The node that it may be bound to only, since its gate was lifted; empty where none is."""
        return "" if self.held else self.metadata.annotations.get(keys.PLANNED_NODE, "")

    @property
    def group(self) -> str:
        """`namespace/name` of its PodGroup; empty for a pod on its own."""
        annotations = self.metadata.annotations
        name = next((found for key in keys.GROUP_NAMES if (found := annotations.get(key))), "")
        return f"{self.metadata.namespace}/{name}" if name else ""


_pod_decoder = msgspec.json.Decoder(_RawPod)


def decode_pod(raw: bytes | msgspec.Raw) -> Pod:
    """The pod that this JSON describes.

    Raises:
        msgspec.MsgspecError: not a pod, or one with a request that is no quantity.
    """
    pod = _pod_decoder.decode(raw)
    spec = pod.spec
    try:
        plain = msgspec.to_builtins(spec)
        requests = vector.pod_requests(_with_allocated(plain, pod.status))
        gpus = _gpus(spec) if hami.WHOLE in requests else ()
    except ValueError as error:
        raise msgspec.ValidationError(f"pod {pod.metadata.key}: {error}") from error
    if hami.mixed(gpus):
        requests[cards.SHARE] = cards.IMPOSSIBLE
    return Pod(
        pod.metadata,
        spec.node_name,
        pod.status.phase,
        spec.scheduler_name,
        spec.priority,
        any(gate.get("name") != keys.GANG_GATE for gate in spec.scheduling_gates),
        any(gate.get("name") == keys.GANG_GATE for gate in spec.scheduling_gates),
        requests,
        spec.node_selector,
        [dict(term) for term in selectors.required_node_terms({"affinity": spec.affinity})],
        spec.tolerations,
        pod.status.reason or "",
        *_ends(pod.status),
        failure=_failure(pod.status) if pod.status.phase == "Failed" else "",
        unscheduled=_unscheduled(pod.status),
        starting=_starting(pod.status) if spec.node_name and pod.status.phase == "Pending" else None,
        nominated="" if spec.node_name else pod.status.nominated_node_name or "",
        needs=tuple(needs.of([plain])),
        ports=ports.of(plain),
        rules=_rules(pod.metadata, plain),
        preferences=pod_rules.node_preferences(plain) if spec.affinity else [],
        preempts=spec.preemption_policy != "Never",
        images=tuple(images.on_node(each.image) for each in (*spec.init_containers, *spec.containers) if each.image),
        claims=_claims(pod.metadata.name, spec.volumes) if spec.volumes else (),
        grace=30 if (grace := spec.termination_grace_period_seconds) is None else grace,
        disrupted=_holds(pod.status, "DisruptionTarget"),
        ready=_holds(pod.status, "Ready"),
        ip=pod.status.ip or "",
        aligned=(aligned := numa.aligned(plain)),
        devices_in=_devices_in(pod.metadata, aligned),
        resource_claims=_resource_claims(pod) if spec.resource_claims else (),
        joint=joint.known(pod.metadata.annotations, requests),
        gpus=gpus,
        extended=_extended(spec) if any(map(quantity.is_device, requests)) else (),
    )


def _gpus(spec: _PodSpec) -> tuple[hami.Container, ...]:
    return tuple(
        hami.container(
            quantity.requests({**each.resources.limits, **each.resources.requests}),
            ends=at < len(spec.init_containers) and each.restart_policy != "Always",
        )
        for at, each in enumerate((*spec.init_containers, *spec.containers))
    )


def _extended(spec: _PodSpec) -> tuple[ExtendedRequest, ...]:
    found = []
    for index, each in enumerate((*spec.init_containers, *spec.containers)):
        asked = {**each.resources.limits, **each.resources.requests}
        for at, resource in enumerate(sorted(asked)):
            if quantity.is_device(resource) and (count := quantity.ceil_units(resource, asked[resource])):
                name, first = f"container-{index}-request-{at}", index < len(spec.init_containers)
                found.append(ExtendedRequest(each.name, resource, name, count, first))
    return tuple(found)


def _resource_claims(pod: _RawPod) -> tuple[PodResourceClaim, ...]:
    """A template of which the controller made no claim on purpose stands for none."""
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    charges = _charges(pod.metadata.annotations.get(keys.CHARGED_CLAIMS, "{}"))
    found = []
    for each in pod.spec.resource_claims:
        name = str(each.get("name") or "")
        if named := each.get("resourceClaimName"):
            found.append(PodResourceClaim(name, str(named), charged=charges.get(f"claims/{named}")))
        elif name not in made or made[name]:
            charged = charges.get(f"templates/{each.get('resourceClaimTemplateName')}")
            found.append(PodResourceClaim(name, made.get(name) or "", made=True, charged=charged))
    return tuple(found)


def _charges(text: str) -> dict[str, dict[str, int]]:
    """As the host wrote them; no other hand's."""
    try:
        return _decode_charges(text)
    except msgspec.MsgspecError:
        return {}


_decode_charges = msgspec.json.Decoder(dict[str, dict[str, int]]).decode


def _devices_in(about: Meta, aligned: Sequence[Mapping[str, int]]) -> str:
    said = about.annotations.get(keys.DEVICES_IN, "")
    if not said or said not in list(Together):
        return ""
    return said if any(name != CPU for each in aligned for name in each) else ""


def _holds(status: _PodStatus, type_: str) -> bool:
    return any(each.type == type_ and each.status == "True" for each in status.conditions)


def _rules(meta: Meta, spec: dict[str, Any]) -> PodRules | None:
    if not (spec["affinity"] or spec["topologySpreadConstraints"]):
        return None
    return pod_rules.of(spec, meta.labels, meta.namespace)


def _claims(pod: str, volumes: list[_Volume]) -> tuple[PodClaim, ...]:
    named = [PodClaim(each.persistent_volume_claim.claim_name) for each in volumes if each.persistent_volume_claim]
    return (*named, *(PodClaim(f"{pod}-{each.name}", ephemeral=True) for each in volumes if each.ephemeral is not None))


_SAME = {"ErrImagePull": "ImagePullBackOff"}
"""The kubelet changes between these all the time."""


def _starting(status: _PodStatus) -> Starting:
    """What holds a pod up that has a node: the first container of the first kind that has not ended well."""
    since = status.start_time or ""
    for each in status.init_container_statuses:
        if each.state is not None and each.state.running is not None and not each.started:
            return Starting("PodInitializing", f"init container {each.name} runs", since)
        if each.state is not None and each.state.waiting is not None:
            return _held_up(each, each.state.waiting, "init container", since)
    waits = [(each, each.state.waiting) for each in status.container_statuses if each.state and each.state.waiting]
    for container, waiting in sorted(waits, key=lambda pair: (pair[1].reason or "") in ("", "ContainerCreating")):
        return _held_up(container, waiting, "container", since)
    return Starting("ContainerCreating" if since else "", "", since)


def _held_up(container: _ContainerStatus, waiting: _Waiting, what: str, since: str) -> Starting:
    reason = waiting.reason or ""
    text = f"{what} {container.name}" + (f": {waiting.message}" if waiting.message else "")
    return Starting(_SAME.get(reason, reason), text, since)


def _with_allocated(spec: dict[str, Any], status: _PodStatus) -> dict[str, Any]:
    """The spec with the holdings of a pod resized in place: of each resource of a container, or of the whole pod,
    the maximum of its request, its allocation and its actual amount, as kube-scheduler counts; without the
    request where it is infeasible.
    """
    told = {each.name: each for each in (*status.container_statuses, *status.init_container_statuses)}
    holders: list[_ContainerStatus | _PodStatus] = [*told.values(), status]
    if not any(each.allocated_resources or each.resources for each in holders):
        return spec
    infeasible = any(each.type == "PodResizePending" and each.reason == "Infeasible" for each in status.conditions)

    def held(container: dict[str, Any], state: _ContainerStatus | _PodStatus | None) -> dict[str, Any]:
        has = [] if state is None else [state.allocated_resources, state.resources.requests if state.resources else {}]
        has = [each for each in has if each]
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        if not has:
            return container
        amounts = [*has, *([] if infeasible else [asked])]
        names = {name for each in amounts for name in each}
        most = {}
        for name in names:
            told_of = (each[name] for each in amounts if name in each)
            most[name] = max(told_of, key=lambda text, name=name: quantity.ceil_units(name, text))  # type: ignore[misc]
        return {**container, "resources": {"requests": most}}

    fields: dict[str, Any] = {
        name: [held(each, told.get(each.get("name", ""))) for each in spec.get(name) or ()]
        for name in ("containers", "initContainers")
    }
    if (spec.get("resources") or {}).get("requests"):
        fields["resources"] = held({"resources": spec["resources"]}, status)["resources"]
    return {**spec, **fields}


def _unscheduled(status: _PodStatus) -> tuple[str, str] | None:
    for each in status.conditions:
        # A gate is the API server's word, not a scheduler's.
        if each.type == "PodScheduled" and each.status == "False" and each.reason != "SchedulingGated":
            return each.reason or "", each.message or ""
    return None


def _ends(status: _PodStatus) -> tuple[tuple[int, ...], int, str]:
    """(exit codes other than 0, restarts, since when) of a pod's containers."""
    containers = (*status.container_statuses, *status.init_container_statuses)
    if status.phase == "Pending":
        return (), 0, ""
    ended = [c.state.terminated for c in containers if c.state is not None and c.state.terminated is not None]
    moments = [end.finished_at for end in ended if end.finished_at]
    if status.phase not in FINISHED:
        before = [c.last_state.terminated for c in containers if c.last_state is not None]
        moments = [end.finished_at for end in before if end is not None and end.finished_at]
    if not moments:
        moments = [c.last_transition_time for c in status.conditions if c.type == "Ready" and c.last_transition_time]
    codes = tuple(end.exit_code for end in ended if end.exit_code)
    # All in UTC with whole seconds, so that the text sorts as the time does.
    return codes, sum(c.restart_count for c in containers), max(moments, default="")


def _failure(status: _PodStatus) -> str:
    ended = [
        (container.name, container.state.terminated)
        for container in (*status.container_statuses, *status.init_container_statuses)
        if container.state is not None and container.state.terminated is not None
    ]
    bad = [(name, end) for name, end in ended if end.exit_code]
    if not bad:
        return ""
    name, end = min(bad, key=lambda pair: pair[1].finished_at or "~")
    reason = f"{end.reason}, " if end.reason else ""
    said = f"container {name}: {reason}exit code {end.exit_code}"
    lines = [line.strip() for line in (end.message or "").splitlines() if line.strip()]
    return f"{said}, last output: {readable(' / '.join(lines[-_LAST_LINES:]), _LAST_OUTPUT)}" if lines else said


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class NodeSpec(msgspec.Struct, frozen=True):
    """What of a node's spec is read."""

    unschedulable: bool = False
    taints: list[dict[str, Any]] = []


class NodeStatus(msgspec.Struct, frozen=True):
    """What of a node's status is kept."""

    allocatable: dict[str, str | int | float] = {}
    conditions: list[_Condition] = []


class _Image(msgspec.Struct, frozen=True, rename="camel", gc=False):
    names: list[str] | None = None
    size_bytes: int = 0


class _RawNodeStatus(NodeStatus, frozen=True):
    images: list[_Image] | None = None


class _RawNode(Slim, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: _RawNodeStatus = _RawNodeStatus()


class Node(Slim, frozen=True):
    """A node of the member."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
    images: dict[str, int] = msgspec.field(default_factory=dict)
    """Name -> bytes of present ones large enough to count."""

    @property
    def ready(self) -> bool:
        """Whether its kubelet says that it is."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)

    @property
    def taints(self) -> list[dict[str, Any]]:
        """Its taints for pods that we send, cordoning included; timestamps left out."""
        # Ours keeps others away, and every pod that we send tolerates it.
        own = {key: value for key, value in placer.TAINT.items() if key != "value"}
        taints = [
            {k: v for k, v in taint.items() if k != "timeAdded"}
            for taint in self.spec.taints
            if {"key": taint.get("key"), "effect": taint.get("effect")} != own
        ]
        cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        if self.spec.unschedulable and cordon not in taints:
            taints.append(cordon)
        return taints


class PodGroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What of a PodGroup's spec is read."""

    min_member: int = 0
    min_task_member: dict[str, int] = {}
    network_topology: dict[str, Any] | None = None
    queue: str = ""
    sub_group_policy: list[dict[str, Any]] = []


class PodGroup(Slim, frozen=True):
    """A gang as its owner declared it."""

    spec: PodGroupSpec = PodGroupSpec()
    status: dict[str, Any] = msgspec.field(default_factory=dict)
    stranger: bool = False
    """Whether it names a binding that it does not belong to (`atoll.agent.owners`)."""

    @property
    def named_binding(self) -> str:
        """UID of the binding that it says it was dispatched by."""
        return self.metadata.annotations.get(keys.BINDING_UID, "")

    @property
    def binding_uid(self) -> str:
        """UID of the binding that it was dispatched by; empty where there is none."""
        return "" if self.stranger else self.named_binding


class HyperNode(Slim, frozen=True):
    """A topology domain, whole: the topology model reads it as a dict."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def lost(self) -> bool:
        """Whether `atoll-topology` says that the domain is lost: nothing new is to go there."""
        return condition({"status": self.status}, AVAILABLE).get("status") == "False"

    def body(self) -> dict[str, Any]:
        """The object as `atoll.model.topology` reads it."""
        return {
            "metadata": {
                "name": self.metadata.name,
                "creationTimestamp": self.metadata.creation_timestamp,
                "labels": self.metadata.labels,
            },
            "spec": self.spec,
        }


class _BudgetSpec(msgspec.Struct, frozen=True):
    selector: dict[str, Any] | None = None


class _BudgetStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    disruptions_allowed: int = 0


class Budget(Slim, frozen=True):
    """A PodDisruptionBudget."""

    spec: _BudgetSpec = _BudgetSpec()
    status: _BudgetStatus = _BudgetStatus()

    def covers(self, pod: Pod) -> bool:
        """Whether the pod is one that it counts."""
        selector = self.spec.selector
        return (
            selector is not None
            and pod.metadata.namespace == self.metadata.namespace
            and selectors.label_selector_matches(selector, pod.metadata.labels)
        )


_node_decoder = msgspec.json.Decoder(_RawNode)


def decode_node(raw: bytes | msgspec.Raw) -> Node:
    """The node that this JSON describes.

    Raises:
        msgspec.MsgspecError: not a node.
    """
    node = _node_decoder.decode(raw)
    status = NodeStatus(node.status.allocatable, node.status.conditions)
    there = {
        # Nodes of a member have the same images, under long names.
        sys.intern(name): each.size_bytes
        for each in node.status.images or ()
        if each.size_bytes >= images.LEAST
        for name in each.names or ()
    }
    return Node(node.metadata, node.spec, status, there)


decode_budget = msgspec.json.Decoder(Budget).decode
decode_group = msgspec.json.Decoder(PodGroup).decode
decode_hyper_node = msgspec.json.Decoder(HyperNode).decode
