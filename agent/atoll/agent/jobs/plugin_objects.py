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
from atoll.model.apiresource import CONFIGMAPS, NETWORK_POLICIES, SECRETS, SERVICE_EXPORTS, SERVICES

_MADE = (SERVICES, SERVICE_EXPORTS, CONFIGMAPS, SECRETS, NETWORK_POLICIES)
_RESOURCES = {resource.kind: resource for resource in _MADE}


class PluginObjects:
    """Makes them once, and follows the size of the Job in those that name its pods."""

    def __init__(self, api: ApiServer) -> None:
        """No I/O happens here."""
        self._api = api
        #: job UID -> the Job for which everything was made last
        self._made: dict[str, plugins.JobView] = {}

    def forget(self, uid: str) -> None:
        """The Job is gone, and what was made for it goes with it."""
        self._made.pop(uid, None)

    async def keep(self, job: dict[str, Any]) -> None:
        """Make what is missing.

        Raises:
            Retry: an object of that name belongs to another owner, or the member has no such kind.
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
        resource, metadata = _RESOURCES[obj["kind"]], obj["metadata"]
        try:
            await self._api.create(resource, obj)
        except errors.NotFound as error:
            if resource != SERVICE_EXPORTS:
                raise
            raise errors.Retry(30.0, f"this member has no CRD {resource.plural}.{resource.group}") from error
        except errors.AlreadyExists:
            if resource == SECRETS:
                # The key that was made first stays.
                return
            name, namespace = metadata["name"], metadata["namespace"]
            found = await self._api.get(resource, name, namespace)
            owners = {owner["uid"] for owner in found["metadata"].get("ownerReferences") or ()}
            if owners.isdisjoint(owner["uid"] for owner in metadata["ownerReferences"]):
                raise errors.Retry(2.0, f"{obj['kind']} {namespace}/{name} of another owner is in the way") from None
            if resource == CONFIGMAPS and found.get("data") != obj["data"]:
                gone = dict.fromkeys(found.get("data") or ())
                await self._api.merge_patch(resource, name, {"data": {**gone, **obj["data"]}}, namespace)


def new_key_pair() -> plugins.KeyPair:
    """An RSA key, as every SSH server takes it."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return plugins.KeyPair(private.decode(), public.decode() + "\n")
