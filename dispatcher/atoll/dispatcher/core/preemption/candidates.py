"""Who may have to go for a workload that waits, and in which order.

Apart from the search because these are rules that people know and argue about; the search only spares victims where it
can.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from atoll.dispatcher.core.preemption.trial import Bundle, Trial
from atoll.dispatcher.core.quota.lending import may_lend
from atoll.dispatcher.core.quota.queue import Queue, path
from atoll.dispatcher.core.settings import PreemptionSettings
from atoll.fit.site import Pods, less
from atoll.fit.sizes import Spare
from atoll.model import vector
from atoll.model.vector import Vector
from atoll.model.weighted_shares import dominant_share


@dataclass(slots=True, eq=False)
class Victim:
    """A dispatched workload that may have to go. Make it once and keep it: it is never changed."""

    uid: str
    leaf: Queue
    priority: int
    started: float
    """Seconds since the epoch."""
    amount: Vector
    """Charge of its queue."""
    parts: Mapping[str, Pods]
    """Member -> its pods there: (node index in the member's nodes, requests of one, how many)."""
    surplus: Sequence[Spare] = ()
    """What of it may go without stopping it, in the order in which that goes."""
    firm: bool = False
    """Nothing but the surplus may go."""
    preemptable: bool = True
    """The user's wish: it holds in the queue, and against others where the queue says so."""
    evictions: int = 0
    """How often it was evicted for others."""
    protection: float = PreemptionSettings().protection
    """Seconds from its start in which it is not touched; the queue's option."""
    cleared: Collection[str] = ()
    """UIDs of the workloads evicted for it."""
    kind: tuple[Queue, int, bool, tuple[tuple[str, int], ...]] = field(init=False)
    """Equal kinds are lent alike."""
    rank: tuple[int, float, int, str] = field(init=False)
    """Its place among victims of equally suitable queues: lower priority; most recently started; fewest pods;
    UID.
    """
    _spare: Victim | None = field(default=None, init=False)
    _whole: dict[bool, Bundle] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.kind = (self.leaf, self.priority, self.preemptable, tuple(self.amount.items()))
        pods = sum(count for part in self.parts.values() for _, _, count in part)
        self.rank = (self.priority, -self.started, pods, self.uid)

    def whole(self, *, foreign: bool) -> Bundle:
        """All of it at once."""
        known = self._whole.get(foreign)
        if known is None:
            known = self._whole[foreign] = Bundle(self.uid, self.leaf, self.amount, self.parts, foreign=foreign)
        return known

    def spare_only(self) -> Victim:
        """The same as one that keeps its minimum."""
        if self._spare is None:
            parts: dict[str, list[tuple[int, Vector, int]]] = {}
            for step in self.surplus:
                for name, pods in step.pods.items():
                    parts.setdefault(name, []).extend(pods)
            amount = vector.total(step.amount for step in self.surplus)
            self._spare = replace(self, amount=amount, parts=parts, firm=True)
        return self._spare


def candidates(trial: Trial, victims: Iterable[Victim], now: float) -> list[Victim]:
    """Victims that may go at least in part, each judged by itself; in no order that means anything.

    Of one that is young, was taken too often, or is not of a lower priority, the surplus may still go.
    """
    claimant = trial.claimant
    needs_quota = trial.shortage() is not None
    lent: dict[tuple[Queue, int, bool, tuple[tuple[str, int], ...]], bool] = {}
    found = []
    quick = may_lend(claimant.leaf, trial.entitled)
    for victim in victims:
        if not quick(victim.leaf):
            continue
        may = lent.get(victim.kind)
        if may is None:
            may = lent[victim.kind] = _may_go(trial, victim)
        if victim.uid == claimant.uid or (victim.cleared and claimant.uid in victim.cleared):
            continue
        if not may or victim.evictions >= trial.settings.evictions or now - victim.started < victim.protection:
            if not victim.surplus or not _may_go(trial, victim, surplus=True):
                continue
            victim = victim.spare_only()
        if needs_quota or not trial.sites.keys().isdisjoint(victim.parts):
            found.append(victim)
    return found


def _may_go(trial: Trial, victim: Victim, *, surplus: bool = False) -> bool:
    """Whether it goes, or gives its surplus up: in a queue to any workload not below it, for waiting work comes before
    growth of running work; to other queues as it would go. Its user may wish otherwise.
    """
    own = victim.leaf is trial.claimant.leaf
    if not victim.preemptable and (own or not victim.leaf.said.reclaims_firm):
        return False
    if own:
        return victim.priority < trial.claimant.priority + surplus
    return trial.lends(victim.leaf, victim.surplus[0].amount if surplus else victim.amount)


def _in_order(trial: Trial, victims: Iterable[Victim]) -> list[Victim]:
    """The order of victims but for the surplus: other queues, those most above deserved first; then by their ranks."""
    above = set(path(trial.claimant.leaf))
    #: (outermost excess, innermost) -> victims of queues with that excess over their deserved share
    equal: dict[tuple[float, float], list[Victim]] = {}
    known: dict[Queue, list[Victim]] = {}
    for victim in victims:
        mine = known.get(victim.leaf)
        if mine is None:
            levels = [queue for queue in path(victim.leaf) if queue not in above]
            shares = [dominant_share(queue.used, queue.deserved, trial.entitled) for queue in levels]
            # The claimant's own queue comes last.
            excess = (-shares[-1], -shares[0]) if shares else (1.0, 1.0)
            mine = known[victim.leaf] = equal.setdefault(excess, [])
        mine.append(victim)
    return [victim for excess in sorted(equal) for victim in sorted(equal[excess], key=attrgetter("rank"))]


def _split(trial: Trial, victim: Victim) -> Iterator[Bundle]:
    """The surplus of a workload step by step, then the rest of it."""
    foreign = victim.leaf is not trial.claimant.leaf
    if not victim.surplus:
        yield victim.whole(foreign=foreign)
        return
    last: Bundle | None = None
    amount = dict(victim.amount)
    pods = {name: list(part) for name, part in victim.parts.items()}
    for step in victim.surplus:
        last = Bundle(victim.uid, victim.leaf, step.amount, step.pods, last, surplus=True, foreign=foreign)
        yield last
        vector.add(amount, step.amount, -1)
        for name, gone in step.pods.items():
            pods[name] = less(pods[name], gone)
    if not victim.firm:
        yield Bundle(victim.uid, victim.leaf, amount, pods, last, foreign=foreign)


def ordered(trial: Trial, victims: Iterable[Victim]) -> list[Bundle]:
    """The order of victims: surplus before whole workloads; victims that their queue does not lend even alone are
    left out.
    """
    lent: dict[tuple[Queue, tuple[tuple[str, int], ...]], bool] = {}
    surplus: list[Bundle] = []
    rest: list[Bundle] = []
    for victim in _in_order(trial, victims):
        for bundle in _split(trial, victim):
            (surplus if bundle.surplus else rest).append(bundle)
    pool: list[Bundle] = []
    for bundle in itertools.chain(surplus, rest):
        if bundle.foreign and bundle.kind not in lent:
            lent[bundle.kind] = trial.lends(bundle.leaf, bundle.amount)
        if not bundle.foreign or lent[bundle.kind]:
            bundle.position = len(pool)
            pool.append(bundle)
    return pool
