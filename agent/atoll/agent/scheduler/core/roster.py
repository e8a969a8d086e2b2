"""Pods and PodGroups of the member, as last reported, and which pods are one gang."""

from __future__ import annotations

from collections.abc import Iterable

from atoll.agent.objects import Pod, PodGroup
from atoll.agent.scheduler.core import gangs, planner
from atoll.agent.scheduler.core.events import PodGroupSet, PodSet, Whose
from atoll.agent.scheduler.core.gangs import Standing
from atoll.agent.scheduler.core.index import Index
from atoll.agent.scheduler.core.lifted import refusal
from atoll.agent.scheduler.core.planner import Wait
from atoll.agent.scheduler.core.room import Room


class Roster:
    """Begins empty; `MemberCore` alone changes it."""

    def __init__(self) -> None:
        self.pods: dict[str, PodSet] = {}
        #: gang key -> keys of its pods, in the order in which they came
        self.gangs: Index = {}
        self.groups: dict[str, PodGroupSet] = {}

    def pod(self, key: str) -> Pod | None:
        """The pod; None where it is gone."""
        found = self.pods.get(key)
        return found.pod if found is not None else None

    def group(self, key: str) -> PodGroup | None:
        """The PodGroup of a gang; None where it has none."""
        found = self.groups.get(key)
        return found.group if found is not None else None

    def put_pod(self, key: str, new: PodSet | None) -> PodSet | None:
        """A pod is so now, or gone (None); as it was before."""
        before = self.pods.pop(key, None) if new is None else self.pods.get(key)
        if new is not None:
            self.pods[key] = new
        return before

    def put_group(self, key: str, new: PodGroupSet | None) -> PodGroupSet | None:
        """A PodGroup is so now, or gone (None); as it was before."""
        before = self.groups.pop(key, None) if new is None else self.groups.get(key)
        if new is not None:
            self.groups[key] = new
        return before

    def look_at(self, key: str, room: Room) -> Standing | Wait | None:
        """Pods of a gang to plan, or the reason for none; None where nothing waits."""
        group, pods = self.groups.get(key), [self.pods[name] for name in self.gangs.get(key, ())]
        if gangs.bare_pod(key):
            # A pod that is to get a PodGroup is no gang on its own, and others' pods are none.
            if not pods or pods[0].whose in (Whose.JOINING, Whose.OTHERS):
                return None
        elif group is not None and not _is_ours(group, pods):
            return None
        ours = {told.pod.metadata.uid for told in pods if told.whose in (Whose.OURS, Whose.JOINING)}
        view = gangs.standing(
            key, self.group(key), [told.pod for told in pods], room, lambda pod: pod.metadata.uid in ours
        )
        if not gangs.bare_pod(key) and group is None:
            return Wait(view, planner.NO_POD_GROUP, f"PodGroup {key} does not exist") if view.waiting else None
        unbound = [p.pod for p in pods if p.pod.planned_node and not p.pod.finished and not room.is_bound(p.pod)]
        if not view.waiting and any(pod.unscheduled for pod in unbound):
            # Another scheduler was to bind these pods, and says that it can't.
            return Wait(view, planner.NOT_BOUND, refusal(unbound))
        if view.waiting:
            return view
        over = group is not None and group.group.status.get("phase") == "Completed"
        if not view.missing or over:
            return None
        return Wait(view, planner.NOT_ENOUGH_TASKS, f"{view.settled.total()} of {view.min_member} pods exist")


def _is_ours(group: PodGroupSet, pods: Iterable[PodSet]) -> bool:
    """Whether some pod of the gang is or was this core's to place; without pods nothing else says."""
    known = list(pods)
    return any(told.whose is not Whose.OTHERS for told in known) if known else group.ours
