"""Rules that a namespace of the host hands on: its LimitRanges, ResourceQuotas and NetworkPolicies, within a bound.

Every Work of the namespace carries them. The oldest go along, up to the first that is one too many or too large; an
Event on that one says so.
"""

from __future__ import annotations

from typing import Any

import orjson

from atoll.control.caches import Caches
from atoll.control.settings import RuleSettings
from atoll.kube.events import Recorder
from atoll.model import keys
from atoll.model.namespaces import PROPAGATED, propagated
from atoll.model.objects import Meta

Json = dict[str, Any]

OURS = {keys.MANAGED: "true", keys.MADE: "true"}
"""Labels of objects made in a member because a workload needs them."""


class Rules:
    """Tells which rules of a namespace go to members."""

    def __init__(self, caches: Caches, recorder: Recorder, *, settings: RuleSettings = RuleSettings()) -> None:
        """No I/O happens here."""
        self._caches, self._recorder, self._settings = caches, recorder, settings

    def of(self, namespace: Meta) -> list[Json]:
        """Manifests of what the namespace hands on, by kind and name."""
        found = [
            (rule.metadata, resource, rule.body.get("spec") or {})
            for resource in (PROPAGATED[plural] for plural in propagated(namespace.annotations))
            for rule in self._caches.rules[resource].by_index("namespace", namespace.name)
        ]
        # Age first, so that a new rule takes the place of none; kind and name make the order total.
        found.sort(key=lambda each: (each[0].creation_timestamp, each[1].kind, each[0].name))
        size, manifests = 0, list[Json]()
        for number, (metadata, resource, spec) in enumerate(found):
            about = {"name": metadata.name, "namespace": namespace.name, "labels": OURS}
            manifest = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": about, "spec": spec}
            size += len(orjson.dumps(manifest))
            if number >= self._settings.most or size > self._settings.size:
                self._tell(manifest, metadata.uid, len(found) - number)
                break
            manifests.append(manifest)
        order = [resource.kind for resource in PROPAGATED.values()]
        return sorted(manifests, key=lambda each: (order.index(each["kind"]), each["metadata"]["name"]))

    def _tell(self, manifest: Json, uid: str, left: int) -> None:
        metadata, bounds = manifest["metadata"], self._settings
        about = {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "uid": uid}
        about |= {"namespace": metadata["namespace"], "name": metadata["name"]}
        younger = f", and {left - 1} younger ones of the namespace" if left > 1 else ""
        note = (
            f"members don't get this {manifest['kind']}{younger}: a namespace hands on {bounds.most} rules of"
            f" {bounds.size} bytes together at most, the oldest first; delete or merge some, or name fewer kinds in"
            f" annotation {keys.PROPAGATE} of the namespace"
        )
        self._recorder.record(about, "NotPropagated", note, warning=True)
