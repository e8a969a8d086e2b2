"""Members that others use too, on nodes that fail: gangs from the host beside bare pods and DaemonSets.

`python -m tests.chaos.nodes --seconds 90 --seed 7`. In member `shared` kube-scheduler places everybody's pods, in member
`own` the nodes are Atoll's, in two leaves of a fabric. Kubelets reject pods, nodes die and come back, nodes are
drained, links of a leaf go up and down in quick succession. The verdict is read from the audit logs of the
members: no node above its allocatable, no gang below its minimum for longer than its deadline, every workload done.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.local import audit
from atoll.local.atoll_federation import AtollFederation
from atoll.local.install import wait_until
from atoll.local.layout import FederationConfig, Kubernetes, Member, NodeGroup, Tier, Topology
from atoll.model import keys, vector
from atoll.model.apiresource import (
    BATCH_JOBS,
    HYPER_NODES,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    ApiResource,
)
from atoll.model.topology import AVAILABLE
from atoll.model.vector import Vector
from tests.chaos.plan import NAMESPACE
from tests.chaos.record import Pod, Record, build, changes
from tests.integration.federation import batch_job, job

Json = dict[str, Any]

DAEMON_SETS = ApiResource("apps", "v1", "daemonsets", "DaemonSet")
CPUS, NODES_EACH = 8, 5
SHARED, OWN = "shared", "own"
DEADLINE_S = 45.0
"""How long a gang may be below its minimum: commitTimeout, the longest death of a node, and a busy machine's delay."""
PATIENCE_S = 150.0
_LEASE_S = 4
_REASONS = ("OutOfcpu", "UnexpectedAdmissionError", "NodeAffinity")
_DAEMON_CPUS = 1
_LEAF = 3
_THEN = "2026-01-01T00:00:00Z"
_BUSY = (errors.Busy, errors.Unreachable, errors.Conflict)


def layout(names: Sequence[str] = (SHARED, OWN)) -> FederationConfig:
    """Members of these names; pods leave a dead node after two seconds rather than five minutes."""
    leave = ["--default-not-ready-toleration-seconds=2", "--default-unreachable-toleration-seconds=2"]
    members = []
    for name in names:
        room = {"cpu": str(CPUS), "memory": "64Gi", "pods": "110"}
        members.append(
            Member(
                name=name,
                placer="auto" if name == SHARED else "atoll",
                nodes=[NodeGroup(count=NODES_EACH, prefix=f"{name}-n", allocatable=room)],
                strict_kubelets=True,
                node_lease_seconds=_LEASE_S,
                topology=Topology(tiers=[Tier(name="leaf", size=_LEAF), Tier(name="root", size=1)])
                if name == OWN
                else None,
                kubernetes=Kubernetes(flags={"apiserver": leave}),
            )
        )
    return FederationConfig(members=members)


@dataclass(frozen=True, slots=True)
class Wish:
    """One workload of the host."""

    name: str
    pods: int
    cpus: int
    seconds: float
    offset: float
    near: bool = False
    """Whether its pods prefer one leaf."""

    @property
    def resource(self) -> ApiResource:
        return BATCH_JOBS if self.name.startswith("batch") else JOBS

    def object(self) -> Json:
        """What its user applies."""
        if self.resource is BATCH_JOBS:
            made = batch_job(
                self.name, parallelism=self.pods, cpu=str(self.cpus), seconds=self.seconds, backoffLimit=50
            )
        else:
            near = {"networkTopology": {"mode": "soft", "highestTierAllowed": 2}} if self.near else {}
            made = job(
                self.name, replicas=self.pods, cpu=str(self.cpus), seconds=self.seconds, minAvailable=self.pods, **near
            )
        return {**made, "metadata": {**made["metadata"], "namespace": NAMESPACE}}


