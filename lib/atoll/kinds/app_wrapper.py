"""The AppWrapper: objects of any kind that are made together, with the pod templates that it names in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from atoll.kinds import apps, job_set, kubeflow, leader_worker_set, nearness, ray, spark
from atoll.kinds.interface import Outcome, Words
from atoll.kinds.templated import Component, Path, Reading, Templated, count_at, value_at
from atoll.model.apiresource import ApiResource
from atoll.model.objects import MALFORMED

_COMPONENTS = ("spec", "components")
_ENDS = {"Succeeded": Outcome.SUCCEEDED, "Failed": Outcome.FAILED}
_KNOWN: Mapping[tuple[str, str], tuple[Path, Path]] = {
    ("batch/v1", "Job"): (("spec", "template"), ("spec", "parallelism")),
    ("apps/v1", "Deployment"): (("spec", "template"), ("spec", "replicas")),
    ("apps/v1", "StatefulSet"): (("spec", "template"), ("spec", "replicas")),
    ("v1", "Pod"): ((), ()),
}
"""Wrapped kind -> paths of its pod template and of its number of pods."""


_ORDERED: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], int | None]] = {
    (kind.resource.api_version, kind.resource.kind): kind.starts
    for kind in (apps.STATEFUL_SET, job_set.KIND, leader_worker_set.KIND, spark.KIND, *kubeflow.KINDS)
    if kind.starts is not None
}
"""Wrapped kind -> how many of its pods are made before the others."""

_TEMPLATED: Mapping[tuple[str, str], Templated] = {
    (kind.resource.api_version, kind.resource.kind): kind
    for kind in (apps.DEPLOYMENT, apps.STATEFUL_SET, job_set.KIND, spark.KIND, *kubeflow.KINDS, *ray.KINDS)
}
"""Wrapped kinds for which it is known whether pods have an index."""


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
    """Pods that are made first, where the wrapped object makes others after them."""
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
        _component(f"component-{index}-{number}", pods, path, value_at(obj, (*_COMPONENTS, index, "template")) or {})
        for index, _ in enumerate(value_at(obj, _COMPONENTS) or ())
        for number, (pods, path) in enumerate(_sets(obj, index))
    ]


def _component(name: str, pods: int, path: Path, wrapped: Mapping[str, Any]) -> Component:
    """What the wrapped kind says of the index of its pods holds here as well."""
    version, kind = str(wrapped.get("apiVersion")), str(wrapped.get("kind"))
    ranks, unnumbered = 0, f"it is not known that pods of a {kind} ({version}) have one"
    if (version, kind) == ("batch/v1", "Job"):
        indexed = value_at(wrapped, ("spec", "completionMode")) == "Indexed"
        unnumbered = "" if indexed else "pods of a Job have one with completionMode: Indexed"
    elif (known := _TEMPLATED.get((version, kind))) is not None:
        at = (*_COMPONENTS, path[2], "template")
        try:
            found = next((each for each in known.components(wrapped) if (*at, *each.template) == path), None)
        except (*MALFORMED, ValueError):
            # Its own controller reports its problems.
            found = None
        if found is not None:
            ranks, unnumbered = found.ranks, found.unnumbered
    return Component(name=name, pods=pods, template=path, ranks=ranks, unnumbered=unnumbered)


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


def _warnings(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Warnings about nearness on its pod sets, which belongs on their templates."""
    components = value_at(obj, _COMPONENTS)
    for index, each in enumerate(components if isinstance(components, list) else ()):
        for field in ("podSets", "declaredPodSets"):
            sets = value_at(each, (field,))
            for number, said in enumerate(sets if isinstance(sets, list) else ()):
                for key in nearness.topology_of([{"metadata": said}]):
                    path = f"spec.components[{index}].{field}[{number}].annotations[{key}]"
                    yield path, "has no effect here: give it to the pod template"


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
    warnings=_warnings,
    host_only=(("spec", "managedBy"),),
)
