"""The PodGroup, claims and pods that a Volcano Job consists of, as dicts; names are deterministic.

Labels and annotations are the same as Volcano's, so that its tools and users' selectors find the pods.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from atoll.agent.jobs import stages
from atoll.agent.jobs.state import RETRY_COUNT, floor_of, index_of, min_available, partition_of
from atoll.agent.objects import Pod
from atoll.kinds.volcano_job import KIND, plugins
from atoll.kinds.volcano_job.tasks import task_minimum, task_name, task_partitions, task_replicas
from atoll.model import keys, numbers, quantity, vector
from atoll.model.vector import Vector

Json = dict[str, Any]

_TEMPLATE_UID = "volcano.sh/template-uid"


def group_name(job: Mapping[str, Any]) -> str:
    """Name of the Job's PodGroup."""
    return f"{job['metadata']['name']}-{job['metadata']['uid']}"


def owner_of(job: Mapping[str, Any]) -> Json:
    """An owner reference to the Job, as its controller."""
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def identity(job: Mapping[str, Any]) -> dict[str, str]:
    """The annotations by which a dispatch is known, where the Job has them."""
    annotations = job["metadata"].get("annotations") or {}
    return {key: annotations[key] for key in (keys.BINDING_UID, keys.EPOCH) if key in annotations}


def _waiting_time(job: Mapping[str, Any]) -> dict[str, str]:
    annotations = job["metadata"].get("annotations") or {}
    return {name: annotations[name] for name in keys.WAITING_TIMES if isinstance(annotations.get(name), str)}


def pod_group(
    job: Mapping[str, Any], opened: Collection[int] | None = None, gone: Mapping[str, int] = MappingProxyType({})
) -> Json:
    """The Job's gang.

    Args:
        job: the whole object.
        opened: positions of its tasks so far; None for all.
        gone: task -> pods of it that have succeeded and were removed: its minimums count present pods.
    """
    spec = job["spec"]
    tasks = list(spec.get("tasks") or ())
    opened = range(len(tasks)) if opened is None else opened
    left = [gone.get(task_name(task, index), 0) for index, task in enumerate(tasks)]
    counts = stages.gang_minimums(spec, min_available(spec), opened)
    wanted: Json = {
        "minMember": max(floor_of(spec, opened) - sum(left), 1) if any(left) else floor_of(spec, opened),
        "minTaskMember": {
            task_name(task, index): max(task_minimum(task) - left[index], 0)
            for index, task in enumerate(tasks)
            if index in opened
        },
        "minResources": _min_resources(tasks, [max(count - less, 0) for count, less in zip(counts, left, strict=True)]),
        "queue": KIND.queue_of(job),
    }
    for key in ("priorityClassName", "networkTopology"):
        if spec.get(key):
            wanted[key] = spec[key]
    if groups := [_sub_groups(task, index) for index, task in enumerate(tasks) if task.get("partitionPolicy")]:
        wanted["subGroupPolicy"] = groups
    elif told := _told(job):
        wanted["subGroupPolicy"] = told
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": group_name(job),
            "namespace": job["metadata"]["namespace"],
            "annotations": identity(job) | _waiting_time(job),
            "ownerReferences": [owner_of(job)],
        },
        "spec": wanted,
    }


def _told(job: Mapping[str, Any]) -> list[Json]:
    """Sub-groups over several tasks, which no field of a Job can say: as the host does, by an annotation."""
    text = (job["metadata"].get("annotations") or {}).get(keys.TOPOLOGY)
    try:
        found = msgspec.json.decode(text or "{}", type=dict[str, Any]).get("subGroupPolicy")
        return msgspec.convert(found or [], list[dict[str, Any]])
    except msgspec.MsgspecError:
        return []


def _sub_groups(task: Mapping[str, Any], position: int) -> Json:
    """The partitions of a task, as its PodGroup says it."""
    _, size, least = task_partitions(task)
    name, policy = task_name(task, position), task["partitionPolicy"]
    topology = {"networkTopology": policy["networkTopology"]} if policy.get("networkTopology") else {}
    return {
        "name": name,
        "subGroupSize": max(size, 1),
        "minSubGroups": least,
        "labelSelector": {"matchLabels": {keys.TASK_SPEC: name}},
        "matchLabelKeys": [keys.PARTITION],
        **topology,
    }


def _min_resources(tasks: Sequence[Mapping[str, Any]], counts: Sequence[int]) -> dict[str, str]:
    total: Vector = {}
    for task, count in zip(tasks, counts, strict=True):
        requests = vector.pod_requests((task.get("template") or {}).get("spec") or {})
        requests.pop("pods", None)
        vector.add(total, requests, count)
    return {name: quantity.format_units(name, amount) for name, amount in sorted(total.items())}


