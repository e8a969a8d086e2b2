"""The loop of one member: makes its objects follow the Works on the host, and the Works' status follow its objects.

Level-based: each look at a Work compares the Work, the object in the member and the status last written, and does
missing steps. Identity is (binding UID, epoch): an object of an older epoch is removed before a newer one is made,
and an older one is never made after a newer one was seen.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec
import structlog

from atoll.delivery.changes import LaterChanges, manifest_for
from atoll.delivery.delivered import with_record
from atoll.delivery.memory import WorkMemory
from atoll.delivery.namespaces import NotAccepted
from atoll.delivery.needs import Needs
from atoll.delivery.refusals import Ownership, PodRefusals
from atoll.delivery.removal import EndPods, Removal
from atoll.delivery.reservations import Asked, Reservations
from atoll.delivery.settings import DeliverySettings
from atoll.delivery.statuses import PlacementOf, Statuses
from atoll.delivery.steps import Look, Step, step
from atoll.delivery.work import WorkObject, decode_work, gang_of, stranger, work_name
from atoll.kinds import BY_GVK, BY_RESOURCE, Kind
from atoll.kube import errors
from atoll.kube.backoff import Backoff
from atoll.kube.errors import Retry
from atoll.kube.pace import URGENT
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys
from atoll.model.apiresource import WORKS, ApiResource
from atoll.model.objects import Full, made_by
from atoll.model.placer import MadeFor, Unplaceable

Json = dict[str, Any]

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
        self._reservations, self._placing, self._fenced = reservations, placing, fenced
        self.works = Reflector(host, WORKS, decode_work, namespace=keys.execution_namespace(cluster))
        self._queue: WorkQueue[str] = WorkQueue("delivery", self._about)
        #: by key of the Work
        self._memory: defaultdict[str, WorkMemory] = defaultdict(WorkMemory)
        #: binding UID -> newest epoch seen
        self._newest: dict[str, int] = {}
        #: of Works with something that the member refused
        self._pauses: Backoff[str] = Backoff(settings.refused_first, settings.refused_most)
        self._changes = LaterChanges(member, cluster, self._queue, self._memory, self._pauses)
        self._refusals = PodRefusals(member, ownership)
        self._needs = Needs(member, cluster, self.works, placing)
        self._statuses = Statuses(
            host,
            cluster,
            self.works,
            self._queue,
            self._memory,
            differences=self._needs.differences,
            placement=placement,
            hold=reservations.state if reservations is not None else lambda _: None,
            pods=pods,
            refusal=self._refusals.of,
            settings=settings,
        )
        self._removal = Removal(
            host,
            member,
            objects,
            self._queue,
            self._needs,
            self._statuses,
            end_pods=end_pods,
            release=self._release,
            settings=settings,
        )
        self._refusals.on_change(self._pods_refused)
        self._needs.namespaces.on_change(self._namespace_changed)
        if reservations is not None:
            reservations.on_change(self.touch)
        self.works.add_index("binding", lambda work: [work.binding_uid])
        self.works.on_change(self._work_changed)
        for resource, reflector in objects.items():
            reflector.add_index("work", partial(self._work_of, resource))
            reflector.add_index("uid", lambda obj: [obj.metadata.uid])
            reflector.on_change(partial(self._object_changed, resource))

    @property
    def synced(self) -> bool:
        return self.works.synced.is_set()

    async def run(self) -> None:
        """Watch and reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.works.run())
            group.create_task(self._refusals.run())
            group.create_task(self._needs.namespaces.run())
            await self.works.synced.wait()
            if self._reservations is not None:
                self._reservations.recall(self._asked())
            await self._needs.namespaces.wait()
            for reflector in self._objects.values():
                await reflector.synced.wait()
            group.create_task(self._queue.run(self.reconcile, workers=self._settings.workers))

    def just_sent(self, binding_uid: str, epoch: int) -> bool:
        """Whether this process sent this dispatch to the member a moment ago, and the host still asks for it."""
        now = asyncio.get_running_loop().time()
        return any(
            work.epoch == epoch
            and work.metadata.deletion_timestamp is None
            and (sent := self._memory[work.metadata.key].sent) is not None
            and sent[:2] == (binding_uid, epoch)
            and now < sent[2]
            for work in self.works.by_index("binding", binding_uid)
        )

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
        self._needs.work_changed(old, new)
        if new is not None:
            uid = new.binding_uid
            self._newest[uid] = max(new.epoch, self._newest.get(uid, 0))
            if self._reservations is not None and (spots := new.expected):
                self._reservations.expect(uid, new.epoch, spots)
            self._grant(old, new)
            started = old is None or old.metadata.generation != new.metadata.generation
            self._queue.add(new.metadata.key, priority=URGENT if started else 0)
        elif old is not None:
            self._memory.pop(old.metadata.key, None)
            self._pauses.forget(old.metadata.key)
            self._newest.pop(old.binding_uid, None)
            # Questions go without a word.
            self._release(old.binding_uid)
            # Its objects must go with it.
            self._queue.add(old.metadata.key)

    def _release(self, uid: str) -> None:
        if self._reservations is not None:
            self._reservations.release(uid)

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
            kind = BY_RESOURCE.get(resource)
            ended = kind is not None and kind.finished(new.body.get("status") or {}) is not None
            for key in self._work_of(resource, new):
                self._queue.add(key, priority=URGENT if ended else 0)
        elif old is not None:
            for key in self._work_of(resource, old):
                if key in self._memory:
                    self._memory[key].created = None

    def _pods_refused(self, uid: str) -> None:
        for resource, reflector in self._objects.items():
            for obj in reflector.by_index("uid", uid):
                for key in self._work_of(resource, obj):
                    self._queue.add(key)

    def _namespace_changed(self, name: str) -> None:
        for work in self._needs.in_namespace(name):
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
            await self._removal.sweep(key)
            return
        look = self._look(self._statuses.as_written(work))
        taken, work, kind, found = step(look), look.work, look.kind, look.found
        if kind is None:
            await self._without_kind(taken, work, look.problem)
            return
        match taken:
            case Step.WITHDRAW:
                await self._removal.withdraw(work, kind, found)
            case Step.RESERVE:
                await self._reserve(work, kind)
            case Step.NO_CRD:
                lacks = f"there is no {kind.resource.kind} ({kind.resource.api_version}): its CRD is missing"
                await self._statuses.refuse(work, kind, lacks)
                raise Retry(self._pauses.failed(key))
            case Step.AWAIT_CACHE:
                self._queue.add(key, after=self._settings.trust)
            case Step.DELIVER:
                await self._deliver(work, kind)
        if found is None:
            return
        match taken:
            case Step.OVERWRITE:
                log.warning("overwritten, as its policy asks", object=found.metadata.key)
                await self._removal.remove(kind, found)
                # Its end is no event of this Work.
                self._queue.add(key, after=self._settings.look_again)
            case Step.NAME_TAKEN:
                there = (
                    f"{kind.resource.kind} {found.metadata.key} exists there and is not Atoll's{made_by(found.body)}"
                )
                await self._statuses.refuse(work, kind, f"{there}: rename the workload or delete that one")
                # The end of that object is no event of this Work.
                raise Retry(self._pauses.failed(key))
            case Step.REPLACE:
                await self._removal.remove(kind, found)
            case Step.FOLLOW:
                problem = ""
                if found.metadata.deletion_timestamp is None:
                    problem = await self._needs.keep(work)
                    problem = await self._changes.follow(work, kind, found) or problem
                await self._statuses.report(work, kind, found, problem)

    def _look(self, work: WorkObject) -> Look:
        """Everything that decides about the next step."""
        manifest, problem = work.manifest, stranger(work)
        kind = None if problem else BY_GVK.get((manifest["apiVersion"], manifest["kind"]))
        if kind is None or (reflector := self._objects.get(kind.resource)) is None:
            return Look(work, problem, None, None, 0, crd_missing=False, created_unseen=False)
        found = reflector.get(f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}")
        now = asyncio.get_running_loop().time()
        return Look(
            work,
            "",
            kind,
            found,
            self._newest.get(work.binding_uid, 0),
            crd_missing=reflector.absent,
            created_unseen=self._memory[work.metadata.key].created_unseen(work, now),
        )

    async def _without_kind(self, taken: Step, work: WorkObject, problem: str) -> None:
        """Deliver nothing of a Work that Atoll's control did not make, or of a kind that this agent does not serve."""
        match taken:
            case Step.LET_GO:
                await self._removal.let_go(work)
            case Step.TURN_AWAY:
                await self._statuses.explain(work, None, f"not delivered, it is not Atoll's: {problem}")
            case _:
                manifest = work.manifest
                text = f"this agent does not serve {manifest['kind']} ({manifest['apiVersion']})"
                await self._statuses.explain(work, None, text)

    async def _deliver(self, work: WorkObject, kind: Kind) -> None:
        """Create the workload in the member, after its needs."""
        if work.exclusive and not await self._stands(work):
            raise Retry(self._settings.look_again)
        try:
            made = manifest_for(work, kind, self._placing())
        except Unplaceable as error:
            await self._statuses.explain(work, kind, str(error))
            return
        try:
            await self._needs.make(work)
            manifest = with_record(made, self._changes.record(work, made))
            # Before the request: the watch may tell of the object before the answer does.
            until = asyncio.get_running_loop().time() + self._settings.trust
            self._memory[work.metadata.key].sent = (work.binding_uid, work.epoch, until)
            await self._member.create(kind.resource, manifest, field_manager="atoll-delivery")
            until = asyncio.get_running_loop().time() + self._settings.trust
            self._memory[work.metadata.key].created = (work.binding_uid, work.epoch, until)
            self._pauses.forget(work.metadata.key)
            log.info("delivered", epoch=work.epoch)
        except errors.AlreadyExists:
            # The cache is behind; its event brings us back.
            return
        except errors.NotFound:
            # A namespace that was there is gone.
            self._needs.distrust(work.manifest["metadata"]["namespace"])
            raise
        except errors.Unauthorized:
            raise
        except NotAccepted as error:
            # Its event brings us back once the member's admin lets it in.
            await self._statuses.refuse(work, kind, str(error))
        except (errors.Invalid, errors.Forbidden) as error:
            self._needs.distrust()
            if _TERMINATING in error.said:
                # The namespace of an earlier workload goes; it is made anew once it is gone.
                raise Retry(self._settings.look_again) from error
            await self._statuses.refuse(work, kind, error.said)
            raise Retry(self._pauses.failed(work.metadata.key)) from error

    async def _stands(self, work: WorkObject) -> bool:
        """Whether the host itself, not merely the cache, asks for a Work that is exclusive and may still start."""
        there = await self._host.named(WORKS, work.metadata.name, work.metadata.namespace)
        stands = [each for each in there if decode_work(msgspec.json.encode(each)).same_dispatch(work)]
        return bool(stands) and not self._fenced()

    async def _reserve(self, work: WorkObject, kind: Kind) -> None:
        """Hold capacity for a part that may not start yet, and report the result."""
        if self._reservations is None:
            await self._statuses.explain(work, kind, "this agent makes no reservations")
            return
        metadata = work.manifest["metadata"]
        gang = gang_of(work, kind)
        if problem := self._needs.problem(work):
            if work.question is None:
                await self._statuses.refuse(work, kind, problem)
                return
            pods = {"requested": gang.replicas, "available": 0}
            state: Json | None = {"epoch": work.epoch, "state": "Refused", "message": problem, **pods}
        elif refused := await self._needs.make_claims(work):
            await self._statuses.refuse(work, kind, refused)
            return
        else:
            self._reservations.hold(
                work.binding_uid, work.epoch, gang, metadata["name"], metadata["namespace"], gone=work.question
            )
            state = self._reservations.state(work.binding_uid)
        if state is not None:
            await self._statuses.reserve(work, kind, state)
        self._queue.add(work.metadata.key, after=self._settings.renew)
