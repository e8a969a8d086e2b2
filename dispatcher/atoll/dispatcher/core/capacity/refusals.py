"""Members that refused workloads: answers of their API servers or admission about one workload, or of a namespace.

What a member bound and did not get to run in time counts as refused by it.

Most refusals follow from the workload: a PriorityClass that is not there, a container that a policy forbids. They count
against the workload: that member is avoided for it alone, for longer each time, and for good after a number of
refusals. Once that is so of every member that it may use it is deactivated until its user acts. The counts are on its
binding, so a new leader goes on from them. A full ResourceQuota follows from the namespace, and so does one of the
member's own that has its name: the member is avoided for all of that namespace, and nothing is counted, until the
pause ends or a user says that it was fixed. Workloads of other namespaces are never kept out of a member by either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.core.settings import RefusedSettings
from atoll.model.decision import Refused
from atoll.model.namespaces import NOT_ACCEPTED
from atoll.model.pauses import Pause, count_after, pause_after, spread
from atoll.model.timestamps import to_seconds
from atoll.model.verdict import Blocker, Reason, Verdict, concerns_namespace, lacks_class

MOST_WORDS = 1000
"""Characters of a refusal that are kept."""
_OF_ONE = (Reason.REFUSED_BY_MEMBER, Reason.OVERRIDE_FAILED)
"""Reasons that are a workload's own, not its namespace's."""


class Refusals:
    """Workloads and namespaces that avoid a member after its refusal."""

    def __init__(self, settings: RefusedSettings = RefusedSettings()) -> None:
        """Begin without any."""
        self._settings = settings
        #: UID of a binding -> member -> pause, of waiting workloads
        self._of: dict[str, dict[str, Pause]] = {}
        #: namespace -> member -> pause
        self._of_namespaces: dict[str, dict[str, Pause]] = {}

    # -- of one workload ---------------------------------------------------------------------------------------------

    def counted(self, view: BindingView) -> Mapping[str, int]:
        """Member -> how often it refused the workload since its user acted last."""
        refused = view.decision.refused
        attempt = view.gang.tried_as if view.gang is not None else ""
        return refused.counts if refused is not None and refused.attempt == attempt else {}

    def given_up(self, view: BindingView) -> set[str]:
        """Members in which the workload is not tried any more."""
        return self.too_often(self.counted(view))

    def too_often(self, counts: Mapping[str, int]) -> set[str]:
        """The members of these that have refused a workload as often as it is tried."""
        return {name for name, count in counts.items() if 0 < self._settings.most <= count}

    def deactivated(self, view: BindingView) -> Verdict | None:
        """The verdict on a workload that was deactivated, and whose user has not acted since; None on any other."""
        refused = view.decision.refused
        if view.decision.reason is not Reason.DEACTIVATED or refused is None or not self.counted(view):
            return None
        return self.deactivation(view, refused)

    @staticmethod
    def deactivation(view: BindingView, refused: Refused) -> Verdict:
        """The verdict on a workload that is tried in no member any more."""
        words = refused.message
        if view.gang is not None and view.gang.classless and lacks_class(words):
            words += "; the host does not have it either, and it is tried again once it is created there"
        return Verdict(Reason.DEACTIVATED, Blocker("Cluster", refused.member, message=words))

    def after(self, view: BindingView, refusing: Mapping[str, str]) -> Refused | None:
        """Status to write once these members refused the workload: member -> its words."""
        own = [(name, words) for name, words in refusing.items() if not concerns_namespace(words)]
        if not own:
            return view.decision.refused
        known, gang = self.counted(view), view.gang
        counts = {**known, **{name: known.get(name, 0) + 1 for name, _ in own}}
        if gang is not None and gang.classless:
            # Nothing brings the class there; one that goes along may be a moment late.
            counts |= {name: max(self._settings.most, counts[name]) for name, words in own if lacks_class(words)}
        name, words = own[0]
        attempt = gang.tried_as if gang is not None else ""
        return Refused(counts, attempt, name, words[:MOST_WORDS])

    def enter(self, view: BindingView, now: float) -> None:
        """The workload waits: avoid what refused it, as its binding says."""
        counts, refused = self.counted(view), view.decision.refused
        if refused is None or not counts:
            self._of.pop(view.uid, None)
            return
        last = max(
            (to_seconds(line.at) for line in view.decision.story if line.reason in _OF_ONE),
            default=0.0,
        )
        pauses = {name: last + self._pause(count, f"{view.uid}/{name}") for name, count in counts.items()}
        pauses |= dict.fromkeys(self.given_up(view), math.inf)
        self._of[view.uid] = {
            name: Pause(until, counts[name], until <= now, refused.message if name == refused.member else "")
            for name, until in pauses.items()
        }

    def leave(self, uid: str) -> None:
        """The workload waits no more."""
        self._of.pop(uid, None)

    # -- of a namespace ----------------------------------------------------------------------------------------------

    def is_marked(self, namespace: str) -> bool:
        """Whether a member refused something for its namespace: its workloads are then classes of their own."""
        return namespace in self._of_namespaces

    def by_namespace(self, namespace: str, member: str, words: str, now: float) -> bool:
        """That member refused something for its namespace; whether it is the first such word about the namespace."""
        first = namespace not in self._of_namespaces
        before = self._of_namespaces.setdefault(namespace, {}).get(member)
        count = count_after(before)
        pause_of = self._settings.namespace_pause if NOT_ACCEPTED in words else self._settings.pause
        until = now + self._pause(count, f"{namespace}/{member}", pause_of)
        self._of_namespaces[namespace][member] = Pause(until, count, words=words[:MOST_WORDS])
        return first

    def eased(self, namespace: str, member: str) -> bool:
        """Something of the namespace ended there: whether the member may be tried again because of it."""
        pause = self._of_namespaces.get(namespace, {}).get(member)
        if pause is None or pause.over:
            return False
        pause.over = True
        return True

    def accepted(self, namespace: str, member: str) -> bool:
        """Something of the namespace runs there, so the next refusal is the first; whether a pause ended by that."""
        pause = self._of_namespaces.get(namespace, {}).get(member)
        if pause is None:
            return False
        eased, pause.over, pause.count = not pause.over, True, 0
        return eased

    def try_again(self, *, namespace: str = "", member: str = "") -> None:
        """It was fixed, as a user says for a namespace, or an administrator for a member."""
        for name, pauses in self._of_namespaces.items():
            for where, pause in pauses.items():
                pause.over |= name == namespace or where == member

    # -- for decisions -----------------------------------------------------------------------------------------------

    def avoided(self, view: BindingView) -> dict[str, str]:
        """Member -> its words, of members not to be tried yet."""
        if not self._of and not self._of_namespaces:
            return {}
        of_namespace, own = self._of_namespaces.get(view.namespace, {}), self._of.get(view.uid, {})
        return {name: pause.words for each in (of_namespace, own) for name, pause in each.items() if not pause.over}

    @property
    def next(self) -> float | None:
        """When the first pause ends."""
        return min((pause.until for pause in self._all() if not pause.over and pause.until < math.inf), default=None)

    def ended(self, now: float) -> tuple[list[str], list[str], list[str]]:
        """UIDs and namespaces for which a member may be tried again since it was asked last, and namespaces that are
        not marked any more.
        """
        if not self._of and not self._of_namespaces:
            return [], [], []
        uids, namespaces = (
            [who for who, pauses in table.items() if any([pause.ends(now) for pause in pauses.values()])]
            for table in (self._of, self._of_namespaces)
        )
        forgotten = []
        for name, pauses in list(self._of_namespaces.items()):
            if all(pause.over and pause.forgotten(self._settings) <= now for pause in pauses.values()):
                del self._of_namespaces[name]
                forgotten.append(name)
        return uids, namespaces, forgotten

    def _all(self) -> Iterator[Pause]:
        for table in (self._of, self._of_namespaces):
            for pauses in table.values():
                yield from pauses.values()

    def _pause(self, count: int, who: str, first: float | None = None) -> float:
        return pause_after(count, self._settings, first) * spread(who) if count else 0.0
