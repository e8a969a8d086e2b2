"""`pytorch`: what torch.distributed and torchrun read from the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from atoll.kinds.volcano_job.plugins.interface import JobView, Json, KeyPair, Task, Values, open_port, set_env
from atoll.kinds.volcano_job.plugins.options import Option


class Pytorch:
    name = "pytorch"
    requires: Sequence[str] = ("svc",)
    options: Sequence[Option] = (Option("master", "master"), Option("worker", "worker"), Option("port", 23456))

    def problems(self, tasks: Mapping[str, int], values: Values) -> Sequence[str]:
        master = str(values["master"])
        if tasks.get(master) != 1:
            return (f"its master is the one pod of task {master!r}: give that task, with 1 replica, or --master=TASK",)
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


PLUGIN = Pytorch()
