"""Binding → Works: one for each member that the dispatcher named, none that it did not.

A Work carries the binding's UID and epoch. One of an older epoch is deleted and gone before a newer one is made. The
binding's finalizer stays until all of its Works are gone. A leader that was stopped at a write may carry it out when
another has long gone on: a Work that appears and that its binding does not ask for is removed whenever it comes.

While a binding waits, members may be asked whether it would fit. Such a Work starts nothing and keeps no nodes, so it
has no finalizer: a member that is away delays no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Iterable
from typing import Any

import msgspec
import structlog

from atoll.control.caches import Caches
from atoll.control.carried_objects import Dependencies, NotRead
from atoll.control.needs import said_of_pods
from atoll.control.objects import BindingObject, ClusterObject
from atoll.control.overrides import NotEvaluated, Overrides
from atoll.control.records import Records
from atoll.control.rules import Rules
from atoll.control.settings import WorksSettings
from atoll.control.work_drafts import WorkDrafts
from atoll.delivery import work_name
from atoll.delivery.work import WorkObject
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys
from atoll.model.apiresource import BINDINGS, WORKS
from atoll.model.failover import EvictionTask
from atoll.model.keys import execution_namespace
from atoll.model.objects import Full, Slim
from atoll.model.overrides import OverrideObject

Json = dict[str, Any]
_TOGETHER_S = 0.1
"""Seconds in which changes of a namespace's overrides come together: each is about all of its bindings."""

log = structlog.get_logger(__name__)


