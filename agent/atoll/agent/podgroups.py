"""Gangs of pods whose owner knows nothing of gangs: Deployments, StatefulSets, batch Jobs, and pods on their own.

A pod for our scheduler that names no PodGroup gets one that all pods of its owner share, `podgroup-<owner's UID>`,
and the annotation that names it; the scheduler leaves it alone until then. The pod template's annotations say how
many must start together. Where an operator makes gangs itself, its pods name theirs from their creation, and keep it.

The pods of a Deployment are one gang, not one per ReplicaSet: a rolling update starts the new pods one by one
while the old ones run, and a gang of new ones alone would never be complete.

Pods without an owner form a gang by naming the same PodGroup; where none of that name exists and the pods say how
many must start together, it is made too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import structlog

from atoll.agent.cache import MemberCache
from atoll.agent.objects import Pod, PodGroup
from atoll.agent.ours import Ours
from atoll.agent.scheduler.core.sub_groups import index_of
from atoll.agent.settings import PodGroupSettings
from atoll.kinds import DELIVERED, nearness
from atoll.kinds.metadata import queue_of
from atoll.kube import errors
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys, numbers, quantity, vector
from atoll.model.apiresource import POD_GROUPS, PODS, REPLICA_SETS, STATEFUL_SETS
from atoll.model.gang import MOST_PODS

Json = dict[str, Any]

_MIN_RESOURCES = "scheduling.volcano.sh/group-min-resources"
_PREFIX = "podgroup-"
_API_VERSIONS = {
    "ReplicaSet": "apps/v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    **{kind.resource.kind: kind.resource.api_version for kind in DELIVERED if kind.in_member and kind.in_member.groups},
}
"""Kind of a controller whose pods get a PodGroup -> its apiVersion."""


log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Owner:
    """Whose pods form a gang."""

    api_version: str
    kind: str
    name: str
    uid: str
    one_by_one: bool = False
    """It starts its next pod only when the last one is ready, so no two can wait for each other."""


def serves(pod: Pod, ours: Callable[[Pod], bool], delivered: Callable[[Pod], bool] = lambda _: False) -> bool:
    """Whether a pod needs a PodGroup: ours to place, in none, and of an owner whose gangs are ours to make.

    Args:
        pod: any.
        ours: whether a pod is.
        delivered: whether a pod is made for a delivered workload.
    """
    # The cheapest test comes first: each event of a pod asks it.
    if pod.node or pod.finished or pod.terminating or pod.group or not ours(pod):
        return False
    owner = next((owner for owner in pod.metadata.owner_references if owner.controller), None)
    return owner is None or owner.kind in _API_VERSIONS or delivered(pod)


def minimum(pod: Pod) -> int:
    """Pods that must start together, as the pod says; 1 where it says nothing that can be read."""
    members = numbers.whole(pod.metadata.annotations.get(keys.GROUP_MIN_MEMBER))
    return min(max(1, members or 1), numbers.INT32)


def group_of(owner: Owner, pod: Pod) -> Json:
    """The PodGroup of an owner, as one of its pods describes it.

    Args:
        owner: of the gang; the pod itself where it has none.
        pod: the youngest one, whose template is the newest.
    """
    spec = _spec(pod, 1 if owner.one_by_one else minimum(pod))
    reference = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return _group(f"{_PREFIX}{owner.uid}", pod, spec, [reference])


def _spec(pod: Pod, members: int) -> Json:
    notes = pod.metadata.annotations
    spec: Json = {
        "minMember": members,
        "minResources": _resources(notes.get(_MIN_RESOURCES)) or _requests(pod, members),
        "queue": queue_of({"metadata": {"labels": pod.metadata.labels, "annotations": notes}}),
    }
    return spec | _topology(pod)


def group_named(name: str, pods: Sequence[Pod]) -> Json:
    """The PodGroup that pods name though it was not made; it goes with the last of them."""
    newest = max(pods, key=_age)
    about = {"apiVersion": "v1", "kind": "Pod"}
    references = [{**about, "name": pod.metadata.name, "uid": pod.metadata.uid} for pod in pods]
    return _group(name, newest, _spec(newest, minimum(newest)), references)


def _age(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp, pod.metadata.name


def _group(name: str, pod: Pod, spec: Json, owners: list[Json]) -> Json:
    notes = pod.metadata.annotations
    told = (keys.BINDING_UID, keys.EPOCH, *keys.WAITING_TIMES)
    identity = {key: notes[key] for key in told if key in notes}
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": name,
            "namespace": pod.metadata.namespace,
            "annotations": identity,
            "ownerReferences": owners,
        },
        "spec": spec,
    }


def _resources(text: str | None) -> Json | None:
    try:
        found = orjson.loads(text or "null")
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _requests(pod: Pod, members: int) -> Json:
    total: vector.Vector = {}
    vector.add(total, {name: amount for name, amount in pod.requests.items() if name != "pods"}, members)
    return {name: quantity.format_units(name, amount) for name, amount in sorted(total.items())}


def _topology(pod: Pod) -> Json:
    """Nearness of its pods: from the host's annotations, else by their own annotations."""
    notes = pod.metadata.annotations
    told = _resources(notes.get(keys.TOPOLOGY))
    if told is None:
        # Without the host the final number of pods is unknown.
        part = nearness.partition(notes, MOST_PODS) if index_of(pod) is not None else None
        task = notes.get(keys.TASK_SPEC, "")
        told = nearness.as_pod_group(nearness.wish(notes), {task: part}, {})
    return {key: told[key] for key in ("networkTopology", "subGroupPolicy") if told.get(key)}