def claims(job: Mapping[str, Any]) -> list[Json]:
    """The PersistentVolumeClaims that the Job asks for by their spec.

    Pods of a Job that came by a Work live as long as the workload on the host, through holds, evictions and later
    events: delivery removes them. Pods of any other Job go with it.
    """
    binding = identity(job).get(keys.BINDING_UID)
    belongs: Json = {"labels": {keys.MANAGED: "true", keys.BINDING_UID: binding}}
    if not binding:
        belongs = {"ownerReferences": [owner_of(job)]}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": _claim_name(job, index),
                "namespace": job["metadata"]["namespace"],
                **belongs,
            },
            "spec": volume["volumeClaim"],
        }
        for index, volume in enumerate(job["spec"].get("volumes") or ())
        if volume.get("volumeClaim") and not volume.get("volumeClaimName")
    ]


def _claim_name(job: Mapping[str, Any], index: int) -> str:
    return f"{job['metadata']['name']}-volume-{index}"


def pod_name(job: Mapping[str, Any], task: str, index: int) -> str:
    """Name of a pod of the Job."""
    return f"{job['metadata']['name']}-{task}-{index}"


def places(job: Mapping[str, Any], names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """These names, reduced to pods of the Job: name -> (position of its task, index in the task)."""
    prefix = f"{job['metadata']['name']}-"
    tasks = {
        task_name(task, position): (position, task_replicas(task))
        for position, task in enumerate(job["spec"].get("tasks") or ())
    }
    found = {}
    for name in names:
        task, _, text = name.removeprefix(prefix).rpartition("-")
        position, replicas = tasks.get(task, (0, 0))
        index = numbers.whole(text)
        if index is not None and index < replicas and name == f"{prefix}{task}-{index}":
            found[name] = (position, index)
    return found


def asked(job: Mapping[str, Any]) -> int:
    """How many pods the Job asks for now, without ended ones."""
    at_once, tasks = _at_once(job), job["spec"].get("tasks") or ()
    wanted = [(task_name(task, position), task_replicas(task)) for position, task in enumerate(tasks)]
    return sum(min(at_once.get(name, replicas), replicas) for name, replicas in wanted)


def present(job: Mapping[str, Any], pods: Iterable[Pod]) -> dict[str, tuple[int, int]]:
    """Every pod that the Job should have now: of a task with a limit of pods at once, the ended ones and
    so many of the first others.

    Args:
        job: the whole object.
        pods: that exist.
    """
    at_once = _at_once(job)
    ended = places(job, (pod.metadata.name for pod in pods if pod.finished)) if at_once else {}
    found: dict[str, tuple[int, int]] = {}
    for position, task in enumerate(job["spec"].get("tasks") or ()):
        name, replicas = task_name(task, position), task_replicas(task)
        left = at_once.get(name, replicas)
        indices, index = {index for at, index in ended.values() if at == position}, 0
        # Not one by one to the last: there may be far more pods than may run at once.
        while left > 0 and index < replicas:
            if index not in indices:
                indices.add(index)
                left -= 1
            index += 1
        found |= {pod_name(job, name, index): (position, index) for index in sorted(indices)}
    return found


def _at_once(job: Mapping[str, Any]) -> dict[str, int]:
    """Task -> pods that may run at once, of limited tasks."""
    text = (job["metadata"].get("annotations") or {}).get(keys.AT_ONCE)
    return msgspec.json.decode(text, type=dict[str, int]) if text else {}


def surplus(job: Mapping[str, Any], pods: Collection[Pod]) -> list[Pod]:
    """Pods that the Job no longer asks for, highest index first."""
    wanted = present(job, pods)
    extra = [pod for pod in pods if pod.metadata.name not in wanted and not pod.terminating]
    return sorted(extra, key=lambda pod: (pod.task, -index_of(pod.metadata.name), pod.metadata.name))


def vanished(job: Mapping[str, Any], pods: Collection[Pod]) -> list[str]:
    """Names of pods that the Job's status still counts and that are gone, so far as the counts tell."""
    counted = (job.get("status") or {}).get("taskStatusCount") or {}
    seen, wanted = {pod.metadata.name for pod in pods}, present(job, pods)
    tasks, found = job["spec"].get("tasks") or (), []
    for position, task in enumerate(tasks):
        phases = (counted.get(task_name(task, position)) or {}).get("phase") or {}
        asked = [name for name, at in wanted.items() if at[0] == position]
        gone = [name for name in asked if name not in seen]
        found += gone[: max(0, sum(phases.values()) - (len(asked) - len(gone)))]
    return found


def pod(job: Mapping[str, Any], position: int, index: int) -> Json:
    """One pod of the Job.

    Args:
        job: the whole object.
        position: of its task.
        index: in the task.
    """
    meta, spec = job["metadata"], job["spec"]
    task = spec["tasks"][position]
    name = task_name(task, position)
    template = task.get("template") or {}
    own = template.get("metadata") or {}
    status = job.get("status") or {}
    common = {
        keys.TASK_SPEC: name,
        keys.TASK_INDEX: str(index),
        keys.JOB_NAME: meta["name"],
        keys.QUEUE_LABEL: KIND.queue_of(job),
    }
    labels = {**(own.get("labels") or {}), **common, keys.JOB_NAMESPACE: meta["namespace"]}
    if task.get("partitionPolicy"):
        labels[keys.PARTITION] = str(partition_of(task, index))
    annotations = {
        **(own.get("annotations") or {}),
        **common,
        **identity(job),
        keys.GROUP_NAME: group_name(job),
        keys.JOB_VERSION: str(status.get("version") or 0),
        RETRY_COUNT: str(status.get("retryCount") or 0),
        _TEMPLATE_UID: f"{meta['name']}-{name}",
    }
    if task.get("topologyPolicy"):
        annotations[keys.NUMA_POLICY] = task["topologyPolicy"]
    body = copy.deepcopy(template.get("spec") or {})
    body.setdefault("schedulerName", spec.get("schedulerName") or keys.SCHEDULER_NAME)
    if spec.get("priorityClassName"):
        body.setdefault("priorityClassName", spec["priorityClassName"])
    for container in (*(body.get("containers") or ()), *(body.get("initContainers") or ())):
        # So that its last output is in the pod's status, and from there in the Job's on the host.
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    _mount(job, body)
    made: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(job, name, index),
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_of(job)],
        },
        "spec": body,
    }
    if wanted := spec.get("plugins"):
        view = view_of(job)
        plugins.decorate(view, wanted, made, view.tasks[position], index)
    return made


