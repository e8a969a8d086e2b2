"""What the webhook asks of a workload kind: each kind gives one `Rules`, and the webhook goes through all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from atoll.admission.jsonpatch import Operation
from atoll.admission.problems import Json, Problem
from atoll.model import keys

NEW_SPEC: Final = {
    "name": "spec-is-new",
    "expression": (
        'request.operation != "UPDATE" || has(object.spec) != has(oldObject.spec)'
        " || (has(object.spec) && object.spec != oldObject.spec)"
    ),
}
"""Where defaults and rules are about the spec alone, and a change of anything else is never refused."""
_NOTES: Final = "metadata.annotations"
NEW_SPEC_OR_NOTES: Final = {
    "name": "spec-or-a-users-annotations-are-new",
    "expression": (
        f'{NEW_SPEC["expression"]} || (request.userInfo.username != "{keys.CONTROL_ACCOUNT}"'
        f" && (has(object.{_NOTES}) != has(oldObject.{_NOTES})"
        f" || (has(object.{_NOTES}) && object.{_NOTES} != oldObject.{_NOTES})))"
    ),
}
"""The same, where annotations that can't be read are warned of."""
NOT_ANOTHERS: Final = {
    "name": "not-one-that-another-controller-runs-already",
    "expression": (
        f'request.operation == "CREATE" || !has(object.spec.managedBy) || object.spec.managedBy == "{keys.CONTROLLER}"'
    ),
}
"""A new one is refused; one from before its namespace opted in goes on as it is."""
NOT_CONTROL: Final = {
    "name": "not-a-change-by-control",
    "expression": f'request.operation != "UPDATE" || request.userInfo.username != "{keys.CONTROL_ACCOUNT}"',
}
"""Objects that control creates go through the queue like others; its changes are of the suspend switch, all day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A write under review: a new object, or a change of one."""

    new: Json
    old: Json | None = None
    """None for a new object."""
    user: str = ""
    """Who asks."""
    namespace: Mapping[str, str]
    """Annotations of the object's namespace, which may name a default queue."""
    referred: Json | None = None
    """The object that a new workload refers to, where its kind reads one; None where it can't be read."""
    unread: str = ""
    """Why it can't, and what to do."""


def nothing(_: Change) -> list[Any]:
    """No problem, no warning, no patch."""
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Admission of a kind. All functions are pure; wrong types are left to the schema."""

    route: str
    """Name of its webhooks: `jobs` in `/validate/jobs` and `validate.jobs.atoll.sh`."""
    conditions: Sequence[Mapping[str, str]] = ()
    """Match conditions: objects without a review, besides the ones that never get one."""
    judged: Sequence[Mapping[str, str]] | None = None
    """The same for checks and warnings, where defaults ask about fewer objects; None for the same."""
    queue_field: str
    """The field that messages name where something is wrong with the queue."""
    templates: Callable[[Json], list[tuple[str, object]]]
    """(path, PodTemplateSpec) of all that pods are made from."""
    classes: Callable[[Json], list[tuple[str, object]]]
    """(field, priority class) of the workload and of its templates; None where a field names none."""
    defaults: Callable[[Change], list[Operation]]
    """The patch that fills in omitted fields, and takes a new workload over."""
    problems: Callable[[Change], list[Problem]]
    """All that is wrong with it by itself: not its queue, its classes' queue, its pods' security or its size."""
    kept: Callable[[Json, str], list[Problem]] = lambda _, __: []
    """Why this workload may not leave this queue now."""
    warnings: Callable[[Change], list[Problem]]
    """What of it has no effect."""
    of_defaults: Callable[[Change], list[Problem]] = nothing
    """Warnings about a change that `defaults` undoes."""
    networked: Callable[[Json], list[str]] = lambda _: []
    """Fields that need pods which reach each other, of a workload that may be divided over members."""
    insecure_told: bool = True
    """Whether its sender is warned of pods that the namespace's Pod Security warns of; the API server's own does that
    for the kinds that it knows.
    """
