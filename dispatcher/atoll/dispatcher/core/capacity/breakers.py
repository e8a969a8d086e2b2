"""Members that take workloads and bind none of them, or never confirm a removal: a circuit breaker for each.

What a member publishes says nothing about whether it does what it is told, so no figures change what is counted here.
After a number of failures without a success between them the breaker opens: nothing more is sent to the member for a
pause, then one workload (half-open). If that is bound the breaker closes, else the next pause is twice as long.

Failures may be the workloads' own fault, so they count against the namespaces that they are of: while the breaker is
open, a workload of another namespace may be tried at once, one at a time. So no tenant can keep others out of a member
that works for them, and a member that does not costs each namespace one workload.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from atoll.dispatcher.core.events import Circuit, Failure
from atoll.dispatcher.core.settings import BreakerSettings
from atoll.model.pauses import pause_after, spread


@dataclass(slots=True)
class _Breaker:
    #: how often it opened without having been closed for long
    opened: int = 0
    open: bool = False
    #: its pause is not over
    pausing: bool = False
    #: while it is open, when the pause ends or has ended; while it is closed, when `opened` is forgotten
    until: float = 0.0
    #: UID of the one workload that is tried; empty where none is
    trial: str = ""
    #: what was not done in time -> namespace -> how often since the last time that it was done
    failures: dict[Failure, Counter[str]] = field(default_factory=lambda: {each: Counter() for each in Failure})
    #: opened by an earlier leader: of which namespaces those were is not known, so all are kept out
    inherited: bool = False
    failure: Failure = Failure.NOT_BOUND


class Breakers:
    """One for each member that failed; see the module."""

    def __init__(self, settings: BreakerSettings = BreakerSettings()) -> None:
        self._settings = settings
        self._of: dict[str, _Breaker] = {}
        #: members of which the state as their Clusters say it was taken over, or was there to be
        self._heard: set[str] = set()
        #: namespaces of failures in members whose breakers are open: their workloads are classes of their own
        self._marked: set[str] = set()
        #: something may be tried that was not before, or the other way round
        self.moved = False
        #: members whose state changed since `take_changed`
        self._changed: dict[str, None] = {}

    # -- for decisions -----------------------------------------------------------------------------------------------

    def barred(self, namespace: str) -> set[str]:
        """Members to which nothing of this namespace is to be sent now."""
        return {name for name, each in self._of.items() if each.open and _bars(each, namespace)} if self._of else set()

    def is_marked(self, namespace: str) -> bool:
        """Whether workloads of this namespace may be barred where others are not."""
        return namespace in self._marked

    @property
    def next(self) -> float | None:
        """When the first pause ends."""
        return min((each.until for each in self._of.values() if each.pausing), default=None)

    def circuit(self, member: str) -> Circuit | None:
        """The state of a member's breaker; None where nothing is known against it."""
        each = self._of.get(member)
        if each is None or not each.opened:
            return None
        return Circuit(each.open, each.opened, each.until, each.failure, each.pausing)

    def take_changed(self) -> list[str]:
        """Members whose state changed since the last call."""
        changed, self._changed = self._changed, {}
        return list(changed)

    # -- what happens ------------------------------------------------------------------------------------------------

    def take_over(self, member: str, circuit: Circuit | None) -> None:
        """Go on from what the Cluster says when it is seen first; what it says later follows from this breaker."""
        if member in self._heard:
            return
        self._heard.add(member)
        if circuit is not None and member not in self._of:
            self._of[member] = _Breaker(
                circuit.opened, circuit.open, circuit.open, circuit.until, failure=circuit.failure, inherited=True
            )
            self._told(member)

    def forget(self, member: str) -> None:
        """An administrator says that it is in order again, or it is no member any more."""
        if self._of.pop(member, None) is not None:
            self._told(member)

    def leave(self, member: str) -> None:
        """It is no member any more."""
        self.forget(member)
        self._heard.discard(member)

    def sent(self, member: str, uid: str) -> None:
        """A workload was dispatched there."""
        each = self._of.get(member)
        if each is not None and each.open:
            each.trial, self.moved = uid, True

    def bound(self, member: str, now: float) -> None:
        """It bound what was sent to it."""
        each = self._of.get(member)
        if each is None:
            return
        each.failures[Failure.NOT_BOUND].clear()
        if each.open:
            each.open = each.pausing = each.inherited = False
            each.trial, each.until = "", now + self._settings.forgotten
            self._told(member)
        elif not each.opened and not any(each.failures.values()):
            del self._of[member]

    def failed(self, member: str, namespace: str, uid: str, now: float, failure: Failure) -> None:
        """It did not bind in time what was sent to it, or did not answer; or did not confirm a removal in time."""
        each = self._of.setdefault(member, _Breaker())
        counts = each.failures[failure]
        counts[namespace] += 1
        tried = each.trial == uid
        if tried:
            each.trial = ""
        # What was under way when others failed fails with them, and what was tried in a pause does not prolong it.
        if (counts.total() >= self._settings.threshold and not each.open) or (tried and not each.pausing):
            each.opened += 1
            each.open = each.pausing = True
            each.until = now + pause_after(each.opened, self._settings) * spread(f"{member}/{each.opened}")
            each.failure = failure
            self._told(member)
        elif each.open:
            self.moved = True

    def removed(self, member: str) -> None:
        """It confirmed a removal."""
        each = self._of.get(member)
        if each is not None:
            each.failures[Failure.NOT_REMOVED].clear()

    def withdrawn(self, uid: str) -> None:
        """It is not tried there any more, and it is not known whether it would have been bound."""
        for each in self._of.values():
            if each.trial == uid:
                each.trial, self.moved = "", True

    def pass_begins(self, now: float) -> None:
        """End the pauses whose time has come."""
        for member, each in list(self._of.items()):
            if each.pausing and each.until <= now:
                each.pausing = each.inherited = False
                self._told(member)
            elif not each.open and each.opened and each.until <= now:
                each.opened = 0
                self._changed[member] = None
                if not any(each.failures.values()):
                    del self._of[member]

    def to_mark(self) -> list[str]:
        """Namespaces that are to be marked, or not any more; `mark` does it."""
        open_ones = [counts for each in self._of.values() if each.open for counts in each.failures.values()]
        return sorted(self._marked ^ {namespace for counts in open_ones for namespace in counts})

    def mark(self, namespace: str) -> None:
        """Mark the namespace, or take its mark away: the other one than before."""
        self._marked ^= {namespace}

    # ----------------------------------------------------------------------------------------------------------------

    def _told(self, member: str) -> None:
        self._changed[member] = None
        self.moved = True


def _bars(each: _Breaker, namespace: str) -> bool:
    """Whether an open breaker keeps a namespace out."""
    if each.trial:
        return True
    return each.pausing and (each.inherited or any(namespace in counts for counts in each.failures.values()))
