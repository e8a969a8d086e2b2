"""Published traces as jobs.

Philly (Microsoft 2017, as sliced by adaptdl): a job per row, a queue per virtual cluster; up to 8 GPUs are one pod,
more are pods of 8, as many as its nodes hold. openb (Alibaba 2023): every row is one pod; its queue is its QoS
class.
"""

from __future__ import annotations

from pathlib import Path

from atoll.model.gang import Task
from atoll.model.plurals import counted
from atoll.sim.clusters import GPUS_PER_NODE, PHILLY
from atoll.sim.inputs import Fields, InputError, moment, rows, seconds, text, whole
from atoll.sim.jobs import GPU, GPU_SHARE, Job, ordered


def philly(path: Path) -> tuple[list[Job], list[str]]:
    """Jobs of the slice, and notes about it.

    Raises:
        InputError: naming line and field.
    """
    found: list[tuple[float, float, int, str]] = []
    unsized: dict[str, int] = {}
    for place, row in rows(path, ("timestamp", "duration", "num_gpus", "cluster")):
        fields = Fields(row, place)
        cluster = fields.take("cluster", text)
        if cluster not in PHILLY:
            unsized[cluster] = unsized.get(cluster, 0) + 1
            continue
        submitted = fields.take("timestamp", moment)
        found.append((submitted, fields.take("duration", seconds), fields.take("num_gpus", whole), cluster))
    if not found:
        raise InputError(f"{path}: no job of a virtual cluster of known size; known are {', '.join(PHILLY)}")
    found.sort(key=lambda each: each[0])
    first = found[0][0]
    jobs = [
        Job(f"j{number:06d}", submitted - first, duration, (_gpus(gpus),), cluster, cluster)
        for number, (submitted, duration, gpus, cluster) in enumerate(found)
    ]
    notes = [
        f"{counted(count, 'job')} of virtual cluster {name} dropped: its size is unknown"
        for name, count in unsized.items()
    ]
    return ordered(jobs), notes


def _gpus(count: int) -> Task:
    pods = max(1, -(-count // GPUS_PER_NODE))
    return Task("worker", pods, pods, {GPU: -(-count // pods), "pods": 1})


def openb(path: Path) -> tuple[list[Job], list[str]]:
    """Pods as jobs of one pod, and notes about it.

    Raises:
        InputError: naming line and field.
    """
    jobs, endless = [], 0
    for place, row in rows(path, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time")):
        fields = Fields(row, place)
        created = fields.take("creation_time", seconds)
        began = fields.maybe("scheduled_time", seconds)
        ended = fields.maybe("deletion_time", seconds)
        if ended is None:
            endless += 1
            continue
        count = fields.take("num_gpu", whole)
        share = fields.take("gpu_milli", whole, 0) if count == 1 else count * 1000
        wanted = {"cpu": fields.take("cpu_milli", whole), "memory": fields.take("memory_mib", whole) * 2**20, "pods": 1}
        models = row.get("gpu_spec", "")
        terms = [{"matchExpressions": [{"key": "gpu-model", "operator": "In", "values": models.split("|")}]}]
        task = Task(
            "pod", 1, 1, wanted | ({GPU_SHARE: share} if share else {}), node_terms=terms if models and share else []
        )
        duration = max(ended - (created if began is None else began), 0.0)
        jobs.append(Job(fields.take("name", text), created, duration, (task,), (row.get("qos") or "default").lower()))
    notes = []
    if endless:
        notes.append(f"{counted(endless, 'pod')} without a deletion time dropped")
    return ordered(jobs), notes
