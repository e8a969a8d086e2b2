"""Admission of kinds that are replicated pod templates: taken over when they are created, their switch kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from atoll.admission import jsonpatch, pods, trust
from atoll.admission.problems import Json, Problem, added, mapping, unread_durations
from atoll.admission.rules import NOT_CONTROL, Change, Rules
from atoll.kinds import nearness
from atoll.kinds.metadata import default_queue, held
from atoll.kinds.templated import (
    DISPATCHED,
    Component,
    Path,
    Templated,
    condition_of,
    dotted,
    minimum_of,
    said,
    value_at,
)
from atoll.model import keys
from atoll.model.gang import MOST_PODS
from atoll.model.objects import MALFORMED


def rules_of(kind: Templated) -> Rules:
    """What the webhook asks of this kind."""
    return Rules(
        route=kind.route,
        conditions=(NOT_CONTROL,),
        queue_field=f"metadata.labels[{keys.QUEUE_LABEL}]",
        templates=lambda obj: list(kind.templates(obj)),
        classes=lambda obj: [
            (f"{path}.spec.priorityClassName", trust.class_of(each)) for path, each in kind.templates(obj)
        ],
        defaults=lambda change: _taken_over(kind, change) if change.old is None else _kept(kind, change),
        problems=lambda change: _problems(kind, change),
        kept=lambda old, queue: _stays(kind, old, queue),
        warnings=lambda change: _warnings(kind, change.new),
        of_defaults=lambda change: [] if change.old is None else _undone(kind, change),
    )


def _others(kind: Templated, obj: Json) -> bool:
    """Whether another controller is named."""
    return bool(kind.manager) and value_at(obj, kind.manager) not in (None, keys.CONTROLLER)


def _taken_over(kind: Templated, change: Change) -> list[jsonpatch.Operation]:
    """The patch that takes a new workload over."""
    new = change.new
    spec, about = new.get("spec"), new.get("metadata")
    if not isinstance(spec, dict) or not isinstance(about, dict) or _others(kind, new):
        return []
    patch = []
    ours_before = bool(kind.manager) and value_at(new, kind.manager) == keys.CONTROLLER
    if kind.manager and not ours_before:
        patch += _set(new, kind.manager, keys.CONTROLLER)
    if kind.switch and not kind.is_suspended(new):
        patch += _set(new, kind.switch, kind.switched_off)
    elif kind.switch and not ours_before and not _as_with_kueue(new) and not held(new):
        # One that comes with our name was here before: it is Atoll that suspended it.
        patch += _set(new, ("metadata", "annotations", keys.HOLD), "true")
    if not mapping(about.get("labels")).get(keys.QUEUE_LABEL):
        queue = kind.queue_of(new, default=default_queue(change.namespace))
        patch += _set(new, ("metadata", "labels", keys.QUEUE_LABEL), queue)
    if kind.referred is not None and change.referred is not None:
        # The patch above may have brought the first annotation.
        at = ("metadata", "annotations", kind.referred.annotation)
        patch += _set(jsonpatch.applied(new, patch), at, kind.referred.written(change.referred))
    return patch


def _kept(kind: Templated, change: Change) -> list[jsonpatch.Operation]:
    """The patch of a change: the switch is Atoll's, and the queue stays written on the workload.

    A manifest that is applied again repeats its first value; where the switch follows the dispatch, a user who sets it
    wants the workload held.
    """
    old, new = change.old or {}, change.new
    if not kind.takes(old) or not isinstance(new.get("spec"), dict) or not isinstance(new.get("metadata"), dict):
        return []
    patch = []
    if _lifted(kind, old, new):
        patch += _set(new, kind.switch, kind.switched_off)
    elif kind.manager and kind.switch and not kind.is_suspended(old) and kind.is_suspended(new):
        if _as_with_kueue(new):
            patch += _set(new, kind.switch, kind.switched_on)
        elif not held(new):
            patch += _set(new, ("metadata", "annotations", keys.HOLD), "true")
    if not mapping(new["metadata"].get("labels")).get(keys.QUEUE_LABEL):
        queue = value_at(old, ("metadata", "labels", keys.QUEUE_LABEL))
        patch += _set(new, ("metadata", "labels", keys.QUEUE_LABEL), queue)
    if kind.referred is not None:
        at = ("metadata", "annotations", kind.referred.annotation)
        before = value_at(old, at)
        if before is not None and value_at(new, at) != before:
            patch += _set(jsonpatch.applied(new, patch), at, before)
    return patch


def _undone(kind: Templated, change: Change) -> list[Problem]:
    """Warnings about a change that `_kept` undoes."""
    old, new = change.old or {}, change.new
    if not kind.takes(old) or not _lifted(kind, old, new):
        return []
    return [Problem(dotted(kind.switch), f"stays {said(kind.switched_off)}: {_how_it_starts(kind, new)}")]


def _problems(kind: Templated, change: Change) -> list[Problem]:
    new, old = change.new, change.old
    if old is None:
        if _others(kind, new):
            manager = value_at(new, kind.manager)
            text = f"{manager!r} would run the workload past its queue; leave it out, or use a namespace that is not"
            return [Problem(dotted(kind.manager), f"{text} Atoll's")]
        return _not_read(kind, change) or _wrong_with(kind, new)
    if not kind.takes(old):
        return []
    problems = added(_wrong_with(kind, old), _wrong_with(kind, new))
    if _lifted(kind, old, new):
        # The mutating webhook has set it again, unless the API server did not ask it.
        text = f"can't be set to {said(kind.switched_on)} by hand: {_how_it_starts(kind, new)}"
        problems.append(Problem(dotted(kind.switch), text))
    return problems


def _not_read(kind: Templated, change: Change) -> list[Problem]:
    """Why the referred object differs from the annotation on it."""
    referred = kind.referred
    if referred is None:
        return []
    if referred.of(change.new) is None:
        known = " or ".join(f"{each.kind} ({each.group})" for each in referred.resources)
        return [Problem(referred.field, f"must name a {known}: its pods are read from that")]
    if change.referred is None:
        return [Problem(referred.field, change.unread or "what it names can't be read")]
    if value_at(change.new, ("metadata", "annotations", referred.annotation)) != referred.written(change.referred):
        text = f"annotation {referred.annotation} is Atoll's to write, and it changed meanwhile; try again"
        return [Problem("metadata.annotations", text)]
    return []


def _wrong_with(kind: Templated, obj: Json) -> list[Problem]:
    """All that is wrong with it by itself."""
    if not isinstance(obj.get("spec"), dict):
        return []
    try:
        entire = kind.entire(obj)
        # A refusal by its kind has the reason, where missing parts hide its pods.
        problems = [Problem(field, text) for field, text in kind.problems(entire)]
    except ValueError as error:
        return [Problem("spec", str(error))]
    except MALFORMED as error:
        return [Problem("spec", f"can't be read: {type(error).__name__}: {error}")]
    try:
        components = kind.components(entire)
        minimum = minimum_of(obj)
    except ValueError as error:
        return problems or [Problem("spec", str(error))]
    except MALFORMED as error:
        return problems or [Problem("spec", f"can't be read: {type(error).__name__}: {error}")]
    count = sum(each.pods for each in components)
    if not components:
        problems.append(Problem("spec", f"a {kind.words.title} without pods would wait for ever; give it some"))
    if count > MOST_PODS:
        text = f"{count} pods; a workload gets at most {MOST_PODS}: make several of it"
        problems.append(Problem("spec", text))
    if minimum is not None and 0 < count < minimum:
        text = f"annotation {keys.GROUP_MIN_MEMBER}: {minimum} is more than its {count} pods; lower it"
        problems.append(Problem("metadata.annotations", text))
    for path, template in kind.templates(obj):
        problems += trust.template_problems(template, path)
    return problems + _wrong_slices(kind, obj, components)


def _wrong_slices(kind: Templated, obj: Json, components: Sequence[Component]) -> list[Problem]:
    """Why slices that it asks for can't be made."""
    found: dict[tuple[str, str], None] = {}
    for each, holder, where in _holders(obj, kind.templates(obj), components):
        found |= dict.fromkeys(nearness.wrong(holder, where, each.pods))
        for key in (nearness.SLICE_LEVEL, nearness.SLICE_LAYERS) if kind.sets else ():
            if nearness.says(holder, key):
                text = f"can't be on a {kind.words.title}, whose groups of pods are slices: use {nearness.REQUIRED}"
                found[nearness.field(where, key), text] = None
    return [Problem(*each) for each in found]