def change(group: PodGroup, wanted: Json) -> Json:
    """The merge patch by which a newer template's wishes reach a PodGroup that exists; empty when they are there."""
    spec = wanted["spec"]
    said = (spec["minMember"], spec.get("networkTopology"), spec.get("subGroupPolicy") or [])
    if (group.spec.min_member, group.spec.network_topology, group.spec.sub_group_policy) == said:
        return {}
    return {"spec": {"networkTopology": None, "subGroupPolicy": None, **spec}}


class PodGroups:
    """Makes PodGroups for pods that have none."""

    def __init__(
        self,
        api: ApiServer,
        cache: MemberCache,
        recorder: Recorder,
        *,
        ours: Ours,
        settings: PodGroupSettings = PodGroupSettings(),
    ) -> None:
        """No I/O happens here; `run` does it.

        Args:
            api: the member.
            cache: of the member; handlers are added to it.
            recorder: tells of pods whose annotations can't be obeyed.
            ours: tells which pods are.
            settings: its times and bounds.
        """
        self._settings = settings
        self._api = api
        self._cache = cache
        self._recorder = recorder
        self._ours = ours
        #: owner UID (the pod's own for a bare pod), or `namespace/name` of a PodGroup that pods name
        self._queue: WorkQueue[str] = WorkQueue("podgroups of owners")
        self._writes = asyncio.Semaphore(self._settings.writes)
        #: controller UID -> owner of its gangs; a ReplicaSet never changes its Deployment
        self._owners: dict[str, Owner] = {}
        #: controller UID -> keys of its pods that wait for their PodGroup
        self._waiting: dict[str, set[str]] = {}
        cache.pods.on_change(self._pod_changed)
        cache.pod_groups.on_change(self._group_changed)
        ours.on_change(self._look_at_all, self._look_at_owned)

    async def run(self) -> None:
        """Reconcile until cancelled; the cache must have synced."""
        await self._queue.run(self.reconcile, workers=8)

    def _look_at_all(self) -> None:
        for pod in self._cache.pods:
            self._pod_changed(None, pod)

    def _look_at_owned(self, uid: str) -> None:
        for pod in self._cache.pods.by_index("owner", uid):
            self._pod_changed(None, pod)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        uid = pod.metadata.controller_uid or pod.metadata.uid
        owners = self._cache.owners
        # Whose gang it is in is known once all of its owners were heard of.
        if (
            new is not None
            and serves(new, self._ours.pod, lambda pod: bool(owners.delivered(pod)))
            and not owners.awaited(new)
        ):
            self._waiting.setdefault(uid, set()).add(new.metadata.key)
            self._queue.add(uid, after=self._settings.coalesce)
        elif waiting := self._waiting.get(uid):
            waiting.discard(pod.metadata.key)
            if not waiting:
                del self._waiting[uid]
        if new is not None and self._names_none(new):
            self._queue.add(new.group, after=self._settings.coalesce)
        if new is None and uid in self._owners and not self._cache.pods.by_index("owner", uid):
            del self._owners[uid]

    def _names_none(self, pod: Pod) -> bool:
        """Whether a pod names a PodGroup that was not made, and has its declaration."""
        notes, groups = pod.metadata.annotations, self._cache.pod_groups.store
        ours = not pod.finished and self._ours.pod(pod)
        return bool(ours and pod.group and keys.GROUP_MIN_MEMBER in notes and pod.group not in groups)

    def _group_changed(self, old: PodGroup | None, new: PodGroup | None) -> None:
        if new is not None or old is None:
            return
        # It was removed under its pods: they bring it back.
        for pod in self._cache.pods.by_index("group", old.metadata.key):
            if pod.finished or pod.terminating or not self._ours.pod(pod):
                continue
            uid = pod.metadata.controller_uid or pod.metadata.uid
            if old.metadata.name.startswith(_PREFIX):
                self._waiting.setdefault(uid, set()).add(pod.metadata.key)
                self._queue.add(uid, after=self._settings.coalesce)
            elif keys.GROUP_MIN_MEMBER in pod.metadata.annotations:
                self._queue.add(old.metadata.key, after=self._settings.coalesce)

    async def reconcile(self, uid: str) -> None:
        if "/" in uid:
            await self._make_named(uid)
            return
        found = [self._cache.pods.get(key) for key in sorted(self._waiting.get(uid, ()))]
        pods = [pod for pod in found if pod is not None and (pod.metadata.controller_uid or pod.metadata.uid) == uid]
        if not pods:
            self._waiting.pop(uid, None)
            return
        newest = max(pods, key=_age)
        name = await self._ensure(await self._owner(newest), newest)
        for pod in pods:
            if pod.group:
                self._waiting.get(uid, set()).discard(pod.metadata.key)
        await asyncio.gather(*(self._join(pod, name) for pod in pods if not pod.group))

    async def _make_named(self, key: str) -> None:
        pods = [pod for pod in self._cache.pods.by_index("group", key) if not pod.finished and not pod.terminating]
        if key in self._cache.pod_groups.store or not pods:
            return
        await self._create(group_named(key.partition("/")[2], pods))

    async def _owner(self, pod: Pod) -> Owner:
        reference = next((each for each in pod.metadata.owner_references if each.controller), None)
        if reference is None:
            return Owner("v1", "Pod", pod.metadata.name, pod.metadata.uid)
        if known := self._owners.get(reference.uid):
            return known
        if (workload := self._delivered(pod)) is not None:
            self._owners[reference.uid] = workload
            return workload
        owner = Owner(_API_VERSIONS[reference.kind], reference.kind, reference.name, reference.uid)
        try:
            if reference.kind == "ReplicaSet":
                obj = await self._api.get(REPLICA_SETS, reference.name, pod.metadata.namespace)
                above = [each for each in obj["metadata"].get("ownerReferences") or () if each.get("controller")]
                if above and above[0]["kind"] == "Deployment":
                    owner = Owner(above[0]["apiVersion"], "Deployment", above[0]["name"], above[0]["uid"])
            elif reference.kind == "StatefulSet":
                obj = await self._api.get(STATEFUL_SETS, reference.name, pod.metadata.namespace)
                ordered = obj["spec"].get("podManagementPolicy") != "Parallel"
                owner = Owner(owner.api_version, owner.kind, owner.name, owner.uid, one_by_one=ordered)
                if ordered and minimum(pod) > 1:
                    self._tell_ignored(owner, pod.metadata.namespace)
        except errors.NotFound:
            log.debug("owner is gone", kind=reference.kind, name=reference.name)
        self._owners[reference.uid] = owner
        return owner

    def _delivered(self, pod: Pod) -> Owner | None:
        """The delivered workload that the pod is made for; None for a pod of others."""
        if not (uid := self._cache.owners.delivered(pod)):
            return None
        for resource, reflector in self._cache.workloads.items():
            for found in reflector.by_index("uid", uid):
                spec = found.body.get("spec") or {}
                ordered = resource == STATEFUL_SETS and spec.get("podManagementPolicy") != "Parallel"
                return Owner(resource.api_version, resource.kind, found.metadata.name, uid, one_by_one=ordered)
        return None

    def _tell_ignored(self, owner: Owner, namespace: str) -> None:
        about = {"apiVersion": owner.api_version, "kind": owner.kind, "namespace": namespace}
        about |= {"name": owner.name, "uid": owner.uid}
        note = f"{keys.GROUP_MIN_MEMBER} is ignored: pods start one by one; set spec.podManagementPolicy to Parallel"
        self._recorder.record(about, "MinMemberIgnored", note, warning=True)

    async def _ensure(self, owner: Owner, pod: Pod) -> str:
        wanted = group_of(owner, pod)
        name, namespace = wanted["metadata"]["name"], pod.metadata.namespace
        group = self._cache.pod_groups.get(f"{namespace}/{name}")
        if group is None:
            await self._create(wanted)
        elif patch := change(group, wanted):
            await self._api.merge_patch(POD_GROUPS, name, patch, namespace)
        return str(name)

    async def _create(self, group: Json) -> None:
        try:
            await self._api.create(POD_GROUPS, group)
        except errors.AlreadyExists:
            log.debug("the cache is behind", group=group["metadata"]["name"])

    async def _join(self, pod: Pod, name: str) -> None:
        patch = {"metadata": {"uid": pod.metadata.uid, "annotations": {keys.GROUP_NAME: name}}}
        async with self._writes:
            try:
                await self._api.merge_patch(PODS, pod.metadata.name, patch, pod.metadata.namespace)
            except (errors.NotFound, errors.Conflict):
                log.debug("pod is gone", pod=pod.metadata.key)
