"""What an override may make of a workload: anything but what the federation decided about it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from atoll.admission import pod_security
from atoll.admission.problems import added
from atoll.admission.rules import Change
from atoll.kinds import kind_of
from atoll.kinds.interface import Json, Kind
from atoll.model import json_patch
from atoll.model.objects import MALFORMED
from atoll.model.overrides import Applied, Failed

_OURS: Final = (
    "atoll.sh/", "karmada.io/", "work.karmada.io/", "policy.karmada.io/", "scheduling.volcano.sh/", "volcano.sh/",
    "kueue.x-k8s.io/", "scheduling.k8s.io/",
)  # fmt: skip
"""Labels and annotations that connect an object with its decision."""
DECIDED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("replicas", "parallelism", "completions", "minAvailable", "minMember"), "the size of the gang"),
    **dict.fromkeys(
        ("requests", "limits", "resources", "claims", "resourceClaims", "overhead"), "what its queue is charged"
    ),
    **dict.fromkeys(("queue", "queueName", "priorityClassName", "priority"), "its place in the queues"),
    **dict.fromkeys(("schedulerName", "schedulingGates", "nodeName"), "who places its pods"),
    **dict.fromkeys(
        ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "networkTopology", "hostPort"),
        "on which nodes its pods fit",
    ),
    **dict.fromkeys(("suspend", "managedBy"), "when it runs"),
}  # fmt: skip
"""Fields that an override may not touch -> what would be another."""


def is_decided(key: str) -> bool:
    """Whether a label or annotation connects an object with its decision."""
    return key.startswith(_OURS)


def containers(manifest: Mapping[str, Any]) -> list[str]:
    """JSON pointers of the lists of containers in the pod templates of a workload."""
    kind = kind_of(manifest)
    if kind is None:
        return []
    found = []
    for path, template in kind.admission().templates(dict(manifest)):
        place = json_patch.pointer((*re.findall(r"[^.\[\]]+", path), "spec", "containers"))
        if isinstance(template, Mapping) and isinstance((template.get("spec") or {}).get("containers"), list):
            try:
                json_patch.get(manifest, place)
            except json_patch.PatchError:
                continue
            found.append(place)
    return found


def check(
    kind: Kind, before: Json, after: Json, applied: Sequence[Applied], labels: Mapping[str, str] | None = None
) -> None:
    """Refuse what would be another gang, or what admission refuses.

    Args:
        kind: of the manifests.
        before: the manifest without overrides.
        after: the manifest with them.
        applied: the overrides.
        labels: of the namespace, whose Pod Security holds for the result.

    Raises:
        Failed: it would be; the message says what.
    """
    check_metadata(before, after, applied)
    try:
        for what, old, new in _decided(kind, before, after):
            if old != new:
                raise _failed(applied, f"it would change {what}, which was decided with the workload")
        problems = added(*(kind.admission().problems(Change(new=each, namespace={})) for each in (before, after)))
        problems = problems or list(pod_security.problems(kind.admission().templates(after), labels or {}))
    except MALFORMED as error:
        raise _failed(applied, f"the {before['kind']} could not be read any more: {error}") from error
    if problems:
        raise _failed(applied, str(problems[0]))


def _decided(kind: Kind, before: Json, after: Json) -> Iterator[tuple[str, Any, Any]]:
    def read(obj: Json) -> tuple[Any, ...]:
        gang = kind.gang(obj, priority=0)
        templates = [_placing(each) for _, each in kind.admission().templates(obj)]
        switch = kind.suspension(obj, suspended=False)
        return gang, kind.priority_class_of(obj), templates, switch, kind.makes_claims(obj)

    words = (
        "the gang (pods, requests, queue, nodes)", "the priority class", "who places its pods", "when it runs",
        "its claims",
    )  # fmt: skip
    return zip(words, read(before), read(after), strict=True)


def _placing(template: object) -> tuple[Any, ...]:
    found = template if isinstance(template, Mapping) else {}
    pod, metadata = found.get("spec") or {}, found.get("metadata") or {}
    named = ("schedulerName", "schedulingGates", "nodeName", "priorityClassName")
    return *(pod.get(each) for each in named), _connecting(metadata), metadata.get("finalizers")


def check_metadata(before: Json, after: Json, applied: Sequence[Applied]) -> None:
    """Refuse an object with another identity.

    Args:
        before: the object without overrides.
        after: the object with them.
        applied: the overrides.

    Raises:
        Failed: it would have one.
    """
    if not isinstance(after.get("metadata"), dict):
        raise _failed(applied, "it would have no metadata")
    for field in ("apiVersion", "kind"):
        if before[field] != after.get(field):
            raise _failed(applied, f"it would change {field}")
    old, new = before["metadata"], after["metadata"]
    for field in (old.keys() | new.keys()) - {"labels", "annotations"}:
        if old.get(field) != new.get(field):
            raise _failed(applied, f"it would change metadata.{field}")
    if _connecting(old) != _connecting(new):
        raise _failed(applied, "it would change labels or annotations of Atoll, Karmada, Volcano or Kueue")


def _connecting(metadata: Mapping[str, Any]) -> list[tuple[str, Any]]:
    named = [*(metadata.get("labels") or {}).items(), *(metadata.get("annotations") or {}).items()]
    return sorted((key, value) for key, value in named if is_decided(key))


def _failed(applied: Sequence[Applied], why: str) -> Failed:
    return Failed(", ".join(dict.fromkeys(each.policy for each in applied)), why)


def digest(manifest: Json, length: int = 8) -> str:
    """A text of that many characters that is another one for other contents."""
    return hashlib.sha256(orjson.dumps(manifest, option=orjson.OPT_SORT_KEYS)).hexdigest()[:length]
