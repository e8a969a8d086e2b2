"""Feeds the core from watches and writes its decisions: one patch per dispatch.

Changes are collected for as long as the loop is busy, at most a few milliseconds, then the core decides once on all
of them.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress
from typing import Any, TypeVar

import structlog
from prometheus_client import CollectorRegistry

from atoll.dispatcher import flavoring, objects
from atoll.dispatcher.capacity import Capacities
from atoll.dispatcher.checking import Checker
from atoll.dispatcher.core import (
    BindingGone,
    BindingSet,
    BindingView,
    CapacitySet,
    ClusterGone,
    ClusterSet,
    Command,
    Dispatcher,
    Event,
    NamespaceGone,
    NamespaceSet,
    Pass,
    QueueGone,
    QueueSet,
)
from atoll.dispatcher.core.log import Begin
from atoll.dispatcher.intake import Intake
from atoll.dispatcher.members import MemberReporter
from atoll.dispatcher.metrics import Metrics
from atoll.dispatcher.reporting import Reporter
from atoll.dispatcher.settings import DispatcherSettings
from atoll.dispatcher.strategies.installed import Watch, installed
from atoll.dispatcher.writes import DecisionWrites
from atoll.kube import errors
from atoll.kube.events import Recorder
from atoll.kube.garbage import short_collections
from atoll.kube.logs import working_on
from atoll.kube.recording import BestEffort, LogWriter
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys, versions
from atoll.model.apiresource import BINDINGS, CAPACITIES, CLUSTERS, NAMESPACES, QUEUES, RESOURCE_QUOTAS
from atoll.model.flavors import NONE
from atoll.model.objects import HasMeta, Meta, Slim, decode_meta
from atoll.model.queue_object import QueueObject, decode_queue

T = TypeVar("T", bound=HasMeta)

_ANNOTATIONS = "/metadata/annotations/"

log = structlog.get_logger(__name__)


class Shell:
    """One run of the core, from the first list to the loss of leadership."""

    def __init__(
        self,
        host: ApiServer,
        metrics: Metrics | None = None,
        *,
        core: Dispatcher | None = None,
        recorder: LogWriter[Begin, Event, Command] | None = None,
        events: Recorder | None = None,
        settings: DispatcherSettings = DispatcherSettings(),
        leads: asyncio.Event | None = None,
    ) -> None:
        """No I/O happens here; `run` does it.

        Args:
            host: to watch and write.
            metrics: to count in.
            core: to use in place of a fresh one.
            recorder: of all events to the core and its answers; of a fresh core only, a log must begin with one.
            events: for messages about members, and of broken invariants; None for none.
            settings: its times and bounds.
            leads: set once this process leads; until then the core follows what another decides. None: it leads.
        """
        self._settings = settings
        self._host = host
        self._leads = leads
        self._log = BestEffort(recorder)
        self.metrics = metrics or Metrics(CollectorRegistry())
        self._strategies = Watch(settings.shell.strategy, self.metrics.strategies, events)
        self.core = core or Dispatcher(settings.core, installed(settings.core, self._strategies.timed))
        if recorder is not None:
            assert core is None, "a log of a core that has a past can't be decided again"
            self._log.begin(Begin(settings.core))
        #: events since the last pass
        self._events: list[Event] = []
        self._wake = asyncio.Event()
        self._cycle = 0
        #: set once the core has decided for the first time
        self._passed = asyncio.Event()
        self._bindings = Reflector(host, BINDINGS, objects.decode_binding)
        self._queues = Reflector(host, QUEUES, decode_queue)
        self._clusters = Reflector(host, CLUSTERS, objects.decode_cluster)
        self._capacities = Reflector(host, CAPACITIES, objects.decode_report)
        self._quotas = Reflector(host, RESOURCE_QUOTAS, objects.decode_quota)
        self._namespaces = Reflector(host, NAMESPACES, decode_meta)
        self._all: tuple[Reflector[Any], ...] = (
            self._queues, self._namespaces, self._quotas, self._clusters, self._capacities, self._bindings,
        )  # fmt: skip
        self._writes = DecisionWrites(
            host, self.core, self._bindings, self._tell, self.metrics, settings=settings.shell
        )
        self._bindings.on_change(self._binding_changed)
        self._bindings.add_index("namespace", lambda binding: [binding.metadata.namespace])
        #: of the root queue
        self._flavors = NONE
        self._queues.on_change(self._queue_changed)
        self._clusters.on_change(
            self._telling(
                lambda c: ClusterSet(objects.cluster_view(c), objects.circuit_of(c)),
                lambda c: ClusterGone(c.metadata.name),
            )
        )
        self._believed = Capacities()
        replaced = self.metrics.members.replaced
        self._intake = Intake(self._believed, self._member_said, lambda cluster: replaced.labels(cluster).inc())
        self._capacities.on_change(self._intake.changed)
        self._quotas.add_index("namespace", lambda quota: [quota.metadata.namespace])
        self._quotas.on_change(self._quota_changed)
        self._namespaces.on_change(self._namespace_changed)
        self._reporter = Reporter(host, self.core, self._queues, self.metrics.queues, settings=settings.reports)
        self._members = MemberReporter(
            host,
            self.core,
            self._clusters,
            self._believed.refused,
            self.metrics.members,
            events,
            settings=settings.reports,
        )
        self._checker = Checker(self.core, events, self.metrics.broken, settings=settings.check)
        #: set once the core has all present objects
        self.all_read = asyncio.Event()

    @property
    def synced(self) -> bool:
        """Whether everything has been listed once."""
        return all(reflector.synced.is_set() for reflector in self._all)

    def binding(self, namespace: str, name: str) -> objects.BindingObject | None:
        """The binding as it was last seen."""
        return self._bindings.get(f"{namespace}/{name}")

    def bindings_in(self, namespace: str) -> list[str]:
        """The names of the bindings of a namespace."""
        return [binding.metadata.name for binding in self._bindings.by_index("namespace", namespace)]

    def queue(self, name: str) -> QueueObject | None:
        """The Queue as it was last seen."""
        return self._queues.get(name)

    async def run(self) -> None:
        """Watch, once this process leads decide and write, until cancelled."""
        with short_collections():
            await self._run()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = {reflector: group.create_task(reflector.run()) for reflector in self._all}
            await self._read()
            self._intake.begin()
            if self._leads is not None and not self._leads.is_set():
                await self._follow(self._leads)
                if not await self._caught_up():
                    log.warning("the cache of bindings is behind and is read anew")
                    tasks[self._bindings].cancel()
                    await asyncio.wait({tasks[self._bindings]})
                    self._bindings.begin_anew()
                    group.create_task(self._bindings.run())
                    await self._bindings.synced.wait()
                self._follow_all()
                self._reporter.adopt()
            self.all_read.set()
            log.info("all read", bindings=len(self._bindings))
            self._writes.start(group)
            group.create_task(self._decide())
            group.create_task(self._report())
            group.create_task(self._members.run())
            group.create_task(self._checker.run())

    async def _read(self) -> None:
        """Take in the bindings while the server still sends them: only a pass decides, and there is none before all
        is read. Members come first, so that what runs there is not charged twice for a moment.
        """
        for reflector in self._all:
            if reflector is not self._bindings:
                await reflector.synced.wait()
        reading = asyncio.ensure_future(self._bindings.synced.wait())
        # All of it stays: the collector would go through it again and again, a quarter of the time that reading takes.
        collecting = gc.isenabled()
        gc.disable()
        try:
            while not reading.done():
                woken = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait({reading, woken}, return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
                self._wake.clear()
                self._take_in()
        finally:
            reading.cancel()
            gc.freeze()
            if collecting:
                gc.enable()
        self._wake.set()

    async def _follow(self, leads: asyncio.Event) -> None:
        """Keep the core as if it had just read everything, until this process leads."""
        log.info("following", bindings=len(self._bindings))
        leading = asyncio.ensure_future(leads.wait())
        try:
            while not leading.done():
                woken = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait({leading, woken}, return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
                self._wake.clear()
                self._follow_all()
                # What changes several times meanwhile is taken in once.
                await asyncio.wait({leading}, timeout=self._settings.shell.follows)
        finally:
            leading.cancel()

    def _follow_all(self) -> None:
        events, self._events = self._events, []
        latest = {event.binding.uid: event for event in events if isinstance(event, BindingSet)}
        for event in events:
            if not isinstance(event, BindingSet) or latest[event.binding.uid] is event:
                self.core.follow(event)

    async def _caught_up(self) -> bool:
        """Wait until all that the leader before has decided is in the cache; whether that was soon.

        Nothing says that a watch without events is not behind. So one binding is changed, by an annotation that matters
        to no process: once that is seen, all before it was.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._settings.shell.behind
        while loop.time() < end:
            try:
                async with asyncio.timeout_at(end):
                    async with aclosing(self._host.pages(BINDINGS, metadata_only=True, page_size=1)) as pages:
                        page = await anext(pages)
                    version = page.metadata.resource_version
                    if not page.items:
                        return True
                    if versions.number(version) < 0:
                        return False
                    meta = decode_meta(page.items[0]).metadata
                    # Where it is gone, its end is seen as well.
                    with suppress(errors.NotFound, errors.Invalid):
                        await self._host.json_patch(
                            BINDINGS, meta.name, _mark(meta, version), meta.namespace, field_manager="atoll-dispatcher"
                        )
                    await self._bindings.reach(version)
                    return True
            except TimeoutError:
                break
            except errors.ApiError as error:
                log.info("the host does not say what it has, will try again", error=str(error))
                await asyncio.sleep(self._settings.shell.again)
        return False

    async def _report(self) -> None:
        """Figures of queues, after the first decisions."""
        await self._passed.wait()
        await self._reporter.run()

    # -- in ----------------------------------------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        self._events.append(flavoring.event(event, self._flavors))
        self._wake.set()

    def _telling(
        self, changed: Callable[[T], Event], gone: Callable[[T], Event]
    ) -> Callable[[T | None, T | None], None]:
        def handler(old: T | None, new: T | None) -> None:
            if new is not None:
                self._tell(changed(new))
            elif old is not None:
                self._tell(gone(old))

        return handler

    def _queue_changed(self, old: QueueObject | None, new: QueueObject | None) -> None:
        view = objects.queue_view(new) if new is not None else None
        if view is not None:
            self._tell(QueueSet(view))
        elif old is not None:
            self._tell(QueueGone(old.metadata.name))
        found = new or old
        if found is None or found.metadata.name != keys.ROOT_QUEUE:
            return
        flavors = view.flavors if view is not None else NONE
        if [*flavors.items()] == [*self._flavors.items()] and flavors == self._flavors:
            return
        self._flavors = flavors
        for capacity in self._believed.all():
            self._tell(CapacitySet(capacity))
        for binding in self._bindings:
            self._binding_changed(binding, binding)

    def flavored(self, view: BindingView) -> BindingView:
        """A binding with the flavors that there are, as the core gets it."""
        return flavoring.binding(view, self._flavors)

    def _member_said(self, cluster: str, events: Iterable[Event]) -> None:
        for event in events:
            self._tell(event)
        self._members.mark(cluster)

    def _quota_changed(self, old: objects.QuotaObject | None, new: objects.QuotaObject | None) -> None:
        if (found := new or old) is not None:
            self._tell_of_namespace(found.metadata.namespace)

    def _namespace_changed(self, old: Slim | None, new: Slim | None) -> None:
        found = new or old
        if found is not None and (old is None or new is None or _said(old) != _said(new)):
            self._tell_of_namespace(found.metadata.name)

    def _tell_of_namespace(self, name: str) -> None:
        found = self._namespaces.get(name)
        labels, weight = _said(found) if found is not None else ({}, None)
        view = objects.namespace_view(name, labels, self._quotas.by_index("namespace", name), weight)
        said = view.limits or view.labels or view.scoped or view.weight != 1.0
        self._tell(NamespaceSet(view) if said else NamespaceGone(name))

    def _binding_changed(self, old: objects.BindingObject | None, new: objects.BindingObject | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._writes.gone(old.metadata.uid)
            self._tell(BindingGone(old.metadata.uid))
        if new is None:
            return
        if new.metadata.deletion_timestamp is not None and not new.spec.clusters:
            self._tell(BindingGone(new.metadata.uid))
            return
        view = objects.binding_view(new)
        if old is None:
            self._writes.came(new.metadata.uid)
        if view is not None:
            runs_now = view.started and old is not None and not _runs(old)
            if runs_now and view.gang is not None and self.all_read.is_set():
                self.metrics.queues.ran(view.gang.queue, view, time.time())
            self._tell(BindingSet(view))

    # -- decide ------------------------------------------------------------------------------------------------------

    async def _decide(self) -> None:
        while True:
            await self._pause()
            await asyncio.sleep(self._settings.shell.coalesce)
            self._wake.clear()
            started = time.perf_counter()
            self._cycle += 1
            with working_on(cycle=self._cycle):
                self._take_in()
                try:
                    commands = self._handle(Pass(time.time()))
                except AssertionError as error:
                    self._checker.tell(error)
                    await asyncio.sleep(self._settings.shell.farewell)
                    raise
            self.metrics.passes.observe(time.perf_counter() - started)
            self.metrics.show_moves(self.core.defragmentation.decided)
            self._passed.set()
            self._writes.add(self._cycle, commands)

    def _handle(self, event: Event) -> list[Command]:
        commands = self.core.handle(event)
        self._log.record(event, commands)
        self._reporter.told(event, commands)
        if isinstance(event, Pass):
            self._members.decided()
            for late in self._strategies.take_late():
                self._tell(late)
            if failures := self.core.state.strategies.take_failures():
                self._strategies.tell(failures, list(self._queues))
        return commands

    def _take_in(self) -> None:
        events, self._events = self._events, []
        for event in events:
            self._handle(event)

    async def _pause(self) -> None:
        due = self.core.next_deadline
        try:
            async with asyncio.timeout(None if due is None else max(due - time.time(), 0)):
                await self._wake.wait()
        except TimeoutError:
            return


def _mark(meta: Meta, version: str) -> list[dict[str, Any]]:
    """The JSON patch that changes a binding, and nothing that matters to a process."""
    present = {"op": "add", "path": _ANNOTATIONS + keys.SEEN.replace("/", "~1"), "value": version}
    first = {"op": "add", "path": "/metadata/annotations", "value": {keys.SEEN: version}}
    return [{"op": "test", "path": "/metadata/uid", "value": meta.uid}, present if meta.annotations else first]


def _runs(binding: objects.BindingObject) -> bool:
    return any(each.type == "Running" and each.status == "True" for each in binding.status.conditions)


def _said(namespace: Slim) -> tuple[dict[str, str], str | None]:
    """What of a Namespace matters: its labels and its weight."""
    return namespace.metadata.labels, namespace.metadata.annotations.get(keys.FAIR_WEIGHT)
