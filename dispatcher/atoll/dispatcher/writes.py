"""Writes decisions of the core to the host: one guarded patch each, again where the server gave no answer."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import structlog

from atoll.dispatcher import objects
from atoll.dispatcher.core import Ask, Command, Commit, Dispatch, Dispatcher, Event, Evict, Part, Refused, Resize
from atoll.dispatcher.metrics import Metrics
from atoll.dispatcher.settings import ShellSettings
from atoll.kube import errors
from atoll.kube.backoff import Backoff
from atoll.kube.logs import working_on
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import decision, keys
from atoll.model.apiresource import BINDINGS
from atoll.model.gang import component_name

_ANNOTATIONS = "/metadata/annotations/"
_DECISION = _ANNOTATIONS + keys.DECISION.replace("/", "~1")
_EPOCH = _ANNOTATIONS + keys.EPOCH.replace("/", "~1")
_GANG = _ANNOTATIONS + keys.GANG.replace("/", "~1")
Queued = tuple[int, Command, objects.BindingObject | None]
"""(number of the pass that decided it, the command, the binding that it was decided on)."""

log = structlog.get_logger(__name__)


class DecisionWrites:
    """Commands of one run of the core, from its decision to the server's answer."""

    def __init__(
        self,
        host: ApiServer,
        core: Dispatcher,
        bindings: Reflector[objects.BindingObject],
        tell: Callable[[Event], None],
        metrics: Metrics,
        *,
        settings: ShellSettings,
    ) -> None:
        """No I/O happens here.

        Args:
            host: to write to.
            core: with the bindings as it knows them, for figures of queues.
            bindings: as last seen.
            tell: passes an event on to the core.
            metrics: to count in.
            settings: pauses and numbers of writers.
        """
        self._host, self._core, self._bindings, self._tell = host, core, bindings, tell
        self._metrics, self._settings = metrics, settings
        self._first: asyncio.Queue[Queued] = asyncio.Queue()
        #: repeated writes, and writes without an answer
        self._repeats: asyncio.Queue[Queued] = asyncio.Queue()
        #: UIDs of bindings that are there and of which the last decision was refused
        self._again: Backoff[str] = Backoff(settings.again, settings.longest_again)
        #: the same for UIDs whose last decision got no answer, or that of a server in trouble
        self._unanswered: Backoff[str] = Backoff(settings.again, settings.longest_again)
        #: namespaces in which the last write got none
        self._troubled: set[str] = set()
        #: on the loop's clock, when a write was answered last
        self._answered_at = -math.inf
        #: UID -> time.monotonic() of the first sight, while it waits
        self._first_seen: dict[str, float] = {}

    def start(self, group: asyncio.TaskGroup) -> None:
        """Write until the group is cancelled."""
        for queue, workers in ((self._first, self._settings.writers), (self._repeats, self._settings.repeaters)):
            for _ in range(workers):
                group.create_task(self._write(queue))

    def add(self, cycle: int, commands: Iterable[Command]) -> None:
        """Write these commands of a pass."""
        for command in commands:
            seen = self._bindings.get(f"{command.namespace}/{command.name}")
            queue = self._repeats if command.namespace in self._troubled else self._first
            queue.put_nowait((cycle, command, seen))

    def came(self, uid: str) -> None:
        """A binding was seen for the first time."""
        self._first_seen[uid] = time.monotonic()

    def gone(self, uid: str) -> None:
        """A binding is gone."""
        self._first_seen.pop(uid, None)
        self._again.forget(uid)
        self._unanswered.forget(uid)

    async def _write(self, queue: asyncio.Queue[Queued]) -> None:
        while True:
            cycle, command, seen = await queue.get()
            with working_on(cycle=cycle, **self._about(command)):
                await self.carry_out(cycle, command, seen)

    def _about(self, command: Command) -> dict[str, str]:
        """The log fields of a command: its binding and the workload behind it."""
        key = f"{command.namespace}/{command.name}"
        binding = self._bindings.get(key)
        return {"binding": key, **({"workload": binding.workload} if binding is not None else {})}

    async def carry_out(self, cycle: int, command: Command, seen: objects.BindingObject | None) -> None:
        """Write one command; without an answer it is queued again, refused it is decided again."""
        outcome = "written"
        try:
            await self._host.json_patch(
                BINDINGS, command.name, patch_of(command, seen), command.namespace, field_manager="atoll-dispatcher"
            )
        except (errors.Invalid, errors.NotFound, errors.Conflict) as error:
            outcome = "refused"
            log.info("decision refused, will decide again", error=str(error))
            # Not at once: it would be decided the same way until the watch shows the change.
            refused = Refused(command.uid, command.decision.epoch, command.generation)
            asyncio.get_running_loop().call_later(self._pause_after(command, error), self._tell, refused)
        except errors.ApiError as error:
            outcome = "repeated"
            if not self._is_there(command):
                # A process that may not write gets no answer that there is nothing to write.
                log.info("decision on a binding that is gone not written", error=str(error))
            else:
                # It may or may not have been carried out: the epoch test makes a second try harmless.
                log.warning("decision not written, will try again", error=str(error))
                pause = self._pause_after(command, error)
                asyncio.get_running_loop().call_later(pause, self._repeats.put_nowait, (cycle, command, seen))
        else:
            if not command.only_tells:
                self._again.forget(command.uid)
        if outcome != "repeated":
            self._answered_at = asyncio.get_running_loop().time()
            self._unanswered.forget(command.uid)
            self._troubled.discard(command.namespace)
        self._metrics.writes.labels(type(command).__name__, outcome).inc()
        if outcome == "written" and isinstance(command, Dispatch):
            log.info("dispatched", clusters=[part.cluster for part in command.parts], epoch=command.decision.epoch)
            since = self._first_seen.pop(command.uid, None)
            if since is not None:
                self._metrics.latency.observe(time.monotonic() - since)
            binding = self._core.bindings.get(command.uid)
            if binding is not None:
                self._metrics.queues.admitted(binding.leaf.name, binding.view, time.time())

    def _is_there(self, command: Command) -> bool:
        binding = self._bindings.get(f"{command.namespace}/{command.name}")
        return binding is not None and binding.metadata.uid == command.uid

    def _pause_after(self, command: Command, error: errors.ApiError) -> float:
        """Seconds until a decision is made or written again."""
        least = max(self._settings.again, min(error.retry_after or 0.0, self._settings.longest_again))
        if not self._is_there(command):
            return least
        if isinstance(error, errors.Unreachable | errors.Busy):
            # It says nothing about the decision.
            self._troubled.add(command.namespace)
            away = asyncio.get_running_loop().time() - self._answered_at > self._settings.outage
            pause = self._unanswered.failed(command.uid, at_least=least)
            return max(min(pause, self._settings.longest_outage_again), least) if away else pause
        if command.only_tells and not isinstance(error, errors.Forbidden):
            # Reasons are written beside what users and members change: that they meet now and then is no failure.
            return least
        return self._again.failed(command.uid, at_least=least)


