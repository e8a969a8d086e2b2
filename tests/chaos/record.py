"""What happened, read from the audit logs of host and members.

A write happened somewhere between its request and its answer. What it began is taken to begin with the answer, what it
ended to end with the request, so that a check never blames two things for overlapping that need not have.

A request whose client died is logged as 504, and of one that an API server died over there is no line at all. Whether
it was carried out is told by what comes later: the suite's namespace is logged with whole objects, so a pod is bound at
the latest when an answer shows its node, and a decision was made at the latest when an answer shows its epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from atoll.local import audit
from atoll.model import decision, gang, keys
from atoll.model.apiresource import BATCH_JOBS, BINDINGS, JOBS, WORKS
from atoll.model.decision import Phase
from atoll.model.vector import Vector
from atoll.model.verdict import Reason
from tests.chaos.plan import NAMESPACE, Submission

Json = dict[str, Any]
HOST = "host"
_EPOCH = f"/metadata/annotations/{keys.EPOCH.replace('/', '~1')}"
ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an audit log, for a person."""

    at: float
    cluster: str
    user: str
    verb: str
    path: str
    key: str
    code: int
    detail: str = ""

    def __str__(self) -> str:
        text = f"{self.at:.6f} {self.cluster} {self.user} {self.verb} {self.path} {self.key} {self.code}"
        return f"{text} {self.detail}".rstrip()


@dataclass(slots=True)
class Pod:
    """One pod of a member, from its making to its end. Times are seconds since the epoch."""

    uid: str
    cluster: str
    name: str
    workload: str
    binding: str
    """UID of its binding."""
    epoch: int
    created: float
    node: str = ""
    bound: float | None = None
    """Latest moment at which it got its node."""
    ended: float | None = None
    """Earliest moment at which it had ended by itself."""
    succeeded: bool = False
    gone: float | None = None
    """Earliest moment at which it was removed."""
    seen: float = 0.0
    """When it was last heard of."""

    def live(self, at: float) -> bool:
        """Whether it takes room on a node at this moment."""
        return self.bound is not None and self.bound <= at < self.over

    @property
    def over(self) -> float:
        """When it gave its room back."""
        return min(each for each in (self.ended, self.gone, float("inf")) if each is not None)


@dataclass(frozen=True, slots=True)
class Seen:
    """A binding as one write left it."""

    at: float
    version: int
    name: str
    workload: str
    queue: str
    gang: gang.Gang | None
    epoch: int
    phase: Phase
    reason: Reason
    suspended: bool
    deleted: bool
    parts: tuple[tuple[str, int], ...]
    """(member, pods)."""
    conditions: frozenset[str]
    """Those that are True."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A part whose member was lost for longer than is tolerated: the rest goes on without it."""

    at: float
    epoch: int
    """Of what runs there."""


