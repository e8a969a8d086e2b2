"""Pods of groups and of no owner: held from running on the host when they are created, and kept so."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

from atoll.admission import jsonpatch, pods, trust
from atoll.admission.problems import LABEL_RULE, Json, Problem, added, is_label, mapping, sequence, unread_durations
from atoll.admission.rules import Rules
from atoll.kinds import nearness
from atoll.kinds.metadata import default_queue, names_queue_rule
from atoll.kinds.pod_group import GATE, GROUP, INDEX, KIND, MOST, TOTAL, index_of, total_of
from atoll.model import keys

_QUEUED: Final = (keys.KUEUE_QUEUE_LABEL, keys.QUEUE_LABEL)
"""Labels by which a new pod without an owner asks to be queued."""
MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation of a pod that a kubelet runs from a file."""
_TAKEN: Final = {
    "name": "a-pod-of-a-group-or-of-no-owner",
    "expression": (
        "[object, oldObject].exists(each, each != null && has(each.metadata.labels)"
        f' && "{GROUP}" in each.metadata.labels)'
        ' || (request.operation == "CREATE"'
        " && (!has(object.metadata.ownerReferences) || object.metadata.ownerReferences.size() == 0)"
        f" && (has(object.metadata.labels) && {list(_QUEUED)}.exists(each, each in object.metadata.labels)"
        f' || !(has(object.metadata.annotations) && "{MIRROR}" in object.metadata.annotations)'
        ' && (!has(object.spec.nodeName) || object.spec.nodeName == "")))'
        f' || (request.operation == "UPDATE" && {names_queue_rule("object")} && !{names_queue_rule("oldObject")})'
    ),
}
"""Others are their owners' business, or are on a node of the host already and ask for no queue. One that asks for it
later gets a refusal that it is too late.
"""
_PATH: Final = "pod"
"""What stands before the fields of the pod, which is checked as a template is."""
_LABEL: Final = 63
"""Characters of the value of a label."""


def default_pod(pod: Json, namespace: dict[str, str]) -> list[jsonpatch.Operation]:
    """The patch that gates a new pod and stamps its queue; one of no group is a group of its own."""
    spec, metadata = pod.get("spec"), mapping(pod.get("metadata"))
    if not isinstance(spec, dict) or any(
        not isinstance(metadata.get(field), dict | None) for field in ("labels", "annotations")
    ):
        # The schema refuses another type.
        return []
    gates = sequence(spec.get("schedulingGates"))
    patch = []
    if _alone(pod):
        name = _group_name(metadata)
        if metadata.get("labels") is None:
            patch.append(jsonpatch.add({GROUP: name}, "metadata", "labels"))
        else:
            patch.append(jsonpatch.add(name, "metadata", "labels", GROUP))
        if metadata.get("annotations") is None:
            patch.append(jsonpatch.add({TOTAL: "1"}, "metadata", "annotations"))
        else:
            patch.append(jsonpatch.add("1", "metadata", "annotations", TOTAL))
    if not _gated(pod):
        patch.append(jsonpatch.add([*gates, {"name": GATE}], "spec", "schedulingGates"))
    labels = mapping(metadata.get("labels"))
    if not labels.get(keys.QUEUE_LABEL):
        queue = KIND.queue_of(pod, default=default_queue(namespace))
        patch.append(jsonpatch.add(queue, "metadata", "labels", keys.QUEUE_LABEL))
    return patch


def _slices(pod: Json) -> list[Problem]:
    """Indices of pods decide the pods of a slice; a group without slices has no groups of pods."""
    notes = mapping(mapping(pod.get("metadata")).get("annotations"))
    slices = next((key for key in (nearness.SLICE_LEVEL, nearness.SLICE_LAYERS) if key in notes), None)
    if keys.APART in notes and slices is None:
        text = "has no effect on a pod group without slices; use podAntiAffinity or topology spread"
        return [Problem(f"metadata.annotations[{keys.APART}]", text)]
    if slices is None or index_of(pod) is not None:
        return []
    text = f"has no effect unless each pod of the group has its index, such as label {INDEX}: 0"
    return [Problem(f"metadata.annotations[{slices}]", text)]


