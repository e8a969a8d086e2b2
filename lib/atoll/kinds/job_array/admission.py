"""JobArrays: rules that a schema can't express. The rules of Volcano Jobs hold for the Job of an index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from atoll.admission.problems import Json, Problem, integer, mapping, sequence
from atoll.admission.rules import Change, Rules
from atoll.kinds.job_array import TEMPLATE, indices_of, job_of
from atoll.kinds.templated import value_at
from atoll.kinds.templated.admission import rules_of
from atoll.kinds.volcano_job import admission as of_job
from atoll.model import keys
from atoll.model.array_states import MOST_AT_ONCE, MOST_RETRIES, count_of

if TYPE_CHECKING:
    from atoll.kinds.job_array import JobArray

_HERE: Final = "spec.template."
_LARGEST: Final = 64 * 1024
"""Bytes of a template."""
_MOST_ARGUMENTS: Final = 128 * 1024
"""Bytes of all arguments as JSON: each report of a member has them written again on the host."""
_REFUSED: Final = {
    "queue": f"the queue is the array's: label {keys.QUEUE_LABEL} of the JobArray",
    "ttlSecondsAfterFinished": "Jobs of indices are removed as they end; give it to the spec of the JobArray",
}


def rules(kind: JobArray) -> Rules:
    """Rules of replicated pod templates, and of a Volcano Job for its Job."""
    shared = rules_of(kind)
    return replace(
        shared,
        classes=lambda obj: [
            (f"{_HERE}spec.priorityClassName", value_at(obj, (*TEMPLATE, "priorityClassName"))),
            *shared.classes(obj),
        ],
        problems=lambda change: _unique([*shared.problems(change), *_changed(change)]),
        warnings=lambda change: _unique([*shared.warnings(change), *_idle(change.new)]),
    )


def _unique(problems: list[Problem]) -> list[Problem]:
    return list(dict.fromkeys(problems))


def wrong(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(field, problem) of the indices and of the Job of one of them."""
    spec = mapping(obj.get("spec"))
    try:
        runs = indices_of(obj)
        largest = runs[-1][-1]
    except ValueError as error:
        yield "spec.indices", str(error)
        return
    for field, least, most in (("atOnce", 1, MOST_AT_ONCE), ("retries", 0, MOST_RETRIES)):
        value = spec.get(field)
        if value is not None and not (integer(value) is not None and least <= value <= most):
            yield f"spec.{field}", f"is {value}; use a whole number from {least} to {most}"
    if (size := len(msgspec.json.encode(spec.get("template")))) > _LARGEST:
        yield "spec.template", f"has {size} bytes, and each running index gets a copy: at most {_LARGEST}"
    if (arguments := spec.get("arguments")) is not None:
        if len(sequence(arguments)) != (count := count_of(runs)):
            yield "spec.arguments", f"has {len(sequence(arguments))} texts for {count} indices: one for each"
        if (size := len(msgspec.json.encode(arguments))) > _MOST_ARGUMENTS:
            yield "spec.arguments", f"has {size} bytes; at most {_MOST_ARGUMENTS}: make several arrays, or read a file"
    inner = mapping(value_at(obj, TEMPLATE))
    for field, text in _REFUSED.items():
        if inner.get(field) is not None:
            yield f"{_HERE}spec.{field}", text
    for index, volume in enumerate(sequence(inner.get("volumes"))):
        if mapping(volume).get("volumeClaim"):
            text = "each index would get a claim of its own, which outlives it; name one with volumeClaimName"
            yield f"{_HERE}spec.volumes[{index}].volumeClaim", text
    for index, task in enumerate(sequence(inner.get("tasks"))):
        if mapping(task).get("partitionPolicy"):
            text = "is not served in an array: an index is the group of pods that is placed together"
            yield f"{_HERE}spec.tasks[{index}].partitionPolicy", text
    about = mapping(obj.get("metadata"))
    name = str(about.get("name") or "") or f"{about.get('generateName') or ''}xxxxx"
    job = job_of({"metadata": {"name": f"{name}-{largest}"}, "spec": spec})
    for problem in of_job.validate_job(job):
        yield f"{_HERE}{problem.field}", problem.message


def _changed(change: Change) -> Iterator[Problem]:
    """Changed fields that give its states their meaning."""
    before, after = (mapping(mapping(each).get("spec")) for each in (change.old, change.new))
    for field in ("indices", "template", "arguments") if change.old is not None else ():
        if before.get(field) != after.get(field):
            text = "can't change after creation (atOnce and retries can): delete the JobArray and create it anew"
            yield Problem(f"spec.{field}", text)


def _idle(obj: Json) -> Iterator[Problem]:
    job = job_of({"metadata": {}, "spec": mapping(obj.get("spec"))})
    for problem in of_job.warnings(job):
        yield Problem(f"{_HERE}{problem.field}", problem.message)
