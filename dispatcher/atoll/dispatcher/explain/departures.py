"""Whose end would let a workload start, found as victims are."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.placement.rules import Rules
from atoll.dispatcher.core.preemption.candidates import Victim
from atoll.dispatcher.core.preemption.search import Plan, may_help, smallest, somewhere
from atoll.dispatcher.core.preemption.trial import Bundle, Claimant, Trial
from atoll.dispatcher.core.quota.tree import Tree
from atoll.dispatcher.core.settings import PreemptionSettings


def departures(
    claimant: Claimant,
    running: Sequence[Victim],
    tree: Tree,
    members: Members,
    *,
    rules: Rules,
    settings: PreemptionSettings,
) -> Plan | None:
    """As `plan`, of workloads that would have to end by themselves: no rights count, and the first named goes first."""

    def search(trial: Trial) -> Plan | None:
        pool = [Bundle(each.uid, each.leaf, each.amount, each.parts) for each in running]
        for position, bundle in enumerate(pool):
            bundle.position = position
        return smallest(trial, pool) if may_help(trial, running) else None

    return somewhere(claimant, tree, members, rules, search, settings)
