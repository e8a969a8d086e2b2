"""Services and jobs that are shared out in one of Karmada's ways, once their users ask for another size.

Running pods stay where they are after any change of their policies: only the difference is divided, as Karmada's
scheduler does. More pods pass through everything that a dispatch does. Copied workloads get copies in further members
once these take work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from atoll.dispatcher.core.backlog.binding import Binding, as_it_runs, estimate
from atoll.dispatcher.core.backlog.wake_index import Cause, Trigger
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.commands import Command
from atoll.dispatcher.core.elastic.growth import size_kept, unlike
from atoll.dispatcher.core.elastic.resizing import Resizing, Stop, able_members, no_room, of_namespace, over_limit
from atoll.dispatcher.core.lifecycle.decisions import Decisions
from atoll.dispatcher.core.lifecycle.state import State
from atoll.dispatcher.core.placement.choice import Choice
from atoll.dispatcher.core.placement.sharing import offer
from atoll.dispatcher.core.quota.namespaces import by_scopes
from atoll.dispatcher.split import sets_of, webster
from atoll.dispatcher.split.shared import shares
from atoll.fit import Miss, place
from atoll.fit.pods import Pods, difference, first_pods
from atoll.fit.sizes import addition, full
from atoll.model.gang import Gang, divide
from atoll.model.verdict import Reason, Verdict, blocker


class Steady:
    """Gives divided workloads the size that their users request."""

    def __init__(self, state: State, decisions: Decisions, resizing: Resizing) -> None:
        self._state, self._decisions, self._resizing = state, decisions, resizing
        self.members, self.bindings, self.tree = state.members, state.bindings, state.tree
        #: of the members when copies were looked at last
        self._seen = -1

    def follow(self) -> Iterator[Command]:
        """Resize workloads with another size than requested, as far as capacity and quota go."""
        shared = self._state.sizes.shared
        if self._seen != self.members.table.version:
            self._seen = self.members.table.version
            for uid in self._state.sizes.copied:
                shared.add(uid)
        for binding in sorted((self.bindings[uid] for uid in shared.awake), key=self._resizing.turn):
            uid = binding.view.uid
            if not self._resizing.may_resize(binding):
                # It is filed again when something is seen of it.
                shared.remove(uid)
                continue
            wanted = self._wanted(binding)
            if wanted == {name: full(part) for name, part in binding.parts.items()}:
                missing = self._missing(binding)
                if missing is None:
                    shared.remove(uid)
                    continue
                wanted = missing
            found = wanted if isinstance(wanted, Stop) else self._change(binding, wanted)
            if isinstance(found, Stop):
                shared.park(uid, *found.until)
                self._decisions.stopped[uid] = found.verdict
            else:
                yield found

    def _wanted(self, binding: Binding) -> dict[str, tuple[int, ...]] | Stop:
        """Member -> pods per task that it is to have, those first that have some."""
        gang, sharing = binding.gang, binding.view.sharing
        assert sharing is not None, f"{binding.view.uid} is not shared out"
        sets = sets_of(gang)
        unit = [task.replicas // sets for task in gang.tasks]
        has: dict[str, int] = {}
        for name, part in binding.parts.items():
            counts = full(part)
            has[name] = sets if gang.copies else counts[0] // unit[0]
            if not gang.copies and counts != tuple(each * has[name] for each in unit):
                return Stop(size_kept(binding) or Verdict(Reason.SIZE_KEPT), ())
        affinity, able = able_members(self._state, binding)
        offers = [offer(member, self._room(member, gang, unit)) for member in able.values()]
        found = shares(gang, sharing, offers, affinity, has)
        if isinstance(found, Verdict):
            if gang.copies and not unlike(binding):
                return {name: full(part) for name, part in binding.parts.items()}
            return Stop(found, tuple(Trigger(Cause.MEMBER, name) for name in able))
        kept = {name: sets for name in has} | found if gang.copies else webster.steady(found, has, sets)
        names = [*has, *sorted(kept.keys() - has.keys())]
        return {name: tuple(each * kept[name] for each in unit) for name in names if kept.get(name)}

    def _missing(self, binding: Binding) -> Stop | None:
        """The copy that no member can take now, and which starts once one can; None where all exist."""
        gang, sharing = binding.gang, binding.view.sharing
        if not gang.copies or sharing is None:
            return None
        sets = sets_of(gang)
        affinity, meant = able_members(self._state, binding, fitting=False)
        found = shares(gang, sharing, [offer(each, sets) for each in meant.values()], affinity, {})
        if isinstance(found, Verdict) or len(found) <= len(binding.parts):
            return None
        names = sorted(found.keys() - binding.parts.keys())
        unit = [task.replicas // sets for task in gang.tasks]
        held = self._room(self.members.by_name[names[0]], gang, unit) * sum(unit)
        about = blocker("Cluster", names[0], "pods", gang.replicas, min(held, gang.replicas))
        about = msgspec.structs.replace(about, message=f"its copy in {', '.join(names)} is missing")
        triggers = tuple(Trigger(Cause.MEMBER, name) for name in names)
        return Stop(Verdict(Reason.INSUFFICIENT_RESOURCES, about), triggers)

    def _room(self, member: Member, gang: Gang, unit: list[int]) -> int:
        """Further sets that a member can take, each task by itself; none where it takes nothing new."""
        if not member.ready:
            return 0
        nodes = member.nodes
        held = [int(np.where(nodes.accepting(task), nodes.room(task.requests), 0).sum()) for task in gang.tasks]
        return min((count // each for count, each in zip(held, unit, strict=True) if each), default=0)

    def _change(self, binding: Binding, counts: Mapping[str, tuple[int, ...]]) -> Command | Stop:
        """Count the new size and have it written, if it is admitted."""
        uid, before = binding.view.uid, binding.pods
        stay = self._state.reservations.timeline.get(uid)
        assert stay is not None, f"{uid} is charged and not known to run"
        gangs = divide(binding.gang, [*counts.values()])
        parts = {name: as_it_runs(binding.view, name, part) for name, part in zip(counts, gangs, strict=True)}
        where: dict[str, Pods] = {name: stay.parts[name][1] if name in stay.parts else () for name in parts}
        more = self._more(binding, parts, where)
        if isinstance(more, Stop):
            return more
        there: dict[str, tuple[Gang, Pods]] = {}
        for name, part in parts.items():
            there[name] = part, first_pods(where[name], full(part))
        for member, gang, placement in zip(more.members, more.gangs, more.placements, strict=True):
            self.members.assume_more(member, uid, gang, placement)
            there[member.name] = parts[member.name], [*where[member.name], *sorted(placement.pods)]
        self._resizing.charge(binding, parts, there)
        text = ", ".join(f"{sum(each)} in {name}" for name, each in counts.items())
        if binding.pods < before:
            return self._resizing.shrunk(binding, before, text)
        self._state.assumed.settle(binding)
        return self._resizing.grown(binding, before, text)

    def _more(self, binding: Binding, parts: Mapping[str, Gang], where: Mapping[str, Pods]) -> Choice | Stop:
        """What comes in addition, and where in each member; or what does not let it."""
        members, gangs, placements = [], [], []
        for name, part in parts.items():
            has = full(binding.parts[name]) if name in binding.parts else (0,) * len(part.tasks)
            extra = tuple(max(each, 0) for each in difference(full(part), has))
            if not any(extra):
                continue
            gang, member = addition(part, extra, extra), self.members.by_name[name]
            amount = gang.total()
            if (stop := self._resizing.stop(binding, name, amount, by_scopes([gang], amount))) is not None:
                return stop
            around = member.nodes.domain_around(gang.network_topology, where[name])
            placement = place(member.nodes, gang, within=around)
            if isinstance(placement, Miss):
                return no_room(name, placement)
            members.append(member)
            gangs.append(gang)
            placements.append(placement)
        choice = Choice(tuple(members), tuple(gangs), tuple(placements))
        return self._barred(binding, choice) or choice

    def _barred(self, binding: Binding, choice: Choice) -> Stop | None:
        """The limit or the reservation that all of it together does not respect."""
        if not choice.members:
            return None
        leaf, uid, amount = binding.leaf, binding.view.uid, choice.total()
        if (short := self.tree.shortage(leaf, amount)) is not None:
            return over_limit(short)
        missing = self._state.namespaces.shortage(binding.view.namespace, by_scopes(choice.gangs, amount))
        if missing is not None:
            return Stop(missing, of_namespace(binding.view.namespace))
        delayed = self._state.reservations.delayed(uid, leaf, amount, choice, self._state.now + estimate(binding))
        return Stop(Verdict(Reason.WOULD_DELAY)) if delayed else None
