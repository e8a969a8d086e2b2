"""All parts of the agent that look at one member, put together, for its process and for federations in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from atoll.agent.cache import MemberCache
from atoll.agent.heartbeat import Heartbeat
from atoll.agent.hyper_nodes import HyperNodes
from atoll.agent.jobs.controller import JobController
from atoll.agent.placements import Placements
from atoll.agent.podgroups import PodGroups
from atoll.agent.publisher import Publisher
from atoll.agent.scheduler.loop import SERVED, Scheduler
from atoll.agent.scheduler.reservations import Reservations
from atoll.agent.summary import RoomSummary
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer
from atoll.model import keys


class MemberAgent:
    """Runs jobs, scheduler, capacity and heartbeat of a member."""

    def __init__(self, host: ApiServer, member: ApiServer, cluster: str, *, identity: str, jobs: bool = True) -> None:
        """No I/O happens here; `run` does it.

        Args:
            host: where capacity and the lease go.
            member: the cluster to look after.
            cluster: its name on the host.
            identity: of this process, for the lease.
            jobs: whether Volcano Jobs are ours to reconcile.
        """
        self.cluster = cluster
        self.cache = MemberCache(member)
        self.recorder = Recorder(member, "agent")
        self.publisher = Publisher(host, cluster, lambda: self._summary.specs())
        self.scheduler = Scheduler(member, self.cache, self.recorder, promise=self.publisher.promise)
        self._summary = RoomSummary(cluster, self.scheduler.room)
        self.placements = Placements(self.cache, self.scheduler, self.publisher)
        self.heartbeat = Heartbeat(host, member, cluster, identity)
        self.jobs = JobController(member, self.cache, self.recorder) if jobs else None
        # Volcano's controllers, where they run, make the PodGroups of its own scheduler's pods.
        served = SERVED if jobs else (keys.SCHEDULER_NAME,)
        self.pod_groups = PodGroups(member, self.cache, self.recorder, served=served)
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

    def on_placement(self, touch: Callable[[str], None]) -> None:
        """Call `touch(binding UID)` whenever `placement` has something new to say."""
        self._touch = touch

    def _after_pass(self, changed: set[str]) -> None:
        self.placements.observe(changed)
        self.hyper_nodes.observe()
        self.publisher.wake()
        for uid in sorted(changed):
            self._touch(uid)

    async def run(self) -> None:
        """Run until cancelled; a part that fails ends all of them."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.cache.run(), name="cache")
            tasks.create_task(self.heartbeat.run(), name="heartbeat")
            tasks.create_task(self.recorder.run(), name="events")
            await self.cache.wait()
            # Generations that are promised before the counter is known could be too small.
            await self.publisher.resume()
            tasks.create_task(self.publisher.run(), name="capacity")
            tasks.create_task(self.scheduler.run(), name="scheduler")
            tasks.create_task(self.pod_groups.run(), name="podgroups")
            tasks.create_task(self.hyper_nodes.run(), name="hypernodes")
            if self.jobs is not None:
                tasks.create_task(self.jobs.run(), name="jobs")
