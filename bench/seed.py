"""Many objects at once, put straight into the store of a local federation.

Creating 100,000 objects through an API server takes ten minutes and measures only that. kube-apiserver reads JSON from
etcd for every resource, so an object that is written there as JSON is as good as one that was created.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import ssl
from collections.abc import Iterable
from typing import Any

import aiohttp
import orjson

from atoll.local.federation import Federation
from atoll.model.apiresource import ApiResource

_WRITERS = 4
_AT_ONCE = 50
"""Objects per transaction. They share a resourceVersion, as nothing that an API server creates does; lists and their
costs are the same.
"""


def store_of(federation: Federation) -> tuple[str, ssl.SSLContext]:
    """URL of the store, and what its clients show."""
    (etcd,) = (process.spec for process in federation.processes.processes if process.spec.name == "etcd")
    context = ssl.create_default_context(cafile=str(federation.keys.etcd_authority.path))
    context.load_cert_chain(*federation.keys.etcd)
    return str(etcd.ready_url).removesuffix("/health"), context


async def put(federation: Federation, resource: ApiResource, objects: Iterable[dict[str, Any]]) -> None:
    """Store the objects in the host; their UIDs, creation times and API versions must be in them.

    Raises:
        RuntimeError: the store refused some.
    """
    store, tls = store_of(federation)
    url = f"{store}/v3/kv/txn"
    # Built-in resources lie under their plural alone, custom ones under their group.
    folder = resource.plural if "." not in resource.group else f"{resource.group}/{resource.plural}"
    operations = (_operation(f"/{federation.host.name}/{folder}", obj) for obj in objects)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:

        async def worker() -> None:
            while batch := list(itertools.islice(operations, _AT_ONCE)):
                async with session.post(url, data=orjson.dumps({"success": batch})) as answer:
                    if answer.status != 200:
                        raise RuntimeError(f"etcd refused {folder}: {answer.status} {(await answer.text())[:400]}")

        async with asyncio.TaskGroup() as group:
            for _ in range(_WRITERS):
                group.create_task(worker())


def _operation(folder: str, obj: dict[str, Any]) -> dict[str, Any]:
    meta = obj["metadata"]
    place = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
    key, value = (base64.b64encode(part).decode() for part in (f"{folder}/{place}".encode(), orjson.dumps(obj)))
    return {"requestPut": {"key": key, "value": value}}


def pod_object(namespace: str, number: int) -> dict[str, Any]:
    """A training pod that runs, as an API server stores it: about 3.5 kB, most of it what only kubelets read."""
    job, index = f"train-{number // 64:05}", number % 64
    name, stamp = f"{job}-worker-{index}", "2026-01-01T00:00:00Z"
    uid = f"{number:08x}-0000-4000-8000-{number:012x}"
    labels = {
        "app": "train", "volcano.sh/job-name": job, "volcano.sh/task-spec": "worker",
        "volcano.sh/task-index": str(index),
        "volcano.sh/queue-name": f"team-{number % 40}", "volcano.sh/job-namespace": namespace,
    }  # fmt: skip
    annotations = {
        "atoll.sh/binding-uid": f"{number // 64:08x}-0000-4000-9000-{number // 64:012x}", "atoll.sh/epoch": "1",
        "scheduling.k8s.io/group-name": f"{job}-{number // 64:08x}-0000-4000-9000-{number // 64:012x}",
        "volcano.sh/task-spec": "worker", "volcano.sh/job-version": "0", "volcano.sh/template-uid": f"{job}-worker",
    }  # fmt: skip
    mounts = [
        {"name": "data", "mountPath": "/data"}, {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True},
    ]  # fmt: skip
    resources = {"cpu": "12", "memory": "96Gi", "nvidia.com/gpu": "1"}
    status = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": stamp}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    fields: dict[str, Any] = {
        f"f:{field}": {".": {}, "f:name": {}, "f:value": {}}
        for field in ("spec", "containers", "image", "env", "volumes", "tolerations")
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid, "creationTimestamp": stamp, "labels": labels,
            "annotations": annotations, "generation": 1,
            "ownerReferences": [
                {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": job, "controller": True,
                 "blockOwnerDeletion": True, "uid": f"{number // 64:08x}-0000-4000-a000-{number // 64:012x}"}
            ],
            "managedFields": [
                {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": stamp, "fieldsType": "FieldsV1",
                 "fieldsV1": fields}
                for manager in ("atoll-agent", "kubelet")
            ],
        },
        "spec": {
            "nodeName": f"node-{number // 8:05}", "schedulerName": "atoll", "priority": 0, "restartPolicy": "OnFailure",
            "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30, "serviceAccountName": "default",
            "securityContext": {}, "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "datasets"}},
                {"name": "shm", "emptyDir": {"medium": "Memory"}},
                {"name": "token", "projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                ]}},
            ],
            "containers": [
                {"name": "trainer", "image": "registry.example/train/llm:2026.1", "imagePullPolicy": "IfNotPresent",
                 "command": ["torchrun", "--nnodes=8", "--nproc-per-node=8", "train.py"],
                 "env": [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(8)],
                 "resources": {"requests": resources, "limits": resources}, "volumeMounts": mounts,
                 "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
            ],
        },
        "status": {
            "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}],
            "startTime": stamp, "qosClass": "Guaranteed", "conditions": status,
            "containerStatuses": [
                {"name": "trainer", "image": "registry.example/train/llm:2026.1", "imageID": "sha256:" + "0" * 64,
                 "ready": True, "started": True, "restartCount": 0, "lastState": {},
                 "state": {"running": {"startedAt": stamp}}}
            ],
        },
    }  # fmt: skip
