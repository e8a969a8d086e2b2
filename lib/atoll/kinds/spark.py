"""The SparkApplication: a driver, which makes its executors itself."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from atoll.kinds.interface import Json, Outcome, Part, Words
from atoll.kinds.templated import Component, Reading, Templated, remove_at, set_at, value_at
from atoll.model import keys, numbers, quantity
from atoll.model.apiresource import ApiResource
from atoll.model.placer import Placer

_ROLES = ("driver", "executor")
_MEMORY = re.compile(r"(\d+)([kmgtp]?)b?", re.IGNORECASE)
_UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_LEAST_OVERHEAD = 384 * 2**20
_ENDS = {"COMPLETED": Outcome.SUCCEEDED, "FAILED": Outcome.FAILED}
_SCALA = ("Scala", "Java")
_MOST = "spec.dynamicAllocation.maxExecutors"


def _memory(said: object, field: str, *, unit: str = "m") -> int:
    """Bytes of what Spark calls `512m`; a number alone is of `unit`: MiB, or bytes for `b`.

    Raises:
        ValueError: it can't be read.
    """
    found = _MEMORY.fullmatch(str(said))
    if found is None:
        raise ValueError(f"{field}: {said!r} is no amount of memory as Spark writes it, such as 512m or 4g")
    suffix = found[2].lower()
    if not suffix:
        suffix = "b" if str(said).lower().endswith("b") or unit == "b" else "m"
    return int(found[1]) * _UNITS[suffix]


def _conf(obj: Mapping[str, Any]) -> Mapping[str, str]:
    """`sparkConf`, which says what fields of the spec leave open."""
    return {str(name): str(value) for name, value in (value_at(obj, ("spec", "sparkConf")) or {}).items()}


def _pod(obj: Mapping[str, Any], role: str) -> Json:
    """Requests of its pods and their permitted nodes, as the operator and Spark make them of the spec, of `sparkConf`
    and of the pod template. Where two of these say an amount, the larger one counts.
    """
    spec, conf = value_at(obj, ("spec", role)) or {}, _conf(obj)
    pod = copy.deepcopy(value_at(spec, ("template", "spec")) or {})
    containers = list(pod.get("containers") or ())
    named = conf.get(f"spark.kubernetes.{role}.podTemplateContainerName")
    main = next((each for each in containers if each.get("name") == named), containers[0] if containers else {})
    others = [each for each in containers if each is not main]
    kept = {
        kind: {name: amount for name, amount in amounts.items() if name not in ("cpu", "memory")}
        for kind, amounts in (main.get("resources") or {}).items()
        if kind in ("requests", "limits") and isinstance(amounts, Mapping)
    }
    requests: Json = {**kept.get("limits", {}), **kept.get("requests", {}), **_devices(spec, conf, role)}
    requests |= {"cpu": str(_cores(spec, conf, role)), "memory": str(_bytes(obj, spec, conf, role))}
    pod["containers"] = [
        {"name": f"spark-{role}", "resources": {"requests": requests}},
        *others,
        *(spec.get("sidecars") or ()),
    ]
    if starting := [*(pod.get("initContainers") or ()), *(spec.get("initContainers") or ())]:
        pod["initContainers"] = starting
    for name in ("affinity", "tolerations", "priorityClassName", "serviceAccount", "hostNetwork"):
        if spec.get(name):
            pod["serviceAccountName" if name == "serviceAccount" else name] = spec[name]
    if selector := _selector(obj, spec, conf, role):
        pod["nodeSelector"] = {**(pod.get("nodeSelector") or {}), **selector}
    class_ = value_at(obj, ("spec", "batchSchedulerOptions", "priorityClassName"))
    return {**pod, "priorityClassName": class_} if class_ and "priorityClassName" not in pod else pod


def _selector(obj: Mapping[str, Any], spec: Mapping[str, Any], conf: Mapping[str, str], role: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for prefix in ("spark.kubernetes.node.selector.", f"spark.kubernetes.{role}.node.selector."):
        found |= {name.removeprefix(prefix): value for name, value in conf.items() if name.startswith(prefix)}
    return {**found, **(value_at(obj, ("spec", "nodeSelector")) or {}), **(spec.get("nodeSelector") or {})}


def _cores(spec: Mapping[str, Any], conf: Mapping[str, str], role: str) -> object:
    asked = [each for each in (spec.get("coreRequest"), conf.get(f"spark.kubernetes.{role}.request.cores")) if each]
    asked = asked or [each for each in (spec.get("cores"), conf.get(f"spark.{role}.cores")) if each] or [1]
    return max(asked, key=quantity.exact)


def _devices(spec: Mapping[str, Any], conf: Mapping[str, str], role: str) -> dict[str, str]:
    """Resource -> how many of it: of `gpu`, and of `spark.<role>.resource.<name>.amount` with its vendor."""
    found = {}
    prefix = f"spark.{role}.resource."
    for name, amount in conf.items():
        if name.startswith(prefix) and name.endswith(".amount"):
            device = name[len(prefix) : -len(".amount")]
            found[f"{conf.get(f'{prefix}{device}.vendor') or 'nvidia.com'}/{device}"] = amount
    if gpu := spec.get("gpu"):
        known, said = found.get(str(gpu["name"]), "0"), str(gpu["quantity"])
        found[str(gpu["name"])] = max(known, said, key=quantity.exact)
    return found


def _bytes(obj: Mapping[str, Any], spec: Mapping[str, Any], conf: Mapping[str, str], role: str) -> int:
    """Heap, overhead, and what an executor has outside its heap."""
    field = f"spec.{role}"

    def most(said: object, *names: str, otherwise: str | None = None) -> int | None:
        texts = [(said, f"{field}.{names[0].rpartition('.')[2]}"), *((conf.get(name), name) for name in names)]
        found = [_memory(text, where) for text, where in texts if text]
        return max(found) if found else None if otherwise is None else _memory(otherwise, field)

    heap = most(spec.get("memory"), f"spark.{role}.memory", otherwise="1g") or 0
    overhead = most(spec.get("memoryOverhead"), f"spark.{role}.memoryOverhead")
    if overhead is None:
        names = ("spark.kubernetes.memoryOverheadFactor", f"spark.{role}.memoryOverheadFactor")
        said = [value_at(obj, ("spec", "memoryOverheadFactor")), *(conf.get(name) for name in names)]
        factor = max([float(each) for each in said if each], default=0.1 if _jvm(obj) else 0.4)
        least = most(None, f"spark.{role}.minMemoryOverhead") or _LEAST_OVERHEAD
        overhead = max(math.ceil(heap * factor), least)
    if role == "driver":
        return heap + overhead
    outside = most(None, "spark.executor.pyspark.memory") or 0
    if conf.get("spark.memory.offHeap.enabled", "").lower() == "true":
        outside += _memory(conf.get("spark.memory.offHeap.size") or "0b", "spark.memory.offHeap.size", unit="b")
    return heap + overhead + outside


def _executors(obj: Mapping[str, Any]) -> int:
    """The most that there may be at once; admission refuses what nothing bounds.

    Raises:
        ValueError: a count can't be read.
    """
    conf, fixed = _conf(obj), value_at(obj, ("spec", "executor", "instances"))
    counts = [fixed, conf.get("spark.executor.instances")]
    if _dynamic(obj):
        of = value_at(obj, ("spec", "dynamicAllocation")) or {}
        names = ("maxExecutors", "initialExecutors", "minExecutors")
        counts += [value for name in names for value in (of.get(name), conf.get(f"spark.dynamicAllocation.{name}"))]
    given = [each for each in counts if each is not None]
    read = [numbers.whole(str(each)) for each in given]
    if any(each is None for each in read):
        raise ValueError(f"executors: {', '.join(map(str, given))}: whole numbers are wanted")
    return max([each for each in read if each is not None], default=1)


def _dynamic(obj: Mapping[str, Any]) -> bool:
    said = _conf(obj).get("spark.dynamicAllocation.enabled", "").lower() == "true"
    return said or bool(value_at(obj, ("spec", "dynamicAllocation", "enabled")))


def _jvm(obj: Mapping[str, Any]) -> bool:
    return value_at(obj, ("spec", "type")) in _SCALA


def _components(obj: Mapping[str, Any]) -> list[Component]:
    most = _executors(obj)
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
    return {
        **status,
        "driverInfo": {},
        "applicationState": {"state": "", "errorMessage": ": ".join(filter(None, (reason, message)))},
    }


def _problems(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    conf = _conf(obj)
    if _dynamic(obj):
        most = value_at(obj, ("spec", "dynamicAllocation", "maxExecutors"))
        if type(most) is not int and conf.get("spark.dynamicAllocation.maxExecutors") is None:
            yield _MOST, "must be given, there or in sparkConf: it is what the queue is charged for"
    for name in sorted(conf):
        if name.endswith(".podTemplateFile") or (name.startswith("spark.kubernetes.") and ".scheduler.name" in name):
            yield f"spec.sparkConf[{name}]", "pods that it would make are not known here: use driver and executor"
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
