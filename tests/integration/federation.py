"""What integration tests do with the federation: apply, wait for a condition with a deadline, look into audit logs."""

from __future__ import annotations

import asyncio
import subprocess
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import orjson

from atoll.kinds import BY_RESOURCE, kind_of, makers
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.local.atoll_federation import AtollFederation
from atoll.local.binaries import ensure
from atoll.local.layout import Member, NodeGroup, Tier, Topology
from atoll.model import keys
from atoll.model.apiresource import (
    BATCH_JOBS,
    BINDINGS,
    JOBS,
    NAMESPACES,
    PODS,
    POLICIES,
    QUEUES,
    ApiResource,
)
from atoll.model.timestamps import to_seconds

T = TypeVar("T")
Json = dict[str, Any]

DEADLINE = 150.0
"""Seconds: a busy machine is fifteen times slower than an idle one."""
PAUSES = (0.02, 0.1)
"""Seconds from one look to the next, at first and at last: looking takes a good part of the processors' time."""


def member(name: str, nodes: int, *, tree: bool = True) -> Member:
    """A member of 16-CPU nodes with 8 GPUs each, two to a rack, two racks to a block; or outside any domain."""
    allocatable = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "8", "pods": "110"}
    tiers = [Tier(name="rack", size=2), Tier(name="block", size=2), Tier(name="root", size=max(1, nodes // 4))]
    return Member(
        name=name,
        labels={"size": "large" if nodes > 4 else "small"},
        nodes=[NodeGroup(count=nodes, prefix=f"{name}-n", allocatable=allocatable)],
        topology=Topology(tiers=tiers) if tree else None,
    )


async def until(look: Callable[[], Awaitable[T | None]], *, deadline: float = DEADLINE, what: str = "") -> T:
    """The first truthy answer; fails with the last one when the deadline has passed."""
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline
    answer, pause = None, PAUSES[0]
    while loop.time() < end:
        answer = await look()
        if answer:
            return answer
        await asyncio.sleep(pause)
        pause = min(1.5 * pause, PAUSES[1])
    raise AssertionError(f"not within {deadline:g} s: {what or look}; last seen: {answer!r}")


async def next_is_younger(made: Json) -> None:
    """Age is counted in the seconds of creationTimestamp, and equal ages are ordered by UID: wait for the next one."""
    since = to_seconds(made["metadata"]["creationTimestamp"])

    async def over() -> bool:
        return time.time() >= since + 1

    await until(over, what="the next one is younger")


def job(name: str, *, replicas: int = 1, cpu: str = "100m", seconds: float | None = 1.0, **spec: Any) -> Json:
    """A Volcano Job of one task; `seconds` None runs until deleted."""
    annotations = {} if seconds is None else {keys.RUN_TIME: f"{int(seconds * 1000)}ms"}
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}}}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": name},
        "spec": {"tasks": [{"name": "worker", "replicas": replicas, "template": template}], **spec},
    }


def batch_job(
    name: str, *, parallelism: int = 1, cpu: str = "100m", seconds: float | None = 1.0, **fields: Any
) -> Json:
    """A batch/v1 Job; `seconds` None runs until deleted, `metadata` adds to its own, the rest is its spec."""
    annotations = {} if seconds is None else {keys.RUN_TIME: f"{int(seconds * 1000)}ms"}
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}}}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    metadata = {"name": name, **fields.pop("metadata", {})}
    spec = {"parallelism": parallelism, "completions": parallelism, "template": template, **fields}
    return {"apiVersion": BATCH_JOBS.api_version, "kind": BATCH_JOBS.kind, "metadata": metadata, "spec": spec}


def accepting(namespace: str) -> Json:
    """A namespace that a member has itself and lets work into."""
    metadata = {"name": namespace, "labels": {keys.ACCEPT: "true"}}
    return {"apiVersion": NAMESPACES.api_version, "kind": NAMESPACES.kind, "metadata": metadata}


