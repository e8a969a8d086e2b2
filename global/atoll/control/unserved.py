"""Work that Atoll does not run, in namespaces that have opted in: an Event on it says so.

Nothing is changed. What a controller of the host made (the pods of a Deployment, say) is not told of, nor what was
there long before this process: a new leader says nothing again.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from atoll.control.caches import Caches
from atoll.control.settings import UnservedSettings
from atoll.kinds import BY_RESOURCE, known, unserved
from atoll.kube.crds import crd_name
from atoll.kube.events import Recorder
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import ApiResource
from atoll.model.objects import Slim, decode_meta
from atoll.model.timestamps import to_seconds


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
                if name not in self._watches:
                    self._watches[name] = group.create_task(self._watch(resource))

    def _crd_changed(self, old: Slim | None, new: Slim | None) -> None:
        if new is None and old is not None and (task := self._watches.pop(old.metadata.name, None)):
            task.cancel()
        elif new is not None and (resource := self._known.get(new.metadata.name)):
            self._found.put_nowait(resource)

    async def _watch(self, resource: ApiResource) -> None:
        reflector: Reflector[Slim] = Reflector(self._host, resource, decode_meta, metadata_only=True)
        reflector.on_change(partial(self._changed, resource))
        await reflector.run()

    def _changed(self, resource: ApiResource, old: Slim | None, new: Slim | None) -> None:
        if new is None or (old is not None and old.metadata.uid == new.metadata.uid):
            return
        meta = new.metadata
        kind = BY_RESOURCE.get(resource)
        if kind is not None and kind.assembly is not None and kind.assembly.name({"metadata": {"labels": meta.labels}}):
            return
        if any(owner.controller for owner in meta.owner_references) or not self._caches.enabled(meta.namespace):
            return
        if meta.creation_timestamp and time.time() - to_seconds(meta.creation_timestamp) > self._settings.fresh:
            return
        about = {"apiVersion": resource.api_version, "kind": resource.kind}
        about |= {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
        titles = " or a ".join(each.words.title for each in known())
        text = (
            f"Atoll does not run {resource.kind} ({resource.api_version}) yet: nothing takes it to a member, though its"
            f" namespace has opted in ({keys.ENABLED}=true); use a {titles}"
        )
        self._recorder.record(about, "NotServed", text, warning=True)