class Works:
    """Keeps the Works of every binding as its decision asks."""

    def __init__(
        self,
        host: ApiServer,
        caches: Caches,
        rules: Rules,
        dependencies: Dependencies,
        overrides: Overrides,
        records: Records,
        *,
        settings: WorksSettings = WorksSettings(),
    ) -> None:
        self._settings = settings
        self._host, self._caches, self._records = host, caches, records
        self._drafts = WorkDrafts(caches, rules, dependencies, overrides)
        self.queue: WorkQueue[str] = WorkQueue("works", caches.about, owns=caches.owns)
        #: namespaces all of whose dispatched bindings need a look
        self._namespaces: WorkQueue[str] = WorkQueue("namespaces of works", lambda name: {"namespace": name})
        #: (binding UID, member) whose claims a Work took along; of bindings that are deleted
        self._cleared: set[tuple[str, str]] = set()
        caches.works.add_index("name of the binding", lambda work: [binding_key(work)])
        caches.bindings.on_change(self._binding_changed)
        caches.works.on_change(self._work_changed)
        caches.clusters.on_change(self._cluster_changed)
        caches.on_edited_workload(self.queue.add)
        caches.namespaces.on_change(self._namespace_changed)
        for reflector in caches.rules.values():
            reflector.on_change(self._rule_changed)
        dependencies.on_change(self.queue.add)
        overrides.on_made(self.queue.add)
        caches.overrides.on_change(lambda old, new: self._override_changed(new or old))
        caches.cluster_overrides.on_change(lambda old, new: self._override_changed(new or old))

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queue.run(self.reconcile, workers=self._settings.workers))
            group.create_task(self._namespaces.run(self._look_at_namespace))

    # -- triggers ----------------------------------------------------------------------------------------------------

    def _binding_changed(self, old: BindingObject | None, new: BindingObject | None) -> None:
        if new is not None:
            if old is None or _relevant(old) != _relevant(new):
                self.queue.add(new.metadata.key)
        elif old is not None:
            self._cleared = {each for each in self._cleared if each[0] != old.metadata.uid}
            # Only here looks at its leftovers.
            if self._caches.works_of(old.metadata.uid):
                self.queue.add(old.metadata.key)

    def _work_changed(self, old: WorkObject | None, new: WorkObject | None) -> None:
        """A Work that vanished lets its binding go on, or is made again; a new one may belong to no binding."""
        if old is not None and new is None:
            if old.metadata.annotations.get(keys.FINAL) == "true":
                self._cleared.add((old.binding_uid, keys.cluster_of(old.metadata.namespace)))
            self.queue.add(binding_key(old))
        elif old is not None and new is not None and _going(old) != _going(new):
            self.queue.add(binding_key(new))
        elif old is None and new is not None and new.binding_uid:
            binding = self._caches.bindings.get(binding_key(new))
            if binding is None or not _asks_for(binding, new):
                self.queue.add(binding_key(new))

    def _cluster_changed(self, old: ClusterObject | None, new: ClusterObject | None) -> None:
        """What a member that is lost, or back, is to let go of."""
        if old is not None and new is not None and old.status.get("lost") != new.status.get("lost"):
            for work in self._caches.works.by_index("namespace", execution_namespace(new.metadata.name)):
                if work.metadata.deletion_timestamp is not None:
                    self.queue.add(binding_key(work))

    def _namespace_changed(self, old: Slim | None, new: Slim | None) -> None:
        if old is not None and new is not None and said_of_pods(old.metadata) != said_of_pods(new.metadata):
            self._look_at_all(new.metadata.name)

    def _rule_changed(self, old: Full | None, new: Full | None) -> None:
        """A LimitRange, a ResourceQuota or a NetworkPolicy; the status of a quota changes all the time."""
        if old is None or new is None or old.body.get("spec") != new.body.get("spec"):
            either = new or old
            self._look_at_all(either.metadata.namespace if either is not None else "")

    def _override_changed(self, policy: OverrideObject | None) -> None:
        if policy is not None and policy.metadata.namespace:
            self._look_at_all(policy.metadata.namespace)
        elif policy is not None:
            self._look_at(self._caches.bindings)

    def _look_at_all(self, namespace: str) -> None:
        self._namespaces.add(namespace, after=_TOGETHER_S)

    async def _look_at_namespace(self, namespace: str) -> None:
        self._look_at(self._caches.bindings.by_index("namespace", namespace))

    def _look_at(self, bindings: Iterable[BindingObject]) -> None:
        for binding in bindings:
            if not binding.suspended:
                self.queue.add(binding.metadata.key)

    # -- one binding -------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> None:
        binding = self._caches.bindings.get(key)
        await self._remove_strays(key, binding)
        if binding is None:
            return
        works, leaving = (each(binding.metadata.uid) for each in (self._caches.works_of, self._caches.leaving_works))
        going = binding.metadata.deletion_timestamp is not None
        if not going and any(work.epoch > int(binding.epoch or 0) for work in works):
            # The watch of bindings is behind that of Works; the change that they follow from comes.
            return
        try:
            wanted = self._drafts.of(binding)
        except (NotRead, NotEvaluated):
            return
        cleared = await self._clear_claims(binding, works) if going and not _preserved(binding) else True
        stale = [work for work in works if work.metadata.namespace not in wanted or str(work.epoch) != binding.epoch]
        stays = {} if going else tasks_by_namespace(binding)
        for work in [*stale, *(leaving if going else ())]:
            if work.metadata.deletion_timestamp is None and (task := stays.get(work.metadata.namespace)) and task.stays:
                await self._mark(work, keys.LEAVING)
            elif work.metadata.deletion_timestamp is None:
                if going and _stays_behind(binding, work):
                    await self._preserve(work)
                await self._delete(work)
            else:
                await self._give_up(key, binding, work)
        if going:
            if cleared and not leaving and await works_gone(self._host, self._caches, binding):
                await self._records.keep(binding)
                await self._release(binding)
            return
        await self._end_tasks(binding, leaving)
        if stale:
            return
        have = {work.metadata.namespace: work for work in works}
        await self._note_claims(binding, {keys.cluster_of(namespace) for namespace in wanted})
        for namespace, manifest in wanted.items():
            existing = have.get(namespace)
            if existing is None:
                self._caches.expected_works[binding.metadata.uid].add((namespace, manifest["metadata"]["name"]))
                try:
                    await self._host.create(WORKS, manifest, field_manager="atoll-control")
                except errors.AlreadyExists:
                    log.debug("work is there already", work=manifest["metadata"]["name"])
                continue
            said, had, spec = manifest["metadata"]["annotations"], existing.metadata.annotations, existing.spec
            # An agent lets no more pods start than the gang has: one that grew may change nothing else.
            own = (had.get(keys.GANG), had.get(keys.OVERRIDDEN))
            if (spec.workload.manifests, spec.suspend_dispatching, *own) != (
                manifest["spec"]["workload"]["manifests"],
                manifest["spec"]["suspendDispatching"],
                said.get(keys.GANG),
                said.get(keys.OVERRIDDEN),
            ):
                follow = (keys.GANG, keys.APPLIED_OVERRIDES, keys.APPLIED_CLUSTER_OVERRIDES, keys.OVERRIDDEN)
                await self._host.merge_patch(
                    WORKS,
                    existing.metadata.name,
                    {
                        "metadata": {"annotations": {key: said.get(key) for key in follow}},
                        "spec": manifest["spec"],
                    },
                    namespace,
                    field_manager="atoll-control",
                )

    async def _give_up(self, key: str, binding: BindingObject, work: WorkObject) -> None:
        """Go on without a part whose member was lost for longer than is tolerated.

        Its Work stays until that member has removed what came by it, and gets nothing new before.
        """
        wait = self._caches.lost_at(keys.cluster_of(work.metadata.namespace), binding) - time.time()
        if 0 < wait < math.inf:
            self.queue.add(key, after=wait)
        elif wait <= 0:
            log.warning("its member is lost: goes on without", work=work.metadata.key, binding=key)
            await self._mark(work, keys.LOST)

    async def _mark(self, work: WorkObject, mark: str) -> None:
        """Have the binding of a Work go on without it."""
        await self._patch(work, {"metadata": {"annotations": {mark: "true"}}})

    async def _preserve(self, work: WorkObject) -> None:
        """Have its member keep the objects of a Work that is about to be deleted."""
        await self._patch(work, {"metadata": {}, "spec": {"preserveResourcesOnDeletion": True}})

    async def _patch(self, work: WorkObject, patch: Json) -> None:
        """Change a Work, unless it is gone or replaced."""
        patch["metadata"]["uid"] = work.metadata.uid
        with contextlib.suppress(errors.NotFound):
            await self._host.merge_patch(
                WORKS, work.metadata.name, patch, work.metadata.namespace, field_manager="atoll-control"
            )

    # -- eviction tasks ----------------------------------------------------------------------------------------------

    async def _end_tasks(self, binding: BindingObject, leaving: list[WorkObject]) -> None:
        """Remove the copies whose tasks are over, and then these tasks: until then nothing new goes to the members."""
        tasks, now = binding.spec.graceful_eviction_tasks, time.time()
        over = [task for task in tasks if task.over(now, runs=binding.runs_well)]
        for task in tasks:
            if task not in over and (until := task.over_at()) is not None:
                self.queue.add(binding.metadata.key, after=until - now)
        staying = {execution_namespace(task.from_cluster) for task in tasks if task not in over}
        for work in leaving:
            if work.metadata.namespace not in staying and work.metadata.deletion_timestamp is None:
                await self._delete(work)
        left = {work.metadata.namespace for work in self._caches.works.by_index("binding", binding.metadata.uid)}
        left -= {work.metadata.namespace for work in self._caches.current_works(binding)}
        rest = [task for task in tasks if task not in over or execution_namespace(task.from_cluster) in left]
        if rest != tasks:
            metadata = binding.metadata
            patch = {
                "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
                "spec": {"gracefulEvictionTasks": msgspec.to_builtins(rest) or None},
            }
            await self._host.merge_patch(
                BINDINGS, metadata.name, patch, metadata.namespace, field_manager="atoll-control"
            )

    # -- claims of the workload --------------------------------------------------------------------------------------

    async def _note_claims(self, binding: BindingObject, clusters: set[str]) -> None:
        """Write down that the workload may have claims there, before it can have any."""
        found, known = self._caches.workload_of(binding), set(_claims_in(binding))
        if binding.suspended or found is None or clusters <= known or not found[0].makes_claims(found[1].body):
            return
        metadata = binding.metadata
        annotations = {keys.CLAIMS_IN: ",".join(sorted(known | clusters))}
        patch = {"metadata": {"uid": metadata.uid, "annotations": annotations}}
        await self._host.merge_patch(BINDINGS, metadata.name, patch, metadata.namespace, field_manager="atoll-control")

    async def _clear_claims(self, binding: BindingObject, works: list[WorkObject]) -> bool:
        """Have the claims of a workload that is deleted removed in every member where it was; whether that is done.

        A Work that is final takes them along; where the workload has none any more, one is made that does nothing else.
        """
        uid, reference = binding.metadata.uid, binding.spec.resource
        there = {work.metadata.namespace: work for work in works}
        left = [
            name
            for name in _claims_in(binding)
            if (uid, name) not in self._cleared and self._caches.clusters.get(name) is not None
        ]
        for name in left:
            namespace = execution_namespace(name)
            work = there.get(namespace)
            if work is not None:
                if keys.WORK_FINALIZER in work.metadata.finalizers and keys.FINAL not in work.metadata.annotations:
                    patch = {"metadata": {"uid": work.metadata.uid, "annotations": {keys.FINAL: "true"}}}
                    await self._host.merge_patch(WORKS, work.metadata.name, patch, namespace)
                continue
            group = reference.api_version.rpartition("/")[0]
            identity = {keys.BINDING_UID: uid, keys.EPOCH: str(int(binding.epoch or 0) + 1)}
            about = {"name": reference.name, "namespace": reference.namespace, "annotations": identity}
            manifest = {"apiVersion": reference.api_version, "kind": reference.kind, "metadata": about, "spec": {}}
            made = await self._host.create(
                WORKS,
                {
                    "apiVersion": WORKS.api_version,
                    "kind": WORKS.kind,
                    "metadata": {
                        "name": work_name(reference.namespace, reference.name, reference.kind, group),
                        "namespace": namespace,
                        "annotations": {
                            **identity,
                            keys.FINAL: "true",
                            keys.BINDING_NAME: binding.metadata.name,
                            keys.BINDING_NAMESPACE: binding.metadata.namespace,
                        },
                        "finalizers": [keys.WORK_FINALIZER],
                    },
                    "spec": {"workload": {"manifests": [manifest]}, "suspendDispatching": True},
                },
                field_manager="atoll-control",
            )
            await self._host.delete(WORKS, made["metadata"]["name"], namespace, uid=made["metadata"]["uid"])
        return not left

    async def _remove_strays(self, key: str, binding: BindingObject | None) -> None:
        """Delete the Works of bindings of this name that the host does not have any more."""
        uid = binding.metadata.uid if binding is not None else ""
        found = self._caches.works.by_index("name of the binding", key)
        strays = [work for work in found if work.binding_uid not in ("", uid) and not work.metadata.deletion_timestamp]
        if not strays:
            return
        namespace, name = key.split("/")
        # The cache may be behind: the Works may be of a binding that it has not seen.
        there = await self._host.named(BINDINGS, name, namespace)
        uids = {each["metadata"]["uid"] for each in there}
        for work in strays:
            if work.binding_uid not in uids:
                log.warning("no binding asks for it: removed", work=work.metadata.key)
                await self._delete(work)

    async def _delete(self, work: WorkObject) -> None:
        await self._host.delete(WORKS, work.metadata.name, work.metadata.namespace, uid=work.metadata.uid)

    async def _release(self, binding: BindingObject) -> None:
        rest = [name for name in binding.metadata.finalizers if name != keys.BINDING_FINALIZER]
        if len(rest) == len(binding.metadata.finalizers):
            return
        patch = {"metadata": {"finalizers": rest, "resourceVersion": binding.metadata.resource_version}}
        try:
            await self._host.merge_patch(BINDINGS, binding.metadata.name, patch, binding.metadata.namespace)
        except errors.NotFound:
            return