class Site:
    """One test's view of the federation."""

    def __init__(self, federation: AtollFederation, host: ApiServer, members: dict[str, ApiServer]) -> None:
        self.federation, self.host, self.members = federation, host, members
        self.namespace = f"t-{uuid.uuid4().hex[:8]}"
        self._queues: list[str] = []
        #: audit log -> its size when the test began: those of a session's federation get long
        self._audited = {
            each.audit_log: each.audit_log.stat().st_size for each in (federation.host, *federation.members.values())
        }

    async def open(self) -> None:
        """Make the namespace."""
        metadata = {"name": self.namespace, "labels": {keys.ENABLED: "true"}}
        await self.host.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    async def close(self) -> None:
        """Delete the jobs of this test and wait until their pods are gone, so that the next test finds capacity.

        The namespace stays: its deletion lists and deletes every resource in turn, a sixth of the CPU time of a small test.
        """
        await self.no_jobs()
        # Those below first: a queue with others below it can't be deleted.
        for queue in reversed(self._queues):
            await self.host.delete(QUEUES, queue)

    async def no_jobs(self) -> None:
        """Delete the jobs of this test and wait until their pods are gone."""
        # What would make them again goes first.
        for resources in (makers.ROUTES, BY_RESOURCE):
            found = await asyncio.gather(*(self._there(each) for each in resources))
            for resource, names in zip(resources, found, strict=True):
                for name in names:
                    await self.host.delete(resource, name, self.namespace)
        await until(self._empty, what=f"the pods of {self.namespace} are gone")

    async def _there(self, resource: ApiResource) -> list[str]:
        """Names of this test's objects of a resource; none where the host does not serve it."""
        try:
            return [each["metadata"]["name"] for each in await self.host.list(resource, self.namespace)]
        except errors.NotFound:
            return []

    async def _empty(self) -> bool:
        if await self.host.list(BINDINGS, self.namespace):
            return False
        return not any(await asyncio.gather(*(api.list(PODS, self.namespace) for api in self.members.values())))

    # -- doing -------------------------------------------------------------------------------------------------------

    async def submit(self, obj: Json, namespace: str | None = None) -> Json:
        """Create a workload in the test's namespace."""
        metadata = {**obj["metadata"], "namespace": namespace or self.namespace}
        kind = kind_of(obj)
        assert kind is not None, "only workloads are submitted"
        return await self.host.create(kind.resource, {**obj, "metadata": metadata})

    async def only(self, member: str) -> None:
        """Send what this test submits to that member."""
        spec = {
            "resourceSelectors": [{"apiVersion": each.api_version, "kind": each.kind} for each in BY_RESOURCE],
            "placement": {"clusterAffinity": {"clusterNames": [member]}},
        }
        metadata = {"name": f"only-{member}", "namespace": self.namespace}
        about = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind}
        await self.host.create(POLICIES, {**about, "metadata": metadata, "spec": spec})

    async def queue(self, name: str = "q", *, annotations: Json | None = None, **spec: Any) -> str:
        """Create a queue with a name of the test's own."""
        unique = f"{name}-{self.namespace}"
        metadata = {"name": unique, "annotations": annotations or {}}
        await self.host.create(
            QUEUES, {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind, "metadata": metadata, "spec": spec}
        )
        self._queues.append(unique)
        return unique

    def kubectl(self, *arguments: str, cluster: str = "host", stdin: str | None = None, ok: bool = True) -> str:
        """Run plain kubectl; its output, or its error text when it is expected to fail."""
        done = self._run(*arguments, cluster=cluster, stdin=stdin)
        assert (done.returncode == 0) == ok, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout if ok else done.stderr

    def both(self, *arguments: str, cluster: str = "host") -> str:
        """Run plain kubectl, whether it fails or not; all that it says."""
        done = self._run(*arguments, cluster=cluster, stdin=None)
        return done.stdout + done.stderr

    def warned(self, *arguments: str, stdin: str | None = None) -> str:
        """Run plain kubectl on the host, which must not fail; the warnings that it shows."""
        done = self._run(*arguments, cluster="host", stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stderr

    def _run(self, *arguments: str, cluster: str, stdin: str | None) -> subprocess.CompletedProcess[str]:
        handle = self.federation.host if cluster == "host" else self.federation.members[cluster]
        binary = ensure(report=lambda _: None).kubectl
        return subprocess.run(
            [str(binary), f"--kubeconfig={handle.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    # -- seeing ------------------------------------------------------------------------------------------------------

    async def find(self, resource: ApiResource, name: str, cluster: str = "host") -> Json | None:
        """The object, or None."""
        api = self.host if cluster == "host" else self.members[cluster]
        try:
            return await api.get(resource, name, self.namespace if resource.namespaced else None)
        except errors.NotFound:
            return None

    async def phase(self, name: str, phase: str, *, deadline: float = DEADLINE) -> Json:
        """Wait until the job on the host is in this phase."""

        async def look() -> Json | None:
            found = await self.find(JOBS, name)
            return found if found and (found.get("status") or {}).get("state", {}).get("phase") == phase else None

        return await until(look, deadline=deadline, what=f"job {name} is {phase}")

    async def reason(self, name: str, reason: str) -> Json:
        """Wait until the binding of a job says that it waits for this reason; gives the decision."""

        async def look() -> Json | None:
            decision = await self.decision(name)
            return decision if decision.get("reason") == reason else None

        return await until(look, what=f"job {name} waits for {reason}")

    async def decision(self, name: str) -> Json:
        """The decision that the binding of a job bears; empty while there is none."""
        binding = await self.find(BINDINGS, f"{name}-job")
        text = ((binding or {}).get("metadata") or {}).get("annotations", {}).get(keys.DECISION)
        return orjson.loads(text) if text else {}

    async def decided(self, name: str) -> Json:
        """Wait for that."""
        return await until(lambda: self.decision(name), what=f"there is a decision about job {name}")

    async def pods(self, cluster: str) -> list[Json]:
        """The test's pods in a member."""
        return await self.members[cluster].list(PODS, self.namespace)

    async def where(self, name: str) -> str:
        """The member that a job was dispatched to."""

        async def look() -> str | None:
            binding = await self.find(BINDINGS, f"{name}-job")
            clusters = (binding or {}).get("spec", {}).get("clusters") or []
            return clusters[0]["name"] if clusters else None

        return await until(look, what=f"job {name} is dispatched")

    def audit(self, cluster: str = "host") -> list[Json]:
        """Completed requests that concern this test's namespace, oldest first; of an administrator's no mere reads."""
        log = (self.federation.host if cluster == "host" else self.federation.members[cluster]).audit_log
        marker = self.namespace.encode()
        with log.open("rb") as file:
            file.seek(self._audited[log])
            lines = file.read().split(b"\n")[:-1]
        # The first may be the rest of a line that was being written when the test began, and is not about it.
        events = [orjson.loads(line) for line in lines if marker in line]
        return [event for event in events if event["stage"] == "ResponseComplete"]
