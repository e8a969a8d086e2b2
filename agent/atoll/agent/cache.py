"""What the agent knows of its member: one watch per resource, shared by everything that runs in the process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from atoll.agent.devices import (
    DeviceClass,
    DeviceTaintRule,
    KoordinatorDevice,
    ResourceClaim,
    ResourceSlice,
    decode_device_class,
    decode_koordinator,
    decode_resource_claim,
    decode_slice,
    decode_taint_rule,
)
from atoll.agent.numa import NumaTopology, decode_numa, decode_zones
from atoll.agent.objects import (
    Budget,
    HyperNode,
    Node,
    Pod,
    PodGroup,
    decode_budget,
    decode_group,
    decode_hyper_node,
    decode_node,
    decode_pod,
)
from atoll.agent.owners import Owners
from atoll.agent.queues import Queue, decode_queue
from atoll.agent.volumes import (
    Claim,
    CsiNode,
    StorageClass,
    Volume,
    decode_claim,
    decode_class,
    decode_csi_node,
    decode_volume,
)
from atoll.kinds import known
from atoll.kube.crds import crds, wake
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import (
    BUDGETS,
    CLAIMS,
    CSI_NODES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    HYPER_NODES,
    JOBS,
    KOORDINATOR_DEVICES,
    NAMESPACES,
    NODE_TOPOLOGIES,
    NODES,
    NUMA_TOPOLOGIES,
    POD_GROUPS,
    PODS,
    QUEUES,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    VOLUMES,
    ApiResource,
)
from atoll.model.objects import Full, Slim, decode_full, decode_meta

_RELIST_AFTER = 5.0
"""Seconds of silence after which no pods are made for Jobs that came and went meanwhile."""


class MemberCache:
    """The member's objects as last reported by its API server."""

    def __init__(self, api: ApiServer) -> None:
        """No I/O happens here; `run` does it."""
        self.owners = Owners()
        self.pods: Reflector[Pod] = Reflector(api, PODS, lambda raw: self.owners.judged(decode_pod(raw)))
        self.nodes: Reflector[Node] = Reflector(api, NODES, decode_node)
        self.pod_groups: Reflector[PodGroup] = Reflector(
            api, POD_GROUPS, lambda raw: self.owners.judged(decode_group(raw)), relist_after=_RELIST_AFTER
        )
        self.hyper_nodes: Reflector[HyperNode] = Reflector(api, HYPER_NODES, decode_hyper_node)
        self.claims: Reflector[Claim] = Reflector(api, CLAIMS, decode_claim)
        self.volumes: Reflector[Volume] = Reflector(api, VOLUMES, decode_volume)
        self.storage_classes: Reflector[StorageClass] = Reflector(api, STORAGE_CLASSES, decode_class)
        self.csi_nodes: Reflector[CsiNode] = Reflector(api, CSI_NODES, decode_csi_node)
        self.numa: Reflector[NumaTopology] = Reflector(api, NUMA_TOPOLOGIES, decode_numa, optional=True, withheld=True)
        self.zones: Reflector[NumaTopology] = Reflector(
            api, NODE_TOPOLOGIES, decode_zones, optional=True, withheld=True
        )
        #: of dynamic resource allocation, which members older than Kubernetes 1.34 don't have
        self.slices: Reflector[ResourceSlice] = Reflector(
            api, RESOURCE_SLICES, decode_slice, optional=True, withheld=True
        )
        self.device_classes: Reflector[DeviceClass] = Reflector(
            api, DEVICE_CLASSES, decode_device_class, optional=True, withheld=True
        )
        #: which an API server serves that was asked for `resource.k8s.io/v1beta2`
        self.taint_rules: Reflector[DeviceTaintRule] = Reflector(
            api, DEVICE_TAINT_RULES, decode_taint_rule, optional=True, withheld=True
        )
        self.resource_claims: Reflector[ResourceClaim] = Reflector(
            api, RESOURCE_CLAIMS, decode_resource_claim, optional=True, withheld=True
        )
        self.koordinator: Reflector[KoordinatorDevice] = Reflector(
            api, KOORDINATOR_DEVICES, decode_koordinator, optional=True, withheld=True
        )
        self.budgets: Reflector[Budget] = Reflector(api, BUDGETS, decode_budget)
        #: the member's own, not the host's
        self.queues: Reflector[Queue] = Reflector(api, QUEUES, decode_queue, optional=True, withheld=True)
        self.namespaces: Reflector[Slim] = Reflector(api, NAMESPACES, decode_meta)
        #: kinds that Works deliver, cached whole
        self.workloads: dict[ApiResource, Reflector[Full]] = {
            kind.resource: Reflector(
                api, kind.resource, decode_full, optional=kind.optional, relist_after=_RELIST_AFTER
            )
            for kind in known()
            if kind.in_member is not None
        }
        self.crds = crds(api)
        wake(self.crds, (*self.workloads.values(), self.numa, self.zones, self.koordinator, self.queues))
        self.jobs = self.workloads[JOBS]
        self.pods.add_index("claim", lambda pod: [f"{pod.metadata.namespace}/{claim.name}" for claim in pod.claims])
        self.pods.add_index("owner", lambda pod: _present(pod.metadata.controller_uid))
        self.pods.add_index("group", lambda pod: _present(pod.group))
        self.pods.add_index("binding", lambda pod: _present(pod.binding_uid))
        self.pod_groups.add_index("owner", lambda group: _present(group.metadata.controller_uid))
        self.pod_groups.add_index("binding", lambda group: _present(group.binding_uid))
        #: what the controllers of Deployments make: whose they are
        self.replica_sets: Reflector[Slim] = Reflector(api, REPLICA_SETS, decode_meta, metadata_only=True)
        self.owners.watch(self.pods, self.pod_groups, (*self.workloads.values(), self.replica_sets))

    @property
    def _reflectors(self) -> tuple[Reflector[Any], ...]:
        storage = (self.claims, self.volumes, self.storage_classes, self.csi_nodes)
        shared = (self.crds, self.replica_sets, self.pods, self.nodes, self.pod_groups, self.hyper_nodes, self.budgets)
        devices = (self.slices, self.device_classes, self.taint_rules, self.resource_claims)
        return (
            self.namespaces,
            *devices,
            self.numa,
            self.zones,
            self.koordinator,
            self.queues,
            *shared,
            *storage,
            *self.workloads.values(),
        )

    @property
    def synced(self) -> bool:
        """Whether everything has been listed once."""
        return all(reflector.synced.is_set() for reflector in self._reflectors)

    @property
    def served(self) -> list[ApiResource]:
        """The kinds that this member has, as far as it was asked."""
        return [resource for resource, cache in self.workloads.items() if cache.synced.is_set() and not cache.absent]

    async def wait(self) -> None:
        """Return once everything has been listed."""
        for reflector in self._reflectors:
            await reflector.synced.wait()

    async def run(self) -> None:
        """List and watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors:
                tasks.create_task(reflector.run(), name=f"watch {reflector.resource.plural}")


def _present(value: str) -> Iterable[str]:
    return (value,) if value else ()