def _alone(pod: Json) -> bool:
    """Whether a new pod is of no group and no owner, and must be queued or placed."""
    metadata = mapping(pod.get("metadata"))
    labels = mapping(metadata.get("labels"))
    if GROUP in labels or metadata.get("ownerReferences"):
        return False
    running = mapping(pod.get("spec")).get("nodeName") or MIRROR in mapping(metadata.get("annotations"))
    return not running or any(labels.get(each) for each in _QUEUED)


def _group_name(metadata: Json) -> str:
    """Of a pod's group of one: its own name, or one like it where that is too long or not made yet."""
    name = str(metadata.get("name") or "").replace(".", "-")
    if not name:
        return f"{_stem(metadata.get('generateName'))}-{secrets.token_hex(4)}"
    return name if len(name) <= _LABEL else f"{_stem(name)}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _stem(name: object) -> str:
    return str(name or "pod").replace(".", "-")[: _LABEL - 9].strip("-") or "pod"


def validate_pod(pod: Json) -> list[Problem]:
    """Everything that is wrong with a pod of a group, except for the state of its queue."""
    problems = []
    name = mapping(mapping(pod.get("metadata")).get("labels")).get(GROUP)
    if not is_label(name):
        problems.append(Problem(f"metadata.labels[{GROUP}]", f"{name!r} can't name a group; {LABEL_RULE}"))
    total = total_of(pod)
    if not total or total > MOST:
        text = f"must say how many pods the group has, between 1 and {MOST}; use a Job for more"
        problems.append(Problem(f"metadata.annotations[{TOTAL}]", text))
    problems += (Problem(*each) for each in nearness.wrong(pod, pods=total or 0))
    return problems + list(trust.template_problems(pod, _PATH))


def validate_update(old: Json, new: Json) -> list[Problem]:
    """Everything that is wrong with a change of a pod that is of a group, or was."""
    before, now = (mapping(mapping(each.get("metadata")).get("labels")).get(GROUP) for each in (old, new))
    if before != now:
        text = "can't be set or changed on a pod that exists: create another one"
        return [Problem(f"metadata.labels[{GROUP}]", text)]
    problems = added(validate_pod(old), validate_pod(new))
    if total_of(old) != total_of(new):
        text = "can't be changed: delete the pods of the group and create them anew"
        problems.append(Problem(f"metadata.annotations[{TOTAL}]", text))
    if _gated(old) and not _gated(new):
        text = f"gate {GATE} stays: the pod runs in a member, once its group has room"
        text += f" (`atollctl explain pod-group/{now}`)"
        problems.append(Problem("spec.schedulingGates", text))
    return problems


def _kept(old: Json, queue: str) -> list[Problem]:
    if mapping(old.get("status")).get("phase") != "Running":
        return []
    text = f"the group runs and stays in queue {queue!r}, which is charged for it"
    return [Problem(f"metadata.labels[{keys.QUEUE_LABEL}]", text)]


def _template(pod: Json) -> Json:
    return {"metadata": pod.get("metadata"), "spec": pod.get("spec")}


def _gated(pod: Json) -> bool:
    gates = sequence(mapping(pod.get("spec")).get("schedulingGates"))
    return any(mapping(gate).get("name") == GATE for gate in gates)


ADMISSION: Final = Rules(
    route="grouped-pods",
    conditions=(_TAKEN,),
    queue_field=f"metadata.labels[{keys.QUEUE_LABEL}]",
    templates=lambda pod: [(_PATH, _template(pod))],
    classes=lambda pod: [("spec.priorityClassName", trust.class_of(pod))],
    defaults=lambda change: default_pod(change.new, dict(change.namespace)) if change.old is None else [],
    problems=lambda change: validate_pod(change.new) if change.old is None else validate_update(change.old, change.new),
    kept=_kept,
    warnings=lambda change: [
        *unread_durations(change.new),
        *pods.template_warnings(_template(change.new), _PATH),
        *(Problem(*each) for each in nearness.without_effect(change.new)),
        *_slices(change.new),
    ],
    insecure_told=False,
)
