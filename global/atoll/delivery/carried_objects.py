"""What pods of a member refer to and came with Works: made, kept as on the host, removed.

None is read: whether Atoll made the one that is there is a test in each patch of it. One that a user of the member made
stays as it is, with a message.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final
from weakref import WeakValueDictionary

import structlog

from atoll.kinds import BROUGHT
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys, versions
from atoll.model.apiresource import (
    CLAIMS,
    CONFIGMAPS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from atoll.model.device_claims import Claim, UnsupportedClaim

Json = dict[str, Any]
Identity = tuple[str, str, str]
"""(kind, namespace, name)"""

CARRIED: Final = {
    each.kind: each
    for each in (CONFIGMAPS, SECRETS, CLAIMS, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES, SERVICE_ACCOUNTS, *BROUGHT)
}
"""What goes along with its contents."""

_MANAGER = "atoll-delivery"
_OURS: Final = {"op": "test", "path": f"/metadata/labels/{keys.MADE.replace('/', '~1')}", "value": "true"}
"""Fails for objects that are not Atoll's."""
_FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    CONFIGMAPS.kind: {"data": {}, "binaryData": {}},
    SECRETS.kind: {"type": "Opaque", "data": {}},
    # A claim can't be changed: it stays as it was made. Nor can a template, but nothing has a hold on it.
    CLAIMS.kind: {},
    RESOURCE_CLAIMS.kind: {},
    RESOURCE_CLAIM_TEMPLATES.kind: {},
    SERVICE_ACCOUNTS.kind: {"imagePullSecrets": [], "automountServiceAccountToken": None},
    **{each.kind: {"spec": {}} for each in BROUGHT},
}
"""Kind -> the fields that follow the host's, and their values where the host's has none."""

log = structlog.get_logger(__name__)


