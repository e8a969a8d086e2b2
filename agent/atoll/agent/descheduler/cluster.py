"""The cluster as its API server reports it: one watch per resource, of the fields that a descheduler reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from atoll.agent.descheduler.world import Subject, World, decode
from atoll.agent.objects import Budget, Node, PodGroup, decode_budget, decode_group, decode_node
from atoll.kube.crds import crds, wake
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import (
    BUDGETS,
    CONFIGMAPS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
)
from atoll.model.objects import Slim, decode_meta
from atoll.model.priority import PriorityClassObject, class_of, decode_priority_class

POLICY_KEY: Final = "policy.yaml"


class PolicyMap(Slim, frozen=True):
    """A ConfigMap with a policy."""

    data: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def text(self) -> str:
        """The policy: under its usual key, or the only one there."""
        return self.data.get(POLICY_KEY) or (next(iter(self.data.values())) if len(self.data) == 1 else "")


class Cluster:
    """Caches, and the world that they make."""

    def __init__(self, api: ApiServer, policy: str) -> None:
        """No I/O happens here; `run` does it.

        Args:
            api: the cluster.
            policy: `NAMESPACE/NAME` of the policy's ConfigMap.
        """
        namespace, _, name = policy.partition("/")
        self.pods: Reflector[Subject] = Reflector(api, PODS, decode)
        self.nodes: Reflector[Node] = Reflector(api, NODES, decode_node)
        self._budgets: Reflector[Budget] = Reflector(api, BUDGETS, decode_budget)
        self._groups: Reflector[PodGroup] = Reflector(api, POD_GROUPS, decode_group, optional=True)
        self._priorities: Reflector[PriorityClassObject] = Reflector(api, PRIORITY_CLASSES, decode_priority_class)
        self._namespaces: Reflector[Slim] = Reflector(api, NAMESPACES, decode_meta)
        self._replica_sets: Reflector[Slim] = Reflector(api, REPLICA_SETS, decode_meta, metadata_only=True)
        self._policy: Reflector[PolicyMap] = Reflector(
            api,
            CONFIGMAPS,
            msgspec.json.Decoder(PolicyMap).decode,
            namespace=namespace,
            field_selector=f"metadata.name={name}",
        )
        self._crds = crds(api)
        wake(self._crds, (self._groups,))
        self._all: tuple[Reflector[Any], ...] = (
            self.pods, self.nodes, self._budgets, self._groups, self._priorities, self._namespaces,
            self._replica_sets, self._policy, self._crds,
        )  # fmt: skip

    def on_policy(self, changed: Callable[[], None]) -> None:
        """Call this when the policy changes."""
        self._policy.on_change(lambda old, new: changed())

    @property
    def policy(self) -> PolicyMap | None:
        """The ConfigMap; None where it is not there."""
        return next(iter(self._policy), None)

    @property
    def synced(self) -> bool:
        """Whether everything has been listed once."""
        return all(each.synced.is_set() for each in self._all)

    def world(self) -> World:
        """The cluster as it is now."""
        return World(
            sorted(self.nodes, key=lambda each: each.metadata.name),
            list(self.pods),
            list(self._budgets),
            {each.metadata.key: each for each in self._groups},
            {each.metadata.name: each.value for each in self._priorities},
            class_of("", self._priorities).value,
            {each.metadata.name: each.metadata.labels for each in self._namespaces},
            {
                each.metadata.uid: each.metadata.controller_uid
                for each in self._replica_sets
                if each.metadata.controller_uid
            },
        )

    async def wait(self) -> None:
        """Return once everything has been listed."""
        for each in self._all:
            await each.synced.wait()

    async def run(self) -> None:
        """List and watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for each in self._all:
                tasks.create_task(each.run(), name=f"watch {each.resource.plural}")
