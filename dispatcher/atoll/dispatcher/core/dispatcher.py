"""The core: events in, decisions out.

Every component is an object with its own state; what all of them share is in `State`, which `handle` changes. Nothing
here reads a clock or does I/O, and every order is total, so the same events always give the same commands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from atoll.dispatcher.core import invariants
from atoll.dispatcher.core.admission import Admission
from atoll.dispatcher.core.backfill.policy import Policy
from atoll.dispatcher.core.backlog.deadlines import earliest
from atoll.dispatcher.core.commands import Command
from atoll.dispatcher.core.elastic.resizing import Resizing
from atoll.dispatcher.core.elastic.steady import Steady
from atoll.dispatcher.core.events import (
    BindingGone,
    BindingSet,
    CapacityGone,
    CapacitySet,
    ClusterGone,
    ClusterSet,
    Event,
    NamespaceGone,
    NamespaceSet,
    NamespaceView,
    Pass,
    QueueGone,
    QueueSet,
    Refused,
    StrategyOff,
)
from atoll.dispatcher.core.explanations import Explanations
from atoll.dispatcher.core.lifecycle.decisions import Decisions
from atoll.dispatcher.core.lifecycle.failing import Failing
from atoll.dispatcher.core.lifecycle.lost import Lost
from atoll.dispatcher.core.lifecycle.progress import Progress
from atoll.dispatcher.core.lifecycle.retries import Retries
from atoll.dispatcher.core.lifecycle.sightings import Sightings
from atoll.dispatcher.core.lifecycle.state import State
from atoll.dispatcher.core.lifecycle.surroundings import Surroundings
from atoll.dispatcher.core.preemption.claims import Claims
from atoll.dispatcher.core.preemption.defragmentation import Defragmentation
from atoll.dispatcher.core.preemption.dry_run import DryRuns
from atoll.dispatcher.core.preemption.nominations import Nominations
from atoll.dispatcher.core.preemption.triggers import Triggers
from atoll.dispatcher.core.quota.queue import Queue
from atoll.dispatcher.core.settings import CoreSettings
from atoll.dispatcher.strategies.budget import Strategies
from atoll.model.verdict import Reason, Verdict


class Changes(NamedTuple):
    """Objects that may look different after a pass."""

    queues: Sequence[Queue] = ()
    """Of which use, demand or figures changed; the same holds for those above."""
    waits: Sequence[Queue] = ()
    """In which others wait, or for other reasons."""
    members: Sequence[str] = ()
    """Of which the breaker changed."""


class Dispatcher:
    """Orders, admits, places; see `handle`."""

    def __init__(self, settings: CoreSettings = CoreSettings(), strategies: Strategies | None = None) -> None:
        """Begin empty; `strategies`: of users, none where they are not given."""
        self.settings = settings
        #: by the last pass
        self.changes = Changes()
        self.state = state = State(settings, strategies)
        self.tree, self.waiting, self.members, self.bindings = state.tree, state.waiting, state.members, state.bindings
        self.namespaces, self.reservations, self.wakeups = state.namespaces, state.reservations, state.wakeups
        self.breakers, self.refusals = state.breakers, state.refusals
        self.surroundings, self.sightings, self.retries = Surroundings(state), Sightings(state), Retries(state)
        self.claims = claims = Claims(state)
        self.decisions = decisions = Decisions(state)
        self.progress = Progress(state, decisions)
        self.resizing = Resizing(state, decisions)
        self.steady = Steady(state, decisions, self.resizing)
        self.lost = Lost(state, decisions, self.resizing)
        self.failing = Failing(state, decisions)
        self.policy = Policy(state, claims, decisions)
        self.triggers = Triggers(state, claims)
        self.defragmentation = Defragmentation(state, claims, self.policy, self.triggers)
        self.dry_runs = DryRuns(
            state, claims, decisions, self.resizing, self.policy, self.triggers, self.defragmentation
        )
        self.admission = Admission(state, claims, decisions, self.policy, self.triggers, self.defragmentation)
        self.nominations = Nominations(state, claims, decisions)
        self.explanations = Explanations(state, claims, decisions, self.resizing)

    def handle(self, event: Event) -> list[Command]:
        """Take an event in; only `Pass` decides."""
        match event:
            case BindingSet(binding):
                self.sightings.set_binding(binding)
            case Pass(now):
                commands = self._pass(now)
                self.changes = Changes(
                    self.tree.take_changed(), self.waiting.take_changed(), self.breakers.take_changed()
                )
                return commands
            case BindingGone(uid):
                self.sightings.drop_binding(uid)
            case Refused(uid, epoch, generation):
                self.sightings.refused(uid, epoch, generation)
            case StrategyOff(group, name, why):
                self.state.strategies.turn_off(group, name, why)
            case QueueSet(view):
                self.surroundings.set_queue(view.name, view)
            case QueueGone(name):
                self.surroundings.set_queue(name, None)
            case NamespaceSet(namespace):
                self.surroundings.set_namespace(namespace)
            case NamespaceGone(name):
                self.surroundings.set_namespace(NamespaceView(name))
            case ClusterSet(cluster, circuit):
                self.surroundings.set_cluster(cluster, circuit)
            case ClusterGone(name):
                self.surroundings.drop_cluster(name)
            case CapacitySet(capacity):
                self.surroundings.set_capacity(capacity.cluster, capacity.root, capacity)
            case CapacityGone(name, root):
                self.surroundings.set_capacity(name, root, None)
        return []

    def follow(self, event: Event) -> None:
        """Take an event in while another dispatcher decides.

        A core that begins to decide knows bindings as they are, not how they came to be so; for a core that follows the
        same holds, however long it does: each binding is forgotten before it is seen again.
        """
        match event:
            case BindingSet(binding):
                self.sightings.drop_binding(binding.uid)
            case ClusterSet(cluster):
                self.breakers.leave(cluster.name)
        self.handle(event)
        self.state.forget_unnamed_queues()
        # For the next pass: it finds everything changed.
        for forgotten in (self.tree, self.waiting, self.breakers):
            forgotten.take_changed()
        self.policy.reordered.clear()

    @property
    def next_deadline(self) -> float | None:
        """When a `Pass` is due even if nothing happens."""
        if self.dry_runs.unfinished:
            return self.state.now
        return earliest(
            self.progress.next, self.explanations.next, self.nominations.next, self.policy.next, self.triggers.next,
            self.dry_runs.next, self.retries.next, self.lost.next, self.failing.next,
            self.state.fair.next, self.resizing.next, self.defragmentation.next,
        )  # fmt: skip

    def _pass(self, now: float) -> list[Command]:
        # 1. Time has passed: wake workloads that may be tried again.
        self._begin(now)
        # 2. Evict workloads not reserved, bound or running in time; commit the ones that all members have reserved.
        commands: list[Command] = [
            *self.progress.overdue(),
            *self.resizing.drop_late_parts(self.progress.late_parts),
            *self.progress.not_running(),
            *self.progress.not_gone(),
            *self.lost.leave_members(),
            *self.failing.leave_members(),
            *self.dry_runs.mend_claims(),
            *self.progress.settle_answers(),
            *self.progress.too_few(),
            *self.resizing.keep_to_wishes(),
            *self.resizing.shrink_again(),
        ]
        self.resizing.name_kept_sizes()
        # 3. Dispatch while something fits; park the rest on what blocks it.
        self.retries.heed_breakers()
        self.wakeups.members_grew()
        self.dry_runs.unfinished = not self._dispatch(commands)
        if self.dry_runs.unfinished:
            return commands
        # 4. Reserve for new heads of queues.
        self.policy.keep_room_for_new_heads()
        # 5. Evict the victims of claims that all members say yes to; begin dry runs for others, at last for moves.
        commands += self.dry_runs.settle_questions()
        self.triggers.new_heads()
        commands += self.dry_runs.ask_for_room()
        commands += self.dry_runs.ask_for_moves()
        # 6. Give the rest to running workloads with fewer pods than requested.
        for leaf in self.resizing.grow_all(commands):
            self.triggers.can_spare(leaf)
        commands += self.steady.follow()
        # 7. Say why the rest waits.
        commands += self.nominations.name_stuck_victims()
        commands += self.explanations.write()
        commands += self.nominations.write_reservations()
        self.state.forget_unnamed_queues()
        return commands

    def _begin(self, now: float) -> None:
        elapsed = now - self.state.now
        self.decisions.pass_begins(elapsed)
        self.triggers.searches.pass_begins(elapsed, now)
        self.state.now = now
        self.progress.pass_begins(now)
        self.reservations.timeline.pass_begins(now)
        self.members.refresh()
        self.state.renumber_moved()
        self.retries.pass_begins()
        self.state.fair.pass_begins(now)
        self.nominations.take_up()
        self.policy.pass_begins()
        self.defragmentation.decided.clear()
        self.state.wakes.time_passed(now)

    def _dispatch(self, commands: list[Command]) -> bool:
        """Whether all that is awake was looked at."""
        parked = False
        while (group := self.waiting.first(parked=parked)) is not None:
            if len(commands) >= self.settings.pass_limit:
                # Members may tell of something else until then.
                self.wakeups.woken = dict.fromkeys(self.wakeups.woken)
                return False
            dispatched = self.admission.examine(group)
            parked = not dispatched
            commands += dispatched
            self.wakeups.looked_at(group, [part.cluster for command in dispatched for part in command.parts])
        self.wakeups.all_looked_at()
        return True

    # -- looking in --------------------------------------------------------------------------------------------------

    def verdict(self, uid: str) -> Verdict | None:
        """Why this binding waits; None when it does not wait or was not looked at yet."""
        return self.explanations.verdict(uid)

    def reasons(self, queue: Queue) -> Counter[Reason]:
        """How many wait in this queue, not in those below it, for which reason."""
        return self.waiting.reasons(queue)

    def check(self) -> None:
        """Verify the invariants; tests call it after every event.

        Raises:
            AssertionError: naming the invariant and the object.
        """
        invariants.verify(self.state)

    def check_sums(self) -> None:
        """The part of `check` that a live dispatcher can afford.

        Raises:
            AssertionError: naming the invariant and the object.
        """
        invariants.verify_sums(self.state)
