"""Fields of a pod template that Kubernetes does not have: named, with the nearest that it has.

A Volcano Job's schema keeps whatever its templates say, and a member's API server drops what it does not know without a
word. Most such fields get a warning; a misplaced resource is refused, for the pod would run without it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from importlib import resources
from typing import Final, NamedTuple

from atoll.admission.problems import Json, Problem

_MOST = 20
"""Unknown fields that are looked at: spelling takes a while."""
_LONGEST = 63
_REQUIREMENTS: Final = "ResourceRequirements"
_OF_A_POD: Final = ("apiVersion", "kind", "status")
_AMOUNTS: Final = ("requests", "limits")
_PLAIN_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage", "storage")


def _read() -> tuple[str, dict[str, dict[str, str]]]:
    head, _, *lines = (resources.files(__package__) / "pod_fields.txt").read_text("utf-8").splitlines()
    types = {}
    for line in lines:
        name, *fields = line.split()
        types[name] = {field: kind for field, _, kind in (each.partition(":") for each in fields)}
    return head.partition("in Kubernetes ")[2].partition(",")[0], types


VERSION, TYPES = _read()
"""The Kubernetes version of the table; type -> field -> type of the object, or of the list's objects, or empty."""


class Unknown(NamedTuple):
    """A field that is not there."""

    problem: Problem
    resource: bool
    """Whether a resource was meant."""


def nearest(name: str, known: list[str]) -> str:
    """The known name that was most likely meant; empty where none is near."""
    lower = {each.lower(): each for each in known}
    if name.lower() in lower:
        return lower[name.lower()]
    found = difflib.get_close_matches(name[:_LONGEST].lower(), lower, n=1, cutoff=0.7)
    return lower[found[0]] if found else ""


def unknown_fields(template: object, path: str, kind: str = "PodTemplateSpec") -> list[Unknown]:
    """The fields of a template, and of all below it, that Kubernetes does not know; the first of them.

    Args:
        template: as sent.
        path: where it is in the object.
        kind: its type in `TYPES`.
    """
    found: list[Unknown] = []
    if isinstance(template, dict) and template.get("kind") == "Pod":
        # An object that wraps a Pod, not a template of one.
        template = {name: value for name, value in template.items() if name not in _OF_A_POD}
    for each in _walk(template, path, kind):
        found.append(each)
        if len(found) == _MOST:
            break
    return found


def _walk(value: object, path: str, kind: str) -> Iterator[Unknown]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, f"{path}[{index}]", kind)
    elif isinstance(value, dict):
        known = TYPES[kind]
        for name, inner in value.items():
            if name not in known:
                yield _judged(str(name), value, path, kind)
            elif known[name]:
                yield from _walk(inner, f"{path}.{name}", known[name])


def _judged(name: str, holder: Json, path: str, kind: str) -> Unknown:
    near, here = nearest(name, list(TYPES[kind])), f"{path}.{name}"
    is_resource = "/" in name or name in _PLAIN_RESOURCES
    if kind == _REQUIREMENTS:
        if near and not is_resource:
            return Unknown(Problem(here, f"is no field of resources; write {near}"), True)
        amount = holder[name]
        shown = f"{amount}" if isinstance(amount, str | int | float) else "1"
        text = f"stands beside requests and limits, where nothing reads it; write limits: {{{name}: {shown}}}"
        return Unknown(Problem(here, text), True)
    if "resources" in TYPES[kind] and (is_resource or name in _AMOUNTS):
        inside = f"limits: {{{name}: 1}}" if is_resource else f"{name}: {{}}"
        text = f"is no field here, so the pod would run without it; write resources: {{{inside}}}"
        return Unknown(Problem(here, text), True)
    if near == "resources":
        return Unknown(Problem(here, "is no field here, so the pod would run without it; write resources"), True)
    text = f"is no field that Kubernetes {VERSION} has, and has no effect"
    return Unknown(Problem(here, f"{text}; did you mean {near}?" if near else text), False)
