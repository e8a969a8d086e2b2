"""PodGroups that pod templates of a workload name: what one says becomes the workload's own wishes.

In a member the pods keep the name; the agent makes a PodGroup of it there, with the minimum of the member's part, and
it goes with the last of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from atoll.admission import jsonpatch
from atoll.admission.problems import Json, mapping
from atoll.model import keys, numbers

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def named(templates: Iterable[tuple[str, object]]) -> str:
    """The PodGroup that the first template with one names; empty where none does."""
    found = (
        str(notes[key])
        for _, template in templates
        for notes in [mapping(mapping(mapping(template).get("metadata")).get("annotations"))]
        for key in keys.GROUP_NAMES
        if notes.get(key)
    )
    return next(found, "")


def wishes(
    workload: Json, group: Json, templates: Iterable[tuple[str, object]], *, created: bool
) -> list[jsonpatch.Operation]:
    """The patch by which a workload copies the wishes of its PodGroup that it lacks itself.

    Args:
        workload: as sent.
        group: the PodGroup.
        templates: (path, PodTemplateSpec) of the workload.
        created: it is new: only then it gets a queue and a priority class.
    """
    about, spec = workload.get("metadata"), mapping(group.get("spec"))
    if not isinstance(about, dict):
        return []
    notes = dict[str, str]()
    if isinstance(least := spec.get("minMember"), int) and least > 0:
        notes[keys.GROUP_MIN_MEMBER] = str(least)
    wish = mapping(spec.get("networkTopology"))
    if mode := wish.get("mode"):
        notes[keys.TOPOLOGY_MODE] = str(mode)
    if (tier := numbers.whole(str(wish.get("highestTierAllowed", "")))) is not None:
        notes[keys.HIGHEST_TIER] = str(tier)
    patch = [*_entries(about, "annotations", notes)]
    if created and (queue := spec.get("queue")):
        labels = mapping(about.get("labels"))
        if not {keys.QUEUE_LABEL, keys.KUEUE_QUEUE_LABEL} & labels.keys():
            patch += _entries(about, "labels", {keys.QUEUE_LABEL: str(queue)})
    if created and (name := spec.get("priorityClassName")):
        for path, template in templates:
            pod = mapping(template).get("spec")
            if isinstance(pod, dict) and not pod.get("priorityClassName"):
                patch.append(jsonpatch.add(name, *_steps(path), "spec", "priorityClassName"))
    return patch


def _entries(about: Json, field: str, entries: dict[str, str]) -> Iterator[jsonpatch.Operation]:
    known = about.get(field)
    missing = {key: value for key, value in entries.items() if key not in mapping(known)}
    if missing and not isinstance(known, dict):
        yield jsonpatch.add(missing, "metadata", field)
        return
    for key, value in missing.items():
        yield jsonpatch.add(value, "metadata", field, key)


def _steps(path: str) -> Iterator[Any]:
    for name, index in _STEP.findall(path):
        yield name or int(index)
