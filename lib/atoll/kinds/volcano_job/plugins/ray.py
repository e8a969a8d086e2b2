"""`ray`: the head and the workers that join it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from atoll.kinds.volcano_job.plugins.interface import JobView, Json, KeyPair, Task, Values, open_port
from atoll.kinds.volcano_job.plugins.options import Option
from atoll.model import keys


class Ray:
    name = "ray"
    requires: Sequence[str] = ("svc",)
    options: Sequence[Option] = (
        Option("head", "head"),
        Option("worker", "worker"),
        Option("headContainer", "head"),
        Option("workerContainer", "worker"),
        Option("port", 6379),
        Option("dashboardPort", 8265),
        Option("clientPort", 10001),
    )

    def problems(self, tasks: Mapping[str, int], values: Values) -> Sequence[str]:
        head = str(values["head"])
        if tasks.get(head) != 1:
            return (f"its head is the one pod of task {head!r}: give that task, with 1 replica, or --head=TASK",)
        return ()

    def objects(self, job: JobView, values: Values, key_pair: Callable[[], KeyPair]) -> Sequence[Json]:
        service = job.made("v1", "Service", f"{job.name}-head-svc")
        ports = {"gcs": "port", "dashboard": "dashboardPort", "client": "clientPort"}
        service["spec"] = {
            "selector": {
                keys.JOB_NAME: job.name, keys.JOB_NAMESPACE: job.namespace, keys.TASK_SPEC: values["head"],
            },
            "ports": [{"name": name, "port": values[option], "protocol": "TCP"} for name, option in ports.items()],
        }  # fmt: skip
        return (service,)

    def decorate(self, job: JobView, values: Values, pod: Json, task: Task, index: int) -> None:
        head = task.name == values["head"]
        if not head and task.name != values["worker"]:
            return
        if head:
            command = (
                f"ray start --head --block --dashboard-host=0.0.0.0 --port={values['port']}"
                f" --dashboard-port={values['dashboardPort']} --ray-client-server-port={values['clientPort']}"
            )
            for name, option in (("gcs", "port"), ("dashboard", "dashboardPort"), ("client", "clientPort")):
                open_port(pod, name, int(values[option]))
        else:
            command = f"ray start --block --address={job.host(str(values['head']), 0)}:{values['port']}"
        container = _container(pod, str(values["headContainer" if head else "workerContainer"]))
        # A command of the user's own starts Ray itself.
        if container is not None and not container.get("command") and not container.get("args"):
            container["command"] = ["sh", "-c", command]


def _container(pod: Json, name: str) -> Json | None:
    """The container of this name, or the first one."""
    found: list[Json] = list(pod["spec"].get("containers") or ())
    return next((each for each in found if each.get("name") == name), found[0] if found else None)


PLUGIN = Ray()
