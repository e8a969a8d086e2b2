"""Needs of the workloads in one member: namespaces, PriorityClasses, and objects that pods refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import structlog

from atoll.delivery.carried_objects import CARRIED, Dependencies, Identity
from atoll.delivery.namespaces import Namespaces, NotAccepted
from atoll.delivery.work import WorkObject, stranger
from atoll.kinds import BY_GVK, brought
from atoll.kube import errors
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import CLAIMS, NAMESPACES, PRIORITY_CLASSES
from atoll.model.objects import MALFORMED
from atoll.model.placer import MadeFor, Unplaceable

Json = dict[str, Any]

#: what workloads need and others may need as well, and goes with the last of them
_SHARED = {(PRIORITY_CLASSES.api_version, PRIORITY_CLASSES.kind): PRIORITY_CLASSES}
_INDEX = "need"

log = structlog.get_logger(__name__)


class Needs:
    """Makes, keeps and removes them; one Work of several that need one object is enough."""

    def __init__(
        self, member: ApiServer, cluster: str, works: Reflector[WorkObject], placing: Callable[[], MadeFor]
    ) -> None:
        """No I/O happens here; adds an index to the cache of Works.

        Args:
            member: its API server.
            cluster: its name.
            works: all Works of the member.
            placing: how workloads are made for the member at this moment.
        """
        self._member, self._cluster, self._works, self._placing = member, cluster, works, placing
        self.namespaces = Namespaces(member, cluster)
        self._dependencies = Dependencies(member, cluster, self._carried)
        works.add_index(_INDEX, lambda work: ["/".join(_identity(each)) for each in self.of(work)])
        #: shared objects known to be in the member
        self._present: set[Identity] = set()
        #: what Works that go on do not name any more
        self._dropped: set[Identity] = set()
        #: UIDs of Works that go, and whose workload is gone from the member
        self._tidied: set[str] = set()
        #: PriorityClass -> its differences in the member
        self._differing: dict[str, str] = {}

    def of(self, work: WorkObject) -> list[Json]:
        """Manifests of a workload's needs, with the ones that its kind brings along."""
        needs, manifest = work.spec.workload.manifests[:-1], work.manifest
        kind = BY_GVK.get((str(manifest.get("apiVersion")), str(manifest.get("kind"))))
        if kind is None or kind.referred is None:
            return needs
        try:
            return [*needs, *brought(kind, kind.placed(manifest, self._placing()))]
        except (Unplaceable, *MALFORMED):
            return needs

    def work_changed(self, old: WorkObject | None, new: WorkObject | None) -> None:
        """Remember what pods refer to no longer; a Work that is gone is forgotten."""
        if new is None:
            self._tidied.discard(old.metadata.uid if old is not None else "")
        elif old is not None:
            left = set(map(_identity, self.of(new)))
            before = map(_identity, self.of(old))
            self._dropped.update(each for each in before if each[0] in CARRIED and each not in left)

    def in_namespace(self, name: str) -> Iterable[WorkObject]:
        """Works with workloads in a namespace that changed: objects in it may be gone."""
        self._dependencies.forget(name)
        return self._works.by_index(_INDEX, "/".join((NAMESPACES.kind, "", name)))

    def problem(self, work: WorkObject) -> str:
        """Why the namespace of a workload takes none of Atoll's; empty where it does."""
        return self.namespaces.problem(work.manifest["metadata"]["namespace"])

    def differences(self, work: WorkObject) -> tuple[str, str]:
        """Differences of the workload's needs in the member: (reason, text)."""
        named = [each["metadata"]["name"] for each in self.of(work) if each["kind"] == PRIORITY_CLASSES.kind]
        classes = [self._differing[name] for name in named if name in self._differing]
        others = [text for each in self.of(work) if (text := self._dependencies.problem(_identity(each)))]
        return "PriorityClassDiffers" if classes else "DependencyDiffers", "; ".join([*classes, *others])

    async def make(self, work: WorkObject) -> None:
        """Have all of them in the member, even the ones that seem to be there.

        Raises:
            NotAccepted: the namespace takes none of Atoll's workloads.
            ApiError: the member refuses one.
        """
        await self.namespaces.ensure(self.of(work))
        for manifest in self.of(work):
            if (manifest["apiVersion"], manifest["kind"]) in _SHARED:
                await self._ensure_shared(manifest)
        await self._bring(work, anew=True)

    def distrust(self, namespace: str = "") -> None:
        """Objects may be gone: shared ones, and the ones in this namespace."""
        self._present.clear()
        if namespace:
            self._dependencies.forget(namespace)

    async def keep(self, work: WorkObject) -> str:
        """Have the needs of a workload that is there as on the host; why the member refused that, or ""."""
        return await self._keep_rules(work) or await self._keep_dependencies(work)

    async def _keep_rules(self, work: WorkObject) -> str:
        try:
            await self.namespaces.ensure(self.of(work))
        except NotAccepted:
            # Present objects stay, though its namespace may be accepted no more.
            return ""
        except errors.Unauthorized:
            raise
        except (errors.Invalid, errors.Forbidden) as error:
            return f"{self._cluster} refused the rules of its namespace, and runs it without them: {error.said}"
        return ""

    async def _keep_dependencies(self, work: WorkObject) -> str:
        if self.problem(work):
            # Present objects stay, though its namespace is accepted no more.
            return ""
        try:
            await self._bring(work)
        except errors.Unauthorized:
            raise
        except (errors.Invalid, errors.Forbidden) as error:
            return f"{self._cluster} refused what its pods refer to, and runs it without: {error.said}"
        return ""

    async def make_claims(self, work: WorkObject) -> str:
        """Make the claims of pods to hold capacity for, since only existing claims show the nodes that reach them;
        why the member refused that, or "".
        """
        claims = [each for each in self.of(work) if each["kind"] == CLAIMS.kind]
        try:
            if claims:
                await self.namespaces.ensure(self.of(work))
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

    async def tidy(self, work: WorkObject) -> None:
        """Remove what Atoll made in the member for this workload, where no other one needs it.

        Namespaces stay, since no check shows that one is empty: there may be objects of any kind in it.
        """
        self._tidied.add(work.metadata.uid)
        for manifest in self.of(work):
            resource, identity = _SHARED.get((manifest["apiVersion"], manifest["kind"])), _identity(manifest)
            if identity[0] in CARRIED:
                await self._dependencies.keep(identity)
                continue
            # Of Works that leave at once, the last one to come here removes it.
            users = self._works.by_index(_INDEX, "/".join(identity))
            if resource is None or any(each.metadata.uid not in self._tidied for each in users):
                continue
            _, namespace, name = identity
            self._present.discard(identity)
            for there in await self._member.named(resource, name, namespace or None):
                if (there["metadata"].get("labels") or {}).get(keys.MADE) != "true":
                    continue
                try:
                    await self._member.delete(resource, name, namespace or None, uid=there["metadata"]["uid"])
                except (errors.NotFound, errors.Conflict):
                    log.debug("gone already", kind=resource.kind, name=name)
            # Another workload may have found it meanwhile.
            self._present.discard(identity)

    async def leave(self, work: WorkObject) -> None:
        """Let the member keep what pods refer to, which is its own from now on."""
        self._tidied.add(work.metadata.uid)
        for manifest in self.of(work):
            if (identity := _identity(manifest))[0] in CARRIED:
                await self._dependencies.leave(identity)

    async def _bring(self, work: WorkObject, *, anew: bool = False) -> None:
        """Have what pods refer to in the member; and nothing that none of them refers to any more."""
        while self._dropped:
            identity = self._dropped.pop()
            if not self._carried(identity):
                await self._dependencies.keep(identity)
        for manifest in self.of(work):
            identity = _identity(manifest)
            if identity[0] in CARRIED and (anew or not self._dependencies.has(identity, manifest)):
                await self._dependencies.keep(identity, anew=anew)

    def _carried(self, identity: Identity) -> list[Json]:
        """The manifests of an object that Works carry, but the ones whose workload is gone from the member."""
        users = self._works.by_index(_INDEX, "/".join(identity))
        return [
            each
            for work in users
            if work.metadata.uid not in self._tidied and not stranger(work)
            for each in self.of(work)
            if _identity(each) == identity
        ]

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
        for there in await self._member.named(PRIORITY_CLASSES, name):
            if there.get("value") != value:
                return (
                    f"PriorityClass {name} has value {there.get('value')} in {self._cluster}, and {value} on the host"
                )
        return ""


def _identity(manifest: Json) -> Identity:
    metadata = manifest.get("metadata") or {}
    return str(manifest.get("kind", "")), str(metadata.get("namespace", "")), str(metadata.get("name", ""))
