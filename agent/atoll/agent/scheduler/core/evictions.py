"""Pods that leave for gangs of a higher priority, and the nodes kept for these gangs meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from atoll.agent.objects import Budget
from atoll.agent.scheduler.core import gangs, planner, preemption
from atoll.agent.scheduler.core.commands import Command, Evict, Nominate
from atoll.agent.scheduler.core.events import Whose
from atoll.agent.scheduler.core.gangs import Standing
from atoll.agent.scheduler.core.grants import Grants
from atoll.agent.scheduler.core.nominations import Nomination, Nominations
from atoll.agent.scheduler.core.planner import Wait
from atoll.agent.scheduler.core.room import Room
from atoll.agent.scheduler.core.roster import Roster
from atoll.agent.scheduler.core.settings import PreemptionSettings
from atoll.model.gang import Task


class Evictions:
    """Of one member."""

    def __init__(
        self,
        room: Room,
        roster: Roster,
        nominations: Nominations,
        grants: Grants,
        mark: Callable[[str], None],
        settings: PreemptionSettings,
    ) -> None:
        """`mark` has a gang looked at in the next pass."""
        self._room, self._roster, self._nominations, self._grants = room, roster, nominations, grants
        self._mark, self._settings = mark, settings
        self._budgets: dict[str, Budget] = {}
        #: whether the member's configuration lets others be evicted for gangs
        self.allowed = True
        #: UIDs of victims that did not leave in time: they free nothing for now
        self.stuck: set[str] = set()
        #: searches for victims in this pass
        self.searches = 0
        #: shapes for which no others may be evicted, or none that helps; outdated when capacity grew
        self.hopeless: set[tuple[object, ...]] = set()

    def budget_changed(self, key: str, budget: Budget | None) -> bool:
        """A disruption budget is different, or gone. True if more may be evicted now."""
        before = self._budgets.pop(key, None)
        if budget is None:
            return True
        self._budgets[key] = budget
        return before is None or (before.spec, before.status) != (budget.spec, budget.status)

    def preempt(self, wait: Wait, now: float, commands: list[Command]) -> Wait:
        """Evict others for a gang that does not fit, where that is allowed and helps; its new wait."""
        view, key = wait.gang, wait.gang.key
        nomination = self._nominations.get(key)
        if nomination is not None:
            left = self._nominations.left(nomination, self._room.uid_on)
            waiting = {pod.metadata.uid for pod in view.waiting}
            if left and now < nomination.deadline and all(uid in waiting for _, uid, _ in nomination.spots):
                return replace(wait, message=f"{wait.message}; {_leaving(nomination, left)}")
            if left:
                self.stuck.update(nomination.victims.values())
            self.forget(key, commands)
        settings = self._settings
        allowed = settings.enabled and self.allowed and view.missing and not any(pod.held for pod in view.waiting)
        if wait.shape is None or not allowed:
            return wait
        if not (all(pod.preempts for pod in view.waiting) and self._grants.preempts(view.binding_uid)):
            return replace(wait, message=f"{wait.message}; preemption: not eligible due to preemptionPolicy=Never")
        shape = (*wait.shape, view.priority)
        if shape in self.hopeless:
            return wait
        if self.searches >= settings.searches:
            self._mark(key)
            return wait
        self.searches += 1
        found = self._search(view, now)
        if found is None:
            self.hopeless.add(shape)
            return wait
        self._evict(view, found, commands)
        nomination = self._nominations.get(key)
        assert nomination is not None
        return replace(wait, message=f"{wait.message}; {_leaving(nomination, len(nomination.victims))}")

    def _search(self, view: Standing, now: float) -> Nomination | None:
        """Nodes to keep for a gang, and the victims that leave for it; nodes of lower gangs are not in its way."""
        victims = [
            victim
            for key, names in self._roster.gangs.items()
            if key != view.key and (victim := self._victim(key, names)) is not None and victim.priority < view.priority
        ]
        leaving = [key for key in self._room.leaving() if self._room.uid_on(key) not in self.stuck]
        if not victims and not leaving:
            return None
        lifted = self._nominations.lift(view.key, view.priority)
        try:
            gang, pods, within = planner.asked(self._room, view)
            way = preemption.find(self._room, gang, within, victims, self._budgets, leaving, self._settings)
        finally:
            self._nominations.put_back(lifted)
        if way is None:
            return None
        spots = planner.spread(pods, way.nodes, way.placement)
        slots = [(gang.tasks[task], way.nodes.names[node], count) for task, node, count in way.placement.pods]
        again = any(pod.nominated for pod in view.waiting)
        if not way.victims and not again and not any(self._meets(each, slots) for each in lifted):
            # What leaves anyway is enough, and nothing else is to get it.
            return None
        goes = {pod.metadata.key: pod.metadata.uid for pod in way.victims}
        waited = {key: uid for key in way.awaited if (uid := self._room.uid_on(key)) is not None}
        graces = [self._roster.pods[key].pod.grace for key in (*goes, *waited) if key in self._roster.pods]
        return Nomination(
            view.key,
            view.priority,
            [(pod.metadata.key, pod.metadata.uid, node) for pod, node in spots],
            slots,
            {**waited, **goes},
            now + max(graces, default=0) + self._settings.patience,
        )

    def _victim(self, key: str, names: Iterable[str]) -> preemption.Victim | None:
        told = [self._roster.pods[name] for name in names]
        pods = [each.pod for each in told if each.whose in (Whose.OURS, Whose.JOINING)]
        # One of which pods are on their way is not known yet.
        if len(pods) < len(told) or any(pod.metadata.key in self._room.assumed for pod in pods):
            return None
        return preemption.victim(key, self._roster.group(key), pods)

    def _meets(self, lower: Nomination, slots: Sequence[tuple[Task, str, int]]) -> bool:
        return not {node for _, node, _ in lower.slots}.isdisjoint(node for _, node, _ in slots)

    def _evict(self, view: Standing, found: Nomination, commands: list[Command]) -> None:
        for lower in self._nominations.below(view.priority):
            if self._meets(lower, found.slots):
                self.forget(lower.gang, commands)
                self._mark(lower.gang)
        self._nominations.add(found)
        commands.append(Nominate(view.key, tuple(found.spots)))
        goes = tuple((key, uid) for key, uid in found.victims.items() if self._stays(key))
        if goes:
            name = gangs.bare_pod(view.key) or view.key
            kind = "pod" if gangs.bare_pod(view.key) else "PodGroup"
            commands.append(Evict(view.key, goes, f"Preempted by {kind} {name} of priority {view.priority}"))

    def _stays(self, key: str) -> bool:
        known = self._roster.pods.get(key)
        return known is not None and not known.pod.terminating

    def forget(self, key: str, commands: list[Command]) -> None:
        """Keep no nodes for the gang any more, and say so of its pods that still wait."""
        found = self._nominations.drop(key)
        told = [each for each in (found.spots if found is not None else ()) if self._is_unbound(*each[:2])]
        if told:
            commands.append(Nominate(key, tuple((name, uid, "") for name, uid, _ in told)))

    def _is_unbound(self, key: str, uid: str) -> bool:
        known = self._roster.pods.get(key)
        return known is not None and known.pod.metadata.uid == uid and not self._room.node_of(known.pod)


def _leaving(nomination: Nomination, left: int) -> str:
    return f"preemption: {left} of {len(nomination.victims)} victims have not ended yet"
