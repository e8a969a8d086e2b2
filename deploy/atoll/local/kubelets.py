"""The kubelets' own check of pods: what a node has no room for is refused there, whoever bound it.

kwok runs whatever is bound to a node. Where a member is configured with `strict_kubelets`, its pods wait for the mark
that is set here, after the same sum that a kubelet does when it admits a pod.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import yaml

from atoll.kube.errors import NotFound
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys, quantity, vector
from atoll.model.apiresource import NODES, PODS
from atoll.model.objects import Full, decode_full
from atoll.model.vector import Vector

ADMITTED = "atoll.sh/admitted"
"""Pod annotation: the kubelet's check is done, kwok may run it."""
_STAGES = Path(__file__).parent / "stages.yaml"
_STARTING = ("pod-run", "pod-image-missing")
_FAILS_LATER = ("true", "image")
_WORKERS = 8


def write_stages(path: Path) -> None:
    """Write kwok's Stages such that pods start only once they are admitted."""
    stages = list(yaml.safe_load_all(_STAGES.read_text()))
    for stage in stages:
        if stage["metadata"]["name"] in _STARTING:
            marked = {"key": f'.metadata.annotations["{ADMITTED}"]', "operator": "Exists"}
            stage["spec"]["selector"]["matchExpressions"].append(marked)
    path.write_text(yaml.safe_dump_all(stages, sort_keys=False))


class Kubelets:
    """The admission of all kubelets of one member: in the order of arrival, by requests against allocatable."""

    def __init__(self, api: ApiServer) -> None:
        """No I/O happens here.

        Args:
            api: an administrator's client of the member; whoever made it closes it.
        """
        self._api = api
        self._nodes: Reflector[Full] = Reflector(api, NODES, decode_full)
        self._pods: Reflector[Full] = Reflector(api, PODS, decode_full, field_selector="spec.nodeName!=")
        self._queue: WorkQueue[str] = WorkQueue("kubelets")
        #: node -> pod's UID -> its requests; admitted pods that have not ended
        self._taken: dict[str, dict[str, Vector]] = {}
        self._pods.add_index("node", lambda pod: [pod.body["spec"]["nodeName"]])
        self._pods.on_change(self._pod_changed)
        self._nodes.on_change(self._node_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            await self._nodes.synced.wait()
            group.create_task(self._pods.run())
            group.create_task(self._queue.run(self._admit, workers=_WORKERS))

    def _pod_changed(self, old: Full | None, new: Full | None) -> None:
        if old is not None and (new is None or _ended(new)):
            self._taken.get(old.body["spec"]["nodeName"], {}).pop(old.metadata.uid, None)
        elif new is not None and ADMITTED not in new.metadata.annotations:
            self._queue.add(new.metadata.key)

    def _node_changed(self, _: Full | None, new: Full | None) -> None:
        if new is not None and keys.DEAD not in new.metadata.labels:
            # Pods bound while their kubelet was silent.
            for pod in self._pods.by_index("node", new.metadata.name):
                if ADMITTED not in pod.metadata.annotations:
                    self._queue.add(pod.metadata.key)

    async def _admit(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or ADMITTED in pod.metadata.annotations or pod.metadata.deletion_timestamp or _ended(pod):
            return
        if pod.metadata.annotations.get(keys.FAIL, "true") not in _FAILS_LATER:
            # Its Stage rejects it.
            return
        node = self._nodes.get(pod.body["spec"]["nodeName"])
        if node is None or keys.DEAD in node.metadata.labels:
            return
        taken = self._taken.setdefault(node.metadata.name, {})
        if pod.metadata.uid not in taken:
            requests = vector.pod_requests(pod.body["spec"])
            if refusal := _refusal(node, requests, taken):
                await self._refuse(pod, *refusal)
                return
            # Counted before the write, for the pods that others admit meanwhile.
            taken[pod.metadata.uid] = requests
        try:
            mark = {"metadata": {"uid": pod.metadata.uid, "annotations": {ADMITTED: "true"}}}
            await self._api.merge_patch(PODS, pod.metadata.name, mark, pod.metadata.namespace)
        except NotFound:
            taken.pop(pod.metadata.uid, None)

    async def _refuse(self, pod: Full, reason: str, message: str) -> None:
        status = {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}"}
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        with contextlib.suppress(NotFound):
            await self._api.merge_patch(PODS, pod.metadata.name, patch, pod.metadata.namespace, subresource="status")


def _refusal(node: Full, requests: Vector, taken: dict[str, Vector]) -> tuple[str, str] | None:
    if reason := node.metadata.annotations.get(keys.FAIL):
        return reason, f"annotation {keys.FAIL} of the node asks for it"
    allocatable = quantity.capacity((node.body.get("status") or {}).get("allocatable"))
    used = vector.total(taken.values())
    for name, wanted in requests.items():
        if wanted and used.get(name, 0) + wanted > allocatable.get(name, 0):
            sums = f"requested: {wanted}, used: {used.get(name, 0)}, capacity: {allocatable.get(name, 0)}"
            return f"OutOf{name}", f"Node didn't have enough resource: {name}, {sums}"
    return None


def _ended(pod: Full) -> bool:
    status: dict[str, Any] = pod.body.get("status") or {}
    return status.get("phase") in ("Succeeded", "Failed")