def _warnings(kind: Templated, obj: Json) -> list[Problem]:
    problems = [*unread_durations(obj), *(Problem(field, text) for field, text in kind.warnings(obj))]
    problems += [Problem(*each) for each in nearness.without_effect(obj)]
    holders = (obj, *(template for _, template in kind.templates(obj)))
    problems += [Problem(*each) for each in nearness.without_groups(holders, lambda: kind.gang(obj, priority=0))]
    for path, template in kind.templates(obj):
        problems += pods.template_warnings(template, path)
        problems += [Problem(*each) for each in nearness.without_effect(template, path)]
    return problems + _without_index(kind, obj)


def _without_index(kind: Templated, obj: Json) -> list[Problem]:
    """Slices that it asks for of pods that have no index."""
    # None where it can't be read.
    templates = kind.templates(obj)
    components = [each for each in kind.components(kind.entire(obj)) if each.unnumbered] if templates else []
    found: dict[tuple[str, str], None] = {}
    for each, holder, where in _holders(obj, templates, components):
        found |= dict.fromkeys(nearness.without_index(holder, where, each.unnumbered))
    return [Problem(*each) for each in found]


def _holders(
    obj: Json, templates: Sequence[tuple[str, object]], components: Sequence[Component]
) -> Iterator[tuple[Component, object, str]]:
    """(component, possible holder of annotations about its pods, its path)."""
    known = dict(templates)
    for each in components:
        path = dotted(each.template)
        yield each, obj, ""
        yield each, known.get(path), path


