"""Dry runs: before any eviction, members say whether a blocked workload would fit there without its victims.

The core knows members by their published figures: rounded, merged into classes, and without what only a member's own
scheduler sees. So a plan of victims is a guess, and a guess must end no workload. Every plan is asked about, also one
for a single member with exact figures: a rule without exceptions costs one round trip, which is little beside the time
in which pods end.

A question is an epoch of the waiting workload in which nothing of it runs and no node is reserved, for the nodes are
others' still. Meanwhile its claim reserves the capacity. If all members say yes, and the facts of the question still
hold, the named victims are evicted, no others. If a member refuses or is silent, no victim is evicted, and
the member is avoided for the shape as one that could not reserve its part. A question that something has overtaken is
dropped, and a leader drops the questions of earlier leaders: the next decision about the workload withdraws them
from the members.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs

from atoll.dispatcher.core.backfill.permits import QueueRules
from atoll.dispatcher.core.backfill.policy import Policy
from atoll.dispatcher.core.backlog.backlog import ShapeClass
from atoll.dispatcher.core.backlog.binding import Binding
from atoll.dispatcher.core.backlog.wake_index import KEPT
from atoll.dispatcher.core.commands import Command
from atoll.dispatcher.core.elastic.resizing import Resizing
from atoll.dispatcher.core.lifecycle.decisions import Decisions
from atoll.dispatcher.core.lifecycle.state import State
from atoll.dispatcher.core.placement.choice import Choice
from atoll.dispatcher.core.placement.rules import Rules
from atoll.dispatcher.core.preemption.candidates import Victim, candidates, ordered
from atoll.dispatcher.core.preemption.claims import Claims, Loss, OpenQuestion
from atoll.dispatcher.core.preemption.defragmentation import Defragmentation
from atoll.dispatcher.core.preemption.search import Plan, by_moves, plan
from atoll.dispatcher.core.preemption.trial import Claimant, Trial
from atoll.dispatcher.core.preemption.triggers import Triggers, victim_of
from atoll.fit import Placement, place
from atoll.model.decision import Phase, Question
from atoll.model.verdict import Blocker, Reason, Verdict, blocker


class DryRuns:
    """Asks, and does what follows from the answers."""

    def __init__(
        self, state: State, claims: Claims, decisions: Decisions, resizing: Resizing, policy: Policy,
        triggers: Triggers, defragmentation: Defragmentation,
    ) -> None:  # fmt: skip
        self._state, self._claims, self._decisions, self._resizing = state, claims, decisions, resizing
        self._policy, self._triggers, self._defragmentation = policy, triggers, defragmentation
        self._settings = state.settings.preemption
        self.tree, self.waiting, self.members, self.bindings = state.tree, state.waiting, state.members, state.bindings
        self.namespaces, self.reservations = state.namespaces, state.reservations
        #: another pass is needed at once
        self.unfinished = False
        #: a claim needs another plan, and there were too many searches
        self._unmended = False

    @property
    def next(self) -> float | None:
        """When a question ends without an answer; one that is not written yet has not begun."""
        due = [each.deadline for each in self._claims.dry_runs() if each.binding.view.epoch >= each.epoch]
        return min([*due, *([self._state.now + 1 / self._settings.searches] if self._unmended else [])], default=None)

    # -- asking ------------------------------------------------------------------------------------------------------

    def ask_for_room(self) -> Iterator[Command]:
        """Search victims so that blocked workloads of higher priority, or of entitled queues, can start."""
        self._triggers.look_at_rights()
        while (group := self._triggers.searches.take()) is not None:
            if not group.members or group.lot is None or not self._triggers.may_evict(group):
                self._triggers.searches.drop(group)
                if group.members and group.lot is not None:
                    self._triggers.rightless[group] = None
                continue
            binding = self._next_claimant(group)
            if binding is None:
                # Once one of them waits no more, or its claim ends, the next one is looked at.
                continue
            if self._triggers.starts_soon(binding):
                self._triggers.searches.try_after(group, self._settings.pause, self._state.now)
                continue
            self._triggers.searches.tokens -= 1
            rules = self._policy.rules(binding, group.shape)
            outcome = self._whom_to_ask(group, binding, rules)
            if outcome is None:
                self._triggers.searches.try_again(group, self._state.now)
                continue
            self._triggers.searches.drop(group)
            yield self._claim(binding, outcome, rules)
            if len(group.members) > 1:
                self._triggers.searches.consider(group)

    def ask_for_moves(self) -> Iterator[Command]:
        """Begin a dry run for a gang that would fit into a domain that others can leave."""
        for binding, moving, rules in self._defragmentation.find():
            yield self._claim(binding, by_moves(moving), rules)

    def _next_claimant(self, group: ShapeClass) -> Binding | None:
        """The first of a class without a claim, if it may evict what the first of all may; in a strict queue there is
        only the first.
        """
        strict = group.behind is not None
        for key in group.members[: 1 if strict else None]:
            if not self._claims.awaits(key[2]):
                binding = self.bindings[key[2]]
                first = key == group.members[0]
                return binding if first or self._triggers.may_evict(group, -key[0]) else None
        return None

    def mend_claims(self) -> Iterator[Command]:
        """Where a victim does not end, or not soon, search at once for others that would do beside the rest; where
        there are none the claimant waits as others do, and its capacity is free for all.
        """
        self._unmended = False
        for claim in list(self.reservations.claims.values()):
            binding = self.bindings[claim.uid]
            if self._claims.dry_run(claim.uid) is not None or self._claims.holds(claim):
                continue
            if self._triggers.searches.tokens < 1:
                self._unmended = True
                return
            self._triggers.searches.tokens -= 1
            self._claims.end(claim.uid)
            group = self._class_of(binding)
            rules = self._policy.rules(binding, group.shape)
            outcome = self._whom_to_ask(group, binding, rules) if self._triggers.may_evict(group) else None
            self._state.wakes.fire(KEPT)
            self._policy.look_again(binding)
            if outcome is not None:
                yield self._claim(binding, outcome, rules)

    def _claim(self, binding: Binding, outcome: Plan, rules: Rules) -> Command:
        """Begin a dry run for its victims; where leaving workloads suffice, reserve their capacity for it."""
        if outcome.losses:
            rules.overtake()
            return self._ask(binding, outcome)
        self._keep_for(binding, outcome.choice, {}, outcome.awaited)
        return self._await(binding, outcome.choice)

    def _await(self, binding: Binding, choice: Choice, why: str = "") -> Command:
        nominated = [member.name for member in choice.members]
        awaits = Verdict(Reason.AWAITING_VICTIMS, Blocker("Cluster", ", ".join(nominated), message=why))
        return self._decisions.nominate(binding, awaits, nominated)

    def _whom_to_ask(self, group: ShapeClass, binding: Binding, rules: QueueRules) -> Plan | None:
        """The victims without which a workload of a class can start; None where no eviction would help."""
        if self.namespaces.shortage(binding.view.namespace, group.shape.charges) is not None:
            # No victim is evicted for a limit of its namespace.
            return None
        with self.reservations.settled():
            victims = self._triggers.possible_victims(group)
            if named := self._named():
                victims = [each for each in victims if each.uid not in named]
            leaving = self._triggers.leavers()
            if not (victims or leaving) or rules.forbid_all():
                return None
            outcome = plan(
                Claimant(binding.view.uid, group.leaf, -binding.key[0], group.shape),
                victims,
                self.tree,
                self.members,
                now=self._state.now,
                leaving=leaving,
                rules=rules,
                settings=self._settings,
            )
        if outcome is None or len(outcome.losses) + len(outcome.awaited) > self._settings.victims:
            return None
        return outcome if outcome.losses or outcome.awaited else None

    def _named(self) -> set[str]:
        """UIDs of the victims in open dry runs: no other claimant may count on them."""
        return {uid for question in self._claims.dry_runs() for uid in question.losses}

    def _ask(self, binding: Binding, outcome: Plan) -> Command:
        uid, losses = binding.view.uid, {}
        for loss in outcome.losses:
            victim, stays = self.bindings[loss.uid], None
            if loss.surplus is not None:
                known = self._triggers.victim(loss.uid)
                assert known is not None, f"{loss.uid} was planned to shrink"
                stays = known.surplus[len(loss.surplus) - 1].stays
            losses[loss.uid] = Loss(victim.epoch, stays, loss.reason)
        until = self._state.now + self._state.settings.backfill.dry_run
        self._keep_for(binding, outcome.choice, losses, outcome.awaited, until)
        deadline = self._state.now + self._state.settings.progress.reserve
        assert binding.shape is not None, f"{uid} does not wait"
        shape, epoch = binding.shape.key, binding.epoch + 1
        choice, awaited, moving = outcome.choice, outcome.awaited, outcome.moving
        self._claims.ask(OpenQuestion(binding, shape, epoch, choice, losses, awaited, deadline, moving))
        members = [member.name for member in choice.members]
        why = moving.sentence() if moving is not None else ""
        verdict = Verdict(Reason.ASKING_MEMBERS, Blocker("Cluster", ", ".join(members), message=why))
        asked = self._question(outcome.choice, losses, outcome.awaited)
        return self._decisions.ask(binding, verdict, members, deadline, asked)

    def _question(self, choice: Choice, losses: Mapping[str, Loss], awaited: Sequence[str]) -> Question:
        """As members are asked it: by the names of tasks."""
        parts = {
            member.name: {task.name: task.replicas for task in gang.tasks}
            for member, gang in zip(choice.members, choice.gangs, strict=True)
        }
        sizes = {}
        for uid, loss in losses.items():
            if loss.stays is not None:
                tasks = self.bindings[uid].gang.tasks
                sizes[uid] = {task.name: count for task, count in zip(tasks, loss.stays, strict=True)}
        return Question(parts, [*_whole(losses), *awaited], sizes)

    def _keep_for(
        self,
        binding: Binding,
        choice: Choice,
        losses: Mapping[str, Loss],
        awaited: Sequence[str],
        until: float = math.inf,
    ) -> None:
        leaving = [each for each in awaited if each in self._state.leaving]
        expected = None if choice.divided else choice.placements[0]
        self._claims.begin(binding, choice.members, losses, leaving, expected=expected, until=until)

    # -- answers -----------------------------------------------------------------------------------------------------

    def settle_questions(self) -> Iterator[Command]:
        """Evict where all members agreed, not where one refused; drop outdated questions."""
        for question in self._claims.dry_runs():
            uid = question.binding.view.uid
            if not self._is_open(question):
                self._drop_question(question)
                continue
            answers = question.binding.view.reserved
            names = [member.name for member in question.choice.members]
            refusals = [name for name in names if name in answers and not answers[name].granted]
            if question.binding.view.epoch < question.epoch:
                continue
            if refusals:
                name, answer = refusals[0], answers[refusals[0]]
                counts = blocker("Cluster", name, "pods", answer.requested, answer.available)
                verdict = Verdict(Reason.PART_REFUSED, structs.replace(counts, message=answer.message))
                yield self._give_up(question, refusals, verdict, verdict.sentence())
            elif all(name in answers for name in names):
                yield from self._carry_out(question) if self._confirmed(question) else ()
                if self._claims.dry_run(uid) is question:
                    self._drop_question(question)
            elif question.deadline <= self._state.now:
                silent = [name for name in names if name not in answers]
                verdict = Verdict(Reason.PART_REFUSED, Blocker("Cluster", ", ".join(silent)))
                text = f"no answer from {', '.join(silent)} within {self._state.settings.progress.reserve:g} s"
                yield self._give_up(question, silent, verdict, text)

    def _is_open(self, question: OpenQuestion) -> bool:
        """Whether the workload waits as it did, and all its victims run as they did."""
        binding = question.binding
        if (
            self.bindings.get(binding.view.uid) is not binding
            or binding.shape is None
            or (binding.shape.key, binding.epoch) != (question.shape, question.epoch)
            or not self._policy.may_start(binding)
        ):
            return False
        victims = [(self.bindings.get(uid), loss) for uid, loss in question.losses.items()]
        return all(
            victim is not None and victim.phase is Phase.DISPATCHED and victim.epoch == loss.epoch
            for victim, loss in victims
        )

    def _confirmed(self, question: OpenQuestion) -> bool:
        """Whether by now the victims still may be evicted, still must, and free the capacity in question.

        Figures, rights and limits may be other ones than when it was asked.
        """
        binding = question.binding
        group = self._class_of(binding)
        members, gangs = question.choice.members, question.choice.gangs
        rules, table = self._policy.rules(binding, group.shape), self.members.table
        columns = [table.column(member.name) for member in members]
        usable = any(rules.serves(allowed & table.ready)[columns].all() for allowed in table.allowed(group.shape))
        if not usable or not rules.avoided.isdisjoint(member.name for member in members):
            return False
        if self.namespaces.shortage(binding.view.namespace, group.shape.charges) is not None:
            return False
        if question.moving is not None:
            return self._defragmentation.holds(binding, question.moving)
        victims = self._victims_of(question)
        if victims is None:
            return False
        claimant = Claimant(binding.view.uid, group.leaf, -binding.key[0], group.shape)

        def fits(trial: Trial) -> bool:
            if trial.shortage() is not None:
                return False
            placements = []
            for member, gang in zip(members, gangs, strict=True):
                site = trial.sites[member.name]
                placement = place(site.nodes, gang, room=site.room)
                if not isinstance(placement, Placement):
                    return False
                placements.append(placement)
            return rules.permits(Choice(members, gangs, tuple(placements)))

        with (
            self.reservations.settled(but=binding.view.uid),
            Trial(claimant, self.tree, self.members, members, rules, self._settings) as trial,
        ):
            for uid in question.awaited:
                if uid in self._state.leaving and (stay := self.reservations.timeline.get(uid)) is not None:
                    trial.move(victim_of(self.bindings[uid], stay, self._settings.protection).whole(foreign=False))
            willing = candidates(trial, victims, self._state.now)
            # One that keeps its minimum now was asked about as one that goes, or the other way round.
            if [each.firm for each in willing] != [each.firm for each in victims] or fits(trial):
                return False
            pool = ordered(trial, willing)
            steps = sum(len(each.surplus) + (not each.firm) for each in willing)
            return len(pool) == steps and all([trial.take(bundle) for bundle in pool]) and fits(trial)

    def _victims_of(self, question: OpenQuestion) -> list[Victim] | None:
        """The victims, each with its loss; None when one of them has changed."""
        found = []
        for uid, loss in question.losses.items():
            victim = self._triggers.victim(uid)
            if victim is None:
                return None
            if loss.stays is not None:
                sizes = [step.stays for step in victim.surplus]
                if loss.stays not in sizes:
                    return None
                steps = victim.surplus[: sizes.index(loss.stays) + 1]
                victim = dataclasses.replace(victim, surplus=steps).spare_only()
            found.append(victim)
        return found

    def _carry_out(self, question: OpenQuestion) -> Iterator[Command]:
        """All members say that it fits: the victims are evicted, and their capacity is the claimant's."""
        binding = question.binding
        self._claims.answered(binding.view.uid)
        self._keep_for(binding, question.choice, question.losses, question.awaited)
        moving, why = question.moving, "" if question.moving is None else question.moving.sentence()
        for uid, loss in question.losses.items():
            # No name: whoever may read this story need not know of that workload.
            text = f"for a workload of queue {binding.leaf.name}"
            victim = self.bindings[uid]
            if moving is not None:
                yield self._decisions.evict(victim, loss.reason, f"moved {text}: {why}", room_for=binding.view.uid)
            elif loss.stays is None:
                yield self._decisions.evict(victim, loss.reason, f"evicted {text}", room_for=binding.view.uid)
            else:
                # Its queue has more by now than when the others were looked at.
                self.unfinished = True
                yield self._resizing.shrink(victim, loss.stays, f"shrunk {text}")
        if moving is not None:
            self._defragmentation.keep_places(moving)
        yield self._await(binding, question.choice, why)

    def _give_up(self, question: OpenQuestion, failed: list[str], verdict: Verdict, text: str) -> Command:
        """No victim is evicted; perhaps others elsewhere should be."""
        binding = question.binding
        group = self._class_of(binding)
        for name in failed:
            self._state.failed(binding, name)
        self._end(question)
        self._triggers.searches.consider(group)
        # Its place in the backlog stays: capacity and quota wake it as before.
        if group.parked is not None:
            self.waiting.say(group, verdict)
        return self._decisions.explain(binding, verdict, text=text)

    def _drop_question(self, question: OpenQuestion) -> None:
        """The question is outdated: the next decision about the workload withdraws it."""
        self._end(question)
        if self.bindings.get(question.binding.view.uid) is question.binding:
            self._policy.look_again(question.binding)

    def _end(self, question: OpenQuestion) -> None:
        uid = question.binding.view.uid
        kept = self._claims.end(uid)
        self._claims.answered(uid)
        if kept:
            # Workloads kept from the capacity are looked at again at once.
            self._state.wakes.fire(KEPT)
        self.unfinished = True

    def _class_of(self, binding: Binding) -> ShapeClass:
        assert binding.shape is not None, f"{binding.view.uid} is asked about and does not wait"
        return self.waiting.classes(binding.leaf)[binding.shape.key]


def _whole(losses: Mapping[str, Loss]) -> list[str]:
    """UIDs of the victims that go whole."""
    return [uid for uid, loss in losses.items() if loss.stays is None]