def view_of(job: Mapping[str, Any]) -> plugins.JobView:
    """The Job as its plugins see it."""
    metadata, notes = job["metadata"], job["metadata"].get("annotations") or {}
    text = notes.get(keys.INDEX_OFFSET)
    wide = msgspec.json.decode(text, type=dict[str, tuple[int, int]]) if text else {}
    text = notes.get(keys.PEERS)
    peers = msgspec.json.decode(text, type=_Peers) if text else _Peers()
    tasks = []
    for position, task in enumerate(job["spec"].get("tasks") or ()):
        name, replicas = task_name(task, position), task_replicas(task)
        spec = (task.get("template") or {}).get("spec") or {}
        said = spec.get("hostname") or "", spec.get("subdomain") or ""
        tasks.append(plugins.Task(name, replicas, *wide.get(name, (0, replicas)), *said, peers.pods.get(name, ())))
    here = {task.name for task in tasks}
    elsewhere = [plugins.Task(name, 0, *at, "", "", peers.pods.get(name, ())) for name, at in wide.items()]
    tasks += [task for task in elsewhere if task.name not in here]
    return plugins.JobView(metadata["name"], metadata["namespace"], tuple(tasks), owner_of(job), peers.names)


class _Peers(msgspec.Struct, frozen=True):
    """Annotation `atoll.sh/peers`."""

    names: str = ""
    pods: dict[str, tuple[tuple[str, int], ...]] = {}


def _mount(job: Mapping[str, Any], body: Json) -> None:
    for index, volume in enumerate(job["spec"].get("volumes") or ()):
        name = f"volcano-volume-{index}"
        claim = volume.get("volumeClaimName") or _claim_name(job, index)
        body.setdefault("volumes", []).append({"name": name, "persistentVolumeClaim": {"claimName": claim}})
        for container in body.get("containers") or ():
            mounts = container.setdefault("volumeMounts", [])
            mounts.append({"name": name, "mountPath": volume["mountPath"]})


def group_change(
    present: Mapping[str, Any],
    job: Mapping[str, Any],
    opened: Collection[int] | None = None,
    gone: Mapping[str, int] = MappingProxyType({}),
) -> Json:
    """What a Job's new size or priority changes in its PodGroup's spec: a merge patch, empty when nothing does.

    Args:
        present: the PodGroup's `minMember` and `minTaskMember`.
        job: the whole object.
        opened: as for `pod_group`.
        gone: as there.
    """
    wanted = pod_group(job, opened, gone)["spec"]
    if all(present.get(key) == wanted[key] for key in ("minMember", "minTaskMember")):
        return {}
    tasks = {**dict.fromkeys(present.get("minTaskMember") or (), None), **wanted["minTaskMember"]}
    return {
        "spec": {
            "minMember": wanted["minMember"],
            "minTaskMember": tasks,
            "minResources": wanted["minResources"],
        }
    }
