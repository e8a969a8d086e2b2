"""Hand-made audit logs: what API servers would have written about a small run."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from atoll.local import audit
from atoll.model import decision, keys
from atoll.model.decision import Decision, Line, Phase
from atoll.model.verdict import Reason
from demo import record
from demo.philly import TraceJob
from demo.scales import GPU
from demo.workload import Origin, Submission, job_object, queue_object

CUT_OFF = "Timeout: request did not complete within requested timeout - context canceled"
"""What an API server logs, with code 504, about a request whose client died."""
START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
ADMIN = "admin"
CONTROL = "system:serviceaccount:atoll-system:atoll-control"


def event(
    at: float,
    verb: str,
    path: str,
    name: str,
    body: Any = None,
    *,
    code: int = 200,
    user: str = ADMIN,
    group: str = "",
    namespace: str = "default",
    stage: str = "ResponseComplete",
    message: str = "",
) -> dict[str, Any]:
    """One line of an audit log, `at` seconds after START."""
    resource, _, subresource = path.partition("/")
    moment = datetime.fromtimestamp(START + at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    reference = {
        "resource": resource,
        "namespace": namespace,
        "name": name,
        "subresource": subresource,
        "apiGroup": group,
    }
    return {
        "kind": "Event",
        "level": "Request",
        "stage": stage,
        "verb": verb,
        "user": {"username": user},
        "objectRef": {key: value for key, value in reference.items() if value},
        "responseStatus": {"metadata": {}, "code": code, **({"message": message} if message else {})},
        **({} if body is None else {"requestObject": body}),
        "requestReceivedTimestamp": moment,
        "stageTimestamp": moment,
    }


class Log:
    """The logs of a host and its members; methods append what would be logged."""

    def __init__(self) -> None:
        self.host: list[dict[str, Any]] = []
        self.members: dict[str, list[dict[str, Any]]] = {}

    def queue(self, name: str, gpus: int) -> Log:
        body = queue_object(name, gpus)
        self.host.append(
            event(0, "create", "queues", name, body, code=201, group="scheduling.volcano.sh", namespace="")
        )
        return self

    def create(self, at: float, name: str, gpus: int, queue: str = "research", tier: int | None = None) -> Log:
        origin = Origin.SYNTHETIC if gpus > 8 else Origin.TRACE
        body = job_object(Submission(name, queue, 0, 1, gpus, origin, tier))
        self.host.append(event(at, "create", "jobs", name, body, code=201, group="batch.volcano.sh"))
        resource = {"kind": "Job", "name": name, "namespace": "default"}
        binding = {"metadata": {"name": f"{name}-job"}, "spec": {"resource": resource}}
        self.host.append(event(at, "create", "resourcebindings", f"{name}-job", binding, code=201, user=CONTROL))
        return self

    def dispatch(self, at: float, name: str, *waited_for: Reason) -> Log:
        story = [Line("", Phase.SUSPENDED, reason) for reason in waited_for]
        told = Decision(epoch=1, phase=Phase.DISPATCHED, reason=Reason.DISPATCHED, story=story)
        told = Decision(1, Phase.DISPATCHED, story=told.told(Line("", Phase.DISPATCHED, Reason.DISPATCHED)))
        escaped = keys.DECISION.replace("/", "~1")
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "add", "path": f"/metadata/annotations/{escaped}", "value": decision.encode(told)},
            {"op": "add", "path": "/spec/suspension/scheduling", "value": False},
        ]
        self.host.append(event(at, "patch", "resourcebindings", f"{name}-job", patch, user=record.DISPATCHER))
        return self

    def member(self, cluster: str, *events: dict[str, Any]) -> Log:
        self.members.setdefault(cluster, []).extend(events)
        return self

    def bind(self, at: float, name: str, *indices: int, cluster: str = "east", node: int = 0) -> Log:
        """Pod number i goes to node `node` + i."""
        for index in indices:
            body = {"target": {"kind": "Node", "name": f"{cluster}-n{node + index}"}}
            self.member(cluster, event(at, "create", "pods/binding", f"{name}-worker-{index}", body, code=201))
        return self

    def end(self, at: float, name: str, *indices: int, cluster: str = "east", phase: str = "Succeeded") -> Log:
        for index in indices:
            body = {"status": {"phase": phase}}
            self.member(cluster, event(at, "patch", "pods/status", f"{name}-worker-{index}", body))
        return self

    def remove(self, at: float, name: str, *indices: int, cluster: str = "east") -> Log:
        return self.member(cluster, *(event(at, "delete", "pods", f"{name}-worker-{index}") for index in indices))

    def status(self, at: float, name: str, phase: str, **counts: int) -> Log:
        value = {"state": {"phase": phase}, **counts}
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "add", "path": "/status", "value": value},
        ]
        self.host.append(event(at, "patch", "jobs/status", name, patch, user=CONTROL, group="batch.volcano.sh"))
        return self

    def member_status(self, at: float, name: str, phase: str, cluster: str = "east") -> Log:
        body = {"status": {"state": {"phase": phase}}}
        return self.member(cluster, event(at, "patch", "jobs/status", name, body, group="batch.volcano.sh"))

    def run(self, name: str, gpus: int, at: float, end: float, *, queue: str = "research", cluster: str = "east",
            node: int = 0, tier: int | None = None) -> Log:  # fmt: skip
        """A job as it should be: created, dispatched and bound at once, ended, reported."""
        pods = range(max(1, gpus // 8))
        self.create(at, name, gpus, queue, tier).dispatch(at + 0.1, name)
        self.bind(at + 0.2, name, *pods, cluster=cluster, node=node).status(
            at + 0.3, name, "Running", running=len(pods)
        )
        self.end(end, name, *pods, cluster=cluster).member_status(end + 0.1, name, "Completed", cluster)
        return self.status(end + 0.2, name, "Completed", succeeded=len(pods), minAvailable=len(pods))

    def record(self, folder: Path) -> record.Record:
        """Through files, as the demo reads them."""
        host = written(folder / "host", self.host)
        return record.build(
            audit.read(host), {name: audit.read(written(folder / name, log)) for name, log in self.members.items()}
        )


def written(path: Path, events: list[dict[str, Any]], torn: str = "") -> Path:
    """Write a log file, `torn` as the beginning of a line whose end is missing."""
    path.write_text("".join(json.dumps(each) + "\n" for each in events) + torn)
    return path


def trace_job(row: int, second: int, gpus: int = 1, seconds: float = 100.0, cluster: str = "6214e9") -> TraceJob:
    """A job of the trace, submitted `second` seconds into it."""
    return TraceJob(row, datetime.fromtimestamp(1_000_000 + second), seconds, gpus, cluster)


__all__ = ["GPU", "START", "Log", "event", "trace_job", "written"]
