"""`mxnet`: what MXNet's parameter server reads from the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from atoll.kinds.volcano_job.plugins.interface import JobView, Json, KeyPair, Task, Values, open_port, set_env
from atoll.kinds.volcano_job.plugins.options import Option, Roles

_ROLES = Roles(("scheduler", "server", "worker"))


class Mxnet:
    name = "mxnet"
    requires: Sequence[str] = ("svc",)
    options: Sequence[Option] = (*_ROLES.options, Option("port", 9091))

    def problems(self, tasks: Mapping[str, int], values: Values) -> Sequence[str]:
        name = str(values["scheduler"])
        if tasks.get(name) != 1:
            return (f"its scheduler is the one pod of task {name!r}: give that task, with 1 replica",)
        return ()

    def objects(self, job: JobView, values: Values, key_pair: Callable[[], KeyPair]) -> Sequence[Json]:
        return ()

    def decorate(self, job: JobView, values: Values, pod: Json, task: Task, index: int) -> None:
        roles = _ROLES.of(values)
        if task.name not in roles:
            return
        port = int(values["port"])
        set_env(
            pod,
            {
                "DMLC_PS_ROOT_URI": job.host(str(values["scheduler"]), 0),
                "DMLC_PS_ROOT_PORT": str(port),
                "DMLC_ROLE": roles[task.name],
                "DMLC_NUM_SERVER": str(job.total(str(values["server"]))),
                "DMLC_NUM_WORKER": str(job.total(str(values["worker"]))),
                "DMLC_USE_KUBERNETES": "1",
            },
        )
        if roles[task.name] == "scheduler":
            open_port(pod, "mxnet-port", port)


PLUGIN = Mxnet()
