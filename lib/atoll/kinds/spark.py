"""The SparkApplication: a driver, which makes its executors itself."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from atoll.kinds.interface import Json, Outcome, Part, Words
from atoll.kinds.templated import Component, Reading, Templated, count_at, remove_at, set_at, value_at
from atoll.model import keys
from atoll.model.apiresource import ApiResource
from atoll.model.placer import Placer

_ROLES = ("driver", "executor")
_MEMORY = re.compile(r"(\d+)([kmgtp]?)b?", re.IGNORECASE)
_UNITS = {"k": 2**10, "": 2**20, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_LEAST_OVERHEAD = 384 * 2**20
_ENDS = {"COMPLETED": Outcome.SUCCEEDED, "FAILED": Outcome.FAILED}
_SCALA = ("Scala", "Java")


def _memory(said: object, field: str) -> int:
    """Bytes of what Spark calls `512m`; a number alone is of MiB.

    Raises:
        ValueError: it can't be read.
    """
    found = _MEMORY.fullmatch(str(said))
    if found is None:
        raise ValueError(f"{field}: {said!r} is no amount of memory as Spark writes it, such as 512m or 4g")
    return int(found[1]) * _UNITS[found[2].lower()]


def _pod(obj: Mapping[str, Any], role: str) -> Json:
    """What its pods request, and where they may go, as the operator makes them."""
    spec = value_at(obj, ("spec", role)) or {}
    field = f"spec.{role}"
    memory = _memory(spec.get("memory") or "1g", f"{field}.memory")
    factor = float(value_at(obj, ("spec", "memoryOverheadFactor")) or (0.1 if _jvm(obj) else 0.4))
    if said := spec.get("memoryOverhead"):
        overhead = _memory(said, f"{field}.memoryOverhead")
    else:
        overhead = max(math.ceil(memory * factor), _LEAST_OVERHEAD)
    cpu = spec.get("coreRequest") or spec.get("cores") or 1
    resources: Json = {"requests": {"cpu": str(cpu), "memory": str(memory + overhead)}}
    if gpu := spec.get("gpu"):
        resources["requests"][str(gpu["name"])] = str(gpu["quantity"])
    pod: Json = {"containers": [{"name": f"spark-{role}", "resources": resources}]}
    for name in ("nodeSelector", "affinity", "tolerations", "priorityClassName", "serviceAccount", "hostNetwork"):
        if spec.get(name):
            pod["serviceAccountName" if name == "serviceAccount" else name] = spec[name]
    named = value_at(obj, ("spec", "batchSchedulerOptions", "priorityClassName"))
    return {**pod, "priorityClassName": named} if named and "priorityClassName" not in pod else pod


def _jvm(obj: Mapping[str, Any]) -> bool:
    return value_at(obj, ("spec", "type")) in _SCALA


def _components(obj: Mapping[str, Any]) -> list[Component]:
    most = 1
    if value_at(obj, ("spec", "dynamicAllocation", "enabled")):
        most = count_at(obj, "spec", "dynamicAllocation", "maxExecutors")
    else:
        most = count_at(obj, "spec", "executor", "instances")
    return [
        Component(
            name=role,
            pods=1 if role == "driver" else most,
            template=("spec", role),
            annotations=("spec", role, "annotations"),
            pod=_pod(obj, role),
            unnumbered="pods of a SparkApplication have none",
        )
        for role in _ROLES
    ]


def _read(status: Mapping[str, Any]) -> Reading:
    state = str(value_at(status, ("applicationState", "state")) or "")
    executors = [each for each in (status.get("executorState") or {}).values()]
    outcome = _ENDS.get(state)
    return Reading(
        state=state.capitalize(),
        running=executors.count("RUNNING") + (state == "RUNNING"),
        succeeded=executors.count("COMPLETED"),
        failed=executors.count("FAILED"),
        outcome=outcome,
        ended=status.get("terminationTime") if outcome is not None else None,
        suspended=state == "SUSPENDED",
        known=bool(state),
    )


def _told(status: Json, reason: str, message: str) -> Json:
    """Its operator's schema asks for driverInfo, and has no conditions."""
    return {**status, "driverInfo": {}, "applicationState": {"state": "", "errorMessage": f"{reason}: {message}"}}


def _problems(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    dynamic = value_at(obj, ("spec", "dynamicAllocation")) or {}
    if dynamic.get("enabled") and type(dynamic.get("maxExecutors")) is not int:
        yield "spec.dynamicAllocation.maxExecutors", "must be given: it is what the queue is charged for"
    if value_at(obj, ("spec", "mode")) not in (None, "cluster", "in-cluster-client"):
        yield "spec.mode", "use cluster: the driver must be a pod"
    for role in _ROLES:
        name = value_at(obj, ("spec", role, "schedulerName"))
        if name not in (None, "", keys.SCHEDULER_NAME):
            yield f"spec.{role}.schedulerName", f"{name!r} does not place gangs of Atoll's; leave it out"


def _made(made: Json, _: Part) -> None:
    for role in _ROLES:
        set_at(made, ("spec", role, "schedulerName"), keys.SCHEDULER_NAME)
    # It would make a PodGroup of its own.
    remove_at(made, ("spec", "batchScheduler"))
    remove_at(made, ("spec", "batchSchedulerOptions"))


KIND = Templated(
    resource=ApiResource("sparkoperator.k8s.io", "v1beta2", "sparkapplications", "SparkApplication"),
    words=Words(
        title="SparkApplication",
        names=("sparkapplication", "sparkapplications", "sparkapp"),
        held="`spec.suspend`, which stays set",
        prefix="sparkapplication/",
        needs="the Spark operator, with its webhook",
    ),
    route="sparkapplications",
    pods="driver, executors (`maxExecutors` of dynamic ones)",
    order="the driver makes the executors: the member waits for it",
    components=_components,
    read=_read,
    pods_label="sparkoperator.k8s.io/app-name",
    switch=("spec", "suspend"),
    starts=lambda _: 1,
    problems=_problems,
    made=_made,
    told=_told,
    host_only=(("spec", "timeToLiveSeconds"),),
    placers=(Placer.ATOLL,),
)
