"""Which pods and PodGroups of a member this agent may act on: its own, whoever else places there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from atoll.agent.cache import MemberCache
from atoll.agent.objects import Pod, PodGroup
from atoll.model import keys

VOLCANO = "volcano"
"""schedulerName of pods that Volcano's scheduler places where it runs, and this one where it does not."""


class Ours:
    """Tells own pods from others'.

    Ours are pods that name our scheduler, pods of workloads that were delivered and wait at our gate, and pods of Jobs
    that ask for `volcano` where no Volcano runs.
    """

    def __init__(self, cache: MemberCache) -> None:
        """No I/O happens here."""
        self._cache = cache
        #: whether Volcano's own scheduler runs in the member
        self.volcano = False
        self._observers: list[Callable[[], None]] = []
        self._by_owner: list[Callable[[str], None]] = []
        for reflector in cache.workloads.values():
            reflector.add_index("uid", lambda obj: (obj.metadata.uid,))
            reflector.on_change(self._workload_changed)

    def on_change(self, everything: Callable[[], None], owner: Callable[[str], None]) -> None:
        """Call `everything()` when any pod may be another's now, `owner(UID)` when pods of that owner may be ours."""
        self._observers.append(everything)
        self._by_owner.append(owner)

    def set_volcano(self, runs: bool) -> None:
        """Volcano's scheduler came or went."""
        if runs != self.volcano:
            self.volcano = runs
            for observer in self._observers:
                observer()

    def pod(self, pod: Pod) -> bool:
        """Whether the pod is ours to place."""
        if pod.held:
            return self._delivered(pod)
        if pod.scheduler == keys.SCHEDULER_NAME:
            return True
        return pod.scheduler == VOLCANO and not self.volcano and self._of_a_job(pod)

    def group(self, group: PodGroup, pods: Iterable[Pod]) -> bool:
        """Whether the PodGroup's status is ours to write."""
        members = list(pods)
        if members:
            return any(self.pod(pod) or self.was_held(pod) for pod in members)
        # Without pods it is not known which scheduler serves it: where Volcano runs, it is Volcano's.
        return not self.volcano

    def was_held(self, pod: Pod) -> bool:
        """Whether it waited at our gate, and its scheduler is to bind it to the node of our plan."""
        return bool(pod.planned_node) and self._delivered(pod)

    def _delivered(self, pod: Pod) -> bool:
        """Whether it belongs to a workload that the host sent, and says so."""
        owner = self._owner(pod)
        return bool(
            pod.binding_uid
            and owner is not None
            and owner.metadata.annotations.get(keys.BINDING_UID) == pod.binding_uid
        )

    def _of_a_job(self, pod: Pod) -> bool:
        return bool(self._cache.jobs.by_index("uid", pod.metadata.controller_uid)) or self._delivered(pod)

    def _owner(self, pod: Pod) -> Any | None:
        uid = self._cache.owners.delivered(pod) or pod.metadata.controller_uid
        for reflector in self._cache.workloads.values() if uid else ():
            for found in reflector.by_index("uid", uid):
                return found
        return None

    def _workload_changed(self, old: Any | None, new: Any | None) -> None:
        # Its pods may have been heard of first, and stay longer.
        for uid in dict.fromkeys(each.metadata.uid for each in (old, new) if each is not None):
            if old is None or new is None or _identity(old) != _identity(new):
                for observer in self._by_owner:
                    observer(uid)


def _identity(workload: Any) -> tuple[str, str]:
    return workload.metadata.uid, workload.metadata.annotations.get(keys.BINDING_UID, "")