async def works_gone(host: ApiServer, caches: Caches, binding: BindingObject) -> bool:
    """Whether no Work of the binding exists, also none that the cache has not seen yet."""
    uid = binding.metadata.uid
    if caches.works_of(uid):
        return False
    expected = caches.expected_works.get(uid)
    for namespace, name in list(expected or ()):
        try:
            await host.get(WORKS, name, namespace)
        except errors.NotFound:
            if expected:
                expected.discard((namespace, name))
    return not expected


def _asks_for(binding: BindingObject, work: WorkObject) -> bool:
    """Whether a Work is one that its binding, as the cache has it, has now."""
    metadata = binding.metadata
    mine = (metadata.uid, binding.epoch) == (work.binding_uid, str(work.epoch)) and metadata.deletion_timestamp is None
    targets = {execution_namespace(target.name) for target in binding.spec.clusters}
    return mine and not binding.suspended and work.metadata.namespace in targets


def _preserved(binding: BindingObject) -> bool:
    """Whether its objects in members outlive it by its policy; objects of an eviction don't."""
    return bool(binding.spec.preserve_resources_on_deletion) and not binding.suspended and not binding.reserving


def _stays_behind(binding: BindingObject, work: WorkObject) -> bool:
    return _preserved(binding) and str(work.epoch) == binding.epoch and work.question is None


