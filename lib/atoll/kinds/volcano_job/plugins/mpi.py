"""`mpi`: the master knows its workers, and starts once sshd answers on all of them.

A worker is ready once its port answers, and admission makes the master depend on its workers (`waits`).
"""

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
        if task.name == worker and task.name != master:
            _ready_once_it_answers(pod, port)

    def waits(self, values: Values) -> tuple[str, str]:
        """The task that is to start once all pods of the other one are ready: (task, other task)."""
        return str(values["master"]), str(values["worker"])


def _ready_once_it_answers(pod: Json, port: int) -> None:
    """Probe the port in the first container, unless a container says itself when it is ready."""
    found = pod["spec"].get("containers") or ()
    if found and not any(each.get("readinessProbe") for each in found):
        found[0]["readinessProbe"] = {"tcpSocket": {"port": port}, "periodSeconds": 1}


PLUGIN = Mpi()
