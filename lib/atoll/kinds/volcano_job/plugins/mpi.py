"""`mpi`: the master knows its workers, and starts once sshd answers on all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from atoll.kinds.volcano_job.plugins.interface import JobView, Json, KeyPair, Task, Values, open_port, set_env
from atoll.kinds.volcano_job.plugins.options import Option


class Mpi:
    name = "mpi"
    requires: Sequence[str] = ("svc", "ssh")
    options: Sequence[Option] = (Option("master", "master"), Option("worker", "worker"), Option("port", 22))

    def problems(self, tasks: Mapping[str, int], values: Values) -> Sequence[str]:
        if str(values["master"]) not in tasks:
            return (f"its master is task {values['master']!r}, which is not there; add it or give --master=TASK",)
        return ()

    def objects(self, job: JobView, values: Values, key_pair: Callable[[], KeyPair]) -> Sequence[Json]:
        return ()

    def decorate(self, job: JobView, values: Values, pod: Json, task: Task, index: int) -> None:
        master, worker, port = str(values["master"]), str(values["worker"]), int(values["port"])
        if task.name == master:
            set_env(pod, {"MPI_HOST": ",".join(job.hosts(worker))})
        if task.name in (master, worker):
            open_port(pod, "mpijob-port", port)


PLUGIN = Mpi()
