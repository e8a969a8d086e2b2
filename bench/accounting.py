"""Who wrote what for which workload, and when it got how far: read from audit logs alone, so it is pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from atoll.local import audit
from atoll.model import keys
from atoll.model.apiresource import BINDINGS, CAPACITIES, JOBS, LEASES, WORKS

TASK = "worker"
STAGES = (
    "created",
    "binding created",
    "dispatched",
    "work created",
    "in the member",
    "pod created",
    "pod bound",
    "running on the host",
    "completed on the host",
)
_BEYOND = ("Running", "Completing", "Completed")
#: Not caused by a workload, or no write to the store at all (reviews).
_IGNORED_RESOURCES = frozenset({LEASES.plural, "events", CAPACITIES.plural})
_IGNORED_GROUPS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})

Kind = tuple[str, str, str]
"""(writer, verb, resource)."""

_GROUP = re.compile("(-[0-9a-f]+){5}$")
"""The end of a PodGroup's name, a UID."""

Times = dict[str, dict[str, float]]
"""Stage -> workload -> when it was reached first, seconds since the epoch."""


def counted(event: audit.Event) -> bool:
    """Whether it is a mutating request, carried out or not, other than leases, Events, capacities and reviews."""
    ref = event.object_ref
    return (
        event.stage == "ResponseComplete"
        and event.verb in audit.WRITES
        and ref.resource not in _IGNORED_RESOURCES
        and ref.api_group not in _IGNORED_GROUPS
    )


def owners(events: Iterable[audit.Event], namespace: str) -> dict[tuple[str, str], str]:
    """(resource, `namespace/name`) -> workload of that namespace, for its Job, its binding and its Works."""
    found: dict[tuple[str, str], str] = {}
    bindings: dict[str, str] = {}
    works: list[tuple[str, str]] = []
    for event in events:
        ref = event.object_ref
        if event.wrote(JOBS.plural, "create", group=JOBS.group) and ref.namespace == namespace:
            found[JOBS.plural, ref.key] = ref.name
        elif event.wrote(BINDINGS.plural, "create") and ref.namespace == namespace:
            workload = event.body()["spec"]["resource"]["name"]
            bindings[ref.name] = found[BINDINGS.plural, ref.key] = workload
        elif event.wrote(WORKS.plural, "create"):
            told = event.body()["metadata"].get("annotations") or {}
            if told.get(keys.BINDING_NAMESPACE) == namespace:
                works.append((ref.key, told.get(keys.BINDING_NAME, "")))
    # Lines of a log are in the order of their answers: a Work's may come before its binding's.
    for key, binding in works:
        if binding in bindings:
            found[WORKS.plural, key] = bindings[binding]
    return found


def stages(host: Iterable[audit.Event], members: Mapping[str, Iterable[audit.Event]], namespace: str) -> Times:
    """When each workload of the namespace reached each stage."""
    events = sorted(host, key=lambda each: each.stage_timestamp)
    owner = owners(events, namespace)
    times: Times = {stage: {} for stage in STAGES}

    def reach(stage: str, workload: str | None, event: audit.Event) -> None:
        if workload is not None:
            times[stage].setdefault(workload, event.at)

    for event in events:
        workload = owner.get((event.object_ref.resource, event.object_ref.key))
        if workload is None:
            continue
        if event.wrote(JOBS.plural, "create"):
            reach("created", workload, event)
        elif event.wrote(BINDINGS.plural, "create"):
            reach("binding created", workload, event)
        elif event.wrote(BINDINGS.plural, "patch") and _resumes(event.body()):
            reach("dispatched", workload, event)
        elif event.wrote(WORKS.plural, "create"):
            reach("work created", workload, event)
        elif event.wrote(f"{JOBS.plural}/status"):
            phase = (audit.status_in(event.body()).get("state") or {}).get("phase")
            if phase in _BEYOND:
                reach("running on the host", workload, event)
            if phase == "Completed":
                reach("completed on the host", workload, event)
    for log in members.values():
        for event in sorted(log, key=lambda each: each.stage_timestamp):
            ref = event.object_ref
            if ref.namespace != namespace:
                continue
            if event.wrote(JOBS.plural, "create", group=JOBS.group):
                reach("in the member", ref.name, event)
            elif event.wrote("pods", "create"):
                reach("pod created", workload_of_pod(ref.name), event)
            elif event.wrote("pods/binding", "create"):
                reach("pod bound", workload_of_pod(ref.name), event)
    return times


def _resumes(body: Any) -> bool:
    operations = body if isinstance(body, list) else []
    return any(each.get("path") == "/spec/suspension/scheduling" and each.get("value") is False for each in operations)


def workload_of_pod(name: str) -> str | None:
    """`<job>-worker-<index>` -> job; None for any other pod."""
    job, mark, index = name.rpartition(f"-{TASK}-")
    return job if mark and index.isdigit() else None


