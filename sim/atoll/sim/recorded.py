"""Jobs from records of runs (docs/records.md), members as they publish themselves, and the error of a replay.

Records say which capacity a workload held, not its manifest: all of its pods are equal and start together, its priority
is 0, and it may run in every member.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from atoll.dispatcher.objects import CapacityObject, CapacityProfile
from atoll.model import cards, keys, quantity
from atoll.model.gang import MOST_PODS, Task
from atoll.model.plurals import counted
from atoll.sim.clusters import MemberSpec, Pool
from atoll.sim.jobs import Job, ordered
from atoll.sim.journal import Journal
from atoll.sim.metrics import spread

Json = dict[str, Any]
Name = tuple[str, str]
"""Namespace and name of a job."""

ALIKE = 60.0
"""Seconds within which two waits count as the same, or a tenth of the recorded one if that is more."""
_NAMED = 5
"""Jobs that a report names."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A time as records have it; seconds since its start."""

    jobs: list[Job]
    waits: dict[Name, float]
    """From submission until the minimum had nodes, of workloads that were submitted in that time."""
    evictions: int
    notes: list[str]


def read(rows: Iterable[Mapping[str, Any]], since: datetime, until: datetime) -> Recorded:
    """Jobs from rows of records, one for each workload.

    A workload runs as long as its last run held its nodes; earlier runs ended by evictions, which the simulated
    dispatcher decides anew. One that was submitted before that time is submitted at its start.

    Args:
        rows: of runs that held capacity in that time.
        since: start of the time.
        until: its end.
    """
    by_uid: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_uid.setdefault(row["uid"], []).append(row)
    found = [sorted(runs, key=lambda run: run["epoch"]) for runs in by_uid.values()]
    found.sort(key=lambda runs: (_submitted(runs[0]), runs[0]["uid"]))
    jobs, waits, evictions, dropped = list[Job](), dict[Name, float](), 0, 0
    names = Counter[Name]()
    for runs in found:
        evictions += sum(run["outcome"] == "Evicted" for run in runs)
        ran = [run for run in runs if run["bound"]]
        asked = _asked(runs[-1])
        if not ran or not asked:
            dropped += 1
            continue
        names[runs[0]["namespace"], runs[0]["name"]] += 1
        number = names[runs[0]["namespace"], runs[0]["name"]]
        name = runs[0]["name"] if number == 1 else f"{runs[0]['name']}#{number}"
        submitted = _submitted(runs[0])
        last = ran[-1]
        begun = max(last["bound"], since) if submitted < since else last["bound"]
        # A run that goes on outlasts the time.
        ends = last["ended"] or until
        duration = max((ends - begun).total_seconds(), 0.0) + (0.0 if last["ended"] else 1.0)
        submit = max((submitted - since).total_seconds(), 0.0)
        made = Job(name, submit, duration, (asked,), runs[0]["queue"] or "default", runs[0]["namespace"], divided=True)
        jobs.append(made)
        if submitted >= since:
            waits[made.namespace, name] = (ran[0]["bound"] - submitted).total_seconds()
    notes = ["records have no priorities, estimates, selectors or topology: all jobs are alike in these"]
    if early := len(jobs) - len(waits):
        notes.append(f"{counted(early, 'job')} submitted before that time begin with it")
    if dropped:
        notes.append(f"{counted(dropped, 'workload')} dropped that never had nodes or asked for nothing")
    return Recorded(ordered(jobs), waits, evictions, notes)


def _submitted(run: Mapping[str, Any]) -> datetime:
    found: datetime = run["submitted"] or run["dispatched"]
    return found


def _asked(row: Mapping[str, Any]) -> Task | None:
    """Equal pods that together have the amounts of a run, or fewer if it never had all."""
    asked, granted = dict(row["asked"]), dict(row["granted"])
    pods = round(min(asked.get("pods", 0.0), granted.get("pods") or asked.get("pods", 0.0)))
    if not 0 < pods <= MOST_PODS:
        return None
    least = max(round(asked["pods"]), 1)
    # Charges of no node's resource are for quotas alone.
    each = {
        name: -(-round(amount * quantity.scale_of(name)) // least)
        for name, amount in asked.items()
        if name not in ("pods", cards.ANY)
    }
    return Task("pod", pods, pods, {**each, "pods": 1})


def members(capacities: Iterable[Json], clusters: Iterable[Json]) -> list[MemberSpec]:
    """Members as their ClusterCapacities on the host describe them, without topology."""
    about = {each["metadata"]["name"]: each for each in clusters}
    pools: dict[str, Counter[str]] = {}
    for each in capacities:
        read = msgspec.convert(each, CapacityObject)
        name = keys.cluster_of(read.metadata.namespace)
        if name in about:
            for group in read.spec.classes:
                profile = read.spec.profiles[group.profile]
                key = msgspec.json.encode(profile, order="sorted").decode()
                pools.setdefault(name, Counter())[key] += group.nodes
    return [
        MemberSpec(
            name,
            tuple(_pool(msgspec.json.decode(key, type=CapacityProfile), count) for key, count in sorted(found.items())),
            about[name]["metadata"].get("labels") or {},
            tuple((about[name].get("spec") or {}).get("taints") or ()),
        )
        for name, found in sorted(pools.items())
    ]


def _pool(profile: CapacityProfile, nodes: int) -> Pool:
    return Pool(nodes, quantity.capacity(profile.allocatable), profile.labels, tuple(profile.taints))


def reproduced(recorded: Recorded, journal: Journal) -> Json:
    """How near simulated waits are to recorded ones: both spreads, the error in seconds, and the jobs furthest off."""
    simulated = {
        (record.job.namespace, record.job.name): record.first_start - record.job.submit
        for record in journal.records.values()
        if record.first_start is not None
    }
    both = [name for name in recorded.waits if name in simulated]
    errors = {name: simulated[name] - recorded.waits[name] for name in both}
    alike = [name for name in both if abs(errors[name]) <= max(ALIKE, recorded.waits[name] / 10)]
    furthest = sorted(errors, key=lambda name: (-abs(errors[name]), name))[:_NAMED]
    return {
        "jobs": len(recorded.waits),
        "recorded": spread([recorded.waits[name] for name in both]),
        "simulated": spread([simulated[name] for name in both]),
        "error": spread([abs(each) for each in errors.values()]),
        "alike": len(alike),
        "never_started": len(recorded.waits) - len(both),
        "evictions": {
            "recorded": recorded.evictions,
            "simulated": sum(len(record.evictions) for record in journal.records.values()),
        },
        "furthest": [
            {"job": "/".join(name), "recorded": recorded.waits[name], "simulated": simulated[name]}
            for name in furthest
            if name not in alike
        ],
    }
