"""Tells pods that wait why they do, as kube-scheduler does: condition PodScheduled, and an Event FailedScheduling.

Readers of pods (autoscalers, dashboards, `kubectl describe`) reads these. Thousands of pods may wait at once, so
writes have a budget, a pod gets its reason at once and changed numbers only now and then, and one that
is placed within a moment gets none.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Mapping

import numpy as np

from atoll.agent.cache import MemberCache
from atoll.agent.objects import Pod
from atoll.agent.scheduler.core import gangs
from atoll.agent.scheduler.core.planner import SCHEDULER_ERROR, VOLUMES, Wait
from atoll.agent.scheduler.core.room import Room
from atoll.agent.settings import NoticeSettings
from atoll.fit import Nodes
from atoll.fit.constraints import Attachments, Devices, attachments, devices, host_ports
from atoll.fit.placement import Ints
from atoll.kube import errors
from atoll.kube.events import Recorder, reference
from atoll.kube.ratelimit import RateLimit
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model.apiresource import PODS
from atoll.model.timestamps import rfc3339_seconds

RATE, BURST = 25.0, 200
"""Conditions of all pods together, a second and at once."""
EVENT_RATE, EVENT_BURST = 10.0, 50
"""Events likewise: half of what the process may tell, so that they silence nothing else."""
_WORKERS = 8


class Notices:
    """Keeps the conditions of pods that wait; `run` must be running for anything to be written."""

    def __init__(
        self,
        api: ApiServer,
        cache: MemberCache,
        room: Room,
        waits: Mapping[str, Wait],
        recorder: Recorder,
        *,
        settings: NoticeSettings = NoticeSettings(),
    ) -> None:
        """No I/O happens here.

        Args:
            api: the member.
            cache: of the member; a handler is added to it.
            room: knows which pods have a node.
            waits: gang key -> why its pods wait; kept by the scheduler.
            recorder: for the Events.
            settings: its times and bounds.
        """
        self._settings = settings
        self._api, self._cache, self._room, self._waits, self._recorder = api, cache, room, waits, recorder
        self._queue: WorkQueue[str] = WorkQueue("notices", lambda key: {"pod": key})
        self._conditions = RateLimit(RATE, BURST)
        self._events = RateLimit(EVENT_RATE, EVENT_BURST)
        #: pod key -> time of its last notice, on the loop's clock; only of waiting pods
        self._told: dict[str, float] = {}
        #: (shape of a pod, version of the `Room`) -> sentence; of one version
        self._sentences: dict[tuple[object, ...], str] = {}
        self._version = -1
        cache.pods.on_change(self._pod_changed)

    def waiting(self, wait: Wait) -> None:
        """These pods wait, and perhaps for another reason than before."""
        now = asyncio.get_running_loop().time()
        for pod in wait.gang.waiting:
            if pod.held:
                # Until its gate is lifted its condition is the API server's; a later one is its scheduler's.
                continue
            key, told = pod.metadata.key, self._told.get(pod.metadata.key)
            due = now + self._settings.first
            if told is not None and pod.unscheduled is not None and pod.unscheduled[0] == _reason(wait):
                due = max(due, told + self._settings.again)
            # Pods without a notice come first.
            self._queue.add(key, priority=pod.unscheduled is None, after=due - now)

    async def run(self) -> None:
        """Write until cancelled."""
        await self._queue.run(self._write, workers=_WORKERS)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and (new is None or new.node or new.metadata.uid != old.metadata.uid):
            self._told.pop(old.metadata.key, None)

    def _what(self, key: str) -> tuple[Pod, str, str] | None:
        """The pod, and (reason, message) that it should have; None for no notice."""
        pod = self._cache.pods.get(key)
        if (
            pod is None
            or pod.node
            or pod.finished
            or pod.terminating
            or pod.gated
            or pod.held
            or self._room.node_of(pod)
        ):
            return None
        wait = self._waits.get(gangs.key_of(pod))
        if wait is None:
            return None
        reason, message = _reason(wait), self._message(pod, wait)
        return None if pod.unscheduled == (reason, message) else (pod, reason, message)

    async def _write(self, key: str) -> None:
        if self._what(key) is None:
            return
        await self._conditions.take(math.inf)
        # It may have taken a while.
        found = self._what(key)
        if found is None:
            return
        pod, reason, message = found
        loop = asyncio.get_running_loop()
        metadata, now = pod.metadata, rfc3339_seconds(time.time())
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        if pod.unscheduled is None:
            condition["lastTransitionTime"] = now
        patch = {"metadata": {"uid": metadata.uid}, "status": {"conditions": [condition]}}
        self._told[key] = loop.time()
        try:
            await self._api.merge_patch(
                PODS, metadata.name, patch, metadata.namespace, subresource="status", strategic=True
            )
        except (errors.NotFound, errors.Conflict):
            self._told.pop(key, None)
            return
        if self._events.reserve(loop.time(), 0.0) is not None:
            about = reference(PODS, metadata.namespace, metadata.name, metadata.uid)
            self._recorder.record(about, "FailedScheduling", message, warning=True, action="Scheduling")

    def _message(self, pod: Pod, wait: Wait) -> str:
        if wait.reason in (SCHEDULER_ERROR, VOLUMES):
            return wait.message
        if pod.claims:
            # With the nodes of its volumes.
            pod = next((each for each in wait.gang.waiting if each.metadata.uid == pod.metadata.uid), pod)
        if self._version != self._room.version:
            self._version, self._sentences = self._room.version, {}
        shape = (
            tuple(sorted(pod.requests.items())),
            tuple(sorted(pod.node_selector.items())),
            repr(pod.node_terms),
            repr(pod.tolerations),
            pod.priority,
            tuple(pod.ports),
            tuple(pod.attach.items()),
            repr(pod.shared),
            repr(pod.devices),
            pod.rules,
            # What others say of it is of its labels.
            tuple(pod.metadata.labels.items()) if self._room.peers.keep_others_away else (),
        )
        if shape not in self._sentences:
            self._sentences[shape] = refusals(self._room, pod)
        alone = self._sentences[shape]
        if alone and wait.gang.min_member <= 1:
            return alone
        gang = f"pod group is not ready: {wait.message}"
        return f"{alone} {gang}" if alone else gang


def refusals(room: Room, pod: Pod) -> str:
    """Why no node takes the pod, node by node, in kube-scheduler's words; empty where one would take it."""
    nodes = room.arrays.nodes()
    counts: Counter[str] = Counter()
    [rules] = gangs.rules_of([pod], room.peers.read_keys() if room.peers.keep_others_away else None)
    task = gangs.task_of(pod, rules)
    if bool((nodes.room_for(task) > 0).any()):
        return ""
    accepting = nodes.accepting(task)
    for column in np.flatnonzero(~accepting):
        counts[nodes.profiles[nodes.profile[column]].refusal(task)] += 1
    if pod.ports and (short := int((accepting & (nodes.room(pod.requests) > 0)).sum())):
        counts[host_ports.REFUSAL] += short
    for each in nodes.exact if task.attach else ():
        if isinstance(each, Attachments) and (most := each.room(task, len(nodes))) is not None:
            counts[attachments.REFUSAL] += int((accepting & (nodes.room(pod.requests) > 0) & (most < 1)).sum())
    for each in nodes.exact if task.claims else ():
        if isinstance(each, Devices) and (most := each.room(task, len(nodes))) is not None:
            counts[devices.REFUSAL] += int((accepting & (nodes.room(pod.requests) > 0) & (most < 1)).sum())
    if nodes.company is not None:
        held = accepting & (nodes.room(pod.requests) > 0)
        for text, where in nodes.company.refusals(task):
            counts[text] += int((held & where).sum())
    for name, amount in pod.requests.items():
        if short := int((accepting & (_free(nodes, name) < amount)).sum()):
            counts["Too many pods" if name == "pods" else f"Insufficient {name}"] += short
    if away := len(room.fleet) - len(nodes):
        lost = sum(1 for name in room.fleet.lost if (node := room.fleet.node(name)) is not None and node.ready)
        counts["node(s) were in a HyperNode that is lost"] += lost
        counts["node(s) were not ready"] += away - lost
    if not len(room.fleet):
        return "no nodes available to schedule pods"
    reasons = ", ".join(sorted(f"{count} {text}" for text, count in counts.items() if count))
    return f"0/{len(room.fleet)} nodes are available: {reasons}."


def _free(nodes: Nodes, resource: str) -> Ints:
    free: Ints = np.zeros(len(nodes), np.int64)
    return nodes.free[nodes.resources.index(resource)] if resource in nodes.resources else free


def _reason(wait: Wait) -> str:
    return SCHEDULER_ERROR if wait.reason == SCHEDULER_ERROR else "Unschedulable"
