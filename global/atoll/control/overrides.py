"""Override policies on Works: each object as its member is to get it.

Policies and objects are texts of users, so overrides are evaluated beside the event loop, one at a time, namespaces in
turn, each within a bound of CPU time. The result is kept on the Work and a failure on the binding, so that the same
objects are not evaluated again, neither at the next look nor by the next leader.

An override changes how a workload runs, never a decision about it: not its gang, its names or the annotations
that connect it. A job that runs keeps the overrides that it was started with, for its pods are made from one template;
a service follows at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import orjson
import structlog

from atoll.control.caches import Caches
from atoll.control.objects import BindingObject
from atoll.delivery.work import WorkObject
from atoll.kinds import BY_GVK, Kind, overriding
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys, overrides
from atoll.model.apiresource import BINDINGS, CLAIMS, CONFIGMAPS, SECRETS, SERVICE_ACCOUNTS, ApiResource
from atoll.model.objects import MALFORMED, Full, Meta
from atoll.model.overrides import Applied, Failed, Target
from atoll.model.verdict import OVERRIDE_POLICY

Json = dict[str, Any]
_OTHERS = {(each.api_version, each.kind): each for each in (CONFIGMAPS, SECRETS, SERVICE_ACCOUNTS, CLAIMS)}
"""What goes along with workloads and may be overridden."""
_RECORDS = (keys.APPLIED_CLUSTER_OVERRIDES, keys.APPLIED_OVERRIDES)
_LONGEST_S = 1.0
"""Seconds of CPU time of one evaluation; the largest document takes a tenth of it."""
_LONGEST = 500
"""Characters of a failure, of which the binding has one for each member."""
Place = tuple[str, str]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Job:
    """One evaluation: what goes into it."""

    digest: str
    lasting: str
    """Digest of what stays the same from one dispatch to the next."""
    kind: Kind
    manifests: list[Json]
    """Of a Work; the last one is the workload."""
    chosen: list[list[list[Applied]]]
    """Of each manifest: of the cluster's policies, then of the namespace's."""
    before: list[list[Applied]] | None
    """What the workload of the Work that is there was started with."""
    recorded: dict[str, str]
    """The same as annotations."""
    labels: Mapping[str, str]
    """Of the namespace."""


@dataclass(frozen=True, slots=True)
class _Made:
    """The outcome of one evaluation."""

    digest: str
    manifests: list[Json]
    record: dict[str, str]
    """Annotations of the Work."""
    waits: str = ""
    """The policies whose changes wait for the next start of the workload."""


class NotEvaluated(Exception):
    """The overrides are being evaluated; the binding is looked at again afterwards."""


class Overrides:
    """Applies what override policies say to the manifests of Works."""

    def __init__(self, host: ApiServer, caches: Caches, recorder: Recorder) -> None:
        """No I/O happens here."""
        self._host, self._caches, self._recorder = host, caches, recorder
        #: binding key -> member -> why its part can't be sent there; of parts that have no Work yet
        self._failed: dict[str, dict[str, str]] = {}
        #: binding key -> its last message, by member
        self._told: dict[str, dict[str, str]] = {}
        #: (binding key, member) to evaluate
        self._queue: WorkQueue[Place] = WorkQueue(
            "overrides",
            lambda place: caches.about(place[0]),
            group=lambda place: place[0].partition("/")[0],
            owns=caches.owns,
        )
        #: what the next evaluation of a place is of
        self._jobs: dict[Place, _Job] = {}
        #: binding key -> member -> outcome that no Work has yet
        self._made: defaultdict[str, dict[str, _Made | tuple[str, Failed]]] = defaultdict(dict)
        self._on_failure: Callable[[str], None] = lambda _: None
        self._on_made: Callable[[str], None] = lambda _: None
        caches.bindings.on_change(self._binding_changed)

    async def run(self) -> None:
        """Evaluate until cancelled."""
        await self._queue.run(self._evaluate)

    def on_failure(self, callback: Callable[[str], None]) -> None:
        """Call `callback(key of the binding)` when what `failures` says of it is something else."""
        self._on_failure = callback

    def on_made(self, callback: Callable[[str], None]) -> None:
        """Call `callback(key of the binding)` after overrides of it were evaluated."""
        self._on_made = callback

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
        """The manifests as the member gets them, and annotations of the Work; None for no Work.

        Args:
            binding: of the workload.
            kind: its kind.
            obj: the workload on the host.
            cluster: the member.
            manifests: of a Work; the last one is the workload.
            work: the one of this dispatch that is there.

        Raises:
            NotEvaluated: the answer comes later.
        """
        place = binding.metadata.key, cluster
        try:
            made = self._outcome(place, binding, kind, obj, manifests, work)
        except Failed as error:
            if self._fail(binding, kind, obj, cluster, error) and work is None:
                self._on_failure(binding.metadata.key)
            return None if work is None else (work.spec.workload.manifests, _recorded_text(work))
        if self._failed.get(binding.metadata.key, {}).pop(cluster, None) is not None:
            self._on_failure(binding.metadata.key)
        if made.waits:
            note = (
                f"keeps running in {cluster} with the overrides that it was started with, as the pods of a job are made"
                f" from one template; what {made.waits} says now applies from its next start"
            )
            self._tell(binding, kind, obj, cluster, "OverrideWaits", note)
        return made.manifests, made.record

    def _outcome(
        self,
        place: Place,
        binding: BindingObject,
        kind: Kind,
        obj: Full,
        manifests: list[Json],
        work: WorkObject | None,
    ) -> _Made:
        chosen = [self._chosen_for(each, obj.metadata, place[1]) for each in manifests[:-1]]
        chosen.append(self._chosen(kind.resource, obj.metadata, place[1]))
        recorded = _recorded_text(work) if work is not None else {}
        if not any(map(any, chosen)) and not any(recorded.values()):
            return _Made("", manifests, {})
        digest = _digest(manifests, chosen)
        if work is not None and recorded.get(keys.OVERRIDDEN) == _seal(digest, recorded, work.spec.workload.manifests):
            self._made[place[0]].pop(place[1], None)
            return _Made(digest, work.spec.workload.manifests, recorded)
        before = _recorded(work) if work is not None and not kind.service else None
        lasting = _digest([*manifests[:-1], _lasting(obj), _share(kind, manifests[-1])], [*chosen, before or []])
        if (failure := _failures(binding).get(place[1])) is not None and failure["of"] == lasting:
            raise Failed(failure["policy"], failure["why"])
        match self._made[place[0]].get(place[1]):
            case _Made() as made if made.digest == digest:
                return made
            case (str() as of, Failed() as error) if of == lasting:
                raise error
        found = self._caches.namespaces.get(obj.metadata.namespace)
        labels = found.metadata.labels if found is not None else {}
        self._jobs[place] = _Job(digest, lasting, kind, manifests, chosen, before, recorded, labels)
        self._queue.add(place)
        raise NotEvaluated

    async def _evaluate(self, place: Place) -> None:
        job = self._jobs.pop(place, None)
        if job is None:
            return
        try:
            await self._keep(place, job)
        except BaseException:
            # The queue comes again for it; a job that came meanwhile is newer.
            self._jobs.setdefault(place, job)
            raise

    async def _keep(self, place: Place, job: _Job) -> None:
        """Evaluate a job and keep the outcome: a failure on the binding."""
        key, cluster = place
        failure: Json | None = None
        try:
            made: _Made | tuple[str, Failed] = await asyncio.to_thread(_make, job)
        except Failed as error:
            failure = {"of": job.lasting, "policy": error.policy[:_LONGEST], "why": error.why[:_LONGEST]}
            made = job.lasting, Failed(failure["policy"], failure["why"])
        binding = self._caches.bindings.get(key)
        if binding is None:
            return
        self._made[key][cluster] = made
        known = _failures(binding)
        now = {name: each for name, each in {**known, cluster: failure}.items() if each is not None}
        if now != known:
            note = orjson.dumps(now, option=orjson.OPT_SORT_KEYS).decode() if now else None
            metadata = binding.metadata
            identity = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
            patch = {"metadata": {**identity, "annotations": {keys.OVERRIDES_FAILED: note}}}
            await self._host.merge_patch(
                BINDINGS, metadata.name, patch, metadata.namespace, field_manager="atoll-control"
            )
        self._on_made(key)

    def _chosen_for(self, manifest: Json, of: Meta, cluster: str) -> list[list[Applied]]:
        """Of an object that goes along with a workload."""
        resource = _OTHERS.get((manifest["apiVersion"], manifest["kind"]))
        if resource is None or keys.WITHHELD in manifest["metadata"].get("annotations", {}):
            return [[], []]
        metadata = manifest["metadata"]
        return self._chosen(resource, Meta(name=metadata["name"], namespace=metadata["namespace"]), cluster)

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
        scopes = (self._caches.cluster_overrides, ""), (self._caches.overrides, metadata.namespace)
        return [
            overrides.chosen(
                overrides.candidates(partial(cache.by_index, "selected"), namespace, resource, metadata.name),
                resource,
                metadata,
                target,
            )
            for cache, namespace in scopes
        ]

    # -- messages ----------------------------------------------------------------------------------------------------

    def _fail(self, binding: BindingObject, kind: Kind, obj: Full, cluster: str, error: Failed) -> bool:
        why = f"{OVERRIDE_POLICY}{error.policy} can't be applied for {cluster}: {error.why}"
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
            self._made.pop(old.metadata.key, None)
        if new is None or new.epoch != old.epoch:
            self._told.pop(old.metadata.key, None)


def _make(job: _Job) -> _Made:
    """Evaluate; in a thread of its own.

    Raises:
        Failed: they can't be carried out, or take too long.
    """
    begun = time.thread_time()

    def check() -> None:
        if time.thread_time() - begun > _LONGEST_S:
            raise ValueError(f"it takes more than {_LONGEST_S:g} s of CPU time; make the documents or the rules fewer")

    names = ", ".join(dict.fromkeys(each.policy for groups in job.chosen for group in groups for each in group))
    try:
        *others, workload = job.manifests
        *of_others, current = job.chosen
        made_others = [
            _other(each, list(chain(*groups)), check) if any(groups) else each
            for each, groups in zip(others, of_others, strict=True)
        ]
        made, record, waits = _apply(workload, current, job.labels, check), _text(current), ""
        if job.before is not None and job.before != current:
            kept = _apply(workload, job.before, job.labels, check)
            if made["spec"] != kept["spec"]:
                policies = {each.policy for group in current + job.before for each in group}
                made, record, waits = kept, job.recorded, ", ".join(sorted(policies))
        manifests = [*made_others, made]
        record = {key: record[key] for key in _RECORDS if key in record}
        if record or manifests != job.manifests:
            record[keys.OVERRIDDEN] = _seal(job.digest, record, manifests)
    except (*MALFORMED, RecursionError) as error:
        raise Failed(names, f"{type(error).__name__}: {error}") from error
    return _Made(job.digest, manifests, record, waits)


def _other(manifest: Json, applied: list[Applied], check: Callable[[], None]) -> Json:
    made = overrides.apply(manifest, applied, lambda _: (), check)
    overriding.check_metadata(manifest, made, applied)
    annotations = made["metadata"].get("annotations") or {}
    if made != manifest and (version := annotations.get(keys.SOURCE_VERSION)):
        # A member follows a change of version.
        told = {**annotations, keys.SOURCE_VERSION: f"{version}-{overriding.digest(made)}"}
        made = {**made, "metadata": {**made["metadata"], "annotations": told}}
    return made


def _apply(manifest: Json, groups: list[list[Applied]], labels: Mapping[str, str], check: Callable[[], None]) -> Json:
    applied = list(chain(*groups))
    made = overrides.apply(manifest, applied, overriding.containers, check)
    if applied:
        kind = BY_GVK[manifest["apiVersion"], manifest["kind"]]
        overriding.check(kind, manifest, made, applied, labels)
    return made


def _text(groups: list[list[Applied]]) -> dict[str, str]:
    """Annotations that record applied overrides.

    Raises:
        Failed: they are too long for a Work.
    """
    found = {
        key: orjson.dumps([each.record() for each in group], option=orjson.OPT_SORT_KEYS).decode()
        for key, group in zip(_RECORDS, groups, strict=True)
        if group
    }
    if (size := sum(map(len, found.values()))) > overrides.MOST_RECORD:
        names = ", ".join(dict.fromkeys(each.policy for group in groups for each in group))
        raise Failed(names, f"what applies takes {size} bytes on the Work, which holds {overrides.MOST_RECORD}")
    return found


def _recorded_text(work: WorkObject) -> dict[str, str]:
    notes = work.metadata.annotations
    return {key: notes[key] for key in (*_RECORDS, keys.OVERRIDDEN) if key in notes}


def _recorded(work: WorkObject) -> list[list[Applied]]:
    texts = [work.metadata.annotations.get(key, "[]") for key in _RECORDS]
    return [[Applied(each["policyName"], each["overriders"]) for each in orjson.loads(text)] for text in texts]


def _digest(manifests: list[Json], chosen: list[list[list[Applied]]]) -> str:
    records = [[[each.record() for each in group] for group in groups] for groups in chosen]
    return overriding.digest({"manifests": manifests, "records": records}, 32)


def _seal(digest: str, record: Mapping[str, str], manifests: list[Json]) -> str:
    """Mark of a Work's manifests: their sources, and that they are unchanged since."""
    made = {"record": [record.get(key) for key in _RECORDS], "manifests": manifests}
    return f"{digest}-{overriding.digest(made, 32)}"


def _lasting(obj: Full) -> Json:
    """What a workload is, but for its status and what changes by itself."""
    metadata = obj.metadata
    about = {"uid": metadata.uid, "labels": metadata.labels, "annotations": metadata.annotations}
    return {**{key: value for key, value in obj.body.items() if key != "status"}, "metadata": about}


def _share(kind: Kind, manifest: Json) -> Json:
    """Pods of each task that a member gets."""
    return {"share": [(task.name, task.replicas) for task in kind.gang(manifest, priority=0).tasks]}


def _failures(binding: BindingObject) -> dict[str, Any]:
    """Member -> {of, policy, why} of evaluations that failed."""
    try:
        found = orjson.loads(binding.metadata.annotations.get(keys.OVERRIDES_FAILED, "{}"))
        return {name: each for name, each in found.items() if {"of", "policy", "why"} <= each.keys()}
    except MALFORMED:
        return {}
