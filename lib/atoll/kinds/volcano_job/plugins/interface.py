"""What every job plugin answers, and the Job as plugins see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from atoll.kinds.volcano_job.plugins.options import Option, Value
from atoll.model import network

Json = dict[str, Any]
Values = Mapping[str, Value]
"""Name of an option -> its value, defaults included."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An SSH key."""

    private: str
    """PEM."""
    public: str
    """One line, as in authorized_keys."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task of the Job."""

    name: str
    replicas: int
    """Pods of it in this member."""
    first: int = 0
    """Pods of it in the members before this one: the job-wide index of its first pod here."""
    total: int = 0
    """Pods of it in all members."""
    hostname: str = ""
    """That its pods have by their template."""
    subdomain: str = ""
    """The same."""
    shares: tuple[tuple[str, int], ...] = ()
    """(member, pods) in all members, where a network joins them."""


@dataclass(frozen=True, slots=True)
class JobView:
    """What plugins need of a Job."""

    name: str
    namespace: str
    tasks: tuple[Task, ...]
    owner: Json = field(default_factory=dict)
    """Owner reference for its objects."""
    network: str = ""
    """How its pods name those in other members (`atoll.model.network`); empty where they can't, or all are here."""

    def task(self, name: str) -> Task | None:
        """The task of this name."""
        return next((task for task in self.tasks if task.name == name), None)

    def total(self, *names: str) -> int:
        """Pods of these tasks in all members."""
        return sum(task.total for task in self.tasks if task.name in names)

    def host(self, task: str, index: int) -> str:
        """The name under which the pods of a Job with a Service find one of them.

        Args:
            task: name of a task, which may be elsewhere.
            index: of the pod in `hosts`.
        """
        hosts = self.hosts(task)
        return hosts[index] if index < len(hosts) else f"{self.name}-{task}-{index}.{self.name}"

    def hosts(self, task: str) -> list[str]:
        """All pods of a task that pods in this member find: those here, or in all members that a network joins."""
        found = self.task(task)
        if found is None:
            return []
        service = found.subdomain or self.name
        if not self.network:
            names = [found.hostname] if found.hostname else self._pods(found, found.replicas)
            return [f"{name}.{service}" for name in names[: found.replicas]]
        return [
            network.name(self.network, pod=pod, cluster=cluster, service=service, namespace=self.namespace)
            for cluster, count in found.shares
            for pod in self._pods(found, count)
        ]

    def _pods(self, task: Task, count: int) -> list[str]:
        return [f"{self.name}-{task.name}-{index}" for index in range(count)]

    def made(self, api_version: str, kind: str, name: str) -> Json:
        """The head of an object that is made for the Job and goes with it."""
        metadata: Json = {"name": name, "namespace": self.namespace}
        if self.owner:
            metadata["ownerReferences"] = [self.owner]
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


class Plugin(Protocol):
    """One plugin; every method is pure."""

    name: str
    requires: Sequence[str]
    """Plugins that it does not work without."""
    options: Sequence[Option]

    def problems(self, tasks: Mapping[str, int], values: Values) -> Sequence[str]:
        """Why these options can't work for a Job with these tasks (name to replicas); empty where they can."""

    def objects(self, job: JobView, values: Values, key_pair: Callable[[], KeyPair]) -> Sequence[Json]:
        """What the Job needs in the member besides its pods.

        Args:
            job: the Job.
            values: of its options.
            key_pair: makes a new key, for objects made once and kept.
        """

    def decorate(self, job: JobView, values: Values, pod: Json, task: Task, index: int) -> None:
        """Change a pod before it is made.

        Args:
            job: the Job.
            values: of its options.
            pod: to change.
            task: the pod's.
            index: of the pod among the task's pods in this member.
        """


def containers(pod: Json) -> list[Json]:
    """All containers of a pod, init containers first."""
    spec = pod["spec"]
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def set_env(pod: Json, values: Mapping[str, str | Json]) -> None:
    """Give all containers these variables; a value is text or a `valueFrom`. What the user has set stays."""
    for container in containers(pod):
        env = container.setdefault("env", [])
        known = {each.get("name") for each in env}
        for name, value in values.items():
            if name not in known:
                env.append({"name": name, "value": value} if isinstance(value, str) else {"name": name, **value})


def mount(pod: Json, volume: Json, path: str) -> None:
    """Add a volume and mount it in all containers; where a container has something at that path, that stays."""
    volumes = pod["spec"].setdefault("volumes", [])
    if all(each.get("name") != volume["name"] for each in volumes):
        volumes.append(volume)
    for container in containers(pod):
        mounts = container.setdefault("volumeMounts", [])
        if all(each.get("mountPath") != path for each in mounts):
            mounts.append({"name": volume["name"], "mountPath": path})


def open_port(pod: Json, name: str, port: int) -> None:
    """Name a port of the pod's containers, unless one of them does."""
    for container in pod["spec"].get("containers") or ():
        ports = container.setdefault("ports", [])
        if all(each.get("containerPort") != port for each in ports):
            ports.append({"name": name, "containerPort": port})
