"""Sizes of running workloads compared with their requests: filed at each change, so that nothing searches."""

from __future__ import annotations

from atoll.dispatcher.core.backlog.binding import Binding
from atoll.dispatcher.core.backlog.wake_index import SETTINGS, Trigger, WakeIndex
from atoll.dispatcher.core.quota.queue import Queue
from atoll.fit.pods import Counts
from atoll.fit.sizes import can_grow, can_shrink, full
from atoll.model.decision import Phase
from atoll.model.gang import Gang
from atoll.model.plurals import counted
from atoll.model.timestamps import to_seconds
from atoll.model.verdict import Blocker, Reason, Verdict


class Hungry:
    """Running workloads that want more pods: the ones that may grow now, and the obstacles of the others."""

    def __init__(self, index: WakeIndex) -> None:
        self._index = index
        #: UIDs that are worth a look; what sleeps in the index is not among them
        self.awake: dict[str, None] = {}

    def add(self, uid: str) -> None:
        """It wants more, and may get it."""
        self._index.drop(uid)
        self.awake[uid] = None

    def remove(self, uid: str) -> None:
        """It wants no more, or can't be given any before it is seen again."""
        self.awake.pop(uid, None)
        self._index.drop(uid)

    def park(self, uid: str, *until: Trigger) -> None:
        """Nothing for it until one of these changed."""
        self.awake.pop(uid, None)
        self._index.park(uid, self._wake, (*until, SETTINGS))

    def _wake(self, uids: list[str], _: Trigger) -> None:
        for uid in uids:
            self.add(uid)


class Sizes:
    """What runs with more pods than it should, could run with fewer, or wants more."""

    def __init__(self, index: WakeIndex) -> None:
        self.hungry = Hungry(index)
        #: workloads divided in one of Karmada's ways with another size than requested
        self.shared = Hungry(index)
        #: UIDs of workloads with a copy in each of their members
        self.copied: dict[str, None] = {}
        #: UIDs of what runs with fewer pods than its binding says, because its user asks for no more
        self.oversized: dict[str, None] = {}
        #: UIDs of what runs in several members and may not say yet that it keeps its size, or still says so
        self.kept: dict[str, None] = {}
        #: leaf -> priority -> UIDs of what could run with fewer pods
        self.spare: dict[Queue, dict[int, dict[str, None]]] = {}
        #: UIDs of all that may be in one of these; most never are
        self._filed: set[str] = set()

    def file(self, binding: Binding) -> None:
        """A binding that is charged has this size now."""
        self.forget(binding)
        if binding.phase is not Phase.DISPATCHED:
            return
        uid, gang, told, parts = binding.view.uid, binding.gang, binding.told, [*binding.parts.values()]
        shared, whole = binding.view.sharing is not None, len(parts) == 1
        says_more = (whole or gang.scattered or (shared and gang.copies)) and _says_more(binding)
        if whole and parts[0] is gang and gang.min_available >= gang.replicas and not (shared or says_more):
            return
        self._filed.add(uid)
        if says_more:
            self.oversized[uid] = None
        if shared:
            if gang.copies:
                self.copied[uid] = None
            if gang.copies or unlike(binding):
                self.shared.add(uid)
        elif whole or (parts and gang.scattered):
            size = size_of(binding)
            if can_grow(left_to_run(binding), size):
                self.hungry.add(uid)
            if not binding.view.divided and can_shrink(gang, size):
                self.spare.setdefault(binding.leaf, {}).setdefault(-binding.key[0], {})[uid] = None
        elif parts and ((told is not None and told.reason is Reason.SIZE_KEPT) or size_kept(binding)):
            self.kept[uid] = None

    def forget(self, binding: Binding) -> None:
        """It is charged no more, or with another size."""
        uid, priority = binding.view.uid, -binding.key[0]
        if uid not in self._filed:
            return
        self._filed.discard(uid)
        self.hungry.remove(uid)
        self.shared.remove(uid)
        for filed in (self.copied, self.oversized, self.kept):
            filed.pop(uid, None)
        if uid in self.spare.get(binding.leaf, {}).get(priority, {}):
            del self.spare[binding.leaf][priority][uid]
            if not self.spare[binding.leaf][priority]:
                del self.spare[binding.leaf][priority]


def left_to_run(binding: Binding) -> Gang:
    """What a workload in one member, or a scattered one, asks for, without pods that have ended for good, but no less
    than it has: a task of which fewer pods are left than run at once gets no more.
    """
    ended = [binding.view.ended.get(name, {}) for name in binding.parts]
    left = [task.replicas - sum(each.get(task.name, 0) for each in ended) for task in binding.gang.tasks]
    return binding.gang.sized([max(most, has) for most, has in zip(left, size_of(binding), strict=True)])


def size_of(binding: Binding) -> Counts:
    """Pods per task in all of its parts."""
    return tuple(sum(each) for each in zip(*map(full, binding.parts.values()), strict=True))


def _says_more(binding: Binding) -> bool:
    """Whether a binding says more pods of some task, in one of its members, than run there."""
    if binding.scattered and any(where not in binding.parts for where, _ in binding.view.parts):
        return True
    return any(
        count > task.replicas
        for where, counts in binding.view.parts
        if where in binding.parts
        for count, task in zip(counts, binding.parts[where].tasks, strict=True)
    )


def unlike(binding: Binding) -> bool:
    """Whether a divided workload runs with other numbers of pods than requested."""
    wanted, parts = full(binding.gang), [full(part) for part in binding.parts.values()]
    if binding.gang.copies:
        return any(part != wanted for part in parts)
    return tuple(sum(each) for each in zip(*parts, strict=True)) != wanted


def size_kept(binding: Binding) -> Verdict | None:
    """Message about work in several members that runs with other numbers of pods than requested."""
    counts = [sum(each) for each in zip(*map(full, binding.parts.values()), strict=True)]
    if counts == binding.gang.full():
        return None
    text = f"{counted(binding.pods, 'pod')}, {binding.gang.replicas} asked for"
    return Verdict(Reason.SIZE_KEPT, Blocker("Clusters", ", ".join(binding.parts), message=text))


def still_grows(binding: Binding, now: float) -> bool:
    """Whether more pods than made it bound are expected soon."""
    if binding.phase is not Phase.DISPATCHED:
        return False
    view = binding.view
    grown = view.decision.reason is Reason.GROWN
    if len(binding.parts) != 1:
        there = all(view.placed.get(name, (0, 0))[1] == binding.expected_in(name) for name in binding.parts)
        return (grown or binding.scattered) and not there and grows_until(binding) > now
    [(name, part)] = binding.parts.items()
    pods = view.placed.get(name, (0, 0))[1]
    expected = binding.expected_in(name)
    if pods == expected or (pods > expected and not grown):
        return False
    # A report of more than it has grown to is of a time before it shrank.
    if not (grown or part.replicas > part.min_available):
        return False
    return grows_until(binding) > now


def grows_until(binding: Binding) -> float:
    """When the pods by which it grew are expected no more: counted from when that was written, if that took long."""
    return max(to_seconds(binding.view.decision.deadline), binding.grows_until)


def keep_size(binding: Binding, old: Binding) -> None:
    """A shrunk size stays until another size is written: a user may ask for fewer pods and then for more before
    the first is written down.
    """
    parts = old.parts if old.resized_at is None else old.before
    one = len(binding.parts) == 1 or binding.scattered
    if one and binding.view.parts == old.view.parts and binding.parts.keys() == parts.keys():
        binding.parts = {name: part.sized(full(parts[name])) for name, part in binding.parts.items()}
