"""`pytorch`: what torch.distributed and torchrun read from the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from atoll.kinds.volcano_job.plugins.interface import JobView, Json, KeyPair, Task, Values, open_port, set_env
from atoll.kinds.volcano_job.plugins.options import Option

_MOST_PATIENCE = 7 * 86400
"""Seconds of the longest wait of workers for their master."""
_WAITS = "wait-for-master"


class Pytorch:
    name = "pytorch"
    requires: Sequence[str] = ("svc",)
    options: Sequence[Option] = (
        Option("master", "master"),
        Option("worker", "worker"),
        Option("port", 23456),
        Option("wait-master-enabled", default=False),
        Option("wait-master-timeout", 300, most=_MOST_PATIENCE),
        Option("wait-master-image", "busybox:1.36.1"),
    )

    def problems(self, tasks: Mapping[str, int], values: Values) -> Sequence[str]:
        master = str(values["master"])
        if tasks.get(master) != 1:
            return (f"its master is the one pod of task {master!r}: give that task, with 1 replica, or --master=TASK",)
        if not values["wait-master-image"]:
            return ("--wait-master-image= names no image",)
        return ()

    def objects(self, job: JobView, values: Values, key_pair: Callable[[], KeyPair]) -> Sequence[Json]:
        return ()

    def decorate(self, job: JobView, values: Values, pod: Json, task: Task, index: int) -> None:
        master, worker, port = str(values["master"]), str(values["worker"]), int(values["port"])
        if task.name not in (master, worker):
            return
        masters = job.total(master)
        rank = task.first + index + (masters if task.name == worker else 0)
        address, size = job.host(master, 0), masters + job.total(worker)
        set_env(
            pod,
            {
                "MASTER_ADDR": address,
                "MASTER_PORT": str(port),
                "WORLD_SIZE": str(size),
                "RANK": str(rank),
                # torchrun counts nodes and starts the processes of each; the user sets PET_NPROC_PER_NODE.
                "PET_MASTER_ADDR": address,
                "PET_MASTER_PORT": str(port),
                "PET_NNODES": str(size),
                "PET_NODE_RANK": str(rank),
            },
        )
        open_port(pod, "pytorchjob-port", port)
        if task.name == worker and values["wait-master-enabled"]:
            _wait(pod, address, port, int(values["wait-master-timeout"]), str(values["wait-master-image"]))


def _wait(pod: Json, address: str, port: int, patience: int, image: str) -> None:
    """Let the pod begin once something answers there; it fails after so many seconds."""
    spec = pod["spec"]
    before = spec.setdefault("initContainers", [])
    if any(each.get("name") == _WAITS for each in before):
        return
    again = "[ $left -gt 0 ] || exit 1; sleep 1; left=$((left-1))"
    # Not every nc has -z: Debian's busybox has not.
    asks = f"nc -z -w 1 {address} {port} || nc -w 1 {address} {port} -e true"
    script = f"left={patience}; until {{ {asks}; }} >/dev/null 2>&1 </dev/null; do {again}; done"
    container = {"name": _WAITS, "image": image, "command": ["sh", "-c", script]}
    # What lets the pod's own container in where Pod Security is strict lets this one in.
    context = next((each["securityContext"] for each in spec["containers"] if each.get("securityContext")), None)
    before.append({**container, "securityContext": context} if context else container)


PLUGIN = Pytorch()
