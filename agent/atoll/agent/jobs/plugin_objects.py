"""What the plugins of Volcano Jobs need in the member besides pods: Services, ConfigMaps, Secrets, NetworkPolicies."""

from __future__ import annotations

import asyncio
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from atoll.agent.jobs import pods as made
from atoll.kinds.volcano_job import plugins
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import CONFIGMAPS, NETWORK_POLICIES, SECRETS, SERVICE_EXPORTS, SERVICES, ApiResource
from atoll.model.objects import made_by

_MADE = (SERVICES, SERVICE_EXPORTS, CONFIGMAPS, SECRETS, NETWORK_POLICIES)
_RESOURCES = {resource.kind: resource for resource in _MADE}
_LOOK_AGAIN, _GOES = 2.0, 0.5
"""Seconds until a name is tried again that another object has, and one that goes."""


class PluginObjects:
    """Makes them once, and follows the size of the Job in the ones that name its pods."""

    def __init__(self, api: ApiServer) -> None:
        """No I/O happens here."""
        self._api = api
        #: job UID -> the Job for which everything was made last
        self._made: dict[str, plugins.JobView] = {}

    def forget(self, uid: str) -> None:
        """The Job is gone, and its objects go with it."""
        self._made.pop(uid, None)

    async def keep(self, job: dict[str, Any]) -> None:
        """Make missing objects.

        Raises:
            NameTaken: an object of that name belongs to another owner.
            Retry: one of another owner goes, or the member has no such kind.
        """
        wanted, uid = job["spec"].get("plugins"), job["metadata"]["uid"]
        if not wanted:
            return
        view = made.view_of(job)
        if self._made.get(uid) == view:
            return
        # Some tenths of a second: not in the loop.
        pair = await asyncio.to_thread(new_key_pair) if "ssh" in wanted else plugins.KeyPair("", "")
        for obj in plugins.objects(view, wanted, lambda: pair):
            await self._ensure(obj)
        self._made[uid] = view

    async def _ensure(self, obj: dict[str, Any]) -> None:
        resource = _RESOURCES[obj["kind"]]
        try:
            await self._api.create(resource, obj)
        except errors.NotFound as error:
            if resource != SERVICE_EXPORTS:
                raise
            raise errors.Retry(30.0, f"this member has no CRD {resource.plural}.{resource.group}") from error
        except errors.AlreadyExists:
            await self._take_up(resource, obj)

    async def _take_up(self, resource: ApiResource, obj: dict[str, Any]) -> None:
        """Adopt a present object of the same Job; the first key stays."""
        metadata = obj["metadata"]
        name, namespace, uid = metadata["name"], metadata["namespace"], metadata["ownerReferences"][0]["uid"]
        if resource == SECRETS:
            # The agent may not read Secrets: a test reads nothing.
            operations = [{"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": uid}]
            try:
                await self._api.json_patch(resource, name, operations, namespace)
            except errors.Invalid:
                raise NameTaken(f"{resource.kind} {namespace}/{name}") from None
            return
        found = await self._api.get(resource, name, namespace)
        check_owner(found, resource, uid)
        if resource == CONFIGMAPS and found.get("data") != obj["data"]:
            gone = dict.fromkeys(found.get("data") or ())
            await self._api.merge_patch(resource, name, {"data": {**gone, **obj["data"]}}, namespace)


class NameTaken(errors.Retry):
    """An object of another owner has the name of one that a Job needs."""

    def __init__(self, which: str, by: str = "") -> None:
        """Tell of that object; `by`: see `made_by`."""
        super().__init__(_LOOK_AGAIN, f"{which} exists and is not of this Job{by}: rename the Job or delete that one")


def check_owner(found: dict[str, Any], resource: ApiResource, uid: str) -> None:
    """Make sure that an object is of the Job with this UID.

    Raises:
        NameTaken: it is of another owner.
        Retry: one of another owner goes.
    """
    metadata = found["metadata"]
    if any(owner["uid"] == uid for owner in metadata.get("ownerReferences") or ()):
        return
    which = f"{resource.kind} {metadata['namespace']}/{metadata['name']}"
    if metadata.get("deletionTimestamp"):
        raise errors.Retry(_GOES, f"{which} of another owner goes")
    raise NameTaken(which, made_by(found))


def new_key_pair() -> plugins.KeyPair:
    """An RSA key, as every SSH server takes it."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return plugins.KeyPair(private.decode(), public.decode() + "\n")