def wishes(seed: int, seconds: float) -> list[Wish]:
    """The same for the same seed."""
    rng, found, offset = random.Random(f"nodes {seed}"), list[Wish](), 0.0
    while (offset := offset + rng.expovariate(1 / 1.5)) < seconds:
        kind = "batch" if rng.random() < 0.25 else "gang"
        found.append(
            Wish(
                f"{kind}-{len(found)}",
                rng.choice((1, 2, 3, 4, 6)),
                rng.choice((1, 2, 3)),
                round(rng.uniform(1, 6), 1),
                offset,
                rng.random() < 0.3,
            )
        )
    return found


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    record: Record
    planned: Sequence[Wish]
    #: name of a bare pod -> its CPUs
    bare: Mapping[str, int]
    violations: list[str] = field(default_factory=list)
    #: what was played, and how often
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Whether pods were made, and nothing violates a check."""
        return bool(self.record.pods) and not self.violations

    @property
    def by_name(self) -> dict[str, Wish]:
        """Workloads by their names."""
        return {wish.name: wish for wish in self.planned}

    def takes(self, pod: Pod) -> Vector:
        """What the pod asks for of its node, in milli-CPU."""
        if pod.name in self.bare:
            return {"cpu": self.bare[pod.name] * 1000}
        if pod.workload.startswith("daemon-"):
            return {"cpu": _DAEMON_CPUS * 1000}
        wish = self.by_name.get(pod.workload)
        return {"cpu": wish.cpus * 1000 if wish else 0}


class Others:
    """Everything in the members that is not Atoll's doing: bare pods, DaemonSets, kubelets that reject, nodes that die."""

    def __init__(self, members: Mapping[str, ApiServer], seed: int, *, faults: bool = True) -> None:
        """No I/O happens here; without `faults` kubelets and nodes do as they should."""
        self._members, self._faults = members, faults
        self._random = random.Random(f"others {seed}")
        #: kind of misfortune -> how often
        played = ("bare pod", "DaemonSet", "kubelet rejects", "node dies", "node is drained", "link flaps")
        self.counts = dict.fromkeys(played, 0)
        #: name of a bare pod -> its CPUs
        self.cpus: dict[str, int] = {}
        #: nodes that are in trouble now
        self._troubled: set[str] = set()

    async def run(self) -> None:
        """Until cancelled; then everything is put right again."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._again(1.2, self._bare_pod))
            group.create_task(self._again(14.0, self._daemon_set))
            if self._faults:
                group.create_task(self._again(3.0, self._reject))
                group.create_task(self._again(12.0, self._die))
                group.create_task(self._again(15.0, self._drain))
                if OWN in self._members:
                    group.create_task(self._again(10.0, self._flap))

    async def _again(self, every: float, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0.5, 1.5) * every)
            with contextlib.suppress(*_BUSY):
                await act()

    async def _bare_pod(self) -> None:
        name, cpus = f"bare-{self.counts['bare pod']}", self._random.choice((1, 2, 3, 4))
        container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": str(cpus)}}}
        notes = {keys.RUN_TIME: f"{self._random.uniform(1, 8):.1f}s"}
        await self._members[SHARED].create(
            PODS,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": NAMESPACE, "annotations": notes},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        )
        self.cpus[name] = cpus
        self.counts["bare pod"] += 1

    async def _daemon_set(self) -> None:
        name, labels = f"daemon-{self.counts['DaemonSet']}", {"app": "daemon"}
        container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": str(_DAEMON_CPUS)}}}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        metadata = {"name": name, "namespace": NAMESPACE}
        api = self._members[SHARED]
        await api.create(
            DAEMON_SETS, {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}
        )
        self.counts["DaemonSet"] += 1
        try:
            await asyncio.sleep(self._random.uniform(4, 8))
        finally:
            await _surely(lambda: api.delete(DAEMON_SETS, name, NAMESPACE))

    async def _reject(self) -> None:
        change = {"annotations": {keys.FAIL: self._random.choice(_REASONS)}}
        await self._trouble("kubelet rejects", change, {"annotations": {keys.FAIL: None}}, self._random.uniform(0.5, 3))

    async def _die(self) -> None:
        # The lease is late after 5 s, pods are evicted 2 s later.
        await self._trouble(
            "node dies", {"labels": {keys.DEAD: "true"}}, {"labels": {keys.DEAD: None}}, self._random.uniform(7, 12)
        )

    async def _drain(self) -> None:
        async with self._in_trouble({"spec": {"unschedulable": None}}) as (api, node):
            if api is None:
                return
            await api.merge_patch(NODES, node, {"spec": {"unschedulable": True}})
            self.counts["node is drained"] += 1
            for pod in await api.list(PODS, NAMESPACE):
                if pod["spec"].get("nodeName") == node and not pod["metadata"]["name"].startswith("daemon-"):
                    name = pod["metadata"]["name"]
                    about = {"name": name, "namespace": NAMESPACE}
                    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
                    with contextlib.suppress(errors.NotFound, *_BUSY):
                        await api.create_in(PODS, name, NAMESPACE, "eviction", body)
            await asyncio.sleep(self._random.uniform(3, 8))

    async def _flap(self) -> None:
        """What `atoll-topology` writes while a link goes up and down, without its damping."""
        api, leaf = self._members[OWN], f"{OWN}-leaf-{self._random.randrange(-(-NODES_EACH // _LEAF))}"

        async def say(up: bool) -> None:
            condition = {
                "type": AVAILABLE,
                "status": str(up),
                "reason": "Chaos",
                "message": "",
                "lastTransitionTime": _THEN,
            }
            await api.merge_patch(HYPER_NODES, leaf, {"status": {"conditions": [condition]}}, subresource="status")

        try:
            for _ in range(self._random.randint(2, 5)):
                await say(False)
                await asyncio.sleep(self._random.uniform(0.1, 1.5))
                await say(True)
                await asyncio.sleep(self._random.uniform(0.1, 1.0))
            self.counts["link flaps"] += 1
        finally:
            await _surely(lambda: say(True))

    async def _trouble(self, what: str, change: Json, back: Json, seconds: float) -> None:
        async with self._in_trouble({"metadata": back}) as (api, node):
            if api is None:
                return
            await api.merge_patch(NODES, node, {"metadata": change})
            self.counts[what] += 1
            await asyncio.sleep(seconds)

    @contextlib.asynccontextmanager
    async def _in_trouble(self, back: Json) -> AsyncIterator[tuple[ApiServer | None, str]]:
        """Some node of some member, with what puts it right afterwards; no API server where it has other trouble."""
        member = self._random.choice(list(self._members))
        node = f"{member}-n{self._random.randrange(NODES_EACH)}"
        if node in self._troubled:
            yield None, node
            return
        self._troubled.add(node)
        api = self._members[member]
        try:
            yield api, node
        finally:
            await _surely(lambda: api.merge_patch(NODES, node, back))
            self._troubled.discard(node)


async def _surely(act: Callable[[], Awaitable[Any]]) -> None:
    """Do it, whatever stands in the way for the moment."""
    while True:
        try:
            await act()
            return
        except errors.NotFound:
            return
        except _BUSY:
            await asyncio.sleep(0.3)


async def run(
    seed: int,
    seconds: float,
    directory: Path,
    say: Callable[[str], None] = lambda _: None,
    *,
    names: Sequence[str] = (SHARED, OWN),
    faults: bool = True,
) -> Outcome:
    """One run and its verdict; nothing is left running.

    Args:
        seed: of everything that is drawn.
        seconds: how long workloads, pods and faults come.
        directory: data, logs and audit logs.
        say: gets a line per step.
        names: of the members; `SHARED` is one of them.
        faults: whether kubelets reject, nodes die and are drained, and links flap.
    """
    planned = wishes(seed, seconds)
    late, left = "", ""
    async with (
        AtollFederation(layout(names), directory, on_progress=say) as federation,
        _clients(federation, names) as clients,
    ):
        host, *apis = clients
        members = dict(zip(names, apis, strict=True))
        await _prepare(host, members[SHARED])
        others = Others(members, seed, faults=faults)
        say(f"{len(planned)} workloads in {seconds:g} s")
        submitting = asyncio.create_task(_submit(host, planned))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await others.run()
        await submitting
        say(f"waiting for the rest; played: {others.counts}")
        late = await _wait(lambda: _late(host, planned))
        say("deleting everything")
        for wish in planned:
            await _surely(lambda wish=wish: host.delete(wish.resource, wish.name, NAMESPACE))  # type: ignore[misc]
        for name in others.cpus:
            await _surely(lambda name=name: members[SHARED].delete(PODS, name, NAMESPACE))  # type: ignore[misc]
        left = await _wait(lambda: _left(members))
    record = Record({}, {}, {})
    build(record, {name: audit.read(directory / "logs" / f"{name}-audit.log") for name in names})
    outcome = Outcome(record, planned, others.cpus, counts=others.counts)
    outcome.violations += [f"not done: {late}"] if late else []
    outcome.violations += [f"left over: {left}"] if left else []
    outcome.violations += above_allocatable(record.pods.values(), outcome.takes)
    outcome.violations += below_minimum(record, outcome.by_name)
    return outcome


@contextlib.asynccontextmanager
async def _clients(federation: AtollFederation, names: Sequence[str]) -> AsyncIterator[list[ApiServer]]:
    async with contextlib.AsyncExitStack() as stack:
        clusters = [federation.host, *(federation.members[name] for name in names)]
        yield [await stack.enter_async_context(await each.connect()) for each in clusters]


async def _prepare(host: ApiServer, shared: ApiServer) -> None:
    for api in (host, shared):
        labels = {keys.ENABLED if api is host else keys.ACCEPT: "true"}
        await api.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
        )

    async def missing() -> str:
        return "" if await shared.list(SERVICE_ACCOUNTS, NAMESPACE) else "no ServiceAccount"

    await wait_until(missing, f"namespace {NAMESPACE}", 30)


async def _submit(host: ApiServer, planned: Sequence[Wish]) -> None:
    clock = asyncio.get_running_loop().time
    start = clock()
    for wish in planned:
        await asyncio.sleep(start + wish.offset - clock())
        await _surely(lambda wish=wish: host.create(wish.resource, wish.object()))  # type: ignore[misc]


async def _wait(look: Callable[[], Awaitable[str]]) -> str:
    """Look until there is nothing to say, or the same is said for too long; what was said last."""
    clock = asyncio.get_running_loop().time
    end, said, last = clock() + PATIENCE_S, "", ""
    while clock() < end:
        with contextlib.suppress(*_BUSY):
            said = await look()
            if not said:
                return ""
            if said != last:
                end, last = clock() + PATIENCE_S, said
        await asyncio.sleep(0.3)
    return said


async def _late(host: ApiServer, planned: Sequence[Wish]) -> str:
    states = {}
    for resource in (JOBS, BATCH_JOBS):
        for each in await host.list(resource, NAMESPACE):
            status = each.get("status") or {}
            conditions = {c["type"] for c in status.get("conditions") or () if c.get("status") == "True"}
            over = "Complete" in conditions or (status.get("state") or {}).get("phase") == "Completed"
            states[each["metadata"]["name"]] = "" if over else f"{status.get('state') or sorted(conditions)}"
    return ", ".join(f"{wish.name} {text}" for wish in planned if (text := states.get(wish.name, "is gone")))


async def _left(members: Mapping[str, ApiServer]) -> str:
    found = [
        f"{name}/{pod['metadata']['name']}" for name, api in members.items() for pod in await api.list(PODS, NAMESPACE)
    ]
    return ", ".join(found)


# -- the verdict ---------------------------------------------------------------------------------------------------------


def fillings(pods: Iterable[Pod], takes: Callable[[Pod], Vector]) -> Iterator[tuple[float, int, Pod]]:
    """(when, milli-CPU that are bound to the pod's node then, pod) for every pod that got a node."""
    used: dict[tuple[str, str], Vector] = {}
    for at, sign, pod in changes(pods):
        node = used.setdefault((pod.cluster, pod.node), {})
        vector.add(node, takes(pod), sign)
        if sign > 0:
            yield at, node.get("cpu", 0), pod


def above_allocatable(pods: Iterable[Pod], takes: Callable[[Pod], Vector]) -> Iterator[str]:
    """Nodes that had more bound to them than they have, each once, whoever's pods they were."""
    told = set()
    for at, amount, pod in fillings(pods, takes):
        if amount > CPUS * 1000 and (pod.cluster, pod.node) not in told:
            told.add((pod.cluster, pod.node))
            yield f"above allocatable: {at:.3f} pod {pod.name} raises node {pod.node} to {amount}m of {CPUS} CPUs"


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A time in which a gang had some pods on nodes, but fewer than its minimum."""

    name: str
    epoch: int
    pods: int
    since: float
    seconds: float


def below_minimum(record: Record, planned: Mapping[str, Wish]) -> Iterator[str]:
    """Gangs of which some pods, but fewer than the minimum, were there for too long."""
    for each in incomplete(record, planned):
        if each.seconds > DEADLINE_S:
            what = f"{each.name} epoch {each.epoch}: {each.pods} pods"
            yield f"below its minimum: {what} for {each.seconds:.0f} s from {each.since:.3f}"


def incomplete(record: Record, planned: Mapping[str, Wish]) -> Iterator[Incomplete]:
    """All such times."""
    gangs: dict[tuple[str, int], list[Pod]] = {}
    for pod in record.pods.values():
        if pod.workload in planned:
            gangs.setdefault((pod.workload, pod.epoch), []).append(pod)
    for (name, epoch), pods in gangs.items():
        # (time, pods on nodes, pods that have succeeded)
        steps = [(pod.bound, 1, 0) for pod in pods if pod.bound is not None]
        steps += [(pod.over, -1, int(pod.succeeded)) for pod in pods if pod.bound is not None and pod.over < record.end]
        bound = done = 0
        for (at, on, succeeded), (until, *_) in pairwise([*sorted(steps), (record.end, 0, 0)]):
            bound, done = bound + on, done + succeeded
            if bound > 0 and bound + done < planned[name].pods:
                yield Incomplete(name, epoch, bound, at, until - at)


def main() -> int:
    """Run from the command line; 1 where a check is violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.nodes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=90, help="how long things come and fail (default: 90)")
    parser.add_argument("--seed", type=int, default=7, help="of everything that is drawn (default: 7)")
    parser.add_argument("--keep", type=Path, help="keep data and logs in this folder")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atoll-nodes-")))
        directory.mkdir(parents=True, exist_ok=True)
        outcome = asyncio.run(run(given.seed, given.seconds, directory, lambda line: print(line, file=sys.stderr)))
    played = ", ".join(f"{count} x {what}" for what, count in outcome.counts.items())
    print(f"{len(outcome.record.pods)} pods; {played}")
    for text in outcome.violations:
        print(f"VIOLATED  {text}")
    print(f"{len(outcome.violations)} violations")
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