def _stays(kind: Templated, old: Json, queue: str) -> list[Problem]:
    """Why it may not go to another queue now: the one that it is in is charged for it."""
    status = mapping(old.get("status"))
    if condition_of(status, DISPATCHED) is None or kind.finished(status) is not None:
        return []
    name = f"{kind.words.names[0]}/{mapping(old.get('metadata')).get('name')}"
    text = (
        f"it runs and stays in queue {queue!r}, which is charged for it: hold it first (`atollctl job hold {name}`),"
        " then move it (`atollctl job move`)"
    )
    return [Problem(f"metadata.labels[{keys.QUEUE_LABEL}]", text)]


def _how_it_starts(kind: Templated, obj: Json) -> str:
    name = f"{kind.words.names[0]}/{mapping(obj.get('metadata')).get('name')}"
    if held(obj):
        return f"it is held: release it with `atollctl job release {name}`, or remove annotation {keys.HOLD}"
    return f"it starts by itself when its queue has room (`atollctl explain {name}` tells what it waits for)"


def _lifted(kind: Templated, old: Json, new: Json) -> bool:
    return bool(kind.switch) and kind.is_suspended(old) and not kind.is_suspended(new)


def _as_with_kueue(obj: Json) -> bool:
    """Whether one that is suspended asks to be queued, not held: all manifests for Kueue come so."""
    return bool(mapping(mapping(obj.get("metadata")).get("labels")).get(keys.KUEUE_QUEUE_LABEL))


def _set(obj: Mapping[str, Any], path: Path, value: object) -> list[jsonpatch.Operation]:
    """The patch that sets a field, with the objects above it that are missing; empty where something else is there."""
    holder: Any = obj
    for depth, step in enumerate(path[:-1], 1):
        below = holder.get(step)
        if below is None:
            for name in reversed(path[depth:]):
                value = {name: value}
            return [jsonpatch.add(value, *path[:depth])]
        if not isinstance(below, dict):
            return []
        holder = below
    return [jsonpatch.add(value, *path)]
