"""Dispatches and troubles of a binding's life as Events on the workload, the binding being the related object.

A workload that is bound, runs and succeeds shows that in its status, and Events of it would cost more writes than that.
`kubectl describe` shows these Events; the story on the binding is complete, Events may be dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from atoll.control.objects import BindingObject
from atoll.kube.events import Recorder
from atoll.model.apiresource import BINDINGS
from atoll.model.conditions import Condition, find
from atoll.model.decision import Decision, Line, Phase
from atoll.model.verdict import WITHHELD, Reason

_REACHED = {
    "Bound": "the pods of its minimum are bound",
    "Running": "its minimum runs",
    "Released": "evicted: nothing of it is left in any member",
}
_SIZED = (Reason.DISPATCHED, Reason.GROWN, Reason.SHRUNK)
"""Reasons with the number of its pods; others of bound workloads explain why they get no more."""
_CALM = frozenset({Reason.RESERVING, *WITHHELD, Reason.SUBMITTED})


def sizes(decision: Decision) -> tuple[Line | None, Line | None]:
    """What a binding's story says of the pods that it runs with: the line of when that changed last since it was
    dispatched, and the one with the obstacle to more; None for lines that don't apply.
    """
    sized = next((line for line in reversed(decision.story) if line.reason in _SIZED), None)
    resized = None if sized is None or sized.reason is Reason.DISPATCHED else sized
    limited = decision.phase is Phase.DISPATCHED and decision.reason not in _SIZED and decision.story
    return resized, decision.story[-1] if limited else None


def arrows(before: Sequence[Condition], after: Sequence[Condition]) -> Iterator[tuple[str, str, bool]]:
    """(reason, note, warning) for every condition that changed its status or reason."""
    for condition in after:
        old = find(list(before), condition["type"])
        reason, message = condition["reason"], condition.get("message") or ""
        if old is not None and _said(old) == _said(condition):
            continue
        match condition["type"], condition["status"]:
            case "Scheduled", "True":
                yield str(Reason.DISPATCHED), message, False
            case "Scheduled", _:
                yield reason, message, reason not in _CALM
            case (("Resized" | "Limited"), "True"):
                yield reason, message, False
            case "MemberReady", "False":
                yield reason, message, True
            case "MemberReady", "True":
                yield reason, "all members that it runs in answer", False
            case "Bound", "False":
                yield reason, f"pods were lost and wait for a node: {message}", True
            case "Running", "False":
                yield reason, f"bound, but its containers don't start: {message}", True
            case (("AcceptedByMembers" | "NeedsAgree"), "False"):
                yield reason, message, True
            case "Healthy", "False":
                yield reason, f"it is unhealthy: {message}", True
            case "Leaving", "True":
                yield "LeavingGracefully", message, False
            case "Released", "False":
                yield reason, f"its pods are being removed, and do not go: {message}", True
            case "FullyApplied", "False":
                yield "NotApplied", message, True
            case "Finished", "True" if reason == "Failed":
                yield "Finished", f"ended: {reason}", True
            case type_, "True" if type_ in _REACHED and (old is not None or type_ == "Released"):
                yield type_, _REACHED[type_], False


def _said(condition: Condition) -> tuple[str, ...]:
    """Parts of a condition that are written once; each size is written."""
    named = condition["type"] in ("Resized", "Released") or condition["reason"] == Reason.AWAITING_VICTIMS
    more = condition.get("message") or "" if named else ""
    return condition["status"], condition["reason"], more


def tell(recorder: Recorder, binding: BindingObject, before: Sequence[Condition], after: Sequence[Condition]) -> None:
    """Record the arrows between two states of a binding's conditions."""
    for reason, note, warning in arrows(before, after):
        tell_workload(recorder, binding, reason, note, warning=warning)


def tell_workload(recorder: Recorder, binding: BindingObject, reason: str, note: str, *, warning: bool) -> None:
    """Record an Event on the workload, with its binding as the related object."""
    reference = binding.spec.resource
    workload = {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "namespace": reference.namespace,
        "name": reference.name,
        "uid": reference.uid,
    }
    metadata = binding.metadata
    related = {
        "apiVersion": BINDINGS.api_version,
        "kind": BINDINGS.kind,
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": metadata.uid,
    }
    recorder.record(workload, reason, note, warning=warning, related=related)
