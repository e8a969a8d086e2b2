"""Bindings of Atoll are suspended at birth: nothing is scheduled before the dispatcher spoke.

So are bindings that a Karmada makes for policies with `schedulerName: atoll`; they begin at epoch 0 as well, which
control could not write later. One that another scheduler has placed already is left alone.
"""

from __future__ import annotations

from atoll.admission import jsonpatch
from atoll.admission.problems import Json
from atoll.model import keys


def is_ours(binding: Json, username: str) -> bool:
    """Whether a binding that this user creates is Atoll's: our detector makes it, or it declares its gang."""
    metadata = binding.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return username == keys.CONTROL_ACCOUNT or (isinstance(annotations, dict) and keys.GANG in annotations)


def is_left_to_us(binding: Json) -> bool:
    """Whether a Karmada leaves a binding to Atoll: its policy names our scheduler, and nothing has placed it yet."""
    spec, metadata = binding.get("spec"), binding.get("metadata")
    if not isinstance(spec, dict) or not isinstance(metadata, dict) or spec.get("schedulerName") != keys.SCHEDULER_NAME:
        return False
    annotations = metadata.get("annotations")
    begun = isinstance(annotations, dict) and keys.EPOCH in annotations
    return not begun and not spec.get("clusters") and bool(spec.get("replicas") or spec.get("components"))


def begin_binding(binding: Json) -> list[jsonpatch.Operation]:
    """The patch that suspends a binding that is left to us, at epoch 0."""
    if binding["metadata"].get("annotations") is None:
        epoch = jsonpatch.add({keys.EPOCH: "0"}, "metadata", "annotations")
    else:
        epoch = jsonpatch.add("0", "metadata", "annotations", keys.EPOCH)
    return [epoch, *suspend_binding(binding)]


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
