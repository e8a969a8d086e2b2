"""Work that Atoll does not run, in namespaces that have opted in: an Event on it says so.

It is of a kind that Atoll does not know, or of a version of one that it does not know, where the CRD serves no other.
Nothing is changed. Objects of a host's controller (the pods of a Deployment, say) get no message, nor do objects
from long before this process: a new leader says nothing again.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial

import orjson
import structlog

from atoll.control.caches import Caches
from atoll.control.settings import UnservedSettings
from atoll.kinds import BY_RESOURCE, KINDS, known, unserved
from atoll.kube import errors
from atoll.kube.crds import crd_name
from atoll.kube.events import Recorder
from atoll.kube.reflector import Reflector
from atoll.kube.served import served
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import ApiResource
from atoll.model.objects import Slim, decode_meta
from atoll.model.timestamps import to_seconds

log = structlog.get_logger(__name__)


class Unserved:
    """Watches the kinds of `atoll.kinds.unserved`, metadata only."""

    def __init__(
        self, host: ApiServer, caches: Caches, recorder: Recorder, *, settings: UnservedSettings = UnservedSettings()
    ) -> None:
        """No I/O happens here."""
        self._settings = settings
        self._host, self._caches, self._recorder = host, caches, recorder
        #: name of the CRD -> its resource
        self._known = {crd_name(each): each for each in unserved.BY_CRD}
        #: name of the CRD -> the resource of a kind that Atoll runs, where the CRD serves its version
        self._served = {crd_name(kind.resource): kind.resource for kind in KINDS if kind.optional}
        self._found: asyncio.Queue[ApiResource] = asyncio.Queue()
        #: name of the CRD -> the watch of its objects
        self._watches: dict[str, asyncio.Task[None]] = {}
        caches.crds.on_change(self._crd_changed)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for resource in unserved.BUILT_IN:
                group.create_task(self._watch(resource))
            while True:
                resource = await self._found.get()
                name = crd_name(resource)
                if name in self._served:
                    # Its CRD may serve other versions than before.
                    if (before := self._watches.pop(name, None)) is not None:
                        before.cancel()
                    self._watches[name] = group.create_task(self._watch_another_version(resource))
                elif name not in self._watches:
                    self._watches[name] = group.create_task(self._watch(resource))

    def _crd_changed(self, old: Slim | None, new: Slim | None) -> None:
        if new is None and old is not None and (task := self._watches.pop(old.metadata.name, None)):
            task.cancel()
        elif new is not None:
            name = new.metadata.name
            if resource := self._known.get(name) or self._served.get(name):
                self._found.put_nowait(resource)

    async def _watch_another_version(self, resource: ApiResource) -> None:
        """Watch what the CRD serves instead of the version that Atoll runs, if it is so."""
        cache = self._caches.workloads.get(resource)
        await asyncio.sleep(self._settings.settle)
        if not isinstance(cache, Reflector) or not cache.absent:
            return
        try:
            group = orjson.loads(await self._host.request("GET", f"/apis/{resource.group}"))
            others = [replace(resource, version=str(each["version"])) for each in group["versions"]]
            found = await served(self._host, others)
        except errors.ApiError as error:
            log.warning("can't tell which versions are served", crd=crd_name(resource), why=error.said)
            return
        if found and resource not in found:
            await self._watch(found[0])

    async def _watch(self, resource: ApiResource) -> None:
        reflector: Reflector[Slim] = Reflector(self._host, resource, decode_meta, metadata_only=True)
        reflector.on_change(partial(self._changed, resource))
        await reflector.run()

    def _changed(self, resource: ApiResource, old: Slim | None, new: Slim | None) -> None:
        if new is None or (old is not None and old.metadata.uid == new.metadata.uid):
            return
        if any(each.resource == resource and each.assembly is None for each in known()):
            # A user has declared it.
            return
        meta = new.metadata
        kind = BY_RESOURCE.get(resource)
        if kind is not None and kind.assembly is not None and kind.assembly.name({"metadata": {"labels": meta.labels}}):
            return
        if any(owner.controller for owner in meta.owner_references) or not self._caches.left_to_atoll(resource, meta):
            return
        if meta.creation_timestamp and time.time() - to_seconds(meta.creation_timestamp) > self._settings.fresh:
            return
        about = {"apiVersion": resource.api_version, "kind": resource.kind}
        about |= {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
        self._recorder.record(about, "NotServed", self._text(resource), warning=True)

    def _text(self, resource: ApiResource) -> str:
        text = (
            f"Atoll does not run {resource.kind} ({resource.api_version}): nothing takes it to a member, though its"
            f" namespace has opted in ({keys.ENABLED}=true)"
        )
        if ours := self._served.get(crd_name(resource)):
            return f"{text}; Atoll runs those of {ours.api_version}: have the CRD serve that version"
        titles = " or a ".join(each.words.title for each in known())
        declared = " or declare the kind by a WorkloadKind," if "." in resource.group else ""
        return f"{text};{declared} use a {titles}"
