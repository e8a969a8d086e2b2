"""Who submitted a workload: an annotation that the webhook writes at creation and keeps in every change."""

from __future__ import annotations

from atoll.admission import jsonpatch
from atoll.admission.problems import Json, mapping
from atoll.admission.rules import Change
from atoll.model import keys


def stamped(change: Change, patch: list[jsonpatch.Operation]) -> list[jsonpatch.Operation]:
    """The patch of a workload, with the user who creates it, or the old value in a change."""
    if not isinstance(change.new.get("metadata"), dict):
        return patch
    notes = jsonpatch.applied(change.new, patch)["metadata"].get("annotations")
    wanted = change.user[: keys.MOST_SUBMITTER] if change.old is None else _annotation(change.old)
    if not isinstance(notes, dict):
        # The schema refuses another type.
        whole = notes is None and wanted
        return [*patch, jsonpatch.add({keys.SUBMITTED_BY: wanted}, "metadata", "annotations")] if whole else patch
    if notes.get(keys.SUBMITTED_BY, "") == wanted:
        return patch
    return [*patch, jsonpatch.add(wanted, "metadata", "annotations", keys.SUBMITTED_BY)]


def _annotation(workload: Json) -> str:
    return str(mapping(mapping(workload.get("metadata")).get("annotations")).get(keys.SUBMITTED_BY, ""))
