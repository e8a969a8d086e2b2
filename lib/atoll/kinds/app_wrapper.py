"""The AppWrapper: objects of any kind that are made together, with the pod templates that it names in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from atoll.kinds import apps, job_set, kubeflow, leader_worker_set, spark
from atoll.kinds.interface import Outcome, Words
from atoll.kinds.templated import Component, Path, Reading, Templated, count_at, value_at
from atoll.model.apiresource import ApiResource

_COMPONENTS = ("spec", "components")
_ENDS = {"Succeeded": Outcome.SUCCEEDED, "Failed": Outcome.FAILED}
_KNOWN: Mapping[tuple[str, str], tuple[Path, Path]] = {
    ("batch/v1", "Job"): (("spec", "template"), ("spec", "parallelism")),
    ("apps/v1", "Deployment"): (("spec", "template"), ("spec", "replicas")),
    ("apps/v1", "StatefulSet"): (("spec", "template"), ("spec", "replicas")),
    ("v1", "Pod"): ((), ()),
}
"""What is wrapped -> paths of its pod template and of its number of pods."""


_ORDERED: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], int | None]] = {
    (kind.resource.api_version, kind.resource.kind): kind.starts
    for kind in (apps.STATEFUL_SET, job_set.KIND, leader_worker_set.KIND, spark.KIND, *kubeflow.KINDS)
    if kind.starts is not None
}
"""What is wrapped -> how many of its pods are made before the others."""


def _sets(obj: Mapping[str, Any], index: int) -> Iterator[tuple[int, Path]]:
    """(pods, path of the template) of one wrapped object: as it says, else by its kind."""
    at = (*_COMPONENTS, index)
    said = value_at(obj, (*at, "podSets")) or value_at(obj, (*at, "declaredPodSets"))
    if said:
        for number, each in enumerate(said):
            steps = str(each["path"]).replace("[", ".").replace("]", "").split(".")
            inside = tuple(int(step) if step.isdecimal() else step for step in steps if step)
            yield count_at(obj, *at, "podSets", number, "replicas"), (*at, *inside)
        return
    wrapped = value_at(obj, (*at, "template")) or {}
    known = _KNOWN.get((str(wrapped.get("apiVersion")), str(wrapped.get("kind"))))
    if known is not None:
        template, count = known
        yield (count_at(obj, *at, "template", *count) if count else 1), (*at, "template", *template)


def _starts(obj: Mapping[str, Any]) -> int | None:
    """Pods that are made first, where what is wrapped makes others after them."""
    total, all_of_them = 0, 0
    for index, each in enumerate(value_at(obj, _COMPONENTS) or ()):
        pods = sum(count for count, _ in _sets(obj, index))
        wrapped = each.get("template") or {}
        starts = _ORDERED.get((str(wrapped.get("apiVersion")), str(wrapped.get("kind"))))
        first = starts(wrapped) if starts is not None and pods else None
        total, all_of_them = total + (pods if first is None else min(first, pods)), all_of_them + pods
    return total if total < all_of_them else None


def _components(obj: Mapping[str, Any]) -> list[Component]:
    return [
        Component(name=f"component-{index}-{number}", pods=pods, template=path)
        for index, _ in enumerate(value_at(obj, _COMPONENTS) or ())
        for number, (pods, path) in enumerate(_sets(obj, index))
    ]


def _problems(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for index, each in enumerate(value_at(obj, _COMPONENTS) or ()):
        field = f"spec.components[{index}]"
        found = list(_sets(obj, index))
        wrapped = each.get("template") or {}
        for _, path in found:
            if not isinstance(value_at(obj, path), Mapping):
                yield f"{field}.podSets", f"there is no pod template at {'.'.join(map(str, path[3:]))}"
        if not found and value_at(wrapped, ("spec", "template", "spec", "containers")) is not None:
            kind = f"{wrapped.get('kind')} ({wrapped.get('apiVersion')})"
            yield f"{field}.podSets", f"must be given: Atoll does not know where a {kind} has its pods"
        if (value_at(wrapped, ("metadata", "namespace")) or None) not in (
            None,
            value_at(obj, ("metadata", "namespace")),
        ):
            yield f"{field}.template.metadata.namespace", "must be the AppWrapper's own; leave it out"


def _read(status: Mapping[str, Any]) -> Reading:
    phase = str(status.get("phase") or "")
    return Reading(
        state=phase,
        running=1 if phase == "Running" else 0,
        outcome=_ENDS.get(phase),
        ended=next((each.get("lastTransitionTime") for each in reversed(status.get("conditions") or ())), None)
        if phase in _ENDS
        else None,
        suspended=phase == "Suspended",
        known=bool(phase),
        pods=False,
    )


KIND = Templated(
    resource=ApiResource("workload.codeflare.dev", "v1beta2", "appwrappers", "AppWrapper"),
    words=Words(
        title="AppWrapper",
        names=("appwrapper", "appwrappers"),
        held="`spec.suspend`, which stays set",
        prefix="appwrapper/",
        needs="the AppWrapper controller, and those of what is wrapped",
    ),
    route="appwrappers",
    pods="`podSets` of what it wraps, or what Jobs, Deployments, StatefulSets and Pods have",
    components=_components,
    read=_read,
    pods_label="workload.codeflare.dev/appwrapper",
    order="as what it wraps: StatefulSets, JobSets, LeaderWorkerSets, SparkApplications, MPIJobs",
    starts=_starts,
    switch=("spec", "suspend"),
    problems=_problems,
    host_only=(("spec", "managedBy"),),
)