def patch_of(command: Command, seen: objects.BindingObject | None = None) -> list[dict[str, Any]]:
    """The JSON patch of a command: nothing of it happens unless the binding is as it was decided on.

    Args:
        command: the decision.
        seen: the binding that it was decided on. Annotations and status do not raise the generation: with it, nothing
            is dispatched that its user has held since, and nothing evicted that has been bound since.
    """
    tests: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": command.uid},
        {"op": "test", "path": _EPOCH, "value": str(command.epoch)},
    ]
    text = {"op": "add", "path": _DECISION, "value": decision.encode(command.decision)}
    if command.only_tells:
        return [*tests, text]
    tests.append({"op": "test", "path": "/metadata/generation", "value": command.generation})
    if seen is not None and seen.metadata.uid == command.uid:
        if isinstance(command, Evict):
            tests.append({"op": "test", "path": "/metadata/resourceVersion", "value": seen.metadata.resource_version})
        elif keys.GANG in seen.metadata.annotations:
            tests.append({"op": "test", "path": _GANG, "value": seen.metadata.annotations[keys.GANG]})
    if isinstance(command, Ask):
        return [*tests, {"op": "replace", "path": _EPOCH, "value": str(command.decision.epoch)}, text]
    if isinstance(command, Commit):
        return [*tests, text, {"op": "add", "path": "/spec/suspension/dispatching", "value": False}]
    parts = command.parts if isinstance(command, Dispatch | Resize) else ()
    targets = [_target(part, divided=len(parts) > 1) for part in parts]
    clusters = {"op": "add", "path": "/spec/clusters", "value": targets}
    if isinstance(command, Resize):
        return [*tests, text, clusters]
    operations = [
        *tests,
        {"op": "replace", "path": _EPOCH, "value": str(command.decision.epoch)},
        text,
        clusters,
        {"op": "add", "path": "/spec/suspension/scheduling", "value": isinstance(command, Evict)},
    ]
    if isinstance(command, Evict) and (command.tasks or (seen is not None and seen.spec.graceful_eviction_tasks)):
        tasks = [msgspec.to_builtins(task) for task in command.tasks]
        operations.append({"op": "add", "path": "/spec/gracefulEvictionTasks", "value": tasks})
    if command.decision.phase is decision.Phase.RESERVING:
        operations.append({"op": "add", "path": "/spec/suspension/dispatching", "value": True})
    if seen is not None and keys.BINDING_FINALIZER in seen.metadata.finalizers:
        # Control's own: records of who wrote which field are a third of it, and go through each later write.
        operations.append({"op": "add", "path": "/metadata/managedFields", "value": [{}]})
    return operations


def _target(part: Part, *, divided: bool) -> dict[str, Any]:
    target: dict[str, Any] = {"name": part.cluster, "replicas": part.pods}
    if divided or len(part.tasks) > 1:
        target["components"] = [{"name": component_name(task), "replicas": pods} for task, pods in part.tasks]
    return target