def tasks_by_namespace(binding: BindingObject) -> dict[str, EvictionTask]:
    """Execution namespace -> the eviction task of its member."""
    return {execution_namespace(task.from_cluster): task for task in binding.spec.graceful_eviction_tasks}


def _going(work: WorkObject) -> tuple[bool, bool, bool]:
    """Whether it is to go, and whether its binding goes on without it."""
    notes = work.metadata.annotations
    return work.metadata.deletion_timestamp is not None, keys.LOST in notes, keys.LEAVING in notes


def _claims_in(binding: BindingObject) -> list[str]:
    """Members that may have claims of the workload."""
    return [name for name in binding.metadata.annotations.get(keys.CLAIMS_IN, "").split(",") if name]


def binding_key(work: WorkObject) -> str:
    """`namespace/name` of the binding that a Work is a part of."""
    annotations = work.metadata.annotations
    return f"{annotations.get(keys.BINDING_NAMESPACE)}/{annotations.get(keys.BINDING_NAME)}"


def _relevant(binding: BindingObject) -> tuple[Any, ...]:
    """What the Works depend on."""
    return (
        binding.metadata.uid,
        binding.spec.clusters,
        binding.suspended,
        binding.reserving,
        binding.question,
        binding.condition("Finished"),
        binding.epoch,
        binding.metadata.deletion_timestamp,
        binding.metadata.annotations.get(keys.GANG),
        binding.metadata.annotations.get(keys.ACTION),
        binding.spec.propagate_deps,
        binding.spec.graceful_eviction_tasks,
        bool(binding.spec.graceful_eviction_tasks) and binding.runs_well,
    )
