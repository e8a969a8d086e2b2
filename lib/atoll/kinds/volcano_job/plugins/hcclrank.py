"""`hcclrank`: the annotation by which Ascend's collective library knows the rank of a pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from atoll.kinds.volcano_job.plugins.interface import JobView, Json, KeyPair, Task, Values
from atoll.kinds.volcano_job.plugins.options import Option

ANNOTATION = "hccl/rankIndex"


class HcclRank:
    name = "hcclrank"
    requires: Sequence[str] = ()
    options: Sequence[Option] = (Option("master", "master"), Option("worker", "worker"))

    def problems(self, tasks: Mapping[str, int], values: Values) -> Sequence[str]:
        if str(values["worker"]) not in tasks and str(values["master"]) not in tasks:
            return (f"there is no task {values['worker']!r}; give --master=TASK and --worker=TASK",)
        return ()

    def objects(self, job: JobView, values: Values, key_pair: Callable[[], KeyPair]) -> Sequence[Json]:
        return ()

    def decorate(self, job: JobView, values: Values, pod: Json, task: Task, index: int) -> None:
        master, worker = str(values["master"]), str(values["worker"])
        annotations = pod["metadata"].setdefault("annotations", {})
        if annotations.get(ANNOTATION):
            return
        if rank := _rank(pod):
            annotations[ANNOTATION] = rank
        elif task.name in (master, worker):
            before = job.total(master) if task.name == worker else 0
            annotations[ANNOTATION] = str(before + task.first + index)


def _rank(pod: Json) -> str:
    """RANK as a container has it, of the user's or of another plugin."""
    named = (each for container in pod["spec"].get("containers") or () for each in container.get("env") or ())
    return next((str(each["value"]) for each in named if each.get("name") == "RANK" and each.get("value")), "")


PLUGIN = HcclRank()
