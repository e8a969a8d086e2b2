"""Override policies on Works: each object as its member is to get it.

An override changes how a workload runs, never what was decided about it: not its gang, its names or the annotations
that connect it. A job that runs keeps the overrides that it was started with, for its pods are made from one template;
a service follows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

import orjson

from atoll.control.caches import Caches
from atoll.control.objects import BindingObject
from atoll.delivery.work import WorkObject
from atoll.kinds import BY_GVK, Kind, overriding
from atoll.kube.events import Recorder
from atoll.model import keys, overrides
from atoll.model.apiresource import CLAIMS, CONFIGMAPS, SECRETS, SERVICE_ACCOUNTS, ApiResource
from atoll.model.objects import Full, Meta
from atoll.model.overrides import Applied, Failed, OverrideObject, Target

Json = dict[str, Any]
_OTHERS = {(each.api_version, each.kind): each for each in (CONFIGMAPS, SECRETS, SERVICE_ACCOUNTS, CLAIMS)}
"""What goes along with workloads and may be overridden."""
_RECORDS = (keys.APPLIED_CLUSTER_OVERRIDES, keys.APPLIED_OVERRIDES)


class Overrides:
    """Applies what override policies say to the manifests of Works."""

    def __init__(self, caches: Caches, recorder: Recorder) -> None:
        """No I/O happens here."""
        self._caches, self._recorder = caches, recorder
        #: binding key -> member -> why its part can't be sent there; of parts that have no Work yet
        self._failed: dict[str, dict[str, str]] = {}
        #: binding key -> what was told of it last, by member
        self._told: dict[str, dict[str, str]] = {}
        self._on_failure: Callable[[str], None] = lambda _: None
        caches.bindings.on_change(self._binding_changed)

    def on_failure(self, callback: Callable[[str], None]) -> None:
        """Call `callback(key of the binding)` when what `failures` says of it is something else."""
        self._on_failure = callback

    def failures(self, binding: BindingObject) -> Mapping[str, str]:
        """Member -> why the part of it can't be sent there."""
        return self._failed.get(binding.metadata.key, {})

    def of(
        self,
        binding: BindingObject,
        kind: Kind,
        obj: Full,
        cluster: str,
        manifests: list[Json],
        work: WorkObject | None,
    ) -> tuple[list[Json], dict[str, str]] | None:
        """The manifests as the member gets them, and annotations of the Work; None where there is to be no Work.

        Args:
            binding: of the workload.
            kind: its kind.
            obj: the workload on the host.
            cluster: the member.
            manifests: of a Work; the last one is the workload.
            work: the one of this dispatch that is there.
        """
        *needs, manifest = manifests
        current = self._chosen(kind.resource, obj.metadata, cluster)
        try:
            made, record = self._workload(binding, kind, obj, manifest, current, work, cluster)
            others = [self._other(each, cluster) for each in needs]
        except Failed as error:
            if self._fail(binding, kind, obj, cluster, error) and work is None:
                self._on_failure(binding.metadata.key)
            return None if work is None else (work.spec.workload.manifests, _recorded_text(work))
        if self._failed.get(binding.metadata.key, {}).pop(cluster, None) is not None:
            self._on_failure(binding.metadata.key)
        return [*others, made], record

    def _workload(
        self,
        binding: BindingObject,
        kind: Kind,
        obj: Full,
        manifest: Json,
        current: list[list[Applied]],
        work: WorkObject | None,
        cluster: str,
    ) -> tuple[Json, dict[str, str]]:
        if work is None or not (any(current) or any(key in work.metadata.annotations for key in _RECORDS)):
            return _apply(manifest, current), _text(current)
        before = _recorded(work)
        made = _apply(manifest, current)
        if kind.service or current == before:
            return made, _text(current)
        kept = _apply(manifest, before)
        if made["spec"] == kept["spec"]:
            return made, _text(current)
        names = sorted({each.policy for group in current + before for each in group})
        note = (
            f"keeps running in {cluster} with the overrides that it was started with, as the pods of a job are made"
            f" from one template; what {', '.join(names)} says now applies from its next start"
        )
        self._tell(binding, kind, obj, cluster, "OverrideWaits", note)
        return kept, _recorded_text(work)

    def _other(self, manifest: Json, cluster: str) -> Json:
        resource = _OTHERS.get((manifest["apiVersion"], manifest["kind"]))
        if resource is None or keys.WITHHELD in manifest["metadata"].get("annotations", {}):
            return manifest
        metadata = manifest["metadata"]
        meta = Meta(name=metadata["name"], namespace=metadata["namespace"])
        applied = list(chain(*self._chosen(resource, meta, cluster)))
        made = overrides.apply(manifest, applied, lambda _: ())
        overriding.check_metadata(manifest, made, applied)
        annotations = made["metadata"].get("annotations") or {}
        if made != manifest and (version := annotations.get(keys.SOURCE_VERSION)):
            # A member follows what has another version.
            told = {**annotations, keys.SOURCE_VERSION: f"{version}-{overriding.digest(made)}"}
            made = {**made, "metadata": {**made["metadata"], "annotations": told}}
        return made

    def _chosen(self, resource: ApiResource, metadata: Meta, cluster: str) -> list[list[Applied]]:
        """Of the cluster's policies, then of the namespace's."""
        found = self._caches.clusters.get(cluster)
        if found is None:
            return [[], []]
        spec = found.spec
        fields = {
            "provider": (str(spec.get("provider") or ""),),
            "region": (str(spec.get("region") or ""),),
            "zone": tuple(spec.get("zones") or ()) or (str(spec.get("zone") or ""),),
        }
        target = Target(cluster, found.metadata.labels, fields)
        own = self._caches.overrides.by_index("namespace", metadata.namespace)
        groups: tuple[Iterable[OverrideObject], ...] = (self._caches.cluster_overrides, own)
        return [overrides.chosen(policies, resource, metadata, target) for policies in groups]

    # -- what is told ------------------------------------------------------------------------------------------------

    def _fail(self, binding: BindingObject, kind: Kind, obj: Full, cluster: str, error: Failed) -> bool:
        why = f"override policy {error.policy} can't be applied for {cluster}: {error.why}"
        known = self._failed.setdefault(binding.metadata.key, {})
        changed = known.get(cluster) != why
        known[cluster] = why
        self._tell(binding, kind, obj, cluster, "ApplyOverridePolicyFailed", why)
        return changed

    def _tell(self, binding: BindingObject, kind: Kind, obj: Full, cluster: str, reason: str, note: str) -> None:
        """Once, until it is something else."""
        told = self._told.setdefault(binding.metadata.key, {})
        if told.get(cluster) == note:
            return
        told[cluster] = note
        about = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind, "uid": obj.metadata.uid}
        about |= {"namespace": obj.metadata.namespace, "name": obj.metadata.name}
        self._recorder.record(about, reason, note, warning=True)

    def _binding_changed(self, old: BindingObject | None, new: BindingObject | None) -> None:
        if old is None:
            return
        if new is None or new.suspended or new.epoch != old.epoch:
            self._failed.pop(old.metadata.key, None)
        if new is None or new.epoch != old.epoch:
            self._told.pop(old.metadata.key, None)


def _apply(manifest: Json, groups: list[list[Applied]]) -> Json:
    applied = list(chain(*groups))
    made = overrides.apply(manifest, applied, overriding.containers)
    if applied:
        kind = BY_GVK[manifest["apiVersion"], manifest["kind"]]
        overriding.check(kind, manifest, made, applied)
    return made


def _text(groups: list[list[Applied]]) -> dict[str, str]:
    """Annotations that record what was applied."""
    return {
        key: orjson.dumps([each.record() for each in group], option=orjson.OPT_SORT_KEYS).decode()
        for key, group in zip(_RECORDS, groups, strict=True)
        if group
    }


def _recorded_text(work: WorkObject) -> dict[str, str]:
    return {key: work.metadata.annotations[key] for key in _RECORDS if key in work.metadata.annotations}


def _recorded(work: WorkObject) -> list[list[Applied]]:
    texts = [work.metadata.annotations.get(key, "[]") for key in _RECORDS]
    return [[Applied(each["policyName"], each["overriders"]) for each in orjson.loads(text)] for text in texts]
