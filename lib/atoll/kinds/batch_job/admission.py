"""batch/v1 Jobs: suspended and taken over when they are created, and who may move their suspend switch.

Pure functions: facts about queues and namespaces are arguments. A Job that another controller manages is
refused; one that was made before its namespace opted in is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from atoll.admission import jsonpatch, pods, trust
from atoll.admission.problems import Json, Problem, added, integer, mapping, unread_durations
from atoll.admission.rules import NOT_ANOTHERS, NOT_CONTROL, Change, Rules
from atoll.kinds import nearness
from atoll.kinds.batch_job import KIND, indexed, minimum_of
from atoll.kinds.metadata import default_queue
from atoll.model import keys
from atoll.model.gang import MOST_PODS


def default_job(job: Json, namespace_annotations: Mapping[str, str]) -> list[jsonpatch.Operation]:
    """The patch that takes a new Job over; empty for one that is not to be.

    Args:
        job: as sent; wrong types are left to the schema.
        namespace_annotations: of the Job's namespace, which may name a default queue.
    """
    spec, metadata = job.get("spec"), job.get("metadata")
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        return []
    if spec.get("managedBy") not in (None, keys.CONTROLLER):
        return []
    patch = []
    if spec.get("managedBy") is None:
        patch.append(jsonpatch.add(keys.CONTROLLER, "spec", "managedBy"))
    if spec.get("suspend") is True and patch and not _queued_as_with_kueue(job):
        # One that comes with our managedBy was here before: it is we who suspended it, unless its annotation says more.
        patch += _with_entry(metadata, "annotations", keys.HOLD, "true")
    elif spec.get("suspend") is not True:
        patch.append(jsonpatch.add(True, "spec", "suspend"))
    if not mapping(metadata.get("labels")).get(keys.QUEUE_LABEL):
        queue = KIND.queue_of(job, default=default_queue(namespace_annotations))
        patch += _with_entry(metadata, "labels", keys.QUEUE_LABEL, queue)
    return patch


def keep_switch(old: Json, new: Json, user: str) -> list[jsonpatch.Operation]:
    """The patch of a change: whoever suspends a Job that may run wants it held; but a manifest that is applied again
    repeats the value of the Job's creation, and that has no effect.
    """
    if user == keys.CONTROL_ACCOUNT or not KIND.takes(old) or not isinstance(new.get("spec"), dict):
        return []
    if _lifts(old, new):
        return [jsonpatch.add(True, "spec", "suspend")]
    if _suspended(old) or not _suspended(new):
        return []
    if _queued_as_with_kueue(new):
        return [jsonpatch.add(False, "spec", "suspend")]
    metadata = new.get("metadata")
    return _with_entry(metadata, "annotations", keys.HOLD, "true") if isinstance(metadata, dict) else []


def switch_warnings(old: Json, new: Json, user: str) -> list[Problem]:
    """Warnings about a change whose suspend switch has no effect."""
    if user == keys.CONTROL_ACCOUNT or not KIND.takes(old):
        return []
    if _lifts(old, new):
        return [Problem("spec.suspend", f"stays true: {_how_it_starts(new)}")]
    if not _suspended(old) and _suspended(new) and _queued_as_with_kueue(new):
        name = mapping(new.get("metadata")).get("name")
        text = f"stays false: with label {keys.KUEUE_QUEUE_LABEL} it only says that the Job is queued, which it was"
        return [Problem("spec.suspend", f"{text}; to stop it: atollctl job hold job.batch/{name}")]
    return []


def validate_job(job: Json) -> list[Problem]:
    """Everything that is wrong with a Job that is ours, except for the state of its queue."""
    problems, at_once = [], _pods(job)
    try:
        minimum_of(job)
    except (ValueError, AttributeError) as error:
        problems.append(Problem("metadata.annotations", str(error)))
    if at_once > MOST_PODS:
        text = f"{at_once} pods would run at once; a Job gets at most {MOST_PODS}: lower it, or make several Jobs of it"
        problems.append(Problem("spec.parallelism", text))
    template = mapping(job.get("spec")).get("template")
    for holder, path in ((job, ""), (template, "spec.template")):
        problems += (Problem(*each) for each in nearness.wrong(holder, path, at_once))
    problems += trust.template_problems(template, "spec.template")
    return problems


def validate_job_update(old: Json, new: Json, user: str) -> list[Problem]:
    """Everything that is wrong with a change of a Job that is ours, except for the state of its queue."""
    problems = added(validate_job(old), validate_job(new))
    if user == keys.CONTROL_ACCOUNT or not _suspended(old) or _suspended(new):
        return problems
    # The mutating webhook has set it again, unless the API server did not ask it.
    return [*problems, Problem("spec.suspend", f"can't be set to false by hand: {_how_it_starts(new)}")]


def queue_change_problems(old: Json, queue: str) -> list[Problem]:
    """Why a Job may not go to another queue now: the one that it is in is charged for it."""
    if _suspended(old) or KIND.finished(mapping(old.get("status"))) is not None:
        return []
    name = mapping(old.get("metadata")).get("name")
    text = (
        f"the Job runs and stays in queue {queue!r}, which is charged for it: hold it first (`atollctl job hold"
        f" job.batch/{name}`), then move it (`atollctl job move`)"
    )
    return [Problem(f"metadata.labels[{keys.QUEUE_LABEL}]", text)]


def _how_it_starts(job: Json) -> str:
    name = mapping(job.get("metadata")).get("name")
    if mapping(mapping(job.get("metadata")).get("annotations")).get(keys.HOLD) == "true":
        return (
            f"the Job is held: release it with `atollctl job release {name}`, or remove annotation {keys.HOLD};"
            " it then starts when its queue has room"
        )
    return f"the Job starts by itself when its queue has room (`atollctl explain job/{name}` tells what it waits for)"


def validate_new_job(job: Json) -> list[Problem]:
    """The same of a new Job, of which more pods can't have to start together than run at once: later that number may
    be lowered, and all of them start together then.
    """
    problems, at_once = validate_job(job), _pods(job)
    minimum = None if problems else minimum_of(job)
    if minimum is not None and 0 < at_once < minimum:
        text = (
            f"annotation {keys.GROUP_MIN_MEMBER}: {minimum} is more than the {at_once} pods that run at once; lower it,"
            " or raise parallelism"
        )
        problems.append(Problem("metadata.annotations", text))
    return problems


def warnings(job: Json) -> list[Problem]:
    """What of a Job that is ours has no effect."""
    if not KIND.takes(job):
        return []
    template = mapping(job.get("spec")).get("template")
    near = [
        *nearness.without_effect(job),
        *nearness.without_effect(template, "spec.template"),
        *nearness.without_groups((job, template), lambda: KIND.gang(job, priority=0)),
    ]
    if not indexed(mapping(job.get("spec"))):
        why = "pods of a Job have an index only with completionMode: Indexed"
        near += [*nearness.without_index(job, "", why), *nearness.without_index(template, "spec.template", why)]
    told = [Problem(*each) for each in near]
    return [
        *unread_durations(job, (keys.KUEUE_MINIMUM, keys.KUEUE_TIME)),
        *pods.template_warnings(template, "spec.template"),
        *told,
    ]


def _pods(job: Json) -> int:
    """How many run at once."""
    spec = mapping(job.get("spec"))
    parallelism, completions = integer(spec.get("parallelism")) or 0, integer(spec.get("completions"))
    return parallelism if completions is None else min(parallelism, completions)


def _suspended(job: Json) -> bool:
    return mapping(job.get("spec")).get("suspend") is True


def _lifts(old: Json, new: Json) -> bool:
    return _suspended(old) and not _suspended(new)


def _queued_as_with_kueue(job: Json) -> bool:
    """Whether a Job that is suspended asks to be queued, not held: all manifests for Kueue come so."""
    return bool(mapping(mapping(job.get("metadata")).get("labels")).get(keys.KUEUE_QUEUE_LABEL))


def _with_entry(metadata: Json, field: str, key: str, value: str) -> list[jsonpatch.Operation]:
    if metadata.get(field) is None:
        return [jsonpatch.add({key: value}, "metadata", field)]
    if not isinstance(metadata[field], dict) or metadata[field].get(key) == value:
        return []
    return [jsonpatch.add(value, "metadata", field, key)]


# -- for the webhook -------------------------------------------------------------------------------


def _problems(change: Change) -> list[Problem]:
    old, new = change.old, change.new
    if not KIND.takes(new):
        return list(trust.manager_problems(new)) if old is None else []
    return validate_new_job(new) if old is None else validate_job_update(old, new, change.user)


def _templates(job: Json) -> list[tuple[str, object]]:
    return [("spec.template", mapping(job.get("spec")).get("template"))]


ADMISSION: Final = Rules(
    route="batch-jobs",
    conditions=(NOT_ANOTHERS, NOT_CONTROL),
    queue_field=f"metadata.labels[{keys.QUEUE_LABEL}]",
    templates=_templates,
    classes=lambda job: [(f"{path}.spec.priorityClassName", trust.class_of(each)) for path, each in _templates(job)],
    defaults=lambda change: (
        default_job(change.new, change.namespace)
        if change.old is None
        else keep_switch(change.old, change.new, change.user)
    ),
    problems=_problems,
    kept=queue_change_problems,
    warnings=lambda change: warnings(change.new),
    of_defaults=lambda change: [] if change.old is None else switch_warnings(change.old, change.new, change.user),
    insecure_told=False,
)
