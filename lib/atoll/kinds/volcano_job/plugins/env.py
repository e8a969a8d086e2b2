"""`env`: every container knows the index of its pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from atoll.kinds.volcano_job.plugins.interface import JobView, Json, KeyPair, Task, Values, set_env
from atoll.kinds.volcano_job.plugins.options import Option


class Env:
    name = "env"
    requires: Sequence[str] = ()
    options: Sequence[Option] = ()

    def problems(self, tasks: Mapping[str, int], values: Values) -> Sequence[str]:
        return ()

    def objects(self, job: JobView, values: Values, key_pair: Callable[[], KeyPair]) -> Sequence[Json]:
        return ()

    def decorate(self, job: JobView, values: Values, pod: Json, task: Task, index: int) -> None:
        set_env(pod, dict.fromkeys(("VK_TASK_INDEX", "VC_TASK_INDEX"), str(task.first + index)))


PLUGIN = Env()
