"""All parts of the agent that look at one member, put together, for its process and for federations in one process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

from atoll.agent.busy import PodUse
from atoll.agent.cache import MemberCache
from atoll.agent.capacity import MemberCapacity
from atoll.agent.facts import Tally
from atoll.agent.hyper_nodes import HyperNodes
from atoll.agent.jobs.arrays import ArrayController
from atoll.agent.jobs.controller import JobController
from atoll.agent.objects import Pod
from atoll.agent.ours import Ours
from atoll.agent.placements import Placements
from atoll.agent.placing import Surroundings
from atoll.agent.podgroups import PodGroups
from atoll.agent.publisher import Publisher
from atoll.agent.scheduler.configuration import Configuration
from atoll.agent.scheduler.core import Command, Event
from atoll.agent.scheduler.core.log import MemberBegin
from atoll.agent.scheduler.loop import Scheduler
from atoll.agent.scheduler.measured import Meter
from atoll.agent.scheduler.reservations import Reservations
from atoll.agent.settings import AgentSettings
from atoll.agent.tainted import Tainted
from atoll.kube import errors
from atoll.kube.events import Recorder
from atoll.kube.recording import BestEffort
from atoll.kube.schedulers import Placing
from atoll.kube.transport import ApiServer
from atoll.model import claim_shapes, keys
from atoll.model.apiresource import PODS
from atoll.model.placer import MadeFor
from atoll.model.timestamps import to_seconds
from atoll.model.topology import NO_DOMAIN


class MemberAgent:
    """Runs jobs, scheduler and capacity of a member."""

    def __init__(
        self,
        host: ApiServer,
        member: ApiServer,
        cluster: str,
        settings: AgentSettings = AgentSettings(),
        *,
        log: BestEffort[MemberBegin, Event, Command] | None = None,
    ) -> None:
        """No I/O happens here; `run` does it.

        Args:
            host: where capacity goes.
            member: the cluster to look after.
            cluster: its name on the host.
            settings: of the process.
            log: of events to the scheduler's core and its answers; a fresh core begins in it.
        """
        if log is not None:
            log.begin(MemberBegin(cluster, settings.core))
        self.cluster = cluster
        self._api = member
        self.cache = MemberCache(member)
        self.tally = Tally(self.cache)
        self.recorder = Recorder(member, "agent")
        self.cache.owners.tell(self.recorder)
        self.publisher = Publisher(host, cluster, self._specs, settings=settings.capacity)
        self._interval = settings.capacity.interval
        self.surroundings = Surroundings(host, member, cluster)
        self.ours = Ours(self.cache)
        self.jobs = JobController(member, self.cache, self.recorder, settings=settings.jobs)
        self.arrays = ArrayController(member, self.cache, self.recorder, settings=settings.jobs)
        self.scheduler = Scheduler(
            member,
            self.cache,
            self.recorder,
            ours=self.ours,
            remake=self.jobs.remake,
            promise=self.publisher.promise,
            log=log,
            settings=settings,
        )
        self.configuration = Configuration(member, self.recorder, self.scheduler.configure)
        self._meter = Meter(
            member, lambda: self.scheduler.use_matters, self.scheduler.configure, settings=settings.usage
        )
        self._summary = MemberCapacity(cluster, self.scheduler.room)
        tainted = Tainted(self.cache, self.scheduler.room.devices.taints, self.recorder)
        self._busy = PodUse(member, self.cache, settings=settings.busy)
        self.placements = Placements(
            self.cache, self.scheduler, self.publisher, tainted, self._busy.of, settings=settings.placements
        )
        self.pod_groups = PodGroups(member, self.cache, self.recorder, ours=self.ours, settings=settings.podgroups)
        #: whether Volcano Jobs are ours to reconcile; None: unless Volcano's own controllers run in the member
        self._jobs_wanted = {"on": True, "off": False, "auto": None}[settings.jobs.reconcile]
        #: label selector of the nodes that are used
        self._nodes = ""
        self.surroundings.on_change(self._placing_changed)
        self.hyper_nodes = HyperNodes(member, self.cache, self.recorder, self.scheduler.room)
        self._touch: Callable[[str], None] = lambda _: None
        self.scheduler.on_pass(self._after_pass)
        self.placements.on_news(lambda uid: self._touch(uid))

    @property
    def ready(self) -> bool:
        """Whether the member's objects are known."""
        return self.cache.synced

    @property
    def reservations(self) -> Reservations:
        """For delivery: keeps nodes for parts that are not applied yet."""
        return self.scheduler.reservations

    def placement(self, binding_uid: str) -> dict[str, Any] | None:
        """See `Placements.get`."""
        return self.placements.get(binding_uid)

    def pods(self, binding_uid: str) -> int:
        """How many pods of the binding the member has, ended ones included."""
        return len(self.cache.pods.by_index("binding", binding_uid))

    def pods_of(self, binding_uid: str) -> list[Pod]:
        """The pods of the binding that the member has."""
        return list(self.cache.pods.by_index("binding", binding_uid))

    def domain_of(self, node: str) -> str:
        """The lowest topology domain of a node; empty where it has none."""
        tree, lowest = self.scheduler.room.fleet.topology()
        number = lowest.get(node, NO_DOMAIN)
        return tree.domains[number].name if number != NO_DOMAIN else ""

    async def end_pods(self, binding_uid: str, grace: int) -> None:
        """Have the pods of a binding that goes end within so many seconds, with any grace period of their own."""
        now = time.time()
        for pod in self.cache.pods.by_index("binding", binding_uid):
            when = pod.metadata.deletion_timestamp
            if pod.grace <= grace or (when is not None and to_seconds(when) <= now + grace):
                continue
            with contextlib.suppress(errors.Conflict):
                metadata = pod.metadata
                await self._api.delete(PODS, metadata.name, metadata.namespace, uid=metadata.uid, grace_seconds=grace)

    def on_placement(self, touch: Callable[[str], None]) -> None:
        """Call `touch(binding UID)` whenever `placement` has something new to say."""
        self._touch = touch

    def made_for(self) -> MadeFor:
        """How to make workloads for the member now."""
        return self.surroundings.placing.made_for

    def _placing_changed(self, placing: Placing) -> None:
        runs = bool(placing.found.volcano_controllers)
        self.jobs.enable(not runs if self._jobs_wanted is None else self._jobs_wanted)
        self.ours.set_volcano(bool(placing.found.volcano_scheduler))
        if placing.wish.nodes != self._nodes:
            self._nodes = placing.wish.nodes
            self.scheduler.use_nodes(self._nodes)

    def notes(self) -> dict[str, str]:
        """Annotations that tell the host of the member, for the heartbeat."""
        if not self.surroundings.known:
            return {}
        placing = self.surroundings.placing
        return {keys.PLACER: placing.placer, keys.PLACER_WHY: placing.sentence}

    def ask_claims(self, text: str) -> None:
        """The host asks how many pods of these shapes fit (`atoll.model.claim_shapes`)."""
        if self._summary.ask(claim_shapes.decode(text)):
            self.publisher.wake()

    def _specs(self) -> dict[str, dict[str, Any]]:
        specs = self._summary.specs()
        if self._summary.unfinished:
            asyncio.get_running_loop().call_later(self._interval, self.publisher.wake)
        return specs

    def _after_pass(self, changed: set[str]) -> None:
        self.placements.observe(changed)
        self.hyper_nodes.observe()
        self.publisher.wake()
        for uid in sorted(changed):
            self._touch(uid)

    async def run(self) -> None:
        """Run until cancelled; a part that fails ends all of them."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.surroundings.run(), name="surroundings")
            # Whose the pods are, and which nodes count, is known before anything is done with them.
            await self.surroundings.wait()
            tasks.create_task(self.cache.run(), name="cache")
            tasks.create_task(self.recorder.run(), name="events")
            tasks.create_task(self.configuration.run(), name="configuration")
            await self.cache.wait()
            await self.configuration.wait()
            tasks.create_task(self._meter.run(), name="use of nodes")
            tasks.create_task(self._busy.run(), name="use of pods")
            # Generations that are promised before the counter is known could be too small.
            await self.publisher.resume()
            tasks.create_task(self.publisher.run(), name="capacity")
            tasks.create_task(self.scheduler.run(), name="scheduler")
            tasks.create_task(self.pod_groups.run(), name="podgroups")
            tasks.create_task(self.hyper_nodes.run(), name="hypernodes")
            tasks.create_task(self.jobs.run(), name="jobs")
            tasks.create_task(self.arrays.run(), name="arrays")
