"""The gang: all that deciding about a workload needs, whatever its kind.

The detector writes it as JSON into the binding's annotation `atoll.sh/gang`; dispatcher and agent read only this, so
they know no workload kinds. The templates of most kinds are not checked before a member sees them, so their users may
have written anything; `check` refuses what would end, or stop, who decides on it for everybody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from atoll.model import quantity, selectors, vector
from atoll.model.failover import Failover
from atoll.model.pod_rules import PodRules
from atoll.model.ports import HostPort
from atoll.model.timestamps import is_time
from atoll.model.together import Together
from atoll.model.vector import Vector

MOST_PODS = 100_000
"""Of one workload, at once: what a member's agent works out of them at each look takes a tenth of a second."""
MOST_UNITS = 2**60
"""Of a resource, for one pod."""
HOST: Final = "kubernetes.io/hostname"
"""Name of the tier of single nodes, which needs no HyperNodes: each node is a domain, in a tree of its own."""
CLASS_IS = "PriorityClass="
"""What the scope of a pod begins with that says its class."""


class BadGang(ValueError):
    """No workload can ask for that; the message names the field."""


class TopologyWish(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """How near each other the pods must (hard) or should (soft) be; tiers count upwards from the nearest."""

    mode: str = "hard"
    highest_tier_allowed: int | None = None
    highest_tier_name: str | None = None

    @property
    def limited(self) -> bool:
        """Whether it has a highest tier; a hard mode without any constrains nothing, as in Volcano."""
        return self.highest_tier_allowed is not None or self.highest_tier_name is not None

    @property
    def tier(self) -> str:
        """Its highest tier for a person: the name, or else the number."""
        return self.highest_tier_name or str(self.highest_tier_allowed)

    @property
    def hard(self) -> bool:
        """Whether it runs in a domain or not at all."""
        return self.mode == "hard" and self.limited


class Partition(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Pods of a task in groups of one size, each near together by a wish of its own: partitions, sub-groups, slices."""

    size: int
    """Pods of the task in each group, above 0; the last group may have fewer."""
    wish: TopologyWish | None = None
    name: str = ""
    """Tasks that say the same make groups together, such as a leader and its workers; empty for a task by itself."""
    inside: Partition | None = None
    """The groups of each group: slices in slices. Its size divides this one's, and names count within a group."""

    @property
    def wishes(self) -> list[TopologyWish]:
        """Of these groups and of those inside them."""
        below = self.inside.wishes if self.inside is not None else []
        return below if self.wish is None else [self.wish, *below]


class DeviceHint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """Which devices of one type of Koordinator's a pod gets (`atoll.model.joint`)."""

    selector: dict[str, Any] | None = None
    """Of labels of devices."""
    vf_selector: dict[str, Any] | None = None
    """Of labels of virtual functions, of which the pod gets one for each device; None for whole devices."""
    allocate_strategy: Literal["", "ApplyForAll", "RequestsAsCount"] = ""
    required_topology_scope: Literal["", "Node", "NUMANode", "PCIe", "Device"] = ""
    exclusive_policy: Literal["", "DeviceLevel", "PCIeLevel"] = ""


class GpuPartitionSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which partitions of GPUs a pod gets (`atoll.model.gpu_partitions`)."""

    restricted: bool = False
    """Whether these have the highest score alone."""
    bandwidth: int = 0
    """Bytes per second that the ring of each has at least."""


class DeviceWish(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which of Koordinator's devices a pod gets."""

    types: list[str] = []
    """Devices of the others are under the PCIe roots of the first one's, as far as there are some."""
    same_root: bool = False
    """Whether every root of the first one's devices must have some of each other type, and no other root."""
    hints: dict[str, DeviceHint] = {}
    partition: GpuPartitionSpec | None = None
    """GPUs are given by partition alone; None for first, or as the node has it."""
    problem: str = ""
    """Why no node gives it, for a pod that no admission of Atoll's has seen."""

    def hint(self, kind: str) -> DeviceHint:
        """Of devices of this type."""
        return self.hints.get(kind, _NO_HINT)


_NO_HINT: Final = DeviceHint()


class Task(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Equal pods of one role."""

    name: str
    replicas: int
    min_available: int
    requests: Vector
    """Integer units of one pod, `pods: 1` included."""
    node_selector: dict[str, str] = {}
    node_terms: list[dict[str, Any]] = []
    """nodeSelectorTerms of the required node affinity."""
    tolerations: list[dict[str, Any]] = []
    scopes: list[str] = []
    """See `scopes_of`."""
    ports: list[HostPort] = []
    """Of its node that a pod takes for itself, sorted (`atoll.model.ports`)."""
    rules: PodRules | None = None
    """Rules of a pod about pods beside it; None for none, where no rules read its labels."""
    preferences: list[dict[str, Any]] = []
    """preferredSchedulingTerms of the node affinity."""
    attach: dict[str, int] = {}
    """Driver -> volumes that its node attaches for a pod, where nodes have a limit of them; above 0."""
    images: tuple[str, ...] = ()
    """Of its containers, where nodes differ in which of them they have; only what a member's own agent knows."""
    aligned: list[dict[str, int]] = []
    """Per container of a pod what the kubelet may align to NUMA nodes (`atoll.model.numa`); empty for nothing."""
    numa: str = ""
    """The policy of the topology manager that its node must have; empty for any."""
    devices_in: str = ""
    """What the devices of each container must be in together (`atoll.model.numa.Together`); empty for anything."""
    claims: list[dict[str, Any]] = []
    """ResourceClaims (`name` in the pod, `spec`) that a pod gets devices for, none of which it has yet."""
    claim_names: list[str] = []
    """On the host: `claims/NAME` or `templates/NAME` of the ResourceClaims of a pod; `requests` has their devices by
    class.
    """
    claim_charges: dict[str, Vector] = {}
    """On the host: of each of these names, the devices by class that a pod is charged for it."""
    joint: DeviceWish | None = None
    """Which of Koordinator's devices a pod gets; None where GPUs alone are asked for, and any will do."""
    later: bool = False
    """Its pods are made once other tasks have started."""
    unit: int = 1
    """Pods that its controller makes and removes together, above 0."""
    unit_name: str = ""
    """Tasks that say the same make units together, such as a leader and its workers; empty for a task by itself."""
    grace: int = 30
    """Seconds that a pod may take to end."""
    partition: Partition | None = None
    """The groups of its pods; None where they have no wish beside the gang's."""
    domain: str = ""
    """Name of the domain that its pods must be in, for those that join pods that run; empty for any."""
    shared: dict[str, list[str]] = {}
    """Driver -> handles in `attach` that other pods use as well, sorted: a node attaches each once."""
    role: str = ""
    """Tasks of one role are one group where groups are to be apart; empty for a task by itself."""
    away: list[str] = []
    """Names of domains that its pods must not be in, as pods of other groups are there."""
    own_terms: list[dict[str, Any]] | None = None
    """`node_terms` without terms of the pod's volumes to them, where they add any: pods that are to be spread are
    counted over the nodes of these.
    """
    priority: int | None = None
    """The lowest of its pods, where hot nodes may be closed to them; only what a member's own agent knows."""


class Gang(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One workload as the queueing and placing layers see it."""

    queue: str
    tasks: list[Task]
    min_available: int
    priority: int = 0
    submitted: str = ""
    """RFC 3339 time of the first submission; age is kept over re-dispatches."""
    network_topology: TopologyWish | None = None
    running_estimate: float | None = None
    """Seconds that the user expects it to run."""
    patience: float | None = None
    """Seconds after which it gets a reservation while it waits; None for its queue's value."""
    ready_timeout: float | None = None
    """Seconds after it was bound within which its minimum must run; None for its queue's value."""
    hold: bool = False
    """The user's wish that it does not run."""
    preemptable: bool = True
    """Whether it may be evicted for others; its user may forbid that."""
    preempts: bool = True
    """Whether others may be evicted for it, as its PriorityClass says (`preemptionPolicy`)."""
    whole: bool = False
    """It can't be divided over clusters, under any policy."""
    scattered: bool = False
    """It grows into further clusters by whole units, which are gangs by themselves, and may lose any part."""
    arrival: int = 0
    """The resourceVersion at which its workload was first seen: the order within one second; 0 where unknown."""
    attempt: str = ""
    """Changes when its user wants it to be tried again though it was deactivated."""
    classless: bool = False
    """It names a PriorityClass that the host does not have, so that none goes along to members."""
    needs: list[str] = []
    """Requirements of its pods that only some placers look at (`atoll.model.needs`), sorted."""
    features: list[str] = []
    """Features that it needs and only some members have (`atoll.model.features`), sorted."""
    on_lost: str = ""
    """What becomes of it when its member is lost (`atoll.model.lost.OnLost`); empty for the default."""
    lost_toleration: float | None = None
    """Seconds that its member may be away before it runs elsewhere; None for the default."""
    unhealthy: Failover | None = None
    """How it leaves a member in which it is unhealthy; None where it stays."""
    leaving: Failover | None = None
    """How it leaves a member that is tainted, drained or lost; None where it goes directly."""

    suspended: list[str] = []
    """Members to which its policy sends nothing new, sorted; `*` for all. What runs there goes on."""
    copies: bool = False
    """Each of its members runs all of it, as its policy says (`Duplicated`)."""
    network: str = ""
    """How its pods name those in other members, as its policy says (`atoll.model.network`); empty where they can't."""
    scoring: str = ""
    """Which nodes are preferred (`atoll.model.scoring`); empty for its member's."""
    balanced: TopologyWish | None = None
    """The tier over whose domains its pods, or groups of them, are shared out evenly; it may not be possible."""
    apart: TopologyWish | None = None
    """The tier of which no domain has pods of two of its groups, or of two tasks where these have no groups."""
    together: Together | None = None
    """The gang group with which it starts or not at all; None where it starts by itself."""

    follows: str = ""
    """`label=value` of workloads to whose members it keeps, as its policy says (`workloadAffinity`)."""
    avoids: str = ""
    """The same of those to whose members it does not go."""
    any_gpu: bool = False
    """Whether queues are charged its GPUs under any name as well; for the dispatcher, no annotation has it."""

    @property
    def tried_as(self) -> str:
        """Another text than before where it may be tried again: its user acted, or its PriorityClass has come."""
        return f"{self.attempt} without its class" if self.classless else self.attempt

    @property
    def replicas(self) -> int:
        return sum([task.replicas for task in self.tasks])

    @property
    def grace(self) -> int:
        """Seconds that its pods may take to end, at most."""
        return max([task.grace for task in self.tasks], default=0)

    @property
    def grouped(self) -> bool:
        """Whether some of its pods are in groups with a wish of their own, or its tasks are groups to be apart."""
        return self.apart is not None or any([task.partition is not None for task in self.tasks])

    def units(self) -> list[list[tuple[int, int]]]:
        """(task index, pods) of each unit by which it grows and shrinks: a pod, a group, or all that its
        controller makes together.
        """
        found: dict[object, list[tuple[int, int]]] = {}
        for index, task in enumerate(self.tasks):
            part = task.partition
            name, size = (task.unit_name, task.unit) if part is None else (part.name, part.size)
            found.setdefault(name or index, []).append((index, max(size, 1)))
        return [*found.values()]

    def total(self) -> Vector:
        """The charge of a queue for all replicas together."""
        return vector.total(vector.scaled(self.charge(task), task.replicas) for task in self.tasks)

    def charge(self, task: Task) -> Vector:
        """Of one pod of a task."""
        if not self.any_gpu:
            return task.requests
        from atoll.model import gpu_shares

        found = dict(task.requests)
        vector.add(found, gpu_shares.charge(task.requests))
        return found

    def with_any_gpu(self) -> Gang:
        """The same with `any_gpu`, if it asks for GPUs."""
        from atoll.model import gpu_shares

        asks = any(gpu_shares.charge(task.requests) for task in self.tasks)
        return msgspec.structs.replace(self, any_gpu=True) if asks else self

    def requests(self) -> list[Vector]:
        """Of one pod, per task."""
        return [task.requests for task in self.tasks]

    def full(self) -> list[int]:
        """Pods per task in all."""
        return [task.replicas for task in self.tasks]

    def floor(self) -> list[int]:
        """Pods per task in the smallest gang that may start.

        Task minimums bind when the gang's minimum covers their sum; the rest of the gang's minimum, or
        all of it where the gang asks for less than that sum, is filled in task order. Of units and groups whole ones
        count.
        """
        if len(self.tasks) == 1:
            replicas = self.tasks[0].replicas
            floor = [min(max(self.min_available, min(replicas, 1)), replicas)]
        else:
            minimum = max(self.min_available, min(self.replicas, 1))
            floor = filled([task.min_available for task in self.tasks], self.full(), minimum)
        if any([task.partition is not None or task.unit > 1 or task.unit_name for task in self.tasks]):
            for alike in self.units():
                number = max(-(-floor[index] // size) for index, size in alike)
                for index, size in alike:
                    floor[index] = min(number * size, self.tasks[index].replicas)
        return floor

    def at_first(self) -> int:
        """Pods of its minimum that come at once; the others when tasks that they depend on have started."""
        if not any(task.later for task in self.tasks):
            return self.min_available
        # In that order, for what no task minimum asks for is not to wait for pods that come later.
        tasks = sorted(self.tasks, key=lambda task: task.later)
        floor = msgspec.structs.replace(self, tasks=tasks).floor()
        return sum(count for task, count in zip(tasks, floor, strict=True) if not task.later)

    def sized(self, counts: Sequence[int]) -> Gang:
        """The gang with so many pods per task, though never more than it has, and minimums that are not above them."""
        if all(task.replicas <= count for task, count in zip(self.tasks, counts, strict=True)):
            return self
        tasks = [
            msgspec.structs.replace(
                task, replicas=min(task.replicas, count), min_available=min(task.min_available, count)
            )
            for task, count in zip(self.tasks, counts, strict=True)
        ]
        minimum = min(self.min_available, sum(task.replicas for task in tasks))
        return msgspec.structs.replace(self, tasks=tasks, min_available=minimum)


def filled(minimums: Sequence[int], replicas: Sequence[int], total: int) -> list[int]:
    """Pods per task in a gang of `total`: task minimums where `total` covers their sum, and the rest, or
    all of it, in task order.
    """
    floor = list(minimums) if sum(minimums) <= total else [0] * len(minimums)
    missing = total - sum(floor)
    for index, most in enumerate(replicas):
        extra = min(missing, most - floor[index])
        floor[index] += extra
        missing -= extra
    return floor


def check(gang: Gang) -> None:
    """Refuse what can't be decided on.

    Raises:
        BadGang: it is such.
    """
    if gang.submitted and not is_time(gang.submitted):
        raise BadGang(f"submitted: {gang.submitted!r} is no time")
    if not gang.tasks:
        raise BadGang("tasks: there are none")
    for task in gang.tasks:
        if task.replicas < 0 or task.min_available < 0:
            raise BadGang(f"task {task.name}: {min(task.replicas, task.min_available)} pods are fewer than none")
        part = task.partition
        while part is not None:
            if part.size < 1:
                raise BadGang(f"task {task.name}: groups of {part.size} pods have no pods")
            part = part.inside
        amounts = task.requests.values()
        if amounts and not (min(amounts) >= 0 and max(amounts) <= MOST_UNITS):
            raise BadGang(f"task {task.name}: requests must be between 0 and an exa")
        try:
            selectors.check_node_terms(task.node_terms)
        except ValueError as error:
            raise BadGang(f"task {task.name}: its required node affinity: {error}") from error
    pods = max(gang.replicas, gang.min_available, *(task.min_available for task in gang.tasks))
    if pods > MOST_PODS:
        raise BadGang(f"it asks for {pods} pods, and a workload gets at most {MOST_PODS} at once: make several of it")
    if gang.min_available < 0:
        raise BadGang(f"minAvailable: {gang.min_available} is below 0")


def beyond(gang: Gang, requests: Mapping[str, Vector]) -> dict[str, Vector]:
    """Of what one pod of each task requests, that which is more than was asked for, by the gang's own task names; pods
    of a gang of one task may have no task's name.
    """
    alone = gang.tasks[0].name if len(gang.tasks) == 1 else None
    asked = {task.name: task.requests for task in gang.tasks}
    found: dict[str, Vector] = {}
    for name, amounts in requests.items():
        task = name if alone is None else alone
        if task not in asked:
            continue
        more = {resource: amount for resource, amount in amounts.items() if amount > asked[task].get(resource, 0)}
        if more:
            found[task] = vector.larger(found.get(task, {}), more)
    return found


COMPONENT_NAME = 32


def component_name(task: str) -> str:
    """A task's name as a binding's component: at most 32 characters; longer ones keep 23 and get a hash, so that they
    stay distinct.
    """
    if len(task) <= COMPONENT_NAME:
        return task
    return f"{task[:23]}-{hashlib.sha256(task.encode()).hexdigest()[:8]}"


def counts_in(gang: Gang, pods: int, components: Mapping[str, int]) -> list[int]:
    """Pods per task of a part as its binding's `spec.clusters` says.

    Args:
        gang: of the whole workload.
        pods: of the part; 0 for unknown.
        components: component name -> pods; empty where they are not named, as for a gang of one task.
    """
    if components:
        return [components.get(component_name(task.name), 0) for task in gang.tasks]
    if pods and len(gang.tasks) == 1:
        return [pods]
    return gang.full()


def divide(gang: Gang, parts: Sequence[Sequence[int]]) -> list[Gang]:
    """The gang of each part, their minimums adding up to the whole's.

    Minimums follow the parts' sizes, rounded down; the rest goes to the earliest parts that can take it.

    Args:
        gang: the whole.
        parts: pods per task for each part; their sums are the gang's replicas, or each of them is where it is copied.
            Of a scattered gang they may be more, of which the last ones are left out, or fewer.
    """
    if gang.scattered:
        left, sized = gang.full(), []
        for counts in parts:
            sized.append(gang.sized([min(most, count) for most, count in zip(left, counts, strict=True)]))
            left = [most - count for most, count in zip(left, sized[-1].full(), strict=True)]
        return sized
    if gang.copies:
        return [gang.sized(counts) for counts in parts]
    minimums = [[0] * len(gang.tasks) for _ in parts]
    for index, task in enumerate(gang.tasks):
        for part, share in enumerate(_shares(task.min_available, [counts[index] for counts in parts])):
            minimums[part][index] = share
    totals = _shares(gang.min_available, [sum(counts) for counts in parts])
    return [
        msgspec.structs.replace(
            gang,
            tasks=[
                msgspec.structs.replace(task, replicas=counts[index], min_available=minimum[index])
                for index, task in enumerate(gang.tasks)
            ],
            min_available=total,
        )
        for counts, minimum, total in zip(parts, minimums, totals, strict=True)
    ]


def _shares(amount: int, sizes: Sequence[int]) -> list[int]:
    """`amount` over parts of these sizes in proportion, none above its size."""
    whole = max(sum(sizes), 1)
    shares = [amount * size // whole for size in sizes]
    left = amount - sum(shares)
    for index, size in enumerate(sizes):
        extra = min(left, size - shares[index], 1)
        shares[index] += extra
        left -= extra
    return shares


def encode(gang: Gang) -> str:
    """The annotation's text; equal gangs give equal text."""
    return msgspec.json.encode(gang, order="sorted").decode()


_decoder = msgspec.json.Decoder(Gang)


def decode(text: str | bytes) -> Gang:
    """Read the annotation.

    Raises:
        msgspec.MsgspecError: not JSON, or not a gang.
    """
    return _decoder.decode(text)


def scopes_of(spec: Mapping[str, Any], priority_class: str = "") -> list[str]:
    """The scopes of ResourceQuotas that pods of this spec are in: `PriorityClass=<name>` and those of `Terminating`,
    `BestEffort` and `CrossNamespacePodAffinity` that hold, sorted. They are in `NotTerminating` and `NotBestEffort`
    where the opposite is missing.

    Args:
        spec: of the pod template.
        priority_class: of pods that name none.
    """
    found = set()
    if name := spec.get("priorityClassName") or priority_class:
        found.add(f"{CLASS_IS}{name}")
    if spec.get("activeDeadlineSeconds") is not None:
        found.add("Terminating")
    if not any(_asks(each) for each in _of_resources(spec)):
        found.add("BestEffort")
    if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in _pod_terms(spec)):
        found.add("CrossNamespacePodAffinity")
    return sorted(found)


def _of_resources(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What makes a pod more than best effort: the resources of its containers, and of the pod."""
    yield spec.get("resources") or {}
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            yield container.get("resources") or {}


def _asks(resources: Mapping[str, Any]) -> bool:
    amounts = [resources.get(kind) or {} for kind in ("requests", "limits")]
    return any(quantity.exact(each[name]) > 0 for each in amounts for name in ("cpu", "memory") if name in each)


def _pod_terms(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        yield from rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for weighted in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield weighted.get("podAffinityTerm") or {}
