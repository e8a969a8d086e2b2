"""Commands: wishes of users about queues and Volcano Jobs, each carried out once and then deleted.

What a Command asks of a Job is written on the Job itself as annotations, so that it lasts: an aborted Job is one that
is held and marked as aborted; the dispatcher takes a held gang back from all its members, whichever they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

import structlog

from atoll.control.caches import Caches, about_workload
from atoll.control.objects import BindingObject, CommandObject
from atoll.kinds import BY_GVK, BY_RESOURCE, KINDS, Kind
from atoll.kinds.metadata import held
from atoll.kube import errors
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys, numbers
from atoll.model.apiresource import COMMANDS, QUEUES, ApiResource
from atoll.model.objects import Full
from atoll.model.verdict import WITHHELD

Json = dict[str, Any]
Key = tuple[ApiResource, str]
"""Resource and `namespace/name` of a workload."""

_QUEUE_STATES = {"OpenQueue": "Open", "CloseQueue": "Closed"}
_OBEDIENT = tuple(kind for kind in KINDS if kind.commands)
_RELEASED = {keys.HOLD: None, keys.ABORTED: None}

log = structlog.get_logger(__name__)


class Commands:
    """Consumes the Commands that target a Queue or a Volcano Job."""

    def __init__(self, host: ApiServer, caches: Caches, recorder: Recorder) -> None:
        """No I/O happens here; `run` does it."""
        self._host, self._caches, self._recorder = host, caches, recorder
        self._queue: WorkQueue[str] = WorkQueue("commands", lambda key: {"command": key}, owns=caches.owns)
        self._restarts: WorkQueue[Key] = WorkQueue("restarts", about_workload, owns=caches.owns)
        caches.commands.on_change(lambda old, new: self._queue.add(new.metadata.key) if new is not None else None)
        caches.bindings.on_change(self._binding_changed)
        for kind in _OBEDIENT:
            caches.workloads[kind.resource].on_change(partial(self._job_changed, kind))

    async def run(self) -> None:
        """Obey, one Command at a time, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(self._obey))
            group.create_task(self._restarts.run(self._restart))

    async def _obey(self, key: str) -> None:
        command = self._caches.commands.get(key)
        if command is None:
            return
        target = command.target
        resource = _target_of(command)
        if target is None or resource is None:
            about = _about(COMMANDS, command.metadata.name, command.metadata.namespace, command.metadata.uid)
            kind = f"{target.kind} ({target.api_version})" if target is not None else "nothing"
            self._complain(about, "UnknownTarget", f"targets {kind}; a Command acts on a Queue or on a {_titles()}")
        elif resource is QUEUES:
            await self._obey_for_queue(command, target.name, target.uid)
        elif not self._caches.enabled(command.metadata.namespace):
            return
        else:
            await self._obey_for_job(BY_RESOURCE[resource], command, target.name, target.uid)
        await self._delete(command)

    # -- queues ------------------------------------------------------------------------------------------------------

    async def _obey_for_queue(self, command: CommandObject, name: str, uid: str) -> None:
        queue = self._caches.queues.get(name)
        if queue is None or uid not in ("", queue.metadata.uid):
            return
        state = _QUEUE_STATES.get(command.action)
        if state is None:
            self._unknown(_about(QUEUES, name, "", queue.metadata.uid), command.action, _QUEUE_STATES)
            return
        if state == "Closed" and self._caches.in_use(name):
            state = "Closing"
        await self._host.merge_patch(
            QUEUES, name, {"status": {"state": state}}, subresource="status", field_manager="atoll-control"
        )

    # -- jobs --------------------------------------------------------------------------------------------------------

    async def _obey_for_job(self, kind: Kind, command: CommandObject, name: str, uid: str) -> None:
        job = self._caches.workloads[kind.resource].get(f"{command.metadata.namespace}/{name}")
        if job is None or uid not in ("", job.metadata.uid) or job.metadata.deletion_timestamp is not None:
            return
        about = _about(kind.resource, name, job.metadata.namespace, job.metadata.uid)
        if command.action not in kind.commands:
            self._unknown(about, command.action, kind.commands)
            return
        outcome = kind.finished(job.body.get("status") or {})
        stopped = job.metadata.annotations.get(keys.ABORTED) if held(job.body) else None
        if outcome is not None:
            self._complain(about, "JobEnded", f"{command.action} was asked for, but the Job has ended ({outcome})")
        elif command.action == "AbortJob":
            await self._annotate(kind, job, {keys.HOLD: "true", keys.ABORTED: keys.ABORTED_FOR_GOOD})
        elif command.action == "ResumeJob":
            if stopped != keys.ABORTED_FOR_GOOD:
                text = "ResumeJob was asked for, but the Job is not aborted"
                text += f"; it is held: `atollctl job release {name}` lets it go" if held(job.body) else ""
                self._complain(about, "NotAborted", text)
                return
            await self._annotate(kind, job, {**_RELEASED, keys.RETRIES: _one_more(job)})
        elif stopped is None and self._runs(job):
            await self._annotate(kind, job, {keys.HOLD: "true", keys.ABORTED: keys.ABORTED_TO_RESTART})
        elif stopped is None:
            self._complain(about, "NotStarted", "RestartJob was asked for, but no member runs the Job yet")

    def _runs(self, job: Full) -> bool:
        bindings = self._caches.bindings.by_index("workload", job.metadata.uid)
        return any(not binding.suspended for binding in bindings)

    def _gave_up(self, kind: Kind, job: Full) -> bool:
        """Whether a lifecycle policy of its own aborted it: its members report so, and no user of the host asked."""
        if held(job.body):
            return False
        for binding in self._caches.bindings.by_index("workload", job.metadata.uid):
            works = self._caches.current_works(binding)
            if not binding.suspended and works and all(kind.stopped(work.reported) for work in works):
                return True
        return False

    async def _annotate(self, kind: Kind, job: Full, annotations: Json) -> None:
        meta = job.metadata
        patch = {"metadata": {"uid": meta.uid, "annotations": annotations}}
        try:
            await self._host.merge_patch(kind.resource, meta.name, patch, meta.namespace, field_manager="atoll-control")
        except (errors.NotFound, errors.Conflict):
            log.info("the Job is another one by now", job=meta.key)

    # -- the second half of a restart ----------------------------------------------------------------------------------

    def _binding_changed(self, old: BindingObject | None, new: BindingObject | None) -> None:
        if new is not None and (old is None or (old.decision, old.evicting) != (new.decision, new.evicting)):
            reference = new.spec.resource
            kind = BY_GVK.get((reference.api_version, reference.kind))
            if kind in _OBEDIENT:
                self._restarts.add((kind.resource, f"{reference.namespace}/{reference.name}"))

    def _job_changed(self, kind: Kind, old: Full | None, new: Full | None) -> None:
        if new is not None and (
            new.metadata.annotations.get(keys.ABORTED) == keys.ABORTED_TO_RESTART or self._gave_up(kind, new)
        ):
            self._restarts.add((kind.resource, new.metadata.key))

    async def _restart(self, key: Key) -> None:
        """Release a Job that was evicted in order to start again; evict one that a policy of its own aborted."""
        kind, job = BY_RESOURCE[key[0]], self._caches.workloads[key[0]].get(key[1])
        if job is not None and self._gave_up(kind, job):
            await self._annotate(kind, job, {keys.HOLD: "true", keys.ABORTED: keys.ABORTED_FOR_GOOD})
            return
        if job is None or job.metadata.annotations.get(keys.ABORTED) != keys.ABORTED_TO_RESTART:
            return
        for binding in self._caches.bindings.by_index("workload", job.metadata.uid):
            if binding.suspended and not binding.evicting and binding.decision.reason in WITHHELD:
                await self._annotate(kind, job, {**_RELEASED, keys.RETRIES: _one_more(job)})

    # -- all ---------------------------------------------------------------------------------------------------------

    def _unknown(self, about: Json, action: str, known: Iterable[str]) -> None:
        note = f"{action or 'an empty action'} can't be done; the actions are {', '.join(known)}"
        self._complain(about, "UnknownAction", note)

    def _complain(self, about: Json, reason: str, note: str) -> None:
        log.info("command was not carried out", about=about["name"], reason=reason)
        self._recorder.record(about, reason, note, warning=True)

    async def _delete(self, command: CommandObject) -> None:
        meta = command.metadata
        try:
            await self._host.delete(COMMANDS, meta.name, meta.namespace, uid=meta.uid)
        except errors.Conflict:
            return


def _target_of(command: CommandObject) -> ApiResource | None:
    target = command.target
    if target is None:
        return None
    # Older clients leave the apiVersion out.
    known = (QUEUES, *(kind.resource for kind in _OBEDIENT))
    found = [each for each in known if target.kind == each.kind]
    return next((each for each in found if target.api_version in ("", each.api_version)), None)


def _titles() -> str:
    return " or a ".join(kind.words.title for kind in _OBEDIENT)


def _one_more(job: Full) -> str:
    return str((numbers.whole(job.metadata.annotations.get(keys.RETRIES)) or 0) + 1)


def _about(resource: ApiResource, name: str, namespace: str, uid: str) -> Json:
    about = {"apiVersion": resource.api_version, "kind": resource.kind, "name": name, "uid": uid}
    return {**about, "namespace": namespace} if namespace else about
