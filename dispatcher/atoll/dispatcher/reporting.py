"""What queues show of themselves: the status of their objects, and metrics.

Apart from the shell because none of this may cost a decision: a pass leaves marks, and a task of its own looks at the
marked queues and those above them, each at most once a second.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import structlog

from atoll.dispatcher.core import BindingGone, BindingSet, Command, Dispatcher, Event, Pass, Refused
from atoll.dispatcher.core.backlog.binding import Binding
from atoll.dispatcher.core.quota.queue import Queue, path, subtree
from atoll.dispatcher.explain.figures import shown
from atoll.dispatcher.metrics import QueueMetrics
from atoll.dispatcher.settings import ReportSettings
from atoll.kube import errors
from atoll.kube.backoff import Backoff
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import conditions, quantity, queues
from atoll.model.apiresource import QUEUES
from atoll.model.decision import Phase
from atoll.model.queue_object import QueueObject

COUNTS = ("pending", "inqueue", "running", "completed")
"""Fields of a Queue's status: who waits, is dispatched but not all bound, is bound, has ended."""
VALID = "Valid"
"""Condition of a Queue: whether it is part of a valid tree."""
_SLICE = 10
"""Queues that are looked at before decisions get their turn."""

Json = dict[str, Any]

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Book:
    """Which binding counts as what in which queue."""

    #: UID -> (queue, field of its status)
    filed: dict[str, tuple[str, str]] = field(default_factory=dict)
    #: queue -> bindings that name it, not its descendants; no zeros
    counts: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def file(self, uid: str, binding: Binding | None) -> str:
        """Count a binding in its present state; None for one that is gone. Gives the queue that changed, or nothing."""
        after = (binding.leaf.name, _count_of(binding)) if binding is not None and binding.wish is not None else None
        before = self.filed.get(uid)
        if before == after:
            return ""
        if before is not None:
            queue, what = before
            self.counts[queue][what] -= 1
            if not self.counts[queue][what]:
                del self.counts[queue][what]
            if not self.counts[queue]:
                del self.counts[queue]
        if after is None:
            del self.filed[uid]
        else:
            self.filed[uid] = after
            self.counts[after[0]][after[1]] += 1
        return (after or before or ("", ""))[0]

    def below(self, node: Queue) -> Counter[str]:
        """The counts of a queue and all below it."""
        total: Counter[str] = Counter()
        for each in subtree(node):
            if each.name in self.counts:
                total += self.counts[each.name]
        return total


