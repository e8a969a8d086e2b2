"""Which running workloads must go so that one that waits fits: preemption in a queue, reclaim between queues.

*Preemption* takes from workloads of the same queue and a strictly lower priority. *Reclaim* takes from other queues
their use beyond their deserved share, for a queue within its own; a queue that is not entitled
does not first give up work of its own to become so, because two workloads would stop for one. Whole gangs go, or the
surplus of elastic ones.

1. A necessary condition: with every candidate gone, is there quota and are there nodes? Most answers are no.
2. The search of `atoll.fit.victims`, which also makes up for what the queues' limits lack. "No" is certain where the
   condition failed or all sets were tried; else the search found nothing. `choose` names the shortage then.
3. Reserved capacity is tried last, and most often stays reserved after any eviction: after a few refusals the
   search ends.

No two workloads evict each other for ever: a claimant of one resource stays within its entitlement while a victim's
queue was above its own, so their roles can't be exchanged; where several resources make that possible, a workload
that was evicted for another never evicts that one, and each workload is evicted only so often.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.placement.choice import Choice
from atoll.dispatcher.core.placement.rules import ANYWHERE, Rules
from atoll.dispatcher.core.preemption.candidates import Victim, candidates, ordered
from atoll.dispatcher.core.preemption.moves import Moving
from atoll.dispatcher.core.preemption.trial import Bundle, Claimant, Trial
from atoll.dispatcher.core.quota.queue import Queue
from atoll.dispatcher.core.quota.tree import Tree
from atoll.dispatcher.core.settings import PreemptionSettings
from atoll.fit.site import Pods, without
from atoll.fit.victims import Bounds, search
from atoll.model import vector
from atoll.model.vector import Vector
from atoll.model.verdict import Reason


class Loss(NamedTuple):
    """What one workload loses."""

    uid: str
    reason: Reason
    """Preempted, Reclaimed or Moved."""
    surplus: tuple[Bundle, ...] | None = None
    """The steps by which it shrinks; None when the whole workload goes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Who goes, and where the claimant then goes."""

    losses: tuple[Loss, ...]
    """In order of their UIDs."""
    choice: Choice
    awaited: tuple[str, ...] = ()
    """UIDs of leaving workloads whose capacity it needs."""
    moving: Moving | None = None
    """The moves that these losses are; None where the victims just go."""

    @property
    def victims(self) -> tuple[str, ...]:
        """UIDs of the workloads that go whole."""
        return tuple(loss.uid for loss in self.losses if loss.surplus is None)


def by_moves(moving: Moving) -> Plan:
    """The plan by which gangs move for a claimant."""
    uids = sorted(move.uid for move in moving.freed.moves)
    return Plan(tuple(Loss(uid, Reason.MOVED) for uid in uids), moving.freed.choice, moving=moving)


def plan(
    claimant: Claimant,
    victims: Iterable[Victim],
    tree: Tree,
    members: Members,
    *,
    now: float,
    leaving: Sequence[Victim] = (),
    rules: Rules = ANYWHERE,
    settings: PreemptionSettings = PreemptionSettings(),
) -> Plan | None:
    """The victims without which the claimant fits; None where no eviction would help.

    Args:
        claimant: what waits; its demand is counted in the tree, and its shape enrolled.
        victims: all that run, in any order.
        tree: unchanged afterwards; no thread may read it meanwhile.
        members: up to date; not changed.
        now: seconds since the epoch.
        leaving: evicted workloads not ended yet, whose capacity no claim has: they count as gone.
        rules: asked to permit each choice, while the tree shows the use without the victims.
        settings: bounds of the search, and of evictions.
    """
    found = list(victims)

    def search(trial: Trial) -> Plan | None:
        willing = candidates(trial, found, now)
        # Nothing stops for what others can spare.
        spare = [victim.spare_only() for victim in willing if victim.surplus]
        for able in (spare, willing) if spare else (willing,):
            if may_help(trial, able) and (outcome := smallest(trial, ordered(trial, able))) is not None:
                return outcome
        return None

    return somewhere(claimant, tree, members, rules, search, settings, leaving)


def somewhere(
    claimant: Claimant,
    tree: Tree,
    members: Members,
    rules: Rules,
    search: Callable[[Trial], Plan | None],
    settings: PreemptionSettings,
    leaving: Sequence[Victim] = (),
) -> Plan | None:
    """Search in the members of the first affinity that leads anywhere."""
    table = members.table
    for allowed in table.allowed(claimant.shape):
        columns = np.flatnonzero(rules.serves(allowed & table.ready))
        among = [table.order[column] for column in columns if table.order[column].name not in rules.avoided]
        if among:
            with Trial(claimant, tree, members, among, rules, settings) as trial:
                gone = [each.whole(foreign=False) for each in leaving]
                for bundle in gone:
                    trial.move(bundle)
                outcome = search(trial)
                if outcome is not None:
                    return _awaiting(trial, outcome, gone) if gone else outcome
    return None


def _awaiting(trial: Trial, outcome: Plan, gone: Sequence[Bundle]) -> Plan:
    """The plan, and what of that which leaves already it can't do without."""
    awaited = []
    for bundle in gone:
        trial.move(bundle, -1)
        if not trial.fits():
            trial.move(bundle)
            awaited.append(bundle.uid)
    choice = trial.choice()
    assert choice is not None, "what fits beside the same others fits again"
    return replace(outcome, choice=choice, awaited=tuple(awaited))


def smallest(trial: Trial, pool: list[Bundle]) -> Plan | None:
    """What of a pool goes, as little as is found to do."""
    settings = trial.settings
    best = search(trial, pool, Bounds(settings.places, settings.exhaustive, settings.forbidden))
    if best is None:
        return None
    for bundle in best:
        trial.take(bundle)
    choice = trial.choice()
    if choice is None:
        trial.put_all()
        return None
    return Plan(_losses(best), choice)


def may_help(trial: Trial, victims: Sequence[Victim]) -> bool:
    """Whether the claimant might fit with all candidates gone: the necessary condition."""
    totals: dict[Queue, Vector] = {}
    for kind, times in Counter(victim.kind for victim in victims).items():
        leaf, _, _, amount = kind
        vector.add(totals.setdefault(leaf, {}), dict(amount), times)
    gone: list[tuple[Queue, Vector, Mapping[str, Pods]]] = [(leaf, total, {}) for leaf, total in totals.items()]
    if trial.capped:
        gone += [(victim.leaf, {}, victim.parts) for victim in victims]
    for each in gone:
        trial.release(*each)
    helps = trial.shortage() is None and _leave_room(trial, victims)
    for each in gone:
        trial.release(*each, -1)
    return helps


def _leave_room(trial: Trial, victims: Sequence[Victim]) -> bool:
    """Whether the nodes might hold the claimant without the pods of these."""
    if trial.may_fit():
        return True
    with without(trial.sites, (victim.parts for victim in victims)):
        return trial.may_fit()


def _losses(bundles: Sequence[Bundle]) -> tuple[Loss, ...]:
    losses = []
    for uid, group in itertools.groupby(sorted(bundles, key=lambda each: (each.uid, each.position)), lambda b: b.uid):
        mine = tuple(group)
        reason = Reason.RECLAIMED if mine[0].foreign else Reason.PREEMPTED
        losses.append(Loss(uid, reason, mine if mine[-1].surplus else None))
    return tuple(losses)
