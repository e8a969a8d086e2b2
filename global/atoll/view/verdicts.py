"""What the query API says, for people: pure functions from its JSON to lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from atoll.model import quantity
from atoll.model.ages import duration
from atoll.model.plurals import counted
from atoll.model.timestamps import to_seconds
from atoll.model.verdict import Reason

Json = dict[str, Any]

_MEMBERS = 8
"""Members that are printed, the nearest first."""


def answer(workload: str, status: Json, now: float) -> str:
    """The answer to a what-if; `now` is in seconds since the epoch."""
    if status.get("starts"):
        lines = [f"{workload} would start now"]
        for place in status.get("places") or ():
            domain = f", domain {place['domain']}" if place.get("domain") else ""
            lines.append(f"  in {place['cluster']}: {counted(place['pods'], 'pod')}{domain}")
        if flavors := status.get("flavors"):
            lines.append(f"  on nodes of flavor {', '.join(flavors)}")
        return "\n".join(lines)
    lines = [f"{workload} would wait", f"  reason    {status['reason']}: {status['message']}"]
    if place := status.get("queue"):
        lines.append(f"  position  {place['position']} of {place['waiting']} in queue {place['queue']}")
        if "share" in place:
            lines.append(f"  order     {share(place['share'])}")
    lines += details(status)
    lines += helps(status, now)
    return "\n".join(lines)


def share(found: Json) -> str:
    """By which share of its queue a workload is ordered."""
    part, weight, order = found.get("part", 0.0), found.get("weight", 1.0), found["order"]
    used = f"{part:.1%} of the queue's {found['resource']}" if found.get("resource") else "nothing of the queue"
    if order == "fair-jobs":
        return f"{order}: it would use {used}; those that use less go first"
    counts = f", which counts as {part / weight:.1%} by weight {weight:g}" if weight != 1.0 else ""
    return f"{order}: its namespace uses {used}{counts}; namespaces with less go first"


def details(status: Json) -> list[str]:
    """Whether it can start at all, limits, members and the promise."""
    lines = [f"  never     {status['never']}"] if status.get("never") else []
    limits: dict[tuple[str, ...], list[Json]] = {}
    for limit in status.get("limits") or ():
        if status.get("reason") == Reason.NO_CLUSTER and not limit.get("declared", True):
            # What no member has follows from that none serves its queue.
            continue
        key = tuple(str(limit.get(field, "")) for field in ("kind", "name", "cluster", "resource"))
        limits.setdefault(key, []).append(limit)
    lines += [_limit(several) for several in limits.values()]
    members = status.get("clusters") or []
    for room in members[:_MEMBERS]:
        where = f", domain {room['domain']}" if room.get("domain") else ""
        lines.append(
            f"  member    {room['cluster']}: {room['fits']} of {counted(room['pods'], 'pod')}{where}; {room['message']}"
        )
    if len(members) > _MEMBERS:
        lines.append(f"  member    {counted(len(members) - _MEMBERS, 'other')} with less room for it")
    if reserved := status.get("reserved"):
        when = f" from {reserved['at']}" if reserved.get("at") else " from a time that is not known yet"
        if late := reserved.get("overdueSeconds"):
            when = _overdue(reserved["at"], late)
        lines.append(f"  reserved  in {reserved['cluster']}{when}")
    return [*lines, f"  moves     none: {moves}"] if (moves := status.get("moves")) else lines


def _limit(several: list[Json]) -> str:
    """What limits one resource in one place: the narrowest bound, then the others."""
    several = sorted(several, key=lambda each: -quantity.parse(each["shortage"]))
    first = several[0]
    where = f" in {first['cluster']}" if first.get("cluster") else ""
    text = f"  limit     {first['kind'].lower()} {first['name']}{where}: {_amount(first)} needed"
    text += f", {_of(first['available'])} left, {_of(first['shortage'])} short{_why(first)}"
    return text + "".join(f"; {_of(each['shortage'])} short{_why(each) or ' of its own limit'}" for each in several[1:])


def _why(limit: Json) -> str:
    if limit.get("guaranteed"):
        return " (the rest is guaranteed to other queues)"
    return "" if limit.get("declared", True) else " (its members have no more)"


def _of(amount: str) -> str:
    return quantity.for_people(amount)


def _amount(limit: Json) -> str:
    one_pod = limit["resource"] == "pods" and limit["requested"] == "1"
    return "1 pod" if one_pod else f"{_of(limit['requested'])} {limit['resource']}"


def _overdue(at: str, seconds: float) -> str:
    return f", was expected at {at}, overdue by {duration(seconds)}"


def overdue(at: str, now: float) -> int:
    """Whole seconds since a time that should not have passed; 0 where it has not."""
    return max(0, int(now - to_seconds(at))) if at else 0


def named(workloads: Iterable[Json]) -> list[str]:
    """Other workloads by their namespaces and names; by that of the binding where theirs is not known."""
    return [f"{each['namespace']}/{each.get('workload') or each['name']}" for each in workloads]


def helps(status: Json, now: float) -> list[str]:
    """What would let it start."""
    return [f"  would help: {text}" for text in changes(status, now)]


def changes(status: Json, now: float) -> list[str]:
    """Each change in a line; a sufficient one says so, and names others that come first."""
    lines = []
    ahead = (status.get("queue") or {}).get("position", 1) - 1
    for change in status.get("changes") or ():
        text = change["message"]
        names = named(change.get("workloads") or ())
        if names:
            text += f": {', '.join(names)}" + (f" and {change['more']} more" if change.get("more") else "")
        if late := overdue(change.get("at", ""), now):
            text += _overdue(change["at"], late)
        elif change.get("at"):
            text += f", expected at {change['at']}"
        if change.get("enough"):
            text += "; that is enough"
            if ahead:
                who = "the one" if ahead == 1 else f"one of the {ahead}"
                text += f", unless {who} ahead of it in its queue takes it"
        lines.append(text)
    return lines
