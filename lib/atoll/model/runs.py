"""Runs of a workload: each dispatch of a binding, from the decision to the release of its capacity.

Control keeps the last runs in the binding's status, in the write that changes its conditions, so a run is there exactly
once however control ends. A run is closed once it has `released`; then it never changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from atoll.model import quantity
from atoll.model.decision import Decision, Phase
from atoll.model.timestamps import rfc3339, to_seconds
from atoll.model.vector import Vector

KEPT: Final = 16
"""Runs of one binding."""
_MESSAGE: Final = 1024

EVICTED: Final = "Evicted"
DELETED: Final = "Deleted"


class Part(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The part of a run in one member."""

    member: str
    pods: int = 0
    domain: str = ""
    """The smallest domain of the member's topology around its pods; empty where there is none."""
    granted: dict[str, float] = {}
    """Resource -> cores, bytes or devices of all its pods."""
    seconds: dict[str, float] = {}
    """Resource -> granted amounts times seconds, from `bound` to `counted`."""
    busy: dict[str, float] = {}
    """Resource -> mean cores or bytes that all its pods used while they ran; empty where that is not known."""


class Run(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One run; times are RFC 3339, empty before they have come."""

    epoch: int
    dispatched: str
    submitted: str = ""
    queue: str = ""
    user: str = ""
    """Who submitted the workload; empty where unknown."""
    queued: str = ""
    """Since when it waited for this run: its submission, or the end of the run before."""
    asked: dict[str, float] = {}
    """Resource -> amounts of the whole workload."""
    bound: str = ""
    running: str = ""
    ended: str = ""
    """When the workload finished, or its eviction or deletion began."""
    released: str = ""
    """When no pod held capacity any more."""
    counted: str = ""
    """The time up to which `seconds` of the parts are complete."""
    outcome: str = ""
    """Succeeded, Failed, Evicted or Deleted."""
    reason: str = ""
    """The rule by which it was evicted."""
    message: str = ""
    evicted_for: str = ""
    """`namespace/name` of the workload that got its place, or a UID where that workload is gone."""
    for_queue: str = ""
    parts: list[Part] = []


class Seen(msgspec.Struct, frozen=True, gc=False):
    """One look at a binding."""

    now: float
    decision: Decision
    queue: str = ""
    submitted: str = ""
    user: str = ""
    asked: Mapping[str, float] = {}
    parts: Sequence[Part] = ()
    """Parts that members have now; empty where they are not known."""
    bound: bool = False
    running: bool = False
    outcome: str = ""
    """Succeeded or Failed once the workload has finished."""
    gone: bool = False
    """No member has anything of it."""
    deleted: str = ""
    """Time of its deletion."""
    claimant: tuple[str, str] = ("", "")
    """`namespace/name` and queue of the workload for which it was evicted."""


def amounts(vector: Vector) -> dict[str, float]:
    """Integer units as cores, bytes or devices."""
    return {name: units / quantity.scale_of(name) for name, units in vector.items()}


def follow(runs: Sequence[Run], seen: Seen) -> list[Run]:
    """The runs after one more look; equal ones where nothing changed."""
    decision, result = seen.decision, list(runs)
    charged = decision.phase in (Phase.RESERVING, Phase.DISPATCHED)
    if result and not result[-1].released:
        same = charged and result[-1].epoch == decision.epoch
        result[-1] = _updated(result[-1], seen) if same else _left(result[-1], seen)
    if charged and not seen.deleted and (not result or result[-1].epoch < decision.epoch):
        begun = decision.dispatched or (decision.story[-1].at if decision.story else rfc3339(seen.now))
        run = Run(
            decision.epoch,
            begun,
            seen.submitted,
            seen.queue,
            seen.user,
            result[-1].ended if result else seen.submitted,
            dict(seen.asked),
            parts=list(seen.parts),
        )
        result.append(_updated(run, seen))
    return result[-KEPT:]


def _updated(run: Run, seen: Seen) -> Run:
    """A run that goes on, ends by itself, or is deleted."""
    now = rfc3339(seen.now)
    if (seen.bound or seen.outcome) and not run.bound:
        # Its queue pays from the dispatch on, and a short run ends before its first report.
        begun = run.dispatched if seen.outcome else now
        run = msgspec.structs.replace(run, bound=begun, counted=begun)
    if seen.running and not run.running:
        run = msgspec.structs.replace(run, running=now)
    run = _measured(run, seen.parts)
    shapes = [msgspec.structs.replace(part, seconds={}, busy={}) for part in run.parts]
    if seen.parts and not seen.outcome and [msgspec.structs.replace(part, busy={}) for part in seen.parts] != shapes:
        run = _resized(run, seen)
    if seen.outcome:
        return _closed(msgspec.structs.replace(run, outcome=seen.outcome, ended=now), now)
    return _left(run, seen) if seen.deleted else run


def _measured(run: Run, parts: Sequence[Part]) -> Run:
    """With the latest use of its parts by their members."""
    told = {part.member: part.busy for part in parts if part.busy}
    found = [msgspec.structs.replace(part, busy=told.get(part.member, part.busy)) for part in run.parts]
    return msgspec.structs.replace(run, parts=found) if found != run.parts else run


def _left(run: Run, seen: Seen) -> Run:
    """A run that was evicted or deleted: it is closed once no member has anything of it."""
    now, decision = rfc3339(seen.now), seen.decision
    if not run.ended and seen.deleted:
        # Kubernetes gives that time in whole seconds.
        times = (seen.deleted, run.dispatched, run.bound, run.running)
        run = msgspec.structs.replace(run, ended=max(filter(None, times), key=to_seconds), outcome=DELETED)
    elif not run.ended:
        lines = [line for line in decision.story if line.phase is Phase.EVICTING and line.at >= run.dispatched]
        line = lines[0] if lines else None
        name, queue = seen.claimant if decision.room_for and decision.phase.going else ("", "")
        run = msgspec.structs.replace(
            run,
            ended=line.at if line is not None else now,
            outcome=EVICTED,
            reason=str(line.reason if line is not None else decision.reason),
            message=line.text[:_MESSAGE] if line is not None else "",
            evicted_for=name,
            for_queue=queue,
        )
    return _closed(run, now) if seen.gone or (not decision.phase.going and not seen.deleted) else run


def _closed(run: Run, now: str) -> Run:
    return msgspec.structs.replace(counted(run, now), released=now)


def _resized(run: Run, seen: Seen) -> Run:
    """With other parts; what a part that left has used stays."""
    now = rfc3339(seen.now)
    run = counted(run, now)
    before, present = {part.member: part for part in run.parts}, {part.member for part in seen.parts}
    parts = [
        msgspec.structs.replace(part, seconds=before[part.member].seconds, busy=before[part.member].busy)
        if part.member in before
        else part
        for part in seen.parts
    ]
    parts += [
        Part(part.member, seconds=part.seconds, busy=part.busy)
        for part in run.parts
        if part.member not in present and part.seconds
    ]
    return msgspec.structs.replace(run, parts=parts)


def counted(run: Run, until: str) -> Run:
    """With `seconds` up to a time; before it is bound a run uses nothing."""
    if not run.counted or until <= run.counted:
        return run
    elapsed = to_seconds(until) - to_seconds(run.counted)
    parts = [
        msgspec.structs.replace(
            part,
            seconds={
                **part.seconds,
                **{name: part.seconds.get(name, 0.0) + value * elapsed for name, value in part.granted.items()},
            },
        )
        for part in run.parts
    ]
    return msgspec.structs.replace(run, counted=until, parts=parts)


def kind_of(api_version: str, kind: str) -> str:
    """Kind and group of a workload, such as `Job.batch`."""
    group, slash, _ = api_version.partition("/")
    return f"{kind}.{group}" if slash else kind


class Record(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A closed run with the names of its workload: one row of the records."""

    uid: str
    """Of the binding."""
    namespace: str
    name: str
    kind: str
    """As `kind_of` gives it."""
    run: Run

    @property
    def id(self) -> str:
        """Unique among all records."""
        return f"{self.uid}/{self.run.epoch}"


def runs_of(status: Mapping[str, Any]) -> list[Run]:
    """The runs in the status of a binding; none where they can't be read."""
    try:
        return msgspec.convert(status.get("runs") or [], list[Run])
    except msgspec.ValidationError:
        return []


def total(parts: Sequence[Part], field: str) -> dict[str, float]:
    """The sum of `granted`, `seconds` or `busy` over parts."""
    result: dict[str, float] = {}
    for part in parts:
        for name, value in getattr(part, field).items():
            result[name] = result.get(name, 0.0) + value
    return result


def columns(record: Record) -> dict[str, Any]:
    """A record as a row of the store, with maps as lists of pairs (docs/records.md)."""
    run = record.run
    texts = {name: getattr(run, name) for name in ("queue", "user", "outcome", "reason", "message")}
    times = {
        name: datetime.fromisoformat(text) if (text := getattr(run, name)) else None
        for name in ("submitted", "queued", "dispatched", "bound", "running", "ended", "released")
    }
    return {
        "id": record.id,
        "uid": record.uid,
        "namespace": record.namespace,
        "name": record.name,
        "kind": record.kind,
        **texts,
        "epoch": run.epoch,
        **times,
        "evicted_for": run.evicted_for,
        "for_queue": run.for_queue,
        "members": [part.member for part in run.parts],
        "asked": list(run.asked.items()),
        "granted": list(total(run.parts, "granted").items()),
        "seconds": list(total(run.parts, "seconds").items()),
        # Figures of some parts are not the use of all.
        "busy": list(total(run.parts, "busy").items()) if all(part.busy for part in run.parts) else [],
        "parts": [
            {
                "member": part.member,
                "pods": part.pods,
                "domain": part.domain,
                "granted": list(part.granted.items()),
                "seconds": list(part.seconds.items()),
                "busy": list(part.busy.items()),
            }
            for part in run.parts
        ],
    }