class Reporter:
    """Keeps status and metrics of all queues, while one leader lasts."""

    def __init__(
        self,
        host: ApiServer,
        core: Dispatcher,
        queues: Reflector[QueueObject],
        metrics: QueueMetrics,
        *,
        settings: ReportSettings = ReportSettings(),
    ) -> None:
        """No I/O happens here; `run` does it."""
        self._settings = settings
        self._host, self._core, self._queues, self._metrics = host, core, queues, metrics
        self._book = Book()
        #: UIDs of bindings that may count as something else now
        self._bindings: dict[str, None] = {}
        #: queues whose object changed, or whose update failed
        self._marked: dict[str, None] = {}
        #: queues of which the figures, or the reasons to wait, were not shown since they changed
        self._figures: dict[Queue, None] = {}
        self._moved: dict[Queue, None] = {}
        #: parent -> the division among its children that was shown
        self._divisions: dict[Queue, object] = {}
        self._wake = asyncio.Event()
        #: queues that are there and of which the last write of the status failed
        self._refused: Backoff[str] = Backoff(self._settings.interval, self._settings.longest_pause)
        queues.on_change(self._queue_changed)

    def told(self, event: Event, commands: Sequence[Command]) -> None:
        """Take an event of the core and its answer."""
        if isinstance(event, BindingSet):
            self._bindings[event.binding.uid] = None
        elif isinstance(event, BindingGone | Refused):
            self._bindings[event.uid] = None
        elif isinstance(event, Pass):
            self._figures |= dict.fromkeys(self._core.changes.queues)
            self._moved |= dict.fromkeys(self._core.changes.waits)
        for command in commands:
            self._bindings[command.uid] = None
        self._wake.set()

    def adopt(self) -> None:
        """Look at everything that the core knows."""
        self._bindings |= dict.fromkeys(self._core.bindings)
        self._moved |= dict.fromkeys(self._core.tree.queues.values())
        self._wake.set()

    async def run(self) -> None:
        """Report until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                nodes = iter(self._changed())
                while part := list(islice(nodes, _SLICE)):
                    for node in part:
                        self._show(node)
                    await self._write_all(part)
                    await asyncio.sleep(0)
                # Dispatches go first: news of queues gathers while the server is slow.
                pace = self._host.pace.delay(self._host.writes.under_way)
                await asyncio.sleep(self._settings.interval + pace)
        finally:
            # The figures are the next leader's to tell.
            self._metrics.clear()

    def _queue_changed(self, old: QueueObject | None, new: QueueObject | None) -> None:
        found = new or old
        if found is not None:
            if new is None:
                self._refused.forget(found.metadata.name)
                self._metrics.forget(found.metadata.name)
            self._mark(found.metadata.name)

    def _mark(self, name: str) -> None:
        self._marked[name] = None
        self._wake.set()

    def _changed(self) -> list[Queue]:
        """The queues that may look different than at the last call, in order of their names."""
        tree = self._core.tree
        names, self._marked = self._marked, {}
        uids, self._bindings = self._bindings, {}
        filed = (self._book.file(uid, self._core.bindings.get(uid)) for uid in uids)
        names |= dict.fromkeys(name for name in filed if name)
        self._moved = dict.fromkeys(map(self._now, self._moved))
        figures, self._figures = self._figures, {}
        found = dict.fromkeys((*map(self._now, figures), *self._moved))
        found |= dict.fromkeys(tree.queues[name] for name in names if name in tree.queues)
        found = dict.fromkeys(above for node in found for above in path(node))
        for node in list(found):
            found |= dict.fromkeys(self._divided_anew(node))
        return sorted(found, key=lambda node: node.name)

    def _now(self, node: Queue) -> Queue:
        """The queue as the tree knows it; one that was forgotten may be named again meanwhile."""
        present = self._core.tree.queues.get(node.name)
        if present is not node:
            self._divisions.pop(node, None)
        return present or node

    def _divided_anew(self, node: Queue) -> Iterable[Queue]:
        """The siblings, if their parent's shares were divided anew."""
        up = node.parent
        if up is None or not up.divided:
            return ()
        _ = node.deserved
        if self._divisions.get(up) is up.divided_from:
            return ()
        self._divisions[up] = up.divided_from
        return up.children.values()

    def _show(self, node: Queue) -> None:
        self._metrics.show(node, self._book.counts.get(node.name, {}))
        if node in self._moved:
            del self._moved[node]
            reasons = self._core.reasons(node) if node.view is not None or node.parent is None else {}
            self._metrics.show_blocked(node.name, reasons)

    # -- status ------------------------------------------------------------------------------------------------------

    async def _write_all(self, nodes: Iterable[Queue]) -> None:
        patches = [(node.name, patch) for node in nodes if (patch := self._patch(node)) is not None]
        rest = iter(patches)
        if patches:
            await asyncio.gather(*(self._writer(rest) for _ in range(min(self._settings.writers, len(patches)))))

    def _patch(self, node: Queue) -> Json | None:
        """What to change in the status of a queue's object; None when it says all already."""
        queue = self._queues.get(node.name)
        if queue is None or node.view is None or self._refused.pauses(node.name):
            return None
        return status_patch(queue, node, self._book.below(node), time.time())

    async def _writer(self, patches: Iterator[tuple[str, Json]]) -> None:
        for name, patch in patches:
            try:
                await self._host.merge_patch(
                    QUEUES, name, patch, subresource="status", field_manager="atoll-dispatcher"
                )
            except (errors.NotFound, errors.Conflict):
                continue
            except errors.ApiError as error:
                log.warning("status of a queue not written, will try again", queue=name, error=str(error))
                if self._queues.get(name) is not None:
                    pause = self._refused.failed(
                        name, at_least=min(error.retry_after or 0.0, self._settings.longest_pause)
                    )
                    asyncio.get_running_loop().call_later(pause, self._mark, name)
            else:
                self._refused.forget(name)


def status_patch(queue: QueueObject, node: Queue, counts: Mapping[str, int], now: float) -> Json | None:
    """The merge patch that makes a queue's status current; None when it does.

    Args:
        queue: as its object is.
        node: the queue in the tree.
        counts: by field, of the queue and all below it.
        now: seconds since the epoch.
    """
    seen = queue.status
    allocated = {name: quantity.format_units(name, amount) for name, amount in sorted(shown(node).items())}
    reason, text = "TreeValid", "The queue and those above it fit together."
    if node.problem:
        reason, text = "TreeInvalid", node.problem
    elif over := queues.over_total(node.guarantee, node.total):
        # Members come and go, so this is no fault of the tree; but the queues beside it may be left with nothing.
        reason, text = "GuaranteeNotCovered", f"It is guaranteed {over} that its members have."
    met = conditions.with_condition(seen.conditions, VALID, not node.problem, reason, text, now=now)
    wanted: Json = {name: counts.get(name, 0) for name in COUNTS}
    changed: Json = {name: value for name, value in wanted.items() if getattr(seen, name) != value}
    if {name: str(value) for name, value in seen.allocated.items()} != allocated:
        changed["allocated"] = {**dict.fromkeys(seen.allocated), **allocated}
    if met != seen.conditions:
        changed["conditions"] = met
    return {"metadata": {"uid": queue.metadata.uid}, "status": changed} if changed else None


def _count_of(binding: Binding) -> str:
    if binding.phase is Phase.FINISHED:
        return "completed"
    if binding.phase is Phase.SUSPENDED:
        return "pending"
    return "running" if binding.bound else "inqueue"
