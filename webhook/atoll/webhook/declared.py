"""Admission of WorkloadKinds, and of the workloads of kinds that they declare."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from atoll.admission.problems import Problem
from atoll.admission.rules import Change
from atoll.kinds import KINDS, Kind, own_title
from atoll.kinds import declared as rules
from atoll.model.objects import MALFORMED

Json = dict[str, Any]


def problems(new: Json, old: Json | None) -> list[Problem]:
    """All that is wrong with a WorkloadKind; nothing where its spec stays as it is.

    Args:
        new: as it will be stored.
        old: as it is; None where it is new.
    """
    if old is not None and old.get("spec") == new.get("spec"):
        return []
    try:
        return [Problem(field, text) for field, text in rules.problems(new, own_title)]
    except MALFORMED as error:
        return [Problem("spec", f"can't be read: {type(error).__name__}: {error}")]


def kind_of_resource(kinds: Iterable[Kind], group: str, plural: str) -> Kind | None:
    """The declared kind of a resource type, in whatever version."""
    found = (each for each in kinds if (each.resource.group, each.resource.plural) == (group, plural))
    return next((each for each in found if each not in KINDS), None)


def other_version(kind: Kind, change: Change) -> list[Problem]:
    """Why a workload in another version than the declared one is not taken; a change of its metadata is."""
    if change.old is not None and change.old.get("spec") == change.new.get("spec"):
        return []
    version = kind.resource.version
    return [
        Problem(
            "apiVersion",
            f"Atoll reads {kind.words.title} in version {version}: apply it as {kind.resource.api_version}",
        )
    ]
