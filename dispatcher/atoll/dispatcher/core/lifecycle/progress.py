"""Workloads from dispatch until they run, and from eviction until they are gone: deadlines, answers, refusals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from msgspec import structs

from atoll.dispatcher.core.backlog.binding import Binding, bound_in, replaced_at, withheld
from atoll.dispatcher.core.backlog.deadlines import earliest
from atoll.dispatcher.core.capacity.refusals import MOST_WORDS
from atoll.dispatcher.core.commands import Command
from atoll.dispatcher.core.events import Failure
from atoll.dispatcher.core.groups.together import weight_of
from atoll.dispatcher.core.lifecycle.decisions import Decisions
from atoll.dispatcher.core.lifecycle.state import State
from atoll.model import keys
from atoll.model.decision import Phase
from atoll.model.plurals import counted
from atoll.model.verdict import Blocker, Reason, Verdict, blocker, concerns_namespace, reason_of_refusal

_NOT_RUN = "its pods were bound there and did not run in time"


class Progress:
    """Commits what all members reserved; takes back what does not get on."""

    def __init__(self, state: State, decisions: Decisions) -> None:
        self._state, self._decisions = state, decisions
        self.members, self.bindings, self.reservations = state.members, state.bindings, state.reservations
        self.breakers, self.refusals = state.breakers, state.refusals
        self.settings = state.settings.progress
        #: time of the first pass, before which it has heard of no member
        self._began = math.inf
        #: UID -> members in which a scattered gang's new part did not start in time; until they are dropped
        self.late_parts: dict[str, list[str]] = {}

    @property
    def next(self) -> float | None:
        """When the first deadline passes."""
        return earliest(self._state.times.next, self._state.wakes.next_time)

    def pass_begins(self, now: float) -> None:
        """End pauses whose time has come."""
        self._began = min(self._began, now)

    def overdue(self) -> Iterator[Command]:
        for binding in self._state.times.overdue(self._state.now):
            if binding.epoch != binding.view.epoch:
                continue
            if binding.phase is Phase.RESERVING:
                silent = [name for name in binding.parts if name not in binding.view.reserved]
                if not silent and self._state.together.is_held(binding):
                    text = "others that must start together with it were not reserved in time"
                    yield self._decisions.evict(binding, Reason.GANG_GROUP_INCOMPLETE, text)
                    continue
                self._blame(binding, silent)
                text = f"no answer from {', '.join(silent)} within {self.settings.reserve:g} s"
                yield self._decisions.evict(binding, Reason.DEADLINE_EXCEEDED, text)
            elif binding.phase is Phase.DISPATCHED and not binding.bound:
                late = [name for name in binding.parts if not bound_in(binding, name)]
                if self._has_its_turn_to_come(binding):
                    self._state.times.set_deadline(binding, self._state.now + self.settings.commit / 2)
                    continue
                self._blame(binding, late, pods=True)
                text = f"not all of its pods were bound in {', '.join(late)} within {self.settings.commit:g} s"
                yield self._decisions.evict(binding, Reason.DEADLINE_EXCEEDED, text + _why(binding))
            elif binding.phase is Phase.DISPATCHED:
                # Whatever of its growth is not there by now waits in the member like anything else.
                self._state.assumed.settle(binding)
                if (late := _silent(binding)) and binding.scattered:
                    self._blame(binding, late, pods=True)
                    self.late_parts[binding.view.uid] = late

    def _blame(self, binding: Binding, names: Iterable[str], *, pods: bool = False) -> None:
        """These members did not bind it in time; `pods`: though its pods were there."""
        view = binding.view
        for name in names:
            self._state.failed(binding, name, pods=pods)
            if keys.HOT in view.waiting.get(name, ""):
                # The member works: its hot nodes take no pods of low priority for a while.
                continue
            kind = view.kind if name in view.unmade else ""
            self.breakers.failed(name, view.namespace, view.uid, self._state.now, Failure.NOT_BOUND, kind=kind)

    def not_running(self) -> Iterator[Command]:
        """Evict bound workloads that don't run in time; each waits longer after each round, and keeps no member from
        others: missing needs of containers are most often its own fault.
        """
        for uid in self._state.times.ready_by.due(self._state.now):
            binding = self.bindings[uid]
            view = binding.view
            if binding.phase is not Phase.DISPATCHED or binding.epoch != view.epoch:
                continue
            if view.lost_at:
                if self.members.are_ready(binding.parts):
                    yield self._incomplete(binding)
                else:
                    # Reports of its members are old; `lost` decides about work in a member that is away.
                    self._state.times.ready_by.set(uid, self._state.now + self.settings.regain)
                continue
            if view.started:
                continue
            why = "; ".join(f"{name}: {text}" for name, text in sorted(view.held_up.items()))
            names = ", ".join(binding.parts)
            text = f"its minimum was bound in {names} and did not run in time"
            block = Blocker("Clusters" if len(binding.parts) > 1 else "Cluster", names, message=why)
            late = [name for name in binding.parts if name in view.held_up] or list(binding.parts)
            words = {name: f"{_NOT_RUN}: {view.held_up[name]}" if name in view.held_up else _NOT_RUN for name in late}
            refused = self.refusals.after(view, words)
            yield self._decisions.evict(
                binding, Reason.NOT_READY_IN_TIME, f"{text}: {why}" if why else text, block, refused=refused
            )

    def not_gone(self) -> Iterator[Command]:
        """Return the quota of workloads evicted long ago: their queues don't pay for a member's failure. Their
        nodes stay taken, for the members' figures contain their pods.
        """
        for uid in self._state.times.gone_by.due(self._state.now):
            binding = self.bindings[uid]
            view = binding.view
            if binding.phase is not Phase.EVICTING or binding.epoch != view.epoch:
                continue
            names = ", ".join(binding.parts)
            for name in binding.parts:
                self.breakers.failed(name, view.namespace, uid, self._state.now, Failure.NOT_REMOVED)
            self._state.leave(binding)
            self._state.change_phase(binding, Phase.LEAVING)
            self._state.put(uid, binding)
            self._state.assumed.settle(binding)
            block = Blocker("Clusters" if "," in names else "Cluster", names, message=view.stuck) if names else None
            yield self._decisions.explain(binding, Verdict(Reason.EVICTION_OVERDUE, block))

    def settle_answers(self) -> Iterator[Command]:
        """Commit workloads that all members have reserved, evict the ones that a member refused or their users hold.

        A workload with open answers is looked at again once its binding is seen again, not before.
        """
        unsettled, self._state.unsettled = self._state.unsettled, {}
        for uid in unsettled:
            binding = self.bindings[uid]
            if binding.epoch != binding.view.epoch or binding.phase is Phase.EVICTING:
                continue
            if binding.gang.hold:
                why = withheld(binding.gang)
                yield self._decisions.evict(binding, why.reason, why.sentence())
                continue
            anew = replaced_at(binding.view)
            if anew is not None and anew <= self._state.now:
                text = "it was asked that it is placed anew" + _listed(binding.view.leaves)
                yield self._decisions.evict(binding, Reason.EVICTED, text)
                continue
            if refusing := self._state.refusing(binding):
                yield self._refuse(binding, refusing)
                continue
            if binding.phase is not Phase.RESERVING:
                continue
            answers = binding.view.reserved
            refusals = [name for name in binding.parts if name in answers and not answers[name].granted]
            if refusals:
                name, answer = refusals[0], answers[refusals[0]]
                self._state.failed(binding, name, words=answer.message)
                text = f"{name} holds {answer.available} of the {counted(answer.requested, 'pod')} of its part"
                counts = blocker("Cluster", name, "pods", answer.requested, answer.available)
                counts = structs.replace(counts, message=answer.message)
                text += f": {answer.message}" if answer.message else ""
                yield self._decisions.evict(binding, Reason.PART_REFUSED, text, counts)
            elif all(name in answers for name in binding.parts):
                away = [name for name in binding.parts if not self.members.are_ready([name])]
                if away:
                    text = f"{away[0]} reserved its part and is not ready any more"
                    yield self._decisions.evict(binding, Reason.CLUSTERS_NOT_READY, text, Blocker("Cluster", away[0]))
                else:
                    yield from map(self._commit, self._ready_with(binding))

    def _refuse(self, binding: Binding, refusing: Mapping[str, str]) -> Command:
        """Take back what members refused, and avoid them: for it, or for its namespace where that is why."""
        view = binding.view
        for name, words in refusing.items():
            if concerns_namespace(words) and self.refusals.by_namespace(view.namespace, name, words, self._state.now):
                self._state.file_again(view.namespace)
        name, words = next(iter(refusing.items()))
        why = Blocker("Cluster", name, message=words[:MOST_WORDS])
        verdict = Verdict(reason_of_refusal(words), why)
        refused = self.refusals.after(view, refusing)
        return self._decisions.evict(binding, verdict.reason, verdict.sentence(), why, refused=refused)

    def _ready_with(self, binding: Binding) -> list[Binding]:
        """What starts now that all members have reserved this one: it alone, or with the workloads of its group that
        waited for it; nothing while too few are reserved.
        """
        together = self._state.together
        if not together.is_held(binding):
            return [binding]
        ready = [each for each in together.of(binding) if self._is_reserved(each)]
        enough = sum(map(weight_of, ready)) + together.weight(binding, (Phase.DISPATCHED,))
        return ready if enough >= together.least(binding) else []

    def _is_reserved(self, binding: Binding) -> bool:
        """Whether all of its parts are, and nothing keeps it from starting."""
        answers = binding.view.reserved
        return (
            binding.phase is Phase.RESERVING
            and binding.epoch == binding.view.epoch
            and not binding.gang.hold
            and not self._state.refusing(binding)
            and all(name in answers and answers[name].granted for name in binding.parts)
            and self.members.are_ready(binding.parts)
        )

    def too_few(self) -> Iterator[Command]:
        """Evict what runs of gang groups of which too few are left."""
        for binding in self._state.together.below():
            text = "others that must run together with it left, or did not start"
            yield self._decisions.evict(binding, Reason.GANG_GROUP_INCOMPLETE, text)

    def _commit(self, binding: Binding) -> Command:
        deadline = self._state.now + self.settings.commit
        command = self._decisions.commit(binding, deadline)
        self._state.change_phase(binding, Phase.DISPATCHED)
        self._state.times.set_deadline(binding, deadline)
        return command

    def _incomplete(self, binding: Binding) -> Command:
        """Take back a gang that runs below its minimum: its members found no nodes for the pods that it lost."""
        names = sorted(binding.view.waiting) or list(binding.parts)
        for name in names:
            if name in binding.parts:
                self._state.failed(binding, name, pods=True)
        text = f"pods of its minimum lost their nodes in {', '.join(names)} and got no others"
        text += f" within {self.settings.regain:g} s"
        text += _listed({**binding.view.waiting, **binding.view.leaves})
        return self._decisions.evict(binding, Reason.DEADLINE_EXCEEDED, text)

    def _has_its_turn_to_come(self, binding: Binding) -> bool:
        """Whether its member still binds earlier workloads.

        To take such work back would make a member that is behind do it twice. Parts in several members are not waited
        for: what of them runs already would wait, too.
        """
        stay, half = self.reservations.timeline.get(binding.view.uid), self.settings.commit / 2
        if stay is None or len(binding.parts) != 1:
            return False
        [name] = binding.parts
        member = self.members.member(name)
        return self._state.now - max(member.heard_at, self._began) < half and member.heard_of < stay.start + half


def _silent(binding: Binding) -> list[str]:
    """Members without a pod of it on a node that don't say why, or wait for nodes. In others all may have ended."""
    view = binding.view
    return [
        name
        for name in binding.parts
        if not view.placed.get(name, (0, 0))[1] and (name not in view.placed or name in view.waiting)
    ]


def _why(binding: Binding) -> str:
    """Members' reports about pods without a node, to be added to a sentence."""
    return _listed(binding.view.waiting)


def _listed(reports: Mapping[str, str]) -> str:
    said = "; ".join(f"{name}: {text}" for name, text in sorted(reports.items()))
    return f": {said}" if said else ""
