"""Pods whose gate was lifted and that another scheduler has still to bind, each to the node of its gang's plan.

That scheduler may find the node taken, for it places others' pods at the same time. It is given a while, and less once
it has refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core.settings import LiftedSettings


@dataclass
class _Open:
    pod: Pod
    until: float | None = None
    """None until a pass has seen it."""
    refused: bool = False


class Lifted:
    """Feed it every event of pods; `overdue` gives each pod once."""

    def __init__(self, settings: LiftedSettings = LiftedSettings()) -> None:
        """Begin without any."""
        self._settings = settings
        #: pod UID -> the pod as last seen
        self._open: dict[str, _Open] = {}
        #: UIDs of pods that were given out; until they are bound or gone
        self._over: set[str] = set()

    @property
    def deadline(self) -> float | None:
        """When the next one is overdue; None without any."""
        return min((each.until for each in self._open.values() if each.until is not None), default=None)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod came, went, was lifted, refused or bound."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._forget(old.metadata.uid)
        if new is None:
            return
        uid = new.metadata.uid
        if not new.planned_node or new.node or new.finished or new.terminating:
            self._forget(uid)
        elif uid not in self._over:
            self._open.setdefault(uid, _Open(new)).pod = new

    def overdue(self, now: float) -> list[Pod]:
        """Pods that were not bound in time; time runs from the first call that finds a pod, or its refusal."""
        for entry in self._open.values():
            if entry.until is None:
                entry.until = now + self._settings.patience
            if entry.pod.unscheduled is not None and not entry.refused:
                entry.refused, entry.until = True, min(entry.until, now + self._settings.after_refusal)
        found = [uid for uid, entry in self._open.items() if entry.until is not None and entry.until <= now]
        pods = [self._open.pop(uid).pod for uid in found]
        self._over.update(found)
        return pods

    def _forget(self, uid: str) -> None:
        self._over.discard(uid)
        self._open.pop(uid, None)


def pinned(terms: list[dict[str, Any]], node: str) -> list[dict[str, Any]]:
    """Node selector terms that allow this node only, and it only where the given ones do.

    A gated pod's terms may be added to and not replaced.
    """
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return [{**term, "matchFields": [*(term.get("matchFields") or ()), field]} for term in terms or [{}]]


def unpinned(terms: list[dict[str, Any]], node: str) -> list[dict[str, Any]]:
    """The terms from which `pinned` made these; others as they are."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    found = []
    for term in terms:
        kept = [each for each in term.get("matchFields") or () if each != field]
        rest = {key: value for key, value in term.items() if key != "matchFields"}
        if kept or rest:
            found.append({**rest, "matchFields": kept} if kept else rest)
    return found


def refusal(pods: list[Pod]) -> str:
    """Message of their scheduler about pods that it does not bind, as one sentence."""
    said = sorted({pod.unscheduled[1] for pod in pods if pod.unscheduled is not None and pod.unscheduled[1]})
    names = ", ".join(sorted({pod.scheduler for pod in pods}))
    text = f"{names} has not bound {len(pods)} of its pods"
    return f"{text}: {'; '.join(said[:2])}" if said else f"{text} yet"
