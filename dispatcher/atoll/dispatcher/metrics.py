"""Metrics of the dispatcher: decisions, queues, members, the query API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from atoll.dispatcher.core import BindingView
from atoll.dispatcher.core.preemption.moves import Moving
from atoll.dispatcher.core.quota.queue import Queue
from atoll.model import quantity
from atoll.model.timestamps import to_seconds
from atoll.model.vector import Vector
from atoll.model.verdict import Reason


class Metrics:
    """All metrics of the dispatcher."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.writes = Counter(
            "atoll_dispatcher_writes", "Patches of bindings", ["command", "outcome"], registry=registry
        )
        self.passes = Histogram("atoll_dispatcher_pass_seconds", "Time to take in events and decide", registry=registry)
        self.broken = Counter(
            "atoll_dispatcher_invariants_broken", "Times that the core did not agree with itself", registry=registry
        )
        self.strategies = Counter(
            "atoll_dispatcher_strategies_off", "Users' strategies that were turned off", ["group", "strategy"],
            registry=registry,
        )  # fmt: skip
        self.moved = Counter(
            "atoll_dispatcher_moved_gangs", "Gangs that were moved to free a topology domain", registry=registry
        )
        self.moves_lost = Counter(
            "atoll_dispatcher_moved_lost_pod_seconds", "Work that these moves lost, by estimate", registry=registry
        )
        self.moves_spared = Counter(
            "atoll_dispatcher_moved_spared_pod_seconds", "Waiting that these moves spared, by estimate",
            registry=registry,
        )  # fmt: skip
        self.queues = QueueMetrics(registry)
        self.members = MemberMetrics(registry)
        self.queries = Histogram(
            "atoll_query_seconds",
            "Time to answer a question of the query API",
            ["method", "resource", "code"],
            registry=registry,
        )
        self.latency = Histogram(
            "atoll_dispatch_seconds",
            "From the first sight of a binding to its dispatch written",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 120, 600, 3600),
            registry=registry,
        )

    def show_moves(self, moves: Sequence[Moving]) -> None:
        """Count moves that were decided."""
        for moving in moves:
            self.moved.inc(len(moving.freed.moves))
            self.moves_lost.inc(moving.freed.lost)
            self.moves_spared.inc(moving.waiting)


class _Lines:
    """A gauge with several lines per queue; a line that is not shown again disappears."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        #: queue -> rest of the labels -> value
        self._shown: dict[str, dict[tuple[str, ...], float]] = {}

    def show(self, queue: str, values: Mapping[tuple[str, ...], float]) -> None:
        shown = self._shown.get(queue, {})
        for labels in shown.keys() - values.keys():
            self._gauge.remove(queue, *labels)
        for labels, value in values.items():
            if shown.get(labels) != value:
                self._gauge.labels(queue, *labels).set(value)
        if values:
            self._shown[queue] = dict(values)
        else:
            self._shown.pop(queue, None)

    def clear(self) -> None:
        self._gauge.clear()
        self._shown.clear()


class QueueMetrics:
    """Gauges of queues. Counts are of the workloads that name the queue, amounts include the queues below it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def lines(name: str, text: str, *labels: str) -> _Lines:
            return _Lines(Gauge(f"atoll_queue_{name}", text, ["queue", *labels], registry=registry))

        self._pending = lines("pending", "Workloads that wait")
        self._blocked = lines("blocked", "Workloads that wait, by reason", "reason")
        self._charged = lines("charged", "Workloads that are charged")
        self._share = lines("share", "Dominant share of use against what is deserved")
        self._amounts = {
            "used": lines("used", "Charged to the queue (cores, bytes, devices)", "resource"),
            "deserved": lines("deserved", "What the queue is entitled to", "resource"),
            "limit": lines("limit", "Real capability of the queue", "resource"),
            "guarantee": lines("guarantee", "What is never lent to others", "resource"),
        }

        buckets = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 72 * 3600, 168 * 3600)
        self._waits = {
            name: Histogram(f"atoll_queue_{name}_seconds", text, ["queue"], buckets=buckets, registry=registry)
            for name, text in (
                ("admission", "From the submission of a workload to its first dispatch"),
                ("running", "From the submission of a workload until it ran first"),
            )
        }
        #: queues of which there are such lines
        self._waited: set[str] = set()

    def admitted(self, queue: str, view: BindingView, now: float) -> None:
        """A dispatch was written; only the first one of a workload is counted."""
        self._observe("admission", queue, view, now)

    def ran(self, queue: str, view: BindingView, now: float) -> None:
        """The minimum of a workload runs that did not; only the first time is counted."""
        self._observe("running", queue, view, now)

    def _observe(self, name: str, queue: str, view: BindingView, now: float) -> None:
        submitted = (view.gang.submitted if view.gang is not None else "") or view.created
        if submitted and not any(line.phase.going for line in view.decision.story):
            self._waits[name].labels(queue).observe(max(now - to_seconds(submitted), 0.0))
            self._waited.add(queue)

    def forget(self, queue: str) -> None:
        """It was deleted."""
        if queue in self._waited:
            self._waited.discard(queue)
            for histogram in self._waits.values():
                histogram.remove(queue)

    def show_blocked(self, queue: str, reasons: Mapping[Reason, int]) -> None:
        """Show why how many wait."""
        self._blocked.show(queue, {(reason,): amount for reason, amount in reasons.items()})

    def show(self, node: Queue, counts: Mapping[str, int]) -> None:
        """Show a queue as it is; one that is not known any more disappears."""
        # Of a queue that does not exist only charges are shown: users may name any number of queues.
        known = node.view is not None or node.parent is None or bool(node.used)
        name = node.name
        self._pending.show(name, {(): counts.get("pending", 0)} if known else {})
        self._charged.show(name, {(): counts.get("inqueue", 0) + counts.get("running", 0)} if known else {})
        self._share.show(name, {(): node.rank()[2]} if known and node.parent is not None else {})
        for word, lines in self._amounts.items():
            lines.show(name, dict(_figures(getattr(node, word))) if known else {})

    def clear(self) -> None:
        """Show nothing."""
        for lines in (self._pending, self._blocked, self._charged, self._share, *self._amounts.values()):
            lines.clear()


def _figures(amounts: Vector) -> Iterator[tuple[tuple[str, ...], float]]:
    for name, amount in amounts.items():
        yield (name,), amount / quantity.scale_of(name)


class MemberMetrics:
    """Circuit breakers of members, and capacity of theirs that is not used."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.open = Gauge(
            "atoll_member_circuit_open",
            "1 while the circuit breaker of a member is open, 0 once it is closed again",
            ["cluster"],
            registry=registry,
        )
        self.opened = Counter(
            "atoll_member_circuit_opened",
            "How often the circuit breaker of a member was opened, a failed trial included",
            ["cluster", "reason"],
            registry=registry,
        )
        self.replaced = Counter(
            "atoll_member_capacity_replaced",
            "ClusterCapacity objects of a member that were replaced by newer ones before their turn came",
            ["cluster"],
            registry=registry,
        )
        self.not_used = Gauge(
            "atoll_member_capacity_not_used",
            "ClusterCapacity objects of a member that contradict themselves or others, or are too large",
            ["cluster"],
            registry=registry,
        )
