"""Another writer for `init` and `join`: it records their writes in order, and no server keeps any of them.

A `Rehearsal` reads from a real API server and has it judge each write (`dryRun=All`). What a real run had made by then,
such as the namespace of an account, exists in the record alone; objects that depend on it are recorded unjudged.
`Nowhere` is a rehearsal without any server: it renders what a first installation writes.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson

from atoll.install.versions import NEWEST
from atoll.kube import errors
from atoll.kube.config import Connection
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import CRDS, NAMESPACES, SECRETS, ApiResource

Json = dict[str, Any]
Key = tuple[ApiResource, str, str]
"""Resource, namespace (empty for none) and name."""

_ESTABLISHED: Final[Json] = {"status": {"conditions": [{"type": "Established", "status": "True"}]}}
_SERVERS_OWN: Final = frozenset({"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"})
"""Metadata that changes with writes that change nothing else."""


class Outcome(StrEnum):
    """What a run does to an object."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    DELETED = "deleted"


@dataclass(slots=True)
class Write:
    """All writes of one object."""

    content: Json
    """Written fields, of all writes merged."""
    before: Json | None
    """The object before the first write; None where there was none."""
    after: Json | None
    """After the last one; None once deleted."""

    @property
    def outcome(self) -> Outcome:
        if self.after is None:
            return Outcome.DELETED
        if self.before is None:
            return Outcome.CREATED
        return Outcome.UNCHANGED if _own(self.before) == _own(self.after) else Outcome.CHANGED


