"""Bindings of Atoll are suspended at birth: nothing is scheduled before the dispatcher spoke."""

from __future__ import annotations

from atoll.admission import jsonpatch
from atoll.admission.problems import Json
from atoll.model import keys


def is_ours(binding: Json, username: str) -> bool:
    """Whether a binding that this user creates is Atoll's: our detector makes it, or it says what its gang is."""
    metadata = binding.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return username == keys.CONTROL_ACCOUNT or (isinstance(annotations, dict) and keys.GANG in annotations)


def suspend_binding(binding: Json) -> list[jsonpatch.Operation]:
    """The patch that sets `spec.suspension.scheduling`; empty where it is set already.

    Other fields of the suspension (such as a policy's suspended dispatching) are kept. A binding
    whose spec or suspension is no object is left to the schema.
    """
    if binding.get("spec") is None:
        return [jsonpatch.add({"suspension": {"scheduling": True}}, "spec")]
    spec = binding["spec"]
    if not isinstance(spec, dict):
        return []
    if spec.get("suspension") is None:
        return [jsonpatch.add({"scheduling": True}, "spec", "suspension")]
    suspension = spec["suspension"]
    if not isinstance(suspension, dict) or suspension.get("scheduling") is True:
        return []
    return [jsonpatch.add(True, "spec", "suspension", "scheduling")]
