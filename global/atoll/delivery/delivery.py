"""The loop of one member: makes its objects follow the Works on the host, and the Works' status follow its objects.

Level-based: each look at a Work compares the Work, the object in the member and the status last written, and does
missing steps. Identity is (binding UID, epoch): an object of an older epoch is removed before a newer one is made,
and an older one is never made after a newer one was seen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import structlog

from atoll.delivery.delivered import change, encode, recorded, with_record
from atoll.delivery.dependencies import CARRIED, Dependencies
from atoll.delivery.namespaces import Namespaces, NotAccepted
from atoll.delivery.refusals import Ownership, PodRefusals
from atoll.delivery.reservations import Asked, Reservations
from atoll.delivery.settings import DeliverySettings
from atoll.delivery.work import WorkObject, decode_work, gang_of, identifier, stranger, work_name
from atoll.kinds import BY_GVK, Kind, brought
from atoll.kube import errors
from atoll.kube.backoff import Backoff
from atoll.kube.errors import Retry
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys, numbers, versions
from atoll.model.apiresource import CLAIMS, NAMESPACES, PRIORITY_CLASSES, WORKS, ApiResource
from atoll.model.conditions import with_condition
from atoll.model.gang import beyond
from atoll.model.objects import MALFORMED, Full, made_by
from atoll.model.placer import MadeFor, Unplaceable, made_for
from atoll.model.queues import EVICT_TIMEOUT

Json = dict[str, Any]
PlacementOf = Callable[[str], Json | None]
"""Binding UID -> where its pods are: {generation, nodes, domain, tier, waiting}."""
EndPods = Callable[[str, int], Awaitable[None]]
"""Binding UID, seconds: has its pods end within that time."""

#: what workloads need and others may need as well, and goes with the last of them
_SHARED = {(PRIORITY_CLASSES.api_version, PRIORITY_CLASSES.kind): PRIORITY_CLASSES}

_TERMINATING = "because it is being terminated"
"""What every API server says of a namespace that goes."""

log = structlog.get_logger(__name__)


class Delivery:
    """Serves one execution namespace."""

    def __init__(
        self,
        host: ApiServer,
        member: ApiServer,
        cluster: str,
        *,
        objects: Mapping[ApiResource, Reflector[Full]],
        placement: PlacementOf,
        reservations: Reservations | None = None,
        placing: Callable[[], MadeFor] = MadeFor,
        pods: Callable[[str], int] = lambda _: 0,
        end_pods: EndPods | None = None,
        ownership: Ownership | None = None,
        fenced: Callable[[], bool] = lambda: False,
        settings: DeliverySettings = DeliverySettings(),
    ) -> None:
        """No I/O happens here.

        Args:
            host: with credentials for the member's execution namespace.
            member: the member's API server.
            cluster: its name.
            objects: caches of the workload kinds in the member; run by the caller.
            placement: where the pods of a binding are.
            reservations: holds capacity for parts that must start together with others; None where nothing can.
            placing: how workloads are made for the member at this moment.
            pods: how many pods of a binding (UID) the member has.
            end_pods: has the pods of a binding that goes end in time; None leaves that to their maker.
            ownership: which objects of the member were made for which; None: only owners of pods are known.
            fenced: whether nothing that is exclusive may start, as the host has not been heard for too long.
            settings: its times and bounds.
        """
        self._settings = settings
        self._host, self._member, self._cluster = host, member, cluster
        self._objects = objects
        self._placement = placement
        self._reservations, self._pods, self._placing = reservations, pods, placing
        self._end_pods, self._fenced = end_pods, fenced
        self._refusals = PodRefusals(member, ownership)
        self._refusals.on_change(self._pods_refused)
        self._namespaces = Namespaces(member, cluster)
        self._namespaces.on_change(self._namespace_changed)
        self._dependencies = Dependencies(member, cluster, self._carried)
        if reservations is not None:
            reservations.on_change(self.touch)
        self.works = Reflector(host, WORKS, decode_work, namespace=keys.execution_namespace(cluster))
        self._queue: WorkQueue[str] = WorkQueue("delivery", self._about)
        self.works.add_index("binding", lambda work: [work.binding_uid])
        self.works.add_index("need", lambda work: ["/".join(_identity(each)) for each in self._needs(work)])
        self.works.on_change(self._work_changed)
        for resource, reflector in objects.items():
            reflector.add_index("work", partial(self._work_of, resource))
            reflector.add_index("uid", lambda obj: [obj.metadata.uid])
            reflector.on_change(partial(self._object_changed, resource))
        #: shared objects known to be in the member
        self._present: set[tuple[str, str, str]] = set()
        #: what Works that go on do not name any more
        self._dropped: set[tuple[str, str, str]] = set()
        #: UIDs of Works that go, and whose workload is gone from the member
        self._tidied: set[str] = set()
        #: PriorityClass -> its differences in the member
        self._differing: dict[str, str] = {}
        #: binding UID -> newest epoch seen
        self._newest: dict[str, int] = {}
        #: Work key -> (status differs since, last status written), on the loop's clock
        self._changed_at: dict[str, float] = {}
        self._written_at: dict[str, float] = {}
        #: Work key -> (resourceVersion, status) as last written, while the cache is behind
        self._written: dict[str, tuple[str, Json]] = {}
        #: Work key -> (binding UID, epoch, until when on the loop's clock) of created objects that no cache shows yet
        self._created: dict[str, tuple[str, int, float]] = {}
        #: Work key -> ((UID, generation, how it is made for the member), record of its manifest)
        self._records: dict[str, tuple[tuple[str, int, str], str]] = {}
        #: Work key -> (record, why) of the change that the member refused last
        self._declined: dict[str, tuple[str, str]] = {}
        #: of Works with something that the member refused
        self._pauses: Backoff[str] = Backoff(self._settings.refused_first, self._settings.refused_most)

    @property
    def synced(self) -> bool:
        return self.works.synced.is_set()

    async def run(self) -> None:
        """Watch and reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.works.run())
            group.create_task(self._refusals.run())
            group.create_task(self._namespaces.run())
            await self.works.synced.wait()
            if self._reservations is not None:
                self._reservations.recall(self._asked())
            await self._namespaces.wait()
            for reflector in self._objects.values():
                await reflector.synced.wait()
            group.create_task(self._queue.run(self.reconcile, workers=self._settings.workers))

    def touch(self, binding_uid: str) -> None:
        """The placement of this binding changed."""
        for work in self.works.by_index("binding", binding_uid):
            self._queue.add(work.metadata.key)

    def look_again(self) -> None:
        """Workloads are made for the member in another way from now on; present ones stay as they are."""
        for work in self.works:
            self._queue.add(work.metadata.key)

    def _asked(self) -> Iterator[Asked]:
        """The parts of all Works but questions."""
        for work in self.works:
            notes = work.metadata.annotations
            if stranger(work) or keys.GANG not in notes or keys.QUESTION in notes:
                continue
            kind = BY_GVK.get((work.manifest["apiVersion"], work.manifest["kind"]))
            if kind is not None:
                metadata = work.manifest["metadata"]
                name, namespace = metadata["name"], metadata["namespace"]
                yield Asked(work.binding_uid, work.epoch, gang_of(work, kind), name, namespace)

    # -- triggers ----------------------------------------------------------------------------------------------------

    def _work_changed(self, old: WorkObject | None, new: WorkObject | None) -> None:
        if new is not None:
            uid = new.binding_uid
            self._newest[uid] = max(new.epoch, self._newest.get(uid, 0))
            if old is not None:
                # What pods refer to no longer.
                left = {_identity(each) for each in self._needs(new)}
                before = map(_identity, self._needs(old))
                self._dropped.update(each for each in before if each[0] in CARRIED and each not in left)
            if self._reservations is not None and (spots := new.expected):
                self._reservations.expect(uid, new.epoch, spots)
            self._grant(old, new)
            self._queue.add(new.metadata.key)
        elif old is not None:
            self._changed_at.pop(old.metadata.key, None)
            self._written_at.pop(old.metadata.key, None)
            self._written.pop(old.metadata.key, None)
            self._created.pop(old.metadata.key, None)
            self._declined.pop(old.metadata.key, None)
            self._records.pop(old.metadata.key, None)
            self._pauses.forget(old.metadata.key)
            self._newest.pop(old.binding_uid, None)
            self._tidied.discard(old.metadata.uid)
            if self._reservations is not None:
                # Questions go without a word.
                self._reservations.release(old.binding_uid)
            # Its objects must go with it.
            self._queue.add(old.metadata.key)

    def _grant(self, old: WorkObject | None, new: WorkObject) -> None:
        """Limit the pods of a part to the charge of its queue."""
        said = (new.metadata.annotations.get(keys.GANG), new.epoch)
        if old is not None and (old.metadata.annotations.get(keys.GANG), old.epoch) == said:
            return
        asks = keys.QUESTION in new.metadata.annotations or said[0] is None or bool(stranger(new))
        kind = None if asks else BY_GVK.get((new.manifest["apiVersion"], new.manifest["kind"]))
        if self._reservations is not None and kind is not None:
            self._reservations.grant(new.binding_uid, new.epoch, gang_of(new, kind))

    def _object_changed(self, resource: ApiResource, old: Full | None, new: Full | None) -> None:
        for obj in (old, new):
            if obj is not None and (uid := obj.metadata.annotations.get(keys.BINDING_UID)):
                self.touch(uid)
        if new is not None:
            for key in self._work_of(resource, new):
                self._queue.add(key)
        elif old is not None:
            for key in self._work_of(resource, old):
                self._created.pop(key, None)

    def _pods_refused(self, uid: str) -> None:
        for resource, reflector in self._objects.items():
            for obj in reflector.by_index("uid", uid):
                for key in self._work_of(resource, obj):
                    self._queue.add(key)

    def _namespace_changed(self, name: str) -> None:
        self._dependencies.forget(name)
        for work in self.works.by_index("need", "/".join((NAMESPACES.kind, "", name))):
            self._pauses.forget(work.metadata.key)
            self._queue.add(work.metadata.key)

    def _work_of(self, resource: ApiResource, obj: Full) -> list[str]:
        """Key of the Work that asks for this object, if it came by one."""
        # Controllers copy annotations to objects that they make for a workload: that came by no Work.
        if keys.BINDING_UID not in obj.metadata.annotations or obj.metadata.controller_uid:
            return []
        name = work_name(obj.metadata.namespace, obj.metadata.name, resource.kind, resource.group)
        return [f"{keys.execution_namespace(self._cluster)}/{name}"]

    def _about(self, key: str) -> dict[str, str]:
        work = self.works.get(key)
        if work is None or not work.spec.workload.manifests:
            return {"cluster": self._cluster, "work": key}
        metadata = work.manifest.get("metadata") or {}
        workload = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        return {"cluster": self._cluster, "work": key, "workload": workload}

    # -- one Work ----------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> None:
        work = self.works.get(key)
        if work is None:
            await self._sweep(key)
            return
        work = self._as_written(work)
        if problem := stranger(work):
            await self._turn_away(work, problem)
            return
        manifest = work.manifest
        kind = BY_GVK.get((manifest["apiVersion"], manifest["kind"]))
        if kind is None or kind.resource not in self._objects:
            await self._write_status(
                work, None, f"this agent does not serve {manifest['kind']} ({manifest['apiVersion']})"
            )
            return
        metadata = manifest["metadata"]
        found = self._objects[kind.resource].get(f"{metadata['namespace']}/{metadata['name']}")
        if work.metadata.deletion_timestamp is not None:
            await self._withdraw(work, kind, found)
            return
        if keys.FINAL in work.metadata.annotations:
            # It is about to be deleted.
            return
        if work.epoch < self._newest.get(work.binding_uid, 0):
            return
        if work.spec.suspend_dispatching:
            await self._reserve(work, kind)
            return
        if found is None and self._objects[kind.resource].absent:
            lacks = f"there is no {kind.resource.kind} ({kind.resource.api_version}): its CRD is missing"
            await self._write_status(work, kind, f"refused by {self._cluster}: {lacks}", refused=lacks)
            raise Retry(self._pauses.failed(work.metadata.key))
        if found is None:
            if kind.finished(self._as_written(work).reported) is not None:
                # It has ended here, and was removed: this epoch runs once.
                return
            if self._created_unseen(work):
                # The watch may never show it, where it was deleted at once.
                self._queue.add(key, after=self._settings.trust)
                return
            await self._deliver(work, kind)
            return
        theirs = found.metadata.annotations
        if keys.BINDING_UID not in theirs:
            overwrites = work.metadata.annotations.get(keys.CONFLICT_RESOLUTION) == "overwrite"
            if overwrites and not found.metadata.controller_uid:
                log.warning("overwritten, as its policy asks", object=found.metadata.key)
                await self._remove(kind, found)
                # Its end is no event of this Work.
                self._queue.add(key, after=self._settings.look_again)
                return
            taken = f"{kind.resource.kind} {found.metadata.key} exists there and is not Atoll's{made_by(found.body)}: "
            taken += "rename the workload or delete that one"
            await self._write_status(work, kind, f"refused by {self._cluster}: {taken}", refused=taken)
            # The end of that object is no event of this Work.
            raise Retry(self._pauses.failed(work.metadata.key))
        if (theirs[keys.BINDING_UID], theirs.get(keys.EPOCH)) != (work.binding_uid, str(work.epoch)):
            await self._remove(kind, found)
            return
        problem = ""
        if found.metadata.deletion_timestamp is None:
            problem = await self._keep_rules(work) or await self._keep_dependencies(work)
            problem = await self._follow(work, kind, found) or problem
        await self._report(work, kind, found, problem)

    async def _turn_away(self, work: WorkObject, problem: str) -> None:
        """Nothing is delivered of a Work that Atoll's control did not make; its status says why."""
        if work.metadata.deletion_timestamp is not None:
            await self._let_go(work)
            return
        await self._write_status(work, None, f"not delivered, it is not Atoll's: {problem}")

    async def _keep_rules(self, work: WorkObject) -> str:
        """Have the namespace of a workload that is there as the host's is; why the member refused that, or ""."""
        try:
            await self._namespaces.ensure(self._needs(work))
        except NotAccepted:
            # Present objects stay, though its namespace may be accepted no more.
            return ""
        except errors.Unauthorized:
            raise
        except (errors.Invalid, errors.Forbidden) as error:
            return f"{self._cluster} refused the rules of its namespace, and runs it without them: {error.said}"
        return ""

    async def _keep_dependencies(self, work: WorkObject) -> str:
        """Have what pods of a workload that is there refer to as on the host; why the member refused that, or ""."""
        if self._namespaces.problem(work.manifest["metadata"]["namespace"]):
            # Present objects stay, though its namespace is accepted no more.
            return ""
        try:
            await self._bring_dependencies(work)
        except errors.Unauthorized:
            raise
        except (errors.Invalid, errors.Forbidden) as error:
            return f"{self._cluster} refused what its pods refer to, and runs it without: {error.said}"
        return ""

    async def _bring_dependencies(self, work: WorkObject, *, anew: bool = False) -> None:
        """Have what pods refer to in the member; and nothing that none of them refers to any more."""
        while self._dropped:
            identity = self._dropped.pop()
            if not self._carried(identity):
                await self._dependencies.keep(identity)
        for manifest in self._needs(work):
            identity = _identity(manifest)
            if identity[0] in CARRIED and (anew or not self._dependencies.has(identity, manifest)):
                await self._dependencies.keep(identity, anew=anew)

    def _needs(self, work: WorkObject) -> list[Json]:
        """Needs of the workload in the member: manifests, with the ones that its kind brings along."""
        needs, manifest = work.spec.workload.manifests[:-1], work.manifest
        kind = BY_GVK.get((str(manifest.get("apiVersion")), str(manifest.get("kind"))))
        if kind is None or kind.referred is None:
            return needs
        try:
            return [*needs, *brought(kind, kind.placed(manifest, self._placing()))]
        except (Unplaceable, *MALFORMED):
            return needs

    def _carried(self, identity: tuple[str, str, str]) -> list[Json]:
        """The manifests of an object that Works carry, but the ones whose workload is gone from the member."""
        users = self.works.by_index("need", "/".join(identity))
        return [
            each
            for work in users
            if work.metadata.uid not in self._tidied and not stranger(work)
            for each in self._needs(work)
            if _identity(each) == identity
        ]

    async def _follow(self, work: WorkObject, kind: Kind, found: Full) -> str:
        """Bring what changed on the host since the last delivery to the object; why the member refused that, or "".

        The member's own changes stand. A refused change is offered again with a growing pause, and
        at once where the host asks for something else.
        """
        key, metadata = work.metadata.key, found.metadata
        made = self._made_for_member(work, kind, found)
        record = self._record(work, made)
        if metadata.annotations.get(keys.DELIVERED) == record:
            self._declined.pop(key, None)
            return ""
        last = recorded(metadata.annotations)
        patch = change(last, made, found.body)
        declined = self._declined.get(key)
        if declined is not None and declined[0] == record and self._pauses.pauses(key):
            return declined[1]
        patch.setdefault("metadata", {}).setdefault("annotations", {})[keys.DELIVERED] = record
        patch["metadata"]["resourceVersion"] = metadata.resource_version
        try:
            await self._member.merge_patch(
                kind.resource, metadata.name, patch, metadata.namespace, field_manager="atoll-delivery"
            )
        except (errors.NotFound, errors.Conflict):
            # The cache is behind; its event brings us back.
            return declined[1] if declined is not None else ""
        except errors.Unauthorized:
            raise
        except (errors.Invalid, errors.Forbidden) as error:
            problem = f"{self._cluster} refused a change and runs it as it was: {error.said}"
            if declined is None or declined[0] != record:
                self._pauses.forget(key)
            self._declined[key] = (record, problem)
            self._queue.add(key, after=self._pauses.failed(key))
            return problem
        self._declined.pop(key, None)
        self._pauses.forget(key)
        return ""

    def _record(self, work: WorkObject, made: Json) -> str:
        """See `delivered.encode`; made once for each version of the Work's spec and each way to make it."""
        way = made["metadata"]["annotations"].get(keys.MADE_FOR, "")
        key, version = work.metadata.key, (work.metadata.uid, work.metadata.generation, way)
        known = self._records.get(key)
        if known is None or known[0] != version:
            known = self._records[key] = (version, encode(made))
        return known[1]

    async def _deliver(self, work: WorkObject, kind: Kind) -> None:
        """Create the workload in the member, after its needs."""
        if work.exclusive and not await self._stands(work):
            raise Retry(self._settings.look_again)
        try:
            made = self._made_for_member(work, kind, None)
        except Unplaceable as error:
            await self._write_status(work, kind, str(error))
            return
        try:
            await self._namespaces.ensure(self._needs(work))
            for manifest in self._needs(work):
                if (manifest["apiVersion"], manifest["kind"]) in _SHARED:
                    await self._ensure_shared(manifest)
            await self._bring_dependencies(work, anew=True)
            manifest = with_record(made, self._record(work, made))
            await self._member.create(kind.resource, manifest, field_manager="atoll-delivery")
            until = asyncio.get_running_loop().time() + self._settings.trust
            self._created[work.metadata.key] = (work.binding_uid, work.epoch, until)
            self._pauses.forget(work.metadata.key)
            log.info("delivered", epoch=work.epoch)
        except errors.AlreadyExists:
            # The cache is behind; its event brings us back.
            return
        except errors.NotFound:
            # A namespace that was there is gone.
            self._present.clear()
            self._dependencies.forget(work.manifest["metadata"]["namespace"])
            raise
        except errors.Unauthorized:
            raise
        except NotAccepted as error:
            # Its event brings us back once the member's admin lets it in.
            await self._write_status(work, kind, f"refused by {self._cluster}: {error}", refused=str(error))
        except (errors.Invalid, errors.Forbidden) as error:
            self._present.clear()
            if _TERMINATING in error.said:
                # The namespace of an earlier workload goes; it is made anew once it is gone.
                raise Retry(self._settings.look_again) from error
            await self._write_status(work, kind, f"refused by {self._cluster}: {error.said}", refused=error.said)
            raise Retry(self._pauses.failed(work.metadata.key)) from error

    def _created_unseen(self, work: WorkObject) -> bool:
        """Whether this dispatch was created a moment ago, and the cache is behind."""
        uid, epoch, until = self._created.get(work.metadata.key, ("", -1, 0.0))
        return (uid, epoch) == (work.binding_uid, work.epoch) and asyncio.get_running_loop().time() < until

    async def _stands(self, work: WorkObject) -> bool:
        """Whether the host itself, not merely the cache, asks for a Work that is exclusive and may still start."""
        there = await _there(self._host, WORKS, work.metadata.name, work.metadata.namespace)
        stands = [each for each in there if decode_work(msgspec.json.encode(each)).same_dispatch(work)]
        return bool(stands) and not self._fenced()

    def _made_for_member(self, work: WorkObject, kind: Kind, found: Full | None) -> Json:
        """The manifest as this member's placer wants it; as it was when it was delivered, where it is there already.

        Raises:
            Unplaceable: the placer does not take it.
        """
        how = self._placing() if found is None else made_for(found.metadata.annotations.get(keys.MADE_FOR))
        if how is None:
            return work.manifest
        made = kind.placed(work.manifest, how)
        annotations = {**made["metadata"].get("annotations", {}), keys.MADE_FOR: how.text()}
        return {**made, "metadata": {**made["metadata"], "annotations": annotations}}

    async def _ensure_shared(self, manifest: Json) -> None:
        resource, identity = _SHARED[manifest["apiVersion"], manifest["kind"]], _identity(manifest)
        if identity in self._present:
            return
        name = manifest["metadata"]["name"]
        self._differing.pop(name, None)
        try:
            await self._member.create(resource, manifest, field_manager="atoll-delivery")
        except errors.AlreadyExists:
            log.debug("already in the member", kind=resource.kind, name=name)
            if resource == PRIORITY_CLASSES and (problem := await self._difference(manifest)):
                # Looked at again with the next workload that names it.
                self._differing[name] = problem
                return
        self._present.add(identity)

    async def _difference(self, manifest: Json) -> str:
        """Difference of a PriorityClass in the member; empty where none counts."""
        name, value = manifest["metadata"]["name"], manifest["value"]
        for there in await _there(self._member, PRIORITY_CLASSES, name):
            if there.get("value") != value:
                return (
                    f"PriorityClass {name} has value {there.get('value')} in {self._cluster}, and {value} on the host"
                )
        return ""

    async def _tidy(self, work: WorkObject) -> None:
        """Remove what Atoll made in the member for this workload, where no other one needs it.

        Namespaces stay, since no check shows that one is empty: there may be objects of any kind in it.
        """
        self._tidied.add(work.metadata.uid)
        for manifest in self._needs(work):
            resource, identity = _SHARED.get((manifest["apiVersion"], manifest["kind"])), _identity(manifest)
            if identity[0] in CARRIED:
                await self._dependencies.keep(identity)
                continue
            # Of Works that leave at once, the last one to come here removes it.
            users = self.works.by_index("need", "/".join(identity))
            if resource is None or any(each.metadata.uid not in self._tidied for each in users):
                continue
            _, namespace, name = identity
            self._present.discard(identity)
            for there in await _there(self._member, resource, name, namespace or None):
                if (there["metadata"].get("labels") or {}).get(keys.MADE) != "true":
                    continue
                try:
                    await self._member.delete(resource, name, namespace or None, uid=there["metadata"]["uid"])
                except (errors.NotFound, errors.Conflict):
                    log.debug("gone already", kind=resource.kind, name=name)
            # Another workload may have found it meanwhile.
            self._present.discard(identity)

    async def _withdraw(self, work: WorkObject, kind: Kind, found: Full | None) -> None:
        """Remove the object, wait until it and its pods are gone, then let the Work go."""
        if work.spec.preserve_resources_on_deletion:
            await self._leave_behind(work, kind, found)
            return
        if found is not None and found.metadata.annotations.get(keys.BINDING_UID) == work.binding_uid:
            await self._remove(kind, found)
            if self._end_pods is not None:
                await self._end_pods(work.binding_uid, int(EVICT_TIMEOUT) if work.grace is None else work.grace)
            await self._tell_leaving(work, kind)
            return
        if not await self._gone(work, kind):
            self._queue.add(work.metadata.key, after=self._settings.look_again)
            return
        if self._reservations is not None:
            self._reservations.release(work.binding_uid)
        if work.metadata.annotations.get(keys.FINAL) == "true":
            await self._remove_claims(work)
        await self._tidy(work)
        await self._let_go(work)

    async def _leave_behind(self, work: WorkObject, kind: Kind, found: Full | None) -> None:
        """Have the member keep the object and its needs, which are Atoll's no more, and end the Work."""
        if found is not None and found.metadata.annotations.get(keys.BINDING_UID) == work.binding_uid:
            # The fence is for what the host may run elsewhere.
            labels, notes = (keys.MANAGED, keys.ON_LOST), (keys.BINDING_UID, keys.EPOCH)
            patch = {"labels": dict.fromkeys(labels), "annotations": dict.fromkeys(notes)}
            about = found.metadata
            with suppress(errors.NotFound):
                await self._member.merge_patch(
                    kind.resource, about.name, {"metadata": {**patch, "uid": about.uid}}, about.namespace
                )
            log.info("left in the member, as its policy asks", kind=kind.resource.kind, workload=about.key)
        self._tidied.add(work.metadata.uid)
        for manifest in self._needs(work):
            if (identity := _identity(manifest))[0] in CARRIED:
                await self._dependencies.leave(identity)
        if self._reservations is not None:
            self._reservations.release(work.binding_uid)
        await self._let_go(work)

    async def _remove_claims(self, work: WorkObject) -> None:
        """Remove the PersistentVolumeClaims that were made for the workload, which is deleted on the host."""
        namespace = work.manifest["metadata"]["namespace"]
        selector = f"{keys.BINDING_UID}={work.binding_uid}"
        for claim in await self._member.list(CLAIMS, namespace, label_selector=selector):
            metadata = claim["metadata"]
            if not metadata.get("deletionTimestamp"):
                await self._delete(CLAIMS, metadata["name"], namespace, metadata["uid"])

    async def _let_go(self, work: WorkObject) -> None:
        rest = [name for name in work.metadata.finalizers if name != keys.WORK_FINALIZER]
        if len(rest) != len(work.metadata.finalizers):
            patch = {"metadata": {"finalizers": rest, "resourceVersion": work.metadata.resource_version}}
            try:
                await self._host.merge_patch(WORKS, work.metadata.name, patch, work.metadata.namespace)
            except errors.NotFound:
                return

    async def _tell_leaving(self, work: WorkObject, kind: Kind) -> None:
        """Say what keeps the pods of a part that was withdrawn; and that nothing does any more."""
        placement = self._placement(work.binding_uid)
        said = work.reported.get("placement") or {}
        if placement is not None and placement.get("leaving") != said.get("leaving"):
            placed = _placed(work, kind, placement)
            status = _status(work, kind, {**work.reported, "placement": placed}, "", self._differences(work))
            if status != work.status:
                await self._put_status(work, status)

    async def _gone(self, work: WorkObject, kind: Kind) -> bool:
        """Whether the member itself, and not merely its cache, has no object of this Work; if it has one, it goes."""
        wanted = work.manifest["metadata"]
        if self._objects[kind.resource].absent:
            return True
        for there in await _there(self._member, kind.resource, wanted["name"], wanted["namespace"]):
            metadata = there["metadata"]
            if (metadata.get("annotations") or {}).get(keys.BINDING_UID) == work.binding_uid:
                if not metadata.get("deletionTimestamp"):
                    await self._delete(kind.resource, wanted["name"], wanted["namespace"], metadata["uid"])
                return False
        return True

    async def _sweep(self, key: str) -> None:
        """Remove what came by a Work that is no more: its creation was under way when the Work was withdrawn."""
        namespace, name = key.split("/")
        for resource, reflector in self._objects.items():
            for obj in reflector.by_index("work", key):
                if not await _there(self._host, WORKS, name, namespace):
                    log.warning("no Work asks for it: removed", kind=resource.kind, workload=obj.metadata.key)
                    await self._remove(BY_GVK[resource.api_version, resource.kind], obj)

    async def _reserve(self, work: WorkObject, kind: Kind) -> None:
        """Hold capacity for a part that may not start yet, and report the result."""
        if self._reservations is None:
            await self._write_status(work, kind, "this agent makes no reservations")
            return
        metadata = work.manifest["metadata"]
        gang = gang_of(work, kind)
        if problem := self._namespaces.problem(metadata["namespace"]):
            if work.question is None:
                await self._write_status(work, kind, f"refused by {self._cluster}: {problem}", refused=problem)
                return
            pods = {"requested": gang.replicas, "available": 0}
            state: Json | None = {"epoch": work.epoch, "state": "Refused", "message": problem, **pods}
        elif refused := await self._claims_refused(work):
            await self._write_status(work, kind, f"refused by {self._cluster}: {refused}", refused=refused)
            return
        else:
            self._reservations.hold(
                work.binding_uid, work.epoch, gang, metadata["name"], metadata["namespace"], gone=work.question
            )
            state = self._reservations.state(work.binding_uid)
        if state is not None:
            item = {"identifier": identifier(work, kind), "status": {"reservation": state}, "health": "Unknown"}
            status = {"conditions": list(work.status.get("conditions") or ()), "manifestStatuses": [item]}
            if status != work.status:
                await self._put_status(work, status)
        self._queue.add(work.metadata.key, after=self._settings.renew)

    async def _claims_refused(self, work: WorkObject) -> str:
        """Make the claims of pods to hold capacity for, since only existing claims show the nodes that reach them;
        why the member refused that, or "".
        """
        claims = [each for each in self._needs(work) if each["kind"] == CLAIMS.kind]
        try:
            if claims:
                await self._namespaces.ensure(self._needs(work))
            for each in claims:
                if not self._dependencies.has(_identity(each), each):
                    await self._dependencies.keep(_identity(each))
        except NotAccepted as error:
            return str(error)
        except errors.Unauthorized:
            raise
        except (errors.Invalid, errors.Forbidden) as error:
            return error.said
        return ""

    async def _remove(self, kind: Kind, found: Full) -> None:
        """Delete an object; in the foreground, so that it stays until its pods are gone."""
        if found.metadata.deletion_timestamp is None:
            metadata = found.metadata
            await self._delete(kind.resource, metadata.name, metadata.namespace, metadata.uid)

    async def _delete(self, resource: ApiResource, name: str, namespace: str, uid: str) -> None:
        try:
            await self._member.delete(resource, name, namespace, uid=uid, propagation="Foreground")
        except (errors.NotFound, errors.Conflict):
            # The cache is behind: it is gone, or another one has its name.
            return

    # -- status ------------------------------------------------------------------------------------------------------

    async def _report(self, work: WorkObject, kind: Kind, found: Full, problem: str) -> None:
        """Tell the host what the member says, at the right moment; with a change that it refused, if it did."""
        reported: Json = dict(found.body.get("status") or {})
        placement = self._placement(work.binding_uid)
        if placement is not None:
            reported["placement"] = _placed(work, kind, placement)
        hold = self._reservations.state(work.binding_uid) if self._reservations is not None else None
        if hold is not None:
            reported["reservation"] = hold
        if words := self._refused(work, kind, found):
            reported["refused"] = {"epoch": work.epoch, "message": words}
        elif kind.finished(reported) is None and self._pods(work.binding_uid) < gang_of(work, kind).min_available:
            reported["unmade"] = True
        if words := kind.suspended(reported):
            reported["suspended"] = words
        if generation := numbers.whole(found.metadata.annotations.get(keys.GENERATION)):
            reported["delivered"] = {"generation": generation, "own": found.metadata.generation}
        wanted = _status(work, kind, reported, problem, self._differences(work))
        key = work.metadata.key
        if wanted == work.status:
            self._changed_at.pop(key, None)
            return
        now = asyncio.get_running_loop().time()
        since = self._changed_at.setdefault(key, now)
        if kind.finished(reported) is None:
            soon = "refused" in reported or (placement and (placement.get("nodes") or placement.get("waiting")))
            patience = self._settings.settle if soon else self._settings.patience
            due = max(since + patience, self._written_at.get(key, -self._settings.quiet) + self._settings.quiet)
            if due > now:
                self._queue.add(key, after=due - now)
                return
        await self._put_status(work, wanted)

    def _refused(self, work: WorkObject, kind: Kind, found: Full) -> str:
        """Why not all pods of the workload could be made, in the words of the member; empty where they are there."""
        words = self._refusals.of(found.metadata.uid)
        if not words or kind.finished(found.body.get("status") or {}) is not None:
            return ""
        return words if self._pods(work.binding_uid) < gang_of(work, kind).replicas else ""

    def _differences(self, work: WorkObject) -> tuple[str, str]:
        """Differences of the workload's needs in the member: (reason, text)."""
        named = [each["metadata"]["name"] for each in self._needs(work) if each["kind"] == PRIORITY_CLASSES.kind]
        classes = [self._differing[name] for name in named if name in self._differing]
        others = [text for each in self._needs(work) if (text := self._dependencies.problem(_identity(each)))]
        return "PriorityClassDiffers" if classes else "DependencyDiffers", "; ".join([*classes, *others])

    async def _write_status(self, work: WorkObject, kind: Kind | None, problem: str, *, refused: str = "") -> None:
        """Tell the host why the workload is not there. `refused`: by the member's API server, in its words."""
        reported = {**work.reported, "refused": {"epoch": work.epoch, "message": refused}} if refused else work.reported
        wanted = _status(work, kind, reported, problem, self._differences(work))
        if wanted != work.status:
            await self._put_status(work, wanted)

    def _as_written(self, work: WorkObject) -> WorkObject:
        """The Work with the status that it has got since, where the cache is behind: else that is written again."""
        key = work.metadata.key
        if key not in self._written:
            return work
        version, status = self._written[key]
        late = asyncio.get_running_loop().time() >= self._written_at[key] + self._settings.trust
        if late or not versions.older(work.metadata.resource_version, version):
            del self._written[key]
            return work
        return msgspec.structs.replace(work, status=status)

    async def _put_status(self, work: WorkObject, status: Json) -> None:
        key = work.metadata.key
        self._changed_at.pop(key, None)
        self._written_at[key] = asyncio.get_running_loop().time()
        operations: list[Json] = [
            {"op": "test", "path": "/metadata/uid", "value": work.metadata.uid},
            {"op": "add", "path": "/status", "value": status},
        ]
        try:
            answer = await self._host.json_patch(
                WORKS, work.metadata.name, operations, work.metadata.namespace, subresource="status"
            )
        except errors.NotFound:
            self._written_at.pop(key, None)
            self._written.pop(key, None)
            return
        seen, version = self.works.get(key), answer["metadata"]["resourceVersion"]
        if seen is not None and versions.older(seen.metadata.resource_version, version):
            self._written[key] = (version, status)
            # The watch may never show it, where the store was put back to an earlier state.
            self._queue.add(key, after=self._settings.trust)


