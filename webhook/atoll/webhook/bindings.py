"""ResourceBindings are suspended at birth: nothing is scheduled before the dispatcher spoke."""

from __future__ import annotations

from atoll.webhook import jsonpatch
from atoll.webhook.problems import Json


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
