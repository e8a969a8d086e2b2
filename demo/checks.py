"""What must be true of every run, whatever its order: each check names all that violates it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from demo.places import Places
from demo.record import Record, Stay

PARTIAL_S = 10.0
"""How long a gang may be bound in part."""
_FINAL = ("Completed", "Failed", "Terminated", "Aborted")
_DONE = "Completed"
_UNSETTLED = ("pending", "running", "failed", "terminating", "unknown")


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check."""

    name: str
    seen: str
    """What was looked at, with numbers."""
    violations: Sequence[str]


def run_all(record: Record, submitted: Collection[str], places: Places) -> list[Check]:
    """Every check, in the order in which they are shown.

    Args:
        record: what happened.
        submitted: names of the jobs that were to be created.
        places: the nodes of the members.
    """
    return [
        nothing_lost(record, submitted),
        every_status_final(record),
        within_capability(record),
        gangs_whole(record),
        topology_kept(record, places),
    ]


def nothing_lost(record: Record, submitted: Collection[str]) -> Check:
    """Each job was created, and completed with exactly its pods, each of which succeeded once and all in one member."""
    wrong = [f"job {name} was never created on the host" for name in sorted(set(submitted) - record.jobs.keys())]
    stays = record.stays_of()
    for name, job in sorted(record.jobs.items()):
        statuses = record.statuses.get(name) or [{}]
        last = statuses[-1]
        phase = (last.get("state") or {}).get("phase")
        counts = {key: last[key] for key in _UNSETTLED if last.get(key)}
        if phase != _DONE:
            wrong.append(f"job {name} ended as {phase or 'a job without status'} on the host, not {_DONE}")
        elif last.get("succeeded") != job.replicas or counts:
            wrong.append(
                f"job {name} has {last.get('succeeded', 0)} succeeded of {job.replicas} on the host, and {counts}"
            )
        ran = sorted(stay.pod for stay in stays[name] if stay.succeeded)
        if ran != sorted(job.pods):
            wrong.append(
                f"job {name}: {len(ran)} pods succeeded in members, {len(set(ran))} different ones of {job.replicas}"
            )
        if len(clusters := sorted({stay.cluster for stay in stays[name] if stay.succeeded})) > 1:
            wrong.append(f"job {name} ran in {' and '.join(clusters)}")
    pods = sum(job.replicas for job in record.jobs.values())
    return Check("nothing lost", f"{len(record.jobs)} jobs of {len(submitted)}, {pods} pods", wrong)


def every_status_final(record: Record) -> Check:
    """The last status of each job is final, on the host and in its member, and none was left again."""
    wrong = []
    for name in sorted(record.jobs):
        phases = [(status.get("state") or {}).get("phase") for status in record.statuses.get(name, [])]
        final = [phase in _FINAL for phase in phases]
        if not final or not final[-1]:
            wrong.append(f"job {name} is {phases[-1] if phases else 'without a status'} on the host")
        elif False in final[final.index(True) :]:
            wrong.append(f"job {name} left its final status on the host: {' -> '.join(map(str, phases))}")
    wrong += [
        f"job {name} is {phase} in {cluster}"
        for (cluster, name), phase in sorted(record.member_phases.items())
        if name in record.jobs and phase not in _FINAL
    ]
    written = sum(len(statuses) for statuses in record.statuses.values())
    return Check(
        "every status final", f"{written} statuses on the host, {len(record.member_phases)} jobs in members", wrong
    )


def within_capability(record: Record) -> Check:
    """No queue used more GPUs than its capability at any time, over all members: pods from binding to end, replayed."""
    peaks: dict[str, int] = dict.fromkeys(record.capabilities, 0)
    used: defaultdict[str, int] = defaultdict(int)
    exceeded: dict[str, str] = {}
    changes = []
    for stay in record.stays:
        job = record.jobs[stay.job]
        changes.append((stay.bound, job.gpus_per_pod, job.queue))
        if stay.ended is not None:
            changes.append((stay.ended, -job.gpus_per_pod, job.queue))
    # What ends and what begins at one microsecond did not overlap: negative amounts come first.
    for at, gpus, queue in sorted(changes):
        used[queue] += gpus
        if queue not in peaks:
            exceeded.setdefault(queue, f"queue {queue} was used, but has no capability in the host's log")
        elif used[queue] > peaks[queue]:
            peaks[queue] = used[queue]
            if used[queue] > record.capabilities[queue]:
                most = f"{used[queue]} of {record.capabilities[queue]} GPUs"
                exceeded[queue] = f"queue {queue} used {most} {at - _began(record):.3f} s after the first job"
    seen = ", ".join(f"{queue} at most {peak} of {record.capabilities[queue]} GPUs" for queue, peak in peaks.items())
    return Check("no queue over its capability", seen, list(exceeded.values()))


def gangs_whole(record: Record) -> Check:
    """No gang had some, but fewer than minAvailable of its pods bound for longer than PARTIAL_S."""
    wrong = []
    longest = 0.0
    gangs = 0
    for name, stays in sorted(record.stays_of().items()):
        job = record.jobs[name]
        gangs += job.gang
        lasted = _longest_partial(stays, job.min_available, record.end)
        longest = max(longest, lasted)
        if lasted > PARTIAL_S:
            wrong.append(f"job {name} was bound in part (fewer than {job.min_available} pods) for {lasted:.1f} s")
    return Check("no gang bound in part", f"{gangs} gangs, at most {longest * 1000:.0f} ms", wrong)


def _longest_partial(stays: Sequence[Stay], needed: int, end: float) -> float:
    changes = [(stay.bound, 1) for stay in stays]
    # A pod that ended by itself has done its part of the gang's work; one that was taken away has not.
    changes += [(stay.ended, -1) for stay in stays if stay.ended is not None and not stay.finished]
    longest = 0.0
    bound, since = 0, None
    for at, change in [*sorted(changes), (end, 0)]:
        if since is not None:
            longest = max(longest, at - since)
        bound += change
        partial = 0 < bound < needed
        since = (since if since is not None else at) if partial else None
    return longest


def topology_kept(record: Record, places: Places) -> Check:
    """Every gang that asked for it is in one domain of its highest allowed tier, or nearer."""
    wrong = []
    asked = 0
    for name, stays in sorted(record.stays_of().items()):
        allowed = record.jobs[name].highest_tier
        ran = [stay for stay in stays if stay.succeeded]
        if allowed is None or not ran:
            continue
        asked += 1
        tier = places.tier(ran)
        if tier is None or tier > allowed:
            reached = "no common domain" if tier is None else f"tier {tier}"
            wrong.append(f"job {name} asked for tier {allowed} at most and got {reached}")
    return Check("hard topology kept", f"{asked} gangs asked for a tier", wrong)


def _began(record: Record) -> float:
    return min((job.created for job in record.jobs.values()), default=0.0)


def violated(checks: Sequence[Check]) -> Mapping[str, Sequence[str]]:
    """Name -> violations, of those checks that have any."""
    return {check.name: check.violations for check in checks if check.violations}
