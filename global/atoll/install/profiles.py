"""Clusters of an inventory as members: facts of their ClusterProfiles, and the way to one of them.

A ClusterProfile names a server and a provider of credentials, and no program: the plug-in that gives the credentials
is the administrator's word alone. Its extensions, which may add arguments and variables to plug-ins, are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from atoll.install.refusal import Refused
from atoll.kube import errors
from atoll.kube.endpoint import one_context
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import CLUSTER_PROFILES, CLUSTERS
from atoll.model.conditions import find
from atoll.model.profiles import IDENTITY, MANAGER
from atoll.model.reports import readable

Json = dict[str, Any]

_TAKEN: Final = ("server", "certificate-authority-data", "tls-server-name", "proxy-url")
"""Fields of `accessProviders[].cluster` that hold everywhere; a path of a file holds where it was written."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One cluster of an inventory."""

    profile: str
    """`namespace/name` of its ClusterProfile."""
    manager: str
    version: str
    healthy: str
    """`True`, `False`, `Unknown`."""
    providers: tuple[str, ...]
    """Names of its access providers."""
    member: str
    """The member that it is; empty where it is none."""


async def offers(host: ApiServer) -> list[Offer]:
    """The clusters that inventories on the host list, without the ones that Atoll lists itself.

    Raises:
        Refused: the host has no ClusterProfiles.
    """
    try:
        found = await host.list(CLUSTER_PROFILES)
    except errors.NotFound as error:
        raise Refused("the host serves no ClusterProfiles (multicluster.x-k8s.io/v1alpha1)") from error
    clusters = await host.list(CLUSTERS)
    others = [each for each in found if each["spec"]["clusterManager"]["name"] != MANAGER]
    return sorted((_offer(each, clusters) for each in others), key=lambda offer: offer.profile)


async def profile_kubeconfig(host: ApiServer, profile: str, provider: str | None, command: Sequence[str]) -> str:
    """A kubeconfig for a cluster of an inventory, without secrets: the command gives these.

    Args:
        host: with an administrator's credentials.
        profile: `namespace/name` of its ClusterProfile.
        provider: whose address is taken; None for the only one.
        command: of an exec plug-in, from the administrator.

    Raises:
        Refused: there is no such ClusterProfile or provider, or its address can't be used safely.
    """
    namespace, _, name = profile.partition("/")
    try:
        found = await host.get(CLUSTER_PROFILES, name, namespace)
    except errors.NotFound as error:
        raise Refused(f"the host has no ClusterProfile {profile}: see `atollctl member offers`") from error
    ways = _ways(found)
    if not ways:
        raise Refused(f"ClusterProfile {profile} has no access providers, which say how to reach the cluster")
    if provider is None and len(ways) > 1:
        raise Refused(f"ClusterProfile {profile} has several access providers, choose one: {_listed(ways)}")
    if provider is not None and provider not in ways:
        raise Refused(f"ClusterProfile {profile} has no access provider {provider}, but {_listed(ways)}")
    way = ways[provider] if provider is not None else next(iter(ways.values()))
    where = f"ClusterProfile {profile}, status.accessProviders[].cluster"
    if not str(way.get("server") or "").startswith("https://"):
        raise Refused(f"{where}.server: {readable(str(way.get('server')), 200)!r} is no https URL")
    if way.get("insecure-skip-tls-verify"):
        raise Refused(f"{where}.insecure-skip-tls-verify: credentials are sent to verified servers alone")
    if way.get("certificate-authority"):
        raise Refused(f"{where}.certificate-authority: names a file of another machine, not the certificate itself")
    credentials = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": command[0],
            "args": list(command[1:]),
            "interactiveMode": "IfAvailable",
        }
    }
    return one_context({key: way[key] for key in _TAKEN if way.get(key)}, "administrator", credentials)


def _offer(profile: Json, clusters: Sequence[Json]) -> Offer:
    metadata, status, ways = profile["metadata"], profile.get("status") or {}, _ways(profile)
    identities = {each["value"] for each in status.get("properties") or () if each["name"] == IDENTITY}
    servers = {str(way.get("server") or "").rstrip("/") for way in ways.values()}
    members = [
        each["metadata"]["name"]
        for each in clusters
        if each["spec"].get("id") in identities or each["spec"].get("apiEndpoint") in servers
    ]
    health = find(status.get("conditions") or [], "ControlPlaneHealthy") or {}
    return Offer(
        f"{metadata['namespace']}/{metadata['name']}",
        readable(profile["spec"]["clusterManager"]["name"], 64),
        readable((status.get("version") or {}).get("kubernetes") or "", 32),
        health.get("status") or "Unknown",
        tuple(readable(name, 64) for name in ways),
        ", ".join(members),
    )


def _ways(profile: Json) -> dict[str, Json]:
    """Provider -> its fields about the cluster; `credentialProviders` is its older name, and loses."""
    status = profile.get("status") or {}
    listed = [*(status.get("credentialProviders") or ()), *(status.get("accessProviders") or ())]
    return {each["name"]: each.get("cluster") or {} for each in listed}


def _listed(ways: dict[str, Json]) -> str:
    return ", ".join(readable(name, 64) for name in sorted(ways))
