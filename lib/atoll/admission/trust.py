"""Fields that a tenant may not write into a workload: fields that would leave the queues, or take the system's.

Pure; each rule has its attack in `tests/attacks`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from atoll.admission.pod_resources import gpu_share_problems
from atoll.admission.problems import Json, Problem, integer, mapping
from atoll.model import hami, keys, spelling
from atoll.model.placer import SCHEDULERS

_OF_DEVICES = (
    keys.GPU_CARDS, keys.KOORDINATOR_DEVICES, *hami.WRITTEN, "volcano.sh/vgpu-ids-new",
    "volcano.sh/devices-to-allocate",
)  # fmt: skip
"""Annotations of pods by which nodes give devices."""


def template_problems(template: object, path: str) -> Iterator[Problem]:
    """Problems of a pod template of a workload of Atoll's.

    Args:
        template: a PodTemplateSpec.
        path: where it is in the object.
    """
    spec = mapping(mapping(template).get("spec"))
    if spec.get("nodeName"):
        text = "can't be given: the pod would pass by its gang, its queue and the node's taints; use a nodeSelector"
        yield Problem(f"{path}.spec.nodeName", text)
    yield from scheduler_problems(spec.get("schedulerName"), f"{path}.spec.schedulerName")
    yield from class_problems(spec.get("priorityClassName"), f"{path}.spec.priorityClassName")
    yield from gpu_share_problems(template, path)
    for key in mapping(mapping(mapping(template).get("metadata")).get("annotations")):
        if key in _OF_DEVICES:
            text = "can't be given: the placer writes which devices pods get"
            yield Problem(f"{path}.metadata.annotations[{key}]", text)
    if mapping(mapping(template).get("metadata")).get("finalizers"):
        text = (
            "can't be given: a pod that waits for another program keeps its node from others for ever; leave them out"
        )
        yield Problem(f"{path}.metadata.finalizers", text)


def slow_to_end(templates: Iterable[tuple[str, object]], most: int, queue: str) -> Iterator[Problem]:
    """Templates whose pods may take longer to end than their queue allows, to warn of.

    Args:
        templates: (path, PodTemplateSpec) of a workload.
        most: seconds.
        queue: that it goes to.
    """
    for path, template in templates:
        asked = integer(mapping(mapping(template).get("spec")).get("terminationGracePeriodSeconds")) or 0
        if asked > most:
            field = f"{path}.spec.terminationGracePeriodSeconds"
            yield Problem(
                field, f"is {asked}; in members it is {most}, as pods of queue {queue!r} must go in that time"
            )


def scheduler_problems(name: object, field: str) -> Iterator[Problem]:
    """Problems of the scheduler that a workload or its template names; None where it names none."""
    if name is not None and name not in SCHEDULERS:
        text = f"{name!r} does not place gangs of Atoll's; leave it out, and the member's placer does"
        yield Problem(field, text)


def class_problems(name: object, field: str) -> Iterator[Problem]:
    """Problems of a priority class, for any queue."""
    if isinstance(name, str) and name.startswith("system-"):
        yield Problem(field, f"{name!r} is for the components of a cluster; use a class of your own")


def classes_allowed(annotations: Mapping[str, str]) -> list[str] | None:
    """The priority classes that a queue allows, by its annotations; None for any."""
    text = annotations.get(keys.PRIORITY_CLASSES)
    return None if text is None else [each.strip() for each in text.split(",") if each.strip()]


def not_allowed(names: Iterable[tuple[str, object]], queue: str, allowed: list[str] | None) -> Iterator[Problem]:
    """Priority classes that a queue does not allow.

    Args:
        names: (field, class) of a workload; a field without a class is left out.
        queue: that it goes to.
        allowed: see `classes_allowed`.
    """
    for field, name in names:
        if allowed is not None and isinstance(name, str) and name and name not in allowed:
            text = f"queue {queue!r} does not allow class {name!r}; use {_listed(allowed)}, or another queue"
            yield Problem(field, text)


def unknown_classes(names: Iterable[tuple[str, object]], known: Collection[str]) -> Iterator[Problem]:
    """Priority classes that are not on the host, to warn of: a member may have them.

    Args:
        names: (field, class) of a workload; a field without a class is left out.
        known: names of the host's classes.
    """
    for field, name in names:
        if isinstance(name, str) and name and name not in known:
            own = [each for each in known if not each.startswith("system-")]
            text = f"class {name!r} does not exist on the host: members without it refuse the pods; create it, or name"
            yield Problem(field, f"{text} another{spelling.meant(name, own)}")


def class_of(template: object) -> object:
    """The priority class that a pod template names; None where it names none."""
    return mapping(mapping(template).get("spec")).get("priorityClassName")


def manager_problems(job: Json) -> Iterator[Problem]:
    """Whether a new batch Job would be run by another controller than Atoll's."""
    manager = mapping(job.get("spec")).get("managedBy")
    if manager not in (None, keys.CONTROLLER):
        text = f"{manager!r} would run the Job past its queue; leave it out, or use a namespace that is not Atoll's"
        yield Problem("spec.managedBy", text)


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"
