"""`tensorflow`: TF_CONFIG, the cluster and the pod's place in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from atoll.kinds.volcano_job.plugins.interface import JobView, Json, KeyPair, Task, Values, open_port, set_env
from atoll.kinds.volcano_job.plugins.options import Option, Roles

_ROLES = Roles(("ps", "worker", "chief", "evaluator"))


class Tensorflow:
    name = "tensorflow"
    requires: Sequence[str] = ("svc",)
    options: Sequence[Option] = (*_ROLES.options, Option("port", 2222))

    def problems(self, tasks: Mapping[str, int], values: Values) -> Sequence[str]:
        roles = _ROLES.of(values)
        if tasks.keys().isdisjoint(roles):
            said = ", ".join(f"--{role}=TASK" for role in _ROLES)
            return (f"no task has one of the names {', '.join(roles)}; give {said}",)
        return ()

    def objects(self, job: JobView, values: Values, key_pair: Callable[[], KeyPair]) -> Sequence[Json]:
        return ()

    def decorate(self, job: JobView, values: Values, pod: Json, task: Task, index: int) -> None:
        roles = _ROLES.of(values)
        if task.name not in roles:
            return
        port = int(values["port"])
        cluster = {
            role: [f"{host}:{port}" for host in job.hosts(name)] for name, role in roles.items() if job.hosts(name)
        }
        config = {"cluster": cluster, "task": {"type": roles[task.name], "index": task.first + index}}
        set_env(pod, {"TF_CONFIG": json.dumps(config)})
        open_port(pod, "tensorflow-port", port)


PLUGIN = Tensorflow()