@dataclass(frozen=True, slots=True)
class Written:
    """A patch of the dispatcher that raised an epoch and was carried out for certain."""

    at: float
    binding: str
    workload: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The pods that a member had when its API server had come back: what was lost of its log is made up for."""

    cluster: str
    since: float
    """When the server went away."""
    at: float
    uids: frozenset[str]
    ended: Mapping[str, bool] = field(default_factory=dict)
    """UID of each of them that had ended -> whether it succeeded."""


@dataclass(frozen=True, slots=True)
class Span:
    """One fault that was played."""

    fault: str
    target: str
    began: float
    ended: float
    harms: str = ""
    """`cluster user`, whose next write shows that it is over; empty where nothing tells."""
    detail: str = ""
    counted: float = 0.0
    """From when on its recovery is counted."""
    process: str = ""
    """The one that was killed or silenced."""
    quiet: float = 0.0
    """Until when a write of that process is one that was under way, and shows nothing."""


@dataclass(slots=True)
class Facts:
    """What a run knows by itself: all that is not in the audit logs."""

    seed: int
    #: of an idle machine: how long workloads and faults came
    seconds: float
    #: so many times as long every wait was
    pace: float = 1.0
    #: gangs in racks, and moves of gangs for others
    moves: bool = False
    #: what ended the run before its time
    broken: str = ""
    spans: list[Span] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    #: component -> how often one of its processes was killed
    kills: dict[str, int] = field(default_factory=dict)
    #: what it was about to write, or had just written, when it was killed, and how often
    killed_at: list[tuple[str, int]] = field(default_factory=list)
    #: fault -> how often it found nothing to hit and was put back
    missed: dict[str, int] = field(default_factory=dict)
    #: how often a user had to ask again
    repeated: int = 0
    #: workload -> its last status on the host; None when it was gone
    final: dict[str, Json | None] = field(default_factory=dict)
    #: probes that were not completed in time, and why
    unreturned: list[str] = field(default_factory=list)
    #: Deployments that did not run as they should, and how
    astray: list[str] = field(default_factory=list)
    #: what was found in the federation after everything had been deleted
    left: list[str] = field(default_factory=list)
    #: pods that were there then: phase, node, since when they end, and the last words of their kubelet
    pods_left: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Record:
    """Everything that the checks use."""

    plan: Mapping[str, Submission]
    capabilities: Mapping[str, Vector]
    allocatable: Mapping[tuple[str, str], Vector]
    faults: Sequence[Span] = ()
    #: workload -> its last status on the host as the run found it; None when it was gone
    final: Mapping[str, Json | None] = field(default_factory=dict)
    #: what was found in the federation after everything had been deleted
    left: Sequence[str] = ()
    #: probes that were not completed in time, and why
    unreturned: Sequence[str] = ()
    #: Deployments that did not run as they should, and how
    astray: Sequence[str] = ()
    #: binding UID -> its states, in the order in which the store had them
    bindings: dict[str, list[Seen]] = field(default_factory=dict)
    written: list[Written] = field(default_factory=list)
    #: (binding UID, member) -> when it was given up there, in order of time
    given_up: dict[tuple[str, str], list[GivenUp]] = field(default_factory=dict)
    #: UID -> pod
    pods: dict[str, Pod] = field(default_factory=dict)
    #: workload -> (when, status) of every write of its status on the host
    statuses: dict[str, list[tuple[float, Json]]] = field(default_factory=dict)
    #: (cluster, user) -> (when it wrote something, which of its processes), in order of time
    writes: dict[tuple[str, str], list[tuple[float, str]]] = field(default_factory=dict)
    #: workload -> every write that names it
    lines: dict[str, list[Line]] = field(default_factory=dict)
    end: float = 0.0
    #: so many times as long a machine took for everything
    pace: float = 1.0

    def of(self, workload: str) -> list[Pod]:
        """The pods of a workload, in order of their making."""
        return [pod for pod in self.pods.values() if pod.workload == workload]


def build(record: Record, logs: Mapping[str, Iterable[audit.Event]], checkpoints: Sequence[Checkpoint] = ()) -> Record:
    """Fill a record from the logs of host and members."""
    names = sorted(record.plan, key=len, reverse=True)
    works: dict[str, tuple[str, int]] = {}
    unknown: dict[str, list[float]] = defaultdict(list)
    for cluster, events in logs.items():
        for event in sorted(events, key=lambda each: each.stage_timestamp):
            record.end = max(record.end, event.at)
            if event.verb not in audit.WRITES or event.stage != "ResponseComplete":
                continue
            user = _user(cluster, event)
            if event.ok and event.object_ref.resource not in ("leases", "events"):
                admitted = user == "admin" and event.verb == "create" and event.object_ref.path == "jobs"
                who = cluster, "users" if admitted else user
                record.writes.setdefault(who, []).append((event.at, _process(event)))
            _tell(record, cluster, user, event, names)
            if cluster == HOST and event.object_ref.path == WORKS.plural:
                _work(record, event, works)
            if event.object_ref.namespace != NAMESPACE:
                continue
            if event.object_ref.resource == "pods":
                _pod(record, cluster, event)
            elif cluster == HOST and event.object_ref.resource == BINDINGS.plural:
                _binding(record, event)
                if event.unknown:
                    unknown[event.object_ref.name].append(event.request_received_timestamp.timestamp())
            elif cluster == HOST and event.ok and event.object_ref.path == "jobs/status":
                _status(record, event)
    for states in record.bindings.values():
        states.sort(key=lambda each: each.version)
        for at in unknown.get(states[0].name, ()):
            _suppose(states, at)
    for checkpoint in checkpoints:
        _make_up(record, checkpoint)
    return record


def _user(cluster: str, event: audit.Event) -> str:
    """`dispatcher`, `agent-alpha`; other accounts by their last part."""
    namespace, _, name = event.user.username.removeprefix("system:serviceaccount:").rpartition(":")
    if namespace.startswith(keys.EXECUTION_PREFIX):
        return f"agent-{keys.cluster_of(namespace)}"
    short = name.removeprefix("atoll-")
    return f"agent-{cluster}" if short == "agent" else short


def _process(event: audit.Event) -> str:
    """The process that its proxy names at the end of the User-Agent: `... (atoll-control-2)`."""
    return event.user_agent.rpartition("(")[2].rstrip(")")


# -- pods ----------------------------------------------------------------------------------------------------------------


def _pod(record: Record, cluster: str, event: audit.Event) -> None:
    if not event.ok:
        return
    ref = event.object_ref
    if ref.subresource == "binding":
        body = event.body()
        pod = record.pods.get((body.get("metadata") or {}).get("uid") or "")
        if pod is not None and pod.bound is None:
            pod.node, pod.bound = body["target"]["name"], event.at
        return
    found = event.answer() or {}
    asked = event.request_received_timestamp.timestamp()
    if found.get("kind") == "Status":
        pod = record.pods.get((found.get("details") or {}).get("uid") or "")
        if pod is not None and event.verb == "delete":
            pod.gone = asked
        return
    if found.get("kind") != "Pod":
        return
    metadata, status = found["metadata"], found.get("status") or {}
    pod = record.pods.get(metadata["uid"])
    if pod is None:
        notes = metadata.get("annotations") or {}
        pod = record.pods[metadata["uid"]] = Pod(
            metadata["uid"], cluster, metadata["name"], _owner(metadata), notes.get(keys.BINDING_UID, ""),
            int(notes.get(keys.EPOCH) or -1), event.at,
        )  # fmt: skip
    pod.seen = event.at
    node = (found.get("spec") or {}).get("nodeName") or ""
    if node and pod.bound is None:
        pod.node, pod.bound = node, event.at
    if status.get("phase") in ENDED and pod.ended is None:
        pod.ended, pod.succeeded = asked, status["phase"] == "Succeeded"
    going = metadata.get("deletionTimestamp")
    final = not metadata.get("finalizers") and (
        (event.verb == "delete" and not going) or (going and metadata.get("deletionGracePeriodSeconds", 0) == 0)
    )
    if final and pod.gone is None:
        pod.gone = asked


def _owner(metadata: Json) -> str:
    return next((each["name"] for each in metadata.get("ownerReferences") or () if each.get("controller")), "")


def _make_up(record: Record, checkpoint: Checkpoint) -> None:
    for pod in record.pods.values():
        lost = pod.cluster == checkpoint.cluster and pod.created < checkpoint.since and pod.seen <= checkpoint.at
        if lost and pod.gone is None and pod.uid not in checkpoint.uids:
            pod.gone = checkpoint.since
        if lost and pod.ended is None and pod.uid in checkpoint.ended:
            pod.ended, pod.succeeded = checkpoint.since, checkpoint.ended[pod.uid]


# -- bindings ------------------------------------------------------------------------------------------------------------


def _binding(record: Record, event: audit.Event) -> None:
    if not event.ok or event.object_ref.subresource not in ("", "status"):
        return
    found = event.answer() or {}
    if found.get("kind") != BINDINGS.kind:
        return
    metadata, spec = found["metadata"], found["spec"]
    record.bindings.setdefault(metadata["uid"], []).append(_seen(event.at, found))
    if event.verb == "patch" and _user(HOST, event) == "dispatcher" and isinstance(body := event.body(), list):
        raised = [each["value"] for each in body if each["path"] == _EPOCH and each["op"] != "test"]
        if raised:
            written = Written(event.at, metadata["uid"], spec["resource"]["name"], int(raised[0]))
            record.written.append(written)


def _suppose(states: list[Seen], at: float) -> None:
    """A write without an answer may have ended what the next state has no more: a run, or a hold; or have raised the
    epoch, where the next state has one more.
    """
    place = next((index for index, each in enumerate(states) if each.at > at), 0)
    before, after = states[place - 1], states[place]
    if place == 0 or before.gang is None:
        return
    conditions = after.conditions if after.epoch == before.epoch else before.conditions
    wish = after.gang if before.gang.hold else before.gang
    epoch = after.epoch - 1 if after.epoch == before.epoch + 2 else before.epoch
    states.insert(place, replace(before, at=at, gang=wish, conditions=conditions, epoch=epoch))


def _seen(at: float, found: Json) -> Seen:
    metadata, spec = found["metadata"], found["spec"]
    notes = metadata.get("annotations") or {}
    wish = gang.decode(notes[keys.GANG]) if notes.get(keys.GANG) else None
    told = decision.decode(notes.get(keys.DECISION))
    return Seen(
        at=at,
        version=int(metadata["resourceVersion"]),
        name=metadata["name"],
        workload=spec["resource"]["name"],
        queue=wish.queue if wish else "",
        gang=wish,
        epoch=int(notes.get(keys.EPOCH) or 0),
        phase=told.phase,
        reason=told.reason,
        suspended=bool((spec.get("suspension") or {}).get("scheduling")),
        deleted="deletionTimestamp" in metadata,
        parts=tuple((each["name"], each.get("replicas", 0)) for each in spec.get("clusters") or ()),
        conditions=frozenset(
            each["type"] for each in (found.get("status") or {}).get("conditions") or () if each["status"] == "True"
        ),
    )


def _status(record: Record, event: audit.Event) -> None:
    found = event.answer() or {}
    if found.get("kind") in (JOBS.kind, BATCH_JOBS.kind):
        record.statuses.setdefault(event.object_ref.name, []).append((event.at, found.get("status") or {}))


def _work(record: Record, event: audit.Event, works: dict[str, tuple[str, int]]) -> None:
    """Learn what a Work is of, and when its member was given up: its requests alone are logged."""
    metadata = (event.body() or {}).get("metadata") if event.verb in ("create", "patch") else None
    ref = event.object_ref
    if not isinstance(metadata, dict) or not (event.ok or event.unknown):
        return
    notes = metadata.get("annotations") or {}
    name = f"{ref.namespace}/{ref.name or metadata.get('name', '')}"
    uid, epoch = works.get(name, ("", 0))
    works[name] = notes.get(keys.BINDING_UID, uid), int(notes.get(keys.EPOCH) or epoch)
    if notes.get(keys.LOST) == "true":
        uid, epoch = works[name]
        record.given_up.setdefault((uid, keys.cluster_of(ref.namespace)), []).append(GivenUp(event.at, epoch))


# -- for people ----------------------------------------------------------------------------------------------------------


def _tell(record: Record, cluster: str, user: str, event: audit.Event, names: Sequence[str]) -> None:
    """File a line under the workload that its object is named after."""
    ref = event.object_ref
    text = ref.name or str((event.answer() or {}).get("metadata", {}).get("name", ""))
    # Longest first: `gang-1` is no prefix of what `gang-12` is called.
    owner = next((name for name in names if text == name or text.startswith((f"{name}-", f"{name}."))), None)
    if owner is None and ref.resource == "works":
        owner = next((name for name in names if f"-{name}-" in text or f".{name}." in text), None)
    if owner is not None:
        line = Line(event.at, cluster, user, event.verb, ref.path, text, event.response_status.code, _detail(event))
        record.lines.setdefault(owner, []).append(line)


def _detail(event: audit.Event) -> str:
    """What a person wants to know of a write: decisions, nodes, phases."""
    found = (event.answer() or {}) if event.ok else {}
    path = event.object_ref.path
    if found.get("kind") == BINDINGS.kind:
        seen = _seen(event.at, found)
        parts = ", ".join(f"{name} {pods}" for name, pods in seen.parts)
        held = ", held" if seen.gang is not None and seen.gang.hold else ""
        return f"epoch {seen.epoch} {seen.phase} {seen.reason} [{parts}]{held} {sorted(seen.conditions)}"
    if path == "pods/binding":
        return str(((event.body() or {}).get("target") or {}).get("name", ""))
    if found.get("kind") == "Pod":
        going = " going" if found["metadata"].get("deletionTimestamp") else ""
        return f"{(found.get('status') or {}).get('phase', '')}{going}"
    if path == "jobs/status" and event.ok:
        status = found.get("status") or {}
        kept = {key: value for key, value in status.items() if key in ("state", "active", "succeeded", "failed")}
        return orjson.dumps(kept).decode()
    return event.response_status.message[:160]


def changes(pods: Iterable[Pod]) -> list[tuple[float, int, Pod]]:
    """(when, +1 or -1, pod) for every pod that took and gave back room; at one moment what ends comes first."""
    found: list[tuple[float, int, Pod]] = []
    for pod in pods:
        if pod.bound is not None and pod.over > pod.bound:
            found.append((pod.bound, 1, pod))
            found.append((pod.over, -1, pod))
    return sorted(found, key=lambda each: (each[0], each[1], each[2].uid))


def by_binding(record: Record) -> dict[str, list[Pod]]:
    """Binding UID -> its pods."""
    found: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in record.pods.values():
        found[pod.binding].append(pod)
    return dict(found)
