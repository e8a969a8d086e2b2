"""Why a workload may not use members, each cause by its name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.core.quota.queue import Queue, path
from atoll.model import affinity, keys, selectors
from atoll.model.plurals import counted
from atoll.model.verdict import Blocker, Reason, Verdict

NAMED = 5
"""Members that a condition names."""
QUEUE = "its queue does not use this member"


def by_policy(member: Member, view: BindingView) -> str:
    """Whether it is its policy, a taint or a cordon that keeps a workload from a member."""
    taint = selectors.untolerated(member.view.taints, view.tolerations) if member.view is not None else None
    if taint is None:
        return "its policy does not allow this member"
    if taint.get("key") == keys.CORDONED:
        return "this member is cordoned"
    said = f"{taint.get('key')}={taint['value']}" if taint.get("value") else f"{taint.get('key')}"
    return f"this member has taint {said}:{taint.get('effect')}, which its policy's clusterTolerations do not tolerate"


def verdict(
    view: BindingView,
    shape: Shape,
    leaf: Queue,
    members: Members,
    serving: NDArray[np.bool_] | None,
    kept_out: Mapping[str, str],
) -> Verdict:
    """That it may use no member, with what keeps it from each.

    Args:
        view: of the workload.
        shape: its shape, enrolled.
        leaf: its queue.
        members: up to date.
        serving: bool[members] that its queue may use; None for all.
        kept_out: member -> why it may not go there because of where others run.
    """
    causes: dict[str, str] = {}
    allowed = members.table.allowed(shape)
    for column, member in enumerate(members.table.order):
        if member.view is None:
            continue
        if not any(bool(each[column]) for each in allowed):
            unfit = member.unfit(shape.gang)
            causes[member.name] = unfit[1] if unfit is not None else by_policy(member, view)
        elif serving is not None and not serving[column]:
            causes[member.name] = QUEUE
        elif member.name in kept_out:
            causes[member.name] = kept_out[member.name]
    for name in _named(view, leaf):
        known = members.by_name.get(name)
        if known is None or known.view is None:
            causes[name] = "it has left the federation" if known is not None else "no member of this name has joined"
    if not causes:
        # All may be used, and its policy wants more of them than it lets it be divided over.
        few = f"its policy wants it in {counted(view.least_clusters, 'cluster')} and does not let it be divided"
        text = few if members.table.order else "no member has joined"
        return Verdict(Reason.NO_CLUSTER, Blocker("Clusters", "", message=text))
    shown = "; ".join(f"{name}: {why}" for name, why in sorted(causes.items())[:NAMED])
    more = f"; and {counted(len(causes) - NAMED, 'other')}" if len(causes) > NAMED else ""
    return Verdict(Reason.NO_CLUSTER, Blocker("Clusters", ", ".join(sorted(causes)[:NAMED]), message=shown + more))


def _named(view: BindingView, leaf: Queue) -> set[str]:
    """Members that its policy and its queues name."""
    tiers = [tier for each in view.affinities for tier in affinity.tiers(each)]
    names = {str(name) for tier in tiers for name in tier.get("clusterNames") or ()}
    for queue in path(leaf):
        names.update(queue.said.members)
    return names