class Rehearsal(ApiServer):
    """An API server that keeps nothing; later reads see the writes before them."""

    def __init__(self, connection: Connection, **options: Any) -> None:
        """As an `ApiServer`."""
        super().__init__(connection, **options)
        #: in the order of the first write of each object
        self.recorded: dict[Key, Write] = {}

    def manifests(self, *, without: Sequence[ApiResource] = ()) -> list[Json]:
        """The written objects in order, without Secrets, deleted ones and the CA that the webhook writes itself."""
        return [
            _without_ca(write.content)
            for (resource, _, _), write in self.recorded.items()
            if write.after is not None and resource is not SECRETS and resource not in without
        ]

    def lines(self) -> list[str]:
        """A line per object: its kind, name and outcome."""
        return [
            f"{resource.kind} {namespace}{'/' if namespace else ''}{name}: {write.outcome}"
            for (resource, namespace, name), write in self.recorded.items()
        ]

    async def request(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, **options: Any
    ) -> bytes:
        """As an `ApiServer`, but no write is kept."""
        dry = {} if method == "GET" else {"dryRun": "All"}
        return await super().request(method, path, params={**(params or {}), **dry}, **options)

    async def get(self, resource: ApiResource, name: str, namespace: str | None = None) -> Json:
        """The object as the writes so far leave it."""
        if (write := self.recorded.get((resource, namespace or "", name))) is None:
            return await super().get(resource, name, namespace)
        if write.after is None:
            raise errors.NotFound(f"{resource.kind} {name} is deleted in this rehearsal")
        return write.after

    async def list(
        self, resource: ApiResource, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> builtins.list[Json]:
        """As the server has them; CRDs as the writes so far leave them, established."""
        found = await super().list(resource, namespace, label_selector=label_selector, field_selector=field_selector)
        if resource is not CRDS:
            return found
        written = {
            name: {**write.content, **_ESTABLISHED} for (of, _, name), write in self.recorded.items() if of is CRDS
        }
        return [*(each for each in found if each["metadata"]["name"] not in written), *written.values()]

    async def create(
        self, resource: ApiResource, obj: Mapping[str, Any], *, field_manager: str = "", dry_run: bool = False
    ) -> Json:
        """Record it; refused where the object is there."""
        if dry_run:
            return await super().create(resource, obj, field_manager=field_manager, dry_run=True)
        key = _key(resource, obj)
        known = self.recorded.get(key)
        if known is not None and known.after is not None:
            raise errors.AlreadyExists(f"{resource.kind} {key[2]} is written already in this rehearsal")
        made = dict(obj)
        if known is None and not self._needs_earlier_write(key):
            made = await super().create(resource, obj, field_manager=field_manager)
        return self._record(key, obj, None, made)

    async def apply(
        self,
        resource: ApiResource,
        obj: Mapping[str, Any],
        *,
        field_manager: str,
        force: bool = True,
        subresource: str | None = None,
    ) -> Json:
        """Record the fields, as the server takes them."""
        key = _key(resource, obj)
        if (known := self.recorded.get(key)) is not None:
            return self._record(key, obj, known.before, merged(known.after or {}, obj))
        if self._needs_earlier_write(key):
            return self._record(key, obj, None, dict(obj))
        before = await self._present(key)
        after = await super().apply(resource, obj, field_manager=field_manager, force=force, subresource=subresource)
        return self._record(key, obj, before, after)

    async def merge_patch(
        self,
        resource: ApiResource,
        name: str,
        patch: Mapping[str, Any],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        field_manager: str = "",
        strategic: bool = False,
    ) -> Json:
        """Record the fields; a subresource is not recorded, as no manifest can hold it."""
        before = await self.get(resource, name, namespace)
        if subresource is not None:
            return before
        key = (resource, namespace or "", name)
        if key in self.recorded:
            after = merged(before, patch)
        else:
            after = await super().merge_patch(
                resource, name, patch, namespace, field_manager=field_manager, strategic=strategic
            )
        identity = {"name": name, **({"namespace": namespace} if namespace else {})}
        head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": identity}
        return self._record(key, merged(head, patch), before, after)

    async def delete(self, resource: ApiResource, name: str, namespace: str | None = None, **options: Any) -> None:
        """Record that it goes, where there is one."""
        key = (resource, namespace or "", name)
        if (known := self.recorded.get(key)) is not None:
            known.after = None
        elif (before := await self._present(key)) is not None:
            await super().delete(resource, name, namespace, **options)
            self.recorded[key] = Write({}, before, None)

    async def _present(self, key: Key) -> Json | None:
        resource, namespace, name = key
        try:
            return await super().get(resource, name, namespace or None)
        except errors.NotFound:
            return None

    def _needs_earlier_write(self, key: Key) -> bool:
        """Whether the server can't judge it: its namespace or its CRD is made by this very run."""
        resource, namespace, _ = key
        needed = ((NAMESPACES, "", namespace), (CRDS, "", f"{resource.plural}.{resource.group}"))
        found = [self.recorded[each] for each in needed if each in self.recorded]
        return any(write.before is None for write in found)

    def _record(self, key: Key, content: Mapping[str, Any], before: Json | None, after: Json) -> Json:
        known = self.recorded.get(key)
        if known is None:
            self.recorded[key] = Write(dict(content), before, after)
        else:
            known.content, known.after = merged(known.content, content), after
        return after


class Nowhere(Rehearsal):
    """A rehearsal in a cluster that has nothing, without a server."""

    def __init__(self, present: Mapping[ApiResource, Sequence[Json]] | None = None) -> None:
        """No I/O happens here, nor later.

        Args:
            present: objects that lists show.
        """
        super().__init__(Connection("", None, _nobody))
        self._lists = {resource.path(): [*objects] for resource, objects in (present or {}).items()}

    async def request(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: bytes | None = None, **_: Any
    ) -> bytes:
        """What an empty cluster answers; a write is echoed."""
        if path == "/version":
            major, minor = map(str, NEWEST)
            return orjson.dumps({"major": major, "minor": minor, "gitVersion": f"v{major}.{minor}.0"})
        if path == "/readyz":
            return b"ok"
        if method != "GET":
            return body or b"{}"
        if "limit" in (params or {}):
            return orjson.dumps({"items": self._lists.get(path, [])})
        raise errors.NotFound(f"GET {path}: nothing is there")


def merged(base: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386) applied; neither argument changes."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(base) if isinstance(base, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def _key(resource: ApiResource, obj: Mapping[str, Any]) -> Key:
    return resource, obj["metadata"].get("namespace") or "", obj["metadata"]["name"]


def _own(obj: Json) -> Json:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _SERVERS_OWN}
    return {**obj, "metadata": metadata}


def _without_ca(content: Json) -> Json:
    """Without `caBundle`: the real run takes it from the Secret, and the webhook renews it."""
    if not isinstance(content.get("webhooks"), list):
        return content
    hooks = [
        {**each, "clientConfig": {name: value for name, value in each["clientConfig"].items() if name != "caBundle"}}
        for each in content["webhooks"]
    ]
    return {**content, "webhooks": hooks}


async def _nobody() -> str | None:
    return None
