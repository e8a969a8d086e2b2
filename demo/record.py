"""What happened, read from the audit logs of host and members and from nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from atoll.local import audit
from atoll.model import decision, keys
from atoll.model.apiresource import BINDINGS, JOBS
from atoll.model.verdict import Reason
from demo.scales import GPU
from demo.workload import NAMESPACE, ORIGIN, Origin

Json = dict[str, Any]
DISPATCHER = f"system:serviceaccount:{keys.SYSTEM_NAMESPACE}:atoll-dispatcher"
_DECISION = f"/metadata/annotations/{keys.DECISION.replace('/', '~1')}"
_SUSPENDED = "/spec/suspension/scheduling"
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Job:
    """A Volcano Job as it was created on the host."""

    name: str
    queue: str
    origin: Origin
    created: float
    min_available: int
    replicas: int
    gpus_per_pod: int
    pods: frozenset[str]
    highest_tier: int | None
    """Of a hard network topology."""

    @property
    def gang(self) -> bool:
        return self.replicas > 1


@dataclass(frozen=True, slots=True)
class Stay:
    """A pod on a node, from its binding to its end."""

    job: str
    pod: str
    cluster: str
    node: str
    bound: float
    ended: float | None = None
    """When it ended or was gone; None: it did neither while the log lasted."""
    finished: bool = False
    """It ended by itself."""
    succeeded: bool = False


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A decision that gave a workload its cluster."""

    at: float
    waited_for: tuple[Reason, ...]
    """Why it could not be dispatched earlier, as its story tells; empty when nothing was in its way."""


@dataclass(slots=True)
class Record:
    """Everything that the checks and the tables use. Times are seconds since the epoch."""

    #: name -> job
    jobs: dict[str, Job] = field(default_factory=dict)
    #: queue -> GPUs
    capabilities: dict[str, int] = field(default_factory=dict)
    #: in order of binding
    stays: list[Stay] = field(default_factory=list)
    #: job -> its statuses on the host as they were written, in order of time
    statuses: dict[str, list[Json]] = field(default_factory=dict)
    #: (cluster, job) -> phase that the member wrote last
    member_phases: dict[tuple[str, str], str] = field(default_factory=dict)
    #: job -> its dispatches, in order of time
    dispatches: dict[str, list[Dispatch]] = field(default_factory=dict)
    #: when the last event of all logs happened
    end: float = 0.0

    def stays_of(self) -> dict[str, list[Stay]]:
        """Job -> its stays."""
        found: dict[str, list[Stay]] = {name: [] for name in self.jobs}
        for stay in self.stays:
            found[stay.job].append(stay)
        return found


def build(host: Iterable[audit.Event], members: Mapping[str, Iterable[audit.Event]]) -> Record:
    """Read the logs of host and members."""
    record = Record()
    _read_host(record, host)
    owners = {pod: job.name for job in record.jobs.values() for pod in job.pods}
    for cluster, events in members.items():
        _read_member(record, cluster, events, owners)
    record.stays.sort(key=lambda stay: (stay.bound, stay.pod))
    return record


def _read_host(record: Record, events: Iterable[audit.Event]) -> None:
    workloads: dict[str, str] = {}
    for event in sorted(events, key=lambda each: each.stage_timestamp):
        record.end = max(record.end, event.at)
        name = event.object_ref.name
        if event.wrote("queues", "create"):
            amount = (event.body()["spec"].get("capability") or {}).get(GPU)
            if amount is not None:
                record.capabilities[name] = int(amount)
        elif event.wrote("jobs", "create", group=JOBS.group):
            record.jobs[name] = _job(name, event)
        elif event.wrote("jobs/status", group=JOBS.group, or_unknown=True):
            # Had it not been carried out, the writer's successor would have written it again.
            record.statuses.setdefault(name, []).append(audit.status_in(event.body()))
        elif event.wrote(BINDINGS.plural, "create"):
            workloads[name] = event.body()["spec"]["resource"]["name"]
        elif event.wrote(BINDINGS.plural, "patch") and event.user.username == DISPATCHER:
            values = {item["path"]: item.get("value") for item in event.body() if item["op"] != "test"}
            if values.get(_SUSPENDED) is False:
                story = decision.decode(values.get(_DECISION)).story
                reasons = tuple(line.reason for line in story[:-1])
                record.dispatches.setdefault(workloads.get(name, name), []).append(Dispatch(event.at, reasons))


def _job(name: str, event: audit.Event) -> Job:
    body = event.body()
    spec = body["spec"]
    (task,) = spec["tasks"]
    wish = spec.get("networkTopology") or {}
    return Job(
        name=name,
        queue=spec["queue"],
        origin=Origin(body["metadata"]["labels"][ORIGIN]),
        created=event.at,
        min_available=spec["minAvailable"],
        replicas=task["replicas"],
        gpus_per_pod=int(task["template"]["spec"]["containers"][0]["resources"]["requests"][GPU]),
        pods=frozenset(f"{NAMESPACE}/{name}-{task['name']}-{index}" for index in range(task["replicas"])),
        highest_tier=wish.get("highestTierAllowed") if wish.get("mode") == "hard" else None,
    )


def _read_member(record: Record, cluster: str, events: Iterable[audit.Event], owners: Mapping[str, str]) -> None:
    pods: defaultdict[str, list[audit.Event]] = defaultdict(list)
    for event in sorted(events, key=lambda each: each.stage_timestamp):
        record.end = max(record.end, event.at)
        if event.object_ref.resource == "pods":
            if event.object_ref.key in owners:
                pods[event.object_ref.key].append(event)
        elif event.wrote("jobs/status", group=JOBS.group, or_unknown=True):
            phase = (audit.status_in(event.body()).get("state") or {}).get("phase")
            if phase:
                record.member_phases[cluster, event.object_ref.name] = phase
    for pod, story in pods.items():
        record.stays += _stays(Stay(owners[pod], pod, cluster, "", 0.0), story)


def _stays(pod: Stay, events: Iterable[audit.Event]) -> list[Stay]:
    """The stays of one pod name: each binding begins one."""
    found: list[Stay] = []
    perhaps: Stay | None = None
    for event in events:
        if event.wrote("pods/binding", "create", or_unknown=True):
            bound = replace(pod, node=event.body()["target"]["name"], bound=event.at)
            if event.unknown:
                perhaps = perhaps or bound
            else:
                # A bound pod can't be bound again: what was unknown before was not carried out.
                perhaps = None
                found.append(bound)
            continue
        ended = event.wrote("pods/status") and audit.status_in(event.body()).get("phase")
        if perhaps is not None and ended in _ENDED:
            # It ran, so it was bound.
            found.append(perhaps)
            perhaps = None
        if not found or found[-1].finished:
            continue
        if ended in _ENDED:
            found[-1] = replace(found[-1], ended=event.at, finished=True, succeeded=ended == "Succeeded")
        elif event.wrote("pods", "delete"):
            # A deletion with grace is followed by the kubelet's own: the last one is when the pod is gone.
            found[-1] = replace(found[-1], ended=event.at)
            perhaps = None
    return found
