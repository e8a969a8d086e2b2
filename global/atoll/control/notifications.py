"""Notifications: what becomes of workloads whose annotation, or queue, names a target of the administrator.

A message is due while the binding's status does not have it in `notified`, so it is sent again after a restart until
that is written: at least once, with an `id` that stays the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter

from atoll.control.caches import Caches
from atoll.control.objects import BindingObject
from atoll.control.settings import NotificationSettings
from atoll.control.targets import Message, Outlet, Target, parse
from atoll.kube.events import Recorder, reference
from atoll.model import keys, notify, runs
from atoll.model.ages import duration
from atoll.model.notify import Wish
from atoll.model.runs import DELETED, EVICTED, Run
from atoll.model.timestamps import is_time, rfc3339, to_seconds

Json = dict[str, Any]
_LOOK_S: Final = 5.0
"""Between two looks at waiting workloads and at the file of targets."""
_KEPT: Final = 128
"""Messages in the status of a binding: 16 runs and their waits, 4 targets."""
_LONGEST: Final = 600
_EVENTS: Final = {EVICTED: notify.EVICTED, "Failed": notify.FAILED}

log = structlog.get_logger(__name__)


def counter(registry: CollectorRegistry) -> Counter:
    """Messages by target and result: sent, suppressed, failed."""
    return Counter("atoll_notifications", "Messages about workloads", ["target", "result"], registry=registry)


class Notifications:
    """Follows runs and waits while one leader lasts."""

    def __init__(self, caches: Caches, recorder: Recorder, count: Counter, *, settings: NotificationSettings) -> None:
        """Read the file of targets. Call it before the caches run.

        Raises:
            SystemExit: the file can't be read.
        """
        self._caches, self._recorder, self._count, self._settings = caches, recorder, count, settings
        self._path = Path(settings.targets) if settings.targets else None
        self._targets: dict[str, Target] = {}
        self._text = b""
        self._outlets: dict[str, Outlet] = {}
        #: bindings that changed, by key
        self._changed: dict[str, BindingObject] = {}
        #: keys of bindings that wait
        self._waiting: set[str] = set()
        #: UID of a binding -> messages that left, until its status has them; False while they are under way
        self._sent: dict[str, dict[str, bool]] = {}
        self._tell: Callable[[str], None] = lambda key: None
        self._wake = asyncio.Event()
        if self._path is not None:
            try:
                self._read(self._path)
            except (OSError, ValueError) as error:
                raise SystemExit(f"--notifications {self._path}: {error}") from error
            caches.bindings.on_change(self._binding_changed)

    def on_sent(self, tell: Callable[[str], None]) -> None:
        """Call `tell(key of the binding)` when a message of the binding has left."""
        self._tell = tell

    def status_of(self, binding: BindingObject) -> Json:
        """`notified` for a new status of the binding."""
        left = [name for name, done in self._sent.get(binding.metadata.uid, {}).items() if done]
        known = list(binding.status.get("notified") or ())
        found = [*known, *(name for name in left if name not in known)][-_KEPT:]
        return {"notified": found} if found else {}

    async def run(self) -> None:
        """Send until cancelled."""
        if self._path is None:
            return
        async with asyncio.TaskGroup() as group:
            looked = time.monotonic()
            while True:
                self._look(group)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), _LOOK_S)
                self._wake.clear()
                if time.monotonic() - looked >= _LOOK_S:
                    looked = time.monotonic()
                    self._reread(self._path)
                    self._changed |= {key: each for key in self._waiting if (each := self._caches.bindings.get(key))}

    def _binding_changed(self, old: BindingObject | None, new: BindingObject | None) -> None:
        either = new or old
        assert either is not None, "one of both is there"
        key, uid = either.metadata.key, either.metadata.uid
        if not self._caches.owns(either.metadata.namespace):
            return
        if new is None:
            self._waiting.discard(key)
            self._sent.pop(uid, None)
            return
        if sent := self._sent.get(uid):
            for name in new.status.get("notified") or ():
                sent.pop(name, None)
        # Most changes are of workloads that run.
        if new.suspended or any(run.get("ended") for run in new.status.get("runs") or ()):
            self._changed[key] = new
            self._wake.set()

    def _look(self, group: asyncio.TaskGroup) -> None:
        changed, self._changed = self._changed, {}
        for key, binding in changed.items():
            wishes = self._wishes(binding)
            waits = any(wish.waiting is not None for wish in wishes) and binding.suspended
            (self._waiting.add if waits else self._waiting.discard)(key)
            for wish in wishes:
                for epoch, message in self._due(binding, wish):
                    self._offer(binding, wish.target, f"{epoch}/{message.event}/{wish.target}", message, group)

    def _offer(
        self, binding: BindingObject, target: str, mark: str, message: Message, group: asyncio.TaskGroup
    ) -> None:
        if mark in (binding.status.get("notified") or ()):
            return
        sent = self._sent.setdefault(binding.metadata.uid, {})
        if mark in sent:
            return
        sent[mark] = False
        found = self._targets.get(target)
        if found is None or (found.namespaces and binding.metadata.namespace not in found.namespaces):
            self._refuse(binding, target)
            return
        if (outlet := self._outlets.get(target)) is None:
            outlet = Outlet(target, partial(self._present, target), self._settings, self._count)
            self._outlets[target] = outlet
            group.create_task(outlet.run())
        outlet.offer(msgspec.structs.replace(message, done=partial(self._left, binding, mark)))

    def _left(self, binding: BindingObject, mark: str) -> None:
        if mark in (sent := self._sent.get(binding.metadata.uid, {})):
            sent[mark] = True
            self._tell(binding.metadata.key)

    def _refuse(self, binding: BindingObject, target: str) -> None:
        if (found := self._caches.workload_of(binding)) is not None:
            kind, workload = found
            meta = workload.metadata
            about = reference(kind.resource, meta.namespace, meta.name, meta.uid)
            self._recorder.record(
                about, "NoSuchTarget", f"{keys.NOTIFY}: no target {target} for this namespace", warning=True
            )

    def _wishes(self, binding: BindingObject) -> list[Wish]:
        """Of the workload and of its queue; the workload's own about a target counts."""
        found, gang = self._caches.workload_of(binding), binding.gang
        queue = self._caches.queues.get(gang.queue) if gang is not None else None
        texts = [each.metadata.annotations.get(keys.NOTIFY, "") for each in (queue, found and found[1]) if each]
        wishes: dict[str, Wish] = {}
        for text in texts:
            try:
                wishes |= {wish.target: wish for wish in notify.parse(text)} if text else {}
            except notify.BadNotify:
                # The webhook has warned of it.
                continue
        return list(wishes.values())

    def _due(self, binding: BindingObject, wish: Wish) -> Iterator[tuple[int, Message]]:
        """Messages of the wish, sent or not, with the number of their run, which for a wait is the next."""
        now, present = time.time(), runs.runs_of(binding.status)
        for run in present:
            if not run.ended or run.outcome == DELETED or now - to_seconds(run.ended) > self._settings.fresh:
                continue
            event = _EVENTS.get(run.outcome, notify.ENDED)
            if event in wish.events or (event == notify.FAILED and notify.ENDED in wish.events):
                yield run.epoch, self._message(binding, run, event, run.ended, _ending(run))
        gang, last = binding.gang, present[-1] if present else None
        if wish.waiting is None or gang is None or not binding.suspended or binding.evicting:
            return
        if last is not None and last.outcome in ("Succeeded", "Failed"):
            return
        since = last.ended if last is not None else gang.submitted
        waited = now - to_seconds(since) if is_time(since) else 0.0
        if 0 <= waited - wish.waiting <= self._settings.fresh:
            run = Run((last.epoch if last is not None else 0) + 1, "", queue=gang.queue)
            text = f"waits for {duration(waited)}: {binding.decision.reason}"
            yield run.epoch, self._message(binding, run, notify.WAITING, rfc3339(now), text)

    def _message(self, binding: BindingObject, run: Run, event: str, at: str, text: str) -> Message:
        place = binding.spec.resource
        return Message(
            id=f"{binding.metadata.uid}/{run.epoch}/{event}",
            event=event,
            at=at,
            text=f"{place.kind} {place.namespace}/{place.name} {text}"[:_LONGEST],
            namespace=place.namespace or binding.metadata.namespace,
            name=place.name,
            kind=runs.kind_of(place.api_version, place.kind),
            queue=run.queue,
            user=run.user,
            members=[part.member for part in run.parts],
        )

    def _present(self, name: str) -> Target | None:
        """The target by the file as it was read last."""
        return self._targets.get(name)

    def _read(self, path: Path) -> None:
        text = path.read_bytes()
        if text != self._text:
            self._targets, self._text = parse(text), text

    def _reread(self, path: Path) -> None:
        try:
            self._read(path)
        except (OSError, ValueError) as error:
            log.warning("the file of targets can't be read; the ones before stay", error=str(error))


def _ending(run: Run) -> str:
    if run.outcome == EVICTED:
        claimant = f" for {run.evicted_for}" if run.evicted_for else ""
        return f"was evicted ({run.reason}){claimant}: {run.message}".removesuffix(": ")
    took = f" after {duration(to_seconds(run.ended) - to_seconds(run.bound))}" if run.bound else ""
    return f"{'failed' if run.outcome == 'Failed' else 'succeeded'}{took}"