def spread(members: Mapping[str, Iterable[audit.Event]], namespace: str) -> dict[str, int]:
    """Member -> Jobs of the namespace that were created there."""
    return {
        name: sum(
            each.wrote(JOBS.plural, "create", group=JOBS.group) and each.object_ref.namespace == namespace
            for each in log
        )
        for name, log in members.items()
    }


def latencies(times: Times, begin: str, end: str) -> list[float]:
    """Seconds between two stages, of every workload that reached both; 0 where answers came in the other order."""
    return [max(at - times[begin][name], 0.0) for name, at in times[end].items() if name in times[begin]]


@dataclass(slots=True)
class Writes:
    """Mutating requests on the host that belong to workloads."""

    until_bound: Counter[str] = field(default_factory=Counter)
    """Workload -> its requests up to the moment at which its pod was bound in the member."""
    until_completed: Counter[str] = field(default_factory=Counter)
    total: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    """Of the total: those that were answered with an error."""
    by_kind: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """(account, verb, resource) -> requests, those of no workload included."""
    unowned: int = 0


def writes(events: Iterable[audit.Event], times: Times, namespace: str, workloads: Collection[str]) -> Writes:
    """Count the requests of these workloads, whose objects are all in the log.

    Args:
        events: of the host; of `by_kind` and `unowned`, only those since the first workload was created count.
        times: by `stages`.
        namespace: of the workloads.
        workloads: their names; one that never got there counts in no `until`.
    """
    log = list(events)
    owner = owners(log, namespace)
    began = min((at for name, at in times["created"].items() if name in workloads), default=0.0)
    found = Writes()
    for event in log:
        # Started, not answered: the request that creates the first workload is one of them.
        if not counted(event) or event.at < began:
            continue
        workload = owner.get((event.object_ref.resource, event.object_ref.key))
        found.by_kind[short(event.user.username), event.verb, event.object_ref.path] += 1
        if workload is None or workload not in workloads:
            found.unowned += 1
            continue
        found.total[workload] += 1
        found.refused += not event.ok
        if event.at <= times["pod bound"].get(workload, 0.0):
            found.until_bound[workload] += 1
        if event.at <= times["completed on the host"].get(workload, 0.0):
            found.until_completed[workload] += 1
    return found


@dataclass(slots=True)
class Requests:
    """Requests of one cluster that belong to workloads, Events included, by (writer, verb, resource)."""

    until_bound: Counter[Kind] = field(default_factory=Counter)
    """Up to the moment at which the pod of each was bound in the member."""
    until_completed: Counter[Kind] = field(default_factory=Counter)
    """Up to the moment at which the host showed each as Completed."""
    total: Counter[Kind] = field(default_factory=Counter)


def requests(log: Iterable[audit.Event], host: Iterable[audit.Event], times: Times, namespace: str) -> Requests:
    """Count all that was asked of a cluster about the workloads of a namespace: Jobs of one pod, and what they lead to.

    Args:
        log: of the cluster.
        host: the host's log, which may be the same: only it tells whose a Work is.
        times: by `stages`.
        namespace: of the workloads.
    """
    owner, found = owners(host, namespace), Requests()
    for event in log:
        ref = event.object_ref
        about = ref.name.rpartition(".")[0] if ref.resource == "events" else ref.name
        workload = owner.get((ref.resource, ref.key)) or (_named(about, times) if ref.namespace == namespace else None)
        if event.stage != "ResponseComplete" or workload is None:
            continue
        # An agent has the name of its member on the host, and one in each member.
        kind = (short(event.user.username).rpartition(":")[2], event.verb, ref.path)
        found.total[kind] += 1
        found.until_bound[kind] += event.at <= times["pod bound"].get(workload, 0.0)
        found.until_completed[kind] += event.at <= times["completed on the host"].get(workload, 0.0)
    return found


def _named(name: str, times: Times) -> str | None:
    """The workload of a Job, a binding, a PodGroup or a pod of this name."""
    tries = (name, workload_of_pod(name), name.removesuffix("-job"), _GROUP.sub("", name))
    return next((each for each in tries if each in times["created"]), None)


def reads(events: Iterable[audit.Event], begin: float, end: float) -> Counter[tuple[str, str, str]]:
    """Reads of Atoll's accounts between two times: (account, verb, resource) -> number; watches are not in the log."""
    found: Counter[tuple[str, str, str]] = Counter()
    for event in events:
        if (
            event.verb in ("get", "list")
            and begin <= event.at <= end
            and "system:serviceaccount:" in event.user.username
        ):
            found[short(event.user.username), event.verb, event.object_ref.path] += 1
    return found


def short(account: str) -> str:
    """A service account without what all of them share."""
    return account.removeprefix("system:serviceaccount:").removeprefix(f"{keys.SYSTEM_NAMESPACE}:")
