"""Audit logs made by hand: what the checks are tested on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import orjson

from atoll.local import audit
from atoll.model import gang, keys
from atoll.model.decision import Decision, Phase, encode
from atoll.model.verdict import Reason
from tests.chaos import record
from tests.chaos.plan import GPU, NAMESPACE, Submission
from tests.chaos.record import HOST, Checkpoint, Record, Span

Json = dict[str, Any]
EPOCH_S = 1_700_000_000.0
_DISPATCHER = f"system:serviceaccount:{keys.SYSTEM_NAMESPACE}:atoll-dispatcher"
_PATH = f"/metadata/annotations/{keys.EPOCH.replace('/', '~1')}"


class History:
    """The logs of a host and its members; times are seconds after some moment."""

    def __init__(self, *wishes: Submission, queues: Mapping[str, int] | None = None) -> None:
        self._wishes = {wish.name: wish for wish in wishes}
        self._queues = {"q": 8} if queues is None else queues
        self._logs: dict[str, list[audit.Event]] = {HOST: [], "alpha": [], "beta": []}
        self.final: dict[str, Json | None] = {}
        self.faults: list[Span] = []
        self.checkpoints: list[Checkpoint] = []
        self.left: list[str] = []
        self.unreturned: list[str] = []
        self.astray: list[str] = []

    def write(
        self,
        at: float,
        verb: str,
        path: str,
        name: str,
        *,
        cluster: str = HOST,
        namespace: str = NAMESPACE,
        user: str = "admin",
        request: object = None,
        response: object = None,
        code: int = 200,
        message: str = "",
    ) -> None:
        """One answered request; it took no time."""
        resource, _, subresource = path.partition("/")
        stamp = datetime.fromtimestamp(EPOCH_S + at, UTC).isoformat().replace("+00:00", "Z")
        ref = {"resource": resource, "namespace": namespace, "name": name, "subresource": subresource}
        line: Json = {
            "stage": "ResponseComplete",
            "verb": verb,
            "requestReceivedTimestamp": stamp,
            "stageTimestamp": stamp,
            "user": {"username": user},
            "objectRef": ref,
            "responseStatus": {"code": code, "message": message},
        }
        if request is not None:
            line["requestObject"] = request
        if response is not None:
            line["responseObject"] = response
        self._logs[cluster].append(msgspec.json.decode(orjson.dumps(line), type=audit.Event))

    def binding(
        self,
        at: float,
        name: str,
        epoch: int,
        *parts: tuple[str, int],
        phase: Phase = Phase.DISPATCHED,
        reason: Reason = Reason.DISPATCHED,
        conditions: Sequence[str] = (),
        hold: bool = False,
        deleted: bool = False,
        raises: bool = True,
    ) -> None:
        """A binding as a patch of the dispatcher left it; `raises`: that patch raised the epoch to this one."""
        wish = self._wishes[name]
        task = gang.Task("worker", wish.pods, wish.needed, {GPU: wish.gpus})
        whole = gang.Gang(wish.queue, [task], wish.needed, hold=hold)
        metadata: Json = {
            "uid": f"uid-{name}",
            "name": f"{name}-job",
            "resourceVersion": str(int(at * 1000)),
            "annotations": {
                keys.GANG: gang.encode(whole),
                keys.EPOCH: str(epoch),
                keys.DECISION: encode(Decision(epoch, phase, reason)),
            },
        }
        if deleted:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        body = {
            "kind": "ResourceBinding",
            "metadata": metadata,
            "spec": {
                "resource": {"name": name},
                "suspension": {"scheduling": not parts},
                "clusters": [{"name": cluster, "replicas": pods} for cluster, pods in parts],
            },
            "status": {"conditions": [{"type": each, "status": "True"} for each in conditions]},
        }
        patch = [{"op": "replace", "path": _PATH, "value": str(epoch)}] if raises else []
        self.write(at, "patch", "resourcebindings", f"{name}-job", user=_DISPATCHER, request=patch, response=body)

    def unanswered(self, at: float, name: str) -> None:
        """A write of a binding whose time was over before the answer."""
        late = "Timeout: request did not complete within requested timeout - context deadline exceeded"
        self.write(at, "patch", "resourcebindings", f"{name}-job", code=504, message=late)

    def gives_up(self, at: float, name: str, *, epoch: int = 1, cluster: str = "alpha") -> None:
        """Control goes on without the part of a workload in a lost member."""
        place, work = keys.execution_namespace(cluster), f"{name}-0123456789"
        notes = {keys.BINDING_UID: f"uid-{name}", keys.EPOCH: str(epoch)}
        made = {"metadata": {"name": work, "annotations": notes}}
        self.write(at - 0.001, "create", "works", work, namespace=place, request=made)
        self.write(
            at, "patch", "works", work, namespace=place, request={"metadata": {"annotations": {keys.LOST: "true"}}}
        )

    def heard(self, at: float, cluster: str = "alpha") -> None:
        """The agent of a member writes something on the host."""
        user = f"system:serviceaccount:{keys.execution_namespace(cluster)}:atoll-agent"
        self.write(at, "patch", "clusters/status", cluster, namespace="", user=user)

    def pod(
        self,
        name: str,
        index: int,
        *,
        epoch: int = 1,
        cluster: str = "alpha",
        node: str = "n0",
        created: float,
        bound: float | None = None,
        ended: float | None = None,
        failed: bool = False,
        gone: float | None = None,
        uid: str = "",
    ) -> None:
        """The whole life of a pod, as far as it is given."""
        pod = f"{name}-worker-{index}"
        uid = uid or f"{pod}-{epoch}-{cluster}"

        def body(phase: str, **metadata: object) -> Json:
            notes = {keys.BINDING_UID: f"uid-{name}", keys.EPOCH: str(epoch)}
            owner = {"name": name, "controller": True}
            head = {"name": pod, "uid": uid, "annotations": notes, "ownerReferences": [owner], **metadata}
            placed = bound is not None and phase != "Pending"
            return {
                "kind": "Pod",
                "metadata": head,
                "spec": {"nodeName": node} if placed else {},
                "status": {"phase": phase},
            }

        self.write(created, "create", "pods", pod, cluster=cluster, response=body("Pending"))
        if bound is not None:
            request = {"metadata": {"uid": uid}, "target": {"name": node}}
            self.write(bound, "create", "pods/binding", pod, cluster=cluster, request=request, code=201)
        if ended is not None:
            response = body("Failed" if failed else "Succeeded")
            self.write(ended, "patch", "pods/status", pod, cluster=cluster, response=response)
        if gone is not None:
            going = body("Running", deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=0)
            self.write(gone, "delete", "pods", pod, cluster=cluster, response=going)

    def status(self, at: float, name: str, phase: str) -> None:
        """A status that was written to a Volcano Job on the host."""
        self.write(at, "patch", "jobs/status", name, response={"kind": "Job", "status": {"state": {"phase": phase}}})

    def fault(self, fault: str, began: float, ended: float) -> None:
        """A fault that was played."""
        target = fault.partition("(")[2].rstrip(")")
        self.faults.append(Span(fault, target, EPOCH_S + began, EPOCH_S + ended))

    def checkpoint(
        self, cluster: str, since: float, at: float, *uids: str, ended: Mapping[str, bool] | None = None
    ) -> None:
        """What a member had after it had come back."""
        found = Checkpoint(cluster, EPOCH_S + since, EPOCH_S + at, frozenset(uids), ended or {})
        self.checkpoints.append(found)

    def record(self) -> Record:
        """What the checks see."""
        limits = {queue: {GPU: gpus} for queue, gpus in self._queues.items()}
        nodes = {(cluster, "n0"): {GPU: 8} for cluster in ("alpha", "beta")}
        found = Record(
            self._wishes,
            limits,
            nodes,
            self.faults,
            final=self.final,
            left=self.left,
            unreturned=self.unreturned,
            astray=self.astray,
        )
        return record.build(found, self._logs, self.checkpoints)