class Dependencies:
    """Keeps what pods refer to in one member."""

    def __init__(self, member: ApiServer, cluster: str, wanted: Callable[[Identity], list[Json]]) -> None:
        """No I/O happens here.

        Args:
            member: its API server.
            cluster: its name.
            wanted: the manifests of one object that Works carry.
        """
        self._member, self._cluster, self._wanted = member, cluster, wanted
        #: version on the host of the one in the member; empty = it has none of Atoll's
        self._there: dict[Identity, str] = {}
        #: what keeps the one in the member from being as on the host, in words
        self._problems: dict[Identity, str] = {}
        #: of dependencies under work: a removal and a creation don't mix
        self._locks: WeakValueDictionary[Identity, asyncio.Lock] = WeakValueDictionary()

    def problem(self, identity: Identity) -> str:
        """Its difference in the member; empty for none."""
        return self._problems.get(identity, "")

    def forget(self, namespace: str) -> None:
        """Objects in a namespace may be gone."""
        for identity in [each for each in self._there if each[1] == namespace]:
            del self._there[identity]

    def has(self, identity: Identity, manifest: Json) -> bool:
        """Whether the member is known to have it as this manifest says."""
        return self._there.get(identity) == _version(manifest)

    async def keep(self, identity: Identity, *, anew: bool = False) -> None:
        """Have one object as the newest manifest of it says; gone where none with contents is wanted.

        Args:
            identity: of the object.
            anew: it may have been removed in the member meanwhile.

        Raises:
            ApiError: the member does not let it be made.
        """
        lock = self._locks.setdefault(identity, asyncio.Lock())
        async with lock:
            manifests = self._wanted(identity)
            newest = max(manifests, key=lambda each: _order(_version(each)), default=None)
            version = _version(newest) if newest is not None else ""
            if newest is None or not version:
                if newest is None or self._there.get(identity) != "":
                    await self._remove(identity)
                self._problems.pop(identity, None)
            elif anew or self._there.get(identity) != version:
                try:
                    await self._member.create(CARRIED[identity[0]], newest, field_manager=_MANAGER)
                    self._problems.pop(identity, None)
                except errors.AlreadyExists:
                    if self._there.get(identity) != version:
                        await self._follow(identity, newest)
            if newest is None:
                self._there.pop(identity, None)
            else:
                self._there[identity] = version

    async def leave(self, identity: Identity) -> None:
        """Let the member keep one object, which is its own from now on, where no Work wants it any more."""
        kind, namespace, name = identity
        lock = self._locks.setdefault(identity, asyncio.Lock())
        async with lock:
            if self._wanted(identity):
                return
            self._there.pop(identity, None)
            mine = {"op": "remove", "path": _OURS["path"]}
            with contextlib.suppress(errors.NotFound, errors.Invalid):
                await self._member.json_patch(CARRIED[kind], name, [_OURS, mine], namespace, field_manager=_MANAGER)

    async def _remove(self, identity: Identity) -> None:
        kind, namespace, name = identity
        resource = CARRIED[kind]
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            try:
                found = await self._member.json_patch(resource, name, [_OURS], namespace, field_manager=_MANAGER)
            except errors.Invalid:
                log.debug("the member's own stays", kind=kind, namespace=namespace, name=name)
                return
            as_it = f"spec.serviceAccountName={name}"
            if resource == SERVICE_ACCOUNTS and await self._member.list(PODS, namespace, field_selector=as_it):
                # Others' pods run as it.
                return
            await self._member.delete(resource, name, namespace, uid=found["metadata"]["uid"])

    async def _follow(self, identity: Identity, manifest: Json) -> None:
        kind, namespace, name = identity
        values = {field: manifest.get(field, default) for field, default in _FIELDS[kind].items()}
        changes = [{"op": "add", "path": f"/{field}", "value": value} for field, value in values.items()]
        if kind == SERVICE_ACCOUNTS.kind:
            annotations = manifest["metadata"].get("annotations") or {}
            changes.append({"op": "add", "path": "/metadata/annotations", "value": annotations})
        resource, what = CARRIED[kind], f"{kind} {namespace}/{name}"
        self._problems.pop(identity, None)
        try:
            found = await self._member.json_patch(resource, name, [_OURS], namespace, field_manager=_MANAGER)
        except errors.Invalid:
            if _version(manifest) == keys.NAME_ALONE:
                # Any of that name will do.
                return
            remedy = "rename the one on the host, or delete the member's"
            self._problems[identity] = f"{what} in {self._cluster} is not Atoll's and stays as it is: {remedy}"
            return
        if resource == RESOURCE_CLAIM_TEMPLATES and not _asks_alike(found, manifest):
            await self._member.delete(resource, name, namespace, uid=found["metadata"]["uid"])
            await self._member.create(resource, manifest, field_manager=_MANAGER)
        elif resource == RESOURCE_CLAIMS and not _asks_alike(found, manifest):
            self._problems[identity] = f"{what} in {self._cluster} stays as it was made: give the new one another name"
        if not changes:
            return
        try:
            await self._member.json_patch(resource, name, [_OURS, *changes], namespace, field_manager=_MANAGER)
        except errors.Unauthorized:
            raise
        except (errors.Invalid, errors.Forbidden) as error:
            self._problems[identity] = (
                f"{self._cluster} refused a change of {what}, which stays as it was: {error.said}"
            )


def _asks_alike(one: Json, other: Json) -> bool:
    """Whether two claims or templates ask for the same, whatever defaults their API servers filled in."""
    try:
        return Claim.of(one) == Claim.of(other)
    except UnsupportedClaim:
        return bool(one["spec"] == other["spec"])


def _version(manifest: Json) -> str:
    """Its resourceVersion on the host, with a digest where it is overridden; empty where it is not to be there."""
    annotations = manifest["metadata"].get("annotations", {})
    # A Work of an earlier version has no more of a ServiceAccount than its name.
    bare = manifest.get("kind") == SERVICE_ACCOUNTS.kind and keys.WITHHELD not in annotations
    return str(annotations.get(keys.SOURCE_VERSION, keys.NAME_ALONE if bare else ""))


def _order(version: str) -> tuple[bool, int]:
    """Of versions: none first; decimal numbers, as all API servers have, by their value."""
    return bool(version), versions.number(version.partition("-")[0])