def _identity(manifest: Json) -> tuple[str, str, str]:
    """(kind, namespace, name) of something that workloads need."""
    metadata = manifest.get("metadata") or {}
    return str(manifest.get("kind", "")), str(metadata.get("namespace", "")), str(metadata.get("name", ""))


async def _there(api: ApiServer, resource: ApiResource, name: str, namespace: str | None = None) -> list[Json]:
    """The object as the server, not a cache, has it; empty if it has none. For accounts that may list, but not get."""
    return await api.list(resource, namespace, field_selector=f"metadata.name={name}")


def _status(work: WorkObject, kind: Kind | None, reported: Json, problem: str, differing: tuple[str, str]) -> Json:
    """The Work's status: whether it is applied, and what the member says of it."""
    conditions = with_condition(
        list(work.status.get("conditions") or ()),
        "Applied",
        not problem,
        "AppliedFailed" if problem else "AppliedSuccessful",
        problem,
        now=time.time(),
    )
    reason, text = differing
    if text or any(each["type"] == "NeedsAgree" for each in conditions):
        conditions = with_condition(
            conditions, "NeedsAgree", not text, reason if text else "NeedsAgree", text, now=time.time()
        )
    if kind is None:
        return {"conditions": conditions}
    health = {True: "Healthy", False: "Unhealthy", None: "Unknown"}[kind.healthy(reported)]
    item: Json = {"identifier": identifier(work, kind), "status": reported, "health": health}
    return {"conditions": conditions, "manifestStatuses": [item]}


def _placed(work: WorkObject, kind: Kind, placement: Json) -> Json:
    """The placement as reported to the host: requests of pods only where they exceed the workload's."""
    told = {name: value for name, value in placement.items() if name != "requests"}
    requests = placement.get("requests")
    if requests and (more := beyond(gang_of(work, kind), requests)):
        told["requests"] = more
    return told
