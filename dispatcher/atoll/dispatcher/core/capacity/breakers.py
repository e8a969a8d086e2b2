"""Members that take workloads and bind none of them, or never confirm a removal: a circuit breaker for each.

A member's figures don't show whether it obeys commands, so no figures change these counters.
After a number of failures without a success between them the breaker opens: nothing more is sent to the member for a
pause, then one workload (half-open). If that is bound the breaker closes, else the next pause is twice as long.

Failures may be the workloads' own fault, so they count against the namespaces that they are of: while the breaker is
open, a workload of another namespace may be tried at once, one at a time. So no tenant can keep others out of a member
that works for them, and a member that does not costs each namespace one workload.

A workload whose pods were not even made counts for its kind alone, by a breaker of that kind in that member: whatever
makes pods of the kind is missing there, or is refused them, and other kinds work. What a member refused in its own
words counts for no breaker (`refusals.py`). Breakers of kinds live in memory: a new leader learns them anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
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
    #: kind of failure -> namespace -> failures since the last success
    failures: dict[Failure, Counter[str]] = field(default_factory=lambda: {each: Counter() for each in Failure})
    #: opened by an earlier leader: of which namespaces those were is not known, so all are kept out
    inherited: bool = False
    failure: Failure = Failure.NOT_BOUND


class Breakers:
    """One for each member that failed, and each kind that failed in a member; see the module."""

    def __init__(self, settings: BreakerSettings = BreakerSettings()) -> None:
        self._settings = settings
        #: (member, kind; empty for all kinds) -> its breaker
        self._of: dict[tuple[str, str], _Breaker] = {}
        #: members of which the state as their Clusters say it was taken over, or was there to be
        self._heard: set[str] = set()
        #: namespaces of failures in members whose breakers are open, and kinds of open breakers: their workloads are
        #: classes of their own
        self._marked: set[str] = set()
        #: something may be tried that was not before, or the other way round
        self.moved = False
        #: members whose state changed since `take_changed`
        self._changed: dict[str, None] = {}

    # -- for decisions -----------------------------------------------------------------------------------------------

    def barred(self, namespace: str, kind: str) -> set[str]:
        """Members to which nothing of this kind and namespace may go now."""
        return {name for name, each in self._about(kind) if each.open and _bars(each, namespace)} if self._of else set()

    def is_marked(self, scope: str) -> bool:
        """Whether workloads of this namespace, or of this kind, may be barred where others are not."""
        return scope in self._marked

    @property
    def next(self) -> float | None:
        """When the first pause ends."""
        return min((each.until for each in self._of.values() if each.pausing), default=None)

    def circuit(self, member: str) -> Circuit | None:
        """The state of a member's breaker; None where nothing is known against it."""
        each = self._of.get((member, ""))
        if each is None or not each.opened:
            return None
        return Circuit(each.open, each.opened, each.until, each.failure, each.pausing)

    def take_changed(self) -> list[str]:
        """Members whose state changed since the last call."""
        changed, self._changed = self._changed, {}
        return list(changed)

    # -- what happens ------------------------------------------------------------------------------------------------

    def take_over(self, member: str, circuit: Circuit | None) -> None:
        """Go on from the first observed state of the Cluster; its later states follow from this breaker."""
        if member in self._heard:
            return
        self._heard.add(member)
        if circuit is not None and (member, "") not in self._of:
            self._of[member, ""] = _Breaker(
                circuit.opened, circuit.open, circuit.open, circuit.until, failure=circuit.failure, inherited=True
            )
            self._told(member)

    def forget(self, member: str) -> None:
        """An administrator says that it is in order again, or it is no member any more."""
        for key in [key for key in self._of if key[0] == member]:
            del self._of[key]
            self._told(member)

    def leave(self, member: str) -> None:
        """It is no member any more."""
        self.forget(member)
        self._heard.discard(member)

    def sent(self, member: str, kind: str, uid: str) -> None:
        """A workload was dispatched there."""
        for name, each in self._about(kind):
            if name == member and each.open:
                each.trial, self.moved = uid, True

    def bound(self, member: str, kind: str, now: float) -> None:
        """The member bound a workload."""
        for key in ((member, ""), (member, kind)):
            each = self._of.get(key)
            if each is None:
                continue
            each.failures[Failure.NOT_BOUND].clear()
            if each.open:
                each.open = each.pausing = each.inherited = False
                each.trial, each.until = "", now + self._settings.forgotten
                self._told(member)
            elif not each.opened and not any(each.failures.values()):
                del self._of[key]

    def failed(self, member: str, namespace: str, uid: str, now: float, failure: Failure, *, kind: str = "") -> None:
        """The member did not bind, answer or confirm a removal in time.

        `kind`: of a workload whose pods were not made; empty counts against the member for all kinds.
        """
        each = self._of.setdefault((member, kind), _Breaker())
        counts = each.failures[failure]
        counts[namespace] += 1
        tried = each.trial == uid
        if tried:
            each.trial = ""
        # Work under way when others failed fails with them, and a trial within a pause does not prolong it.
        if (counts.total() >= self._settings.threshold and not each.open) or (tried and not each.pausing):
            each.opened += 1
            each.open = each.pausing = True
            who = f"{member}/{kind}/{each.opened}" if kind else f"{member}/{each.opened}"
            each.until = now + pause_after(each.opened, self._settings) * spread(who)
            each.failure = failure
            self._told(member)
        elif each.open:
            self.moved = True

    def removed(self, member: str) -> None:
        """It confirmed a removal."""
        each = self._of.get((member, ""))
        if each is not None:
            each.failures[Failure.NOT_REMOVED].clear()

    def withdrawn(self, uid: str) -> None:
        """It is not tried there any more, and it is not known whether it would have been bound."""
        for each in self._of.values():
            if each.trial == uid:
                each.trial, self.moved = "", True

    def pass_begins(self, now: float) -> None:
        """End the pauses whose time has come."""
        for (member, kind), each in list(self._of.items()):
            if each.pausing and each.until <= now:
                each.pausing = each.inherited = False
                self._told(member)
            elif not each.open and each.opened and each.until <= now:
                each.opened = 0
                self._changed[member] = None
                if not any(each.failures.values()):
                    del self._of[member, kind]

    def to_mark(self) -> list[str]:
        """Namespaces and kinds whose mark changes; `mark` does it."""
        open_ones = [(kind, each.failures.values()) for (_, kind), each in self._of.items() if each.open]
        scopes = {kind for kind, _ in open_ones if kind}
        scopes.update(namespace for _, failures in open_ones for counts in failures for namespace in counts)
        return sorted(self._marked ^ scopes)

    def mark(self, scope: str) -> None:
        """Mark the namespace or kind, or take its mark away: the other one than before."""
        self._marked ^= {scope}

    # ----------------------------------------------------------------------------------------------------------------

    def _about(self, kind: str) -> Iterator[tuple[str, _Breaker]]:
        """(Member, breaker) that matter to a kind."""
        return ((name, each) for (name, of), each in self._of.items() if of in ("", kind))

    def _told(self, member: str) -> None:
        self._changed[member] = None
        self.moved = True


def _bars(each: _Breaker, namespace: str) -> bool:
    """Whether an open breaker keeps a namespace out."""
    if each.trial:
        return True
    return each.pausing and (each.inherited or any(namespace in counts for counts in each.failures.values()))
