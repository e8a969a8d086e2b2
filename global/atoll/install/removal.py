"""Take Atoll off a host: what `atollctl uninstall` does, the reverse of `init`.

In this order, so that it can be stopped and repeated at any point: what could keep users from their own objects (the
webhooks, the admission policies, an API without a server), then the rights of processes. Users' objects, and the
CRDs without which there are none, go only on request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from atoll.install.credentials import FIELD_MANAGER, MANAGED_BY
from atoll.install.host import PROCESSES, is_karmada, kubeconfig_of
from atoll.install.leaving import unjoin
from atoll.install.member import joined
from atoll.install.refusal import Refused, some
from atoll.install.rights import ROLE_BINDINGS, ROLES
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    API_SERVICES,
    BINDINGS,
    CLUSTER_REQUESTS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTERS,
    CRDS,
    ENDPOINT_SLICES,
    FLOW_SCHEMAS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    WORKLOAD_KINDS,
    WORKS,
    ApiResource,
)
from atoll.model.timestamps import rfc3339, to_seconds

Json = dict[str, Any]

_WEBHOOKS: Final = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
_POLICIES: Final = (ADMISSION_POLICY_BINDINGS, ADMISSION_POLICIES)
_RIGHTS: Final = (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES)
_OTHERS: Final = (FLOW_SCHEMAS, ENDPOINT_SLICES, SERVICES, SECRETS, SERVICE_ACCOUNTS)
_WEBHOOK_CONFIGURATION: Final = "atoll"
_LABEL: Final = ",".join(f"{key}={value}" for key, value in MANAGED_BY.items())
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Remains:
    """What of Atoll is in use on a host."""

    processes: Sequence[str]
    """That hold their leases."""
    members: Sequence[str]
    bindings: Sequence[Json]
    works: Sequence[Json]

    def sentence(self) -> str:
        """Objects that must go before, and the way; empty without an obstacle."""
        found = [
            _counted(self.members, "member", "atollctl unjoin NAME"),
            _counted([_path(each) for each in self.bindings], "binding", "delete their workloads"),
            _counted([_path(each) for each in self.works], "Work", "they go with their bindings"),
        ]
        return "; ".join(text for text in found if text)


async def uninstall(
    host: ApiServer,
    *,
    force: bool = False,
    crds: bool = False,
    dry_run: bool = False,
    timeout: float = 60.0,
    credentials: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Sequence[str]:
    """Remove what `init` and the processes made. Safe to repeat; the processes are their operator's to stop, before.

    Args:
        host: with an administrator's credentials.
        force: although members are joined and workloads have bindings: members leave as with `unjoin --force`, what
            does not end there in time is released and returned, and bindings and Works are deleted. The workloads
            themselves stay, and don't run.
        crds: also the CRDs that `init` made, with all objects of them.
        dry_run: only say what would go.
        timeout: seconds for each member's workloads, for the namespace and for the CRDs to go.
        credentials: folder in which `init` left the kubeconfigs; they are deleted.
        progress: gets a line per step.

    Returns the workloads, `namespace/name`, whose pods may still run in a member.

    Raises:
        Refused: processes still run, or something is in use, or did not go in time.
        ApiError: the host refused.
    """
    remains = await look(host)
    if dry_run:
        await _list(host, remains, crds, progress)
        return ()
    if remains.processes:
        raise Refused(
            f"{' and '.join(remains.processes)} still run, by their leases: stop them and atoll-webhook first,"
            " and wait until the leases are over"
        )
    if (in_use := remains.sentence()) and not force:
        raise Refused(f"Atoll is in use here: {in_use}; or use --force")
    for resource in _WEBHOOKS:
        await _delete(host, resource, await _ours(host, resource), progress)
    may_run: list[str] = []
    for member in remains.members:
        # A member that keeps its pods does not stop the removal of Atoll.
        left = await unjoin(
            host, None, member, force=True, give_up=True, timeout=timeout, credentials=credentials, progress=progress
        )
        may_run += left.may_run
    for resource in _POLICIES:
        await _delete(host, resource, await _ours(host, resource), progress)
    if remains.bindings or remains.works:
        await _release(host, progress)
    await release_kinds(host)
    await _delete(host, CLUSTER_REQUESTS, await _all(host, CLUSTER_REQUESTS), progress)
    for resource in (API_SERVICES, *_RIGHTS, *_OTHERS):
        await _delete(host, resource, await _ours(host, resource), progress)
    # A process that ran on until now may have made these again; it can't any more.
    for resource in (*_WEBHOOKS, API_SERVICES):
        await _delete(host, resource, await _ours(host, resource), progress)
    await _delete(host, NAMESPACES, await _ours(host, NAMESPACES), progress)
    await _wait_gone(host, NAMESPACES, [keys.SYSTEM_NAMESPACE], timeout)
    await _opt_out(host, progress)
    if crds:
        names = [each["metadata"]["name"] for each in await _ours(host, CRDS)]
        await _delete(host, CRDS, await _ours(host, CRDS), progress)
        await _wait_gone(host, CRDS, names, timeout)
    for path in [kubeconfig_of(credentials, process) for process in PROCESSES] if credentials is not None else ():
        if path.exists():
            path.unlink()
            progress(f"{path}: deleted")
    return may_run


# -- observation
# ---------------------------------------------------------------------------------------------------------


async def look(host: ApiServer) -> Remains:
    """What of Atoll is in use on a host."""
    # A Karmada's members, of which some are pulled as ours are, are none of ours.
    clusters = [] if await is_karmada(host) else await _all(host, CLUSTERS)
    return Remains(
        await leading(host),
        [each["metadata"]["name"] for each in clusters if joined(each)],
        [each for each in await _all(host, BINDINGS) if keys.BINDING_FINALIZER in _finalizers(each)],
        [each for each in await _all(host, WORKS) if keys.WORK_FINALIZER in _finalizers(each)],
    )


async def leading(api: ApiServer) -> list[str]:
    """Names of the leases in the system namespace that a process of Atoll holds; each is called as its process."""
    return [each["metadata"]["name"] for each in await _all(api, LEASES, keys.SYSTEM_NAMESPACE) if _held(each)]


async def _all(host: ApiServer, resource: ApiResource, namespace: str | None = None) -> list[Json]:
    """All objects; none where the kind is not known, as after an earlier run."""
    try:
        return await host.list(resource, namespace)
    except errors.NotFound:
        return []


async def _ours(host: ApiServer, resource: ApiResource) -> list[Json]:
    """What carries the installation's label, and what goes by name."""
    found = await host.list(resource, label_selector=_LABEL)
    name = {
        MUTATING_WEBHOOKS: _WEBHOOK_CONFIGURATION,
        VALIDATING_WEBHOOKS: _WEBHOOK_CONFIGURATION,
        API_SERVICES: keys.QUERY_API,
        NAMESPACES: keys.SYSTEM_NAMESPACE,
    }.get(resource)
    if name is not None and name not in [each["metadata"]["name"] for each in found]:
        try:
            found.append(await host.get(resource, name))
        except errors.NotFound:
            return found
    return found


def _held(lease: Json) -> bool:
    """Whether the process that leads by this lease has renewed it in time."""
    spec = lease.get("spec") or {}
    if not lease["metadata"]["name"].startswith("atoll-") or not spec.get("holderIdentity"):
        return False
    renewed = to_seconds(spec["renewTime"]) if spec.get("renewTime") else 0.0
    return time.time() - renewed < float(spec.get("leaseDurationSeconds") or 15)


def _finalizers(item: Json) -> list[str]:
    return item["metadata"].get("finalizers") or []


def _path(item: Json) -> str:
    meta = item["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def _counted(names: Sequence[str], what: str, remedy: str) -> str:
    if not names:
        return ""
    return f"{len(names)} {what}{'s' if len(names) > 1 else ''} ({some(names)}): {remedy}"


async def _list(host: ApiServer, remains: Remains, crds: bool, progress: Callable[[str], None]) -> None:
    if remains.processes:
        progress(f"in the way: {' and '.join(remains.processes)} still run")
    if in_use := remains.sentence():
        progress(f"in the way: {in_use}")
    for resource in (*_WEBHOOKS, *_POLICIES, API_SERVICES, *_RIGHTS, *_OTHERS, NAMESPACES):
        if found := await _ours(host, resource):
            progress(f"would delete {resource.kind} {', '.join(sorted(map(_path, found)))}")
    for crd in await _ours(host, CRDS) if crds else ():
        spec = crd["spec"]
        kind = ApiResource(
            spec["group"],
            next(version["name"] for version in spec["versions"] if version["storage"]),
            spec["names"]["plural"],
            spec["names"]["kind"],
            namespaced=spec["scope"] == "Namespaced",
        )
        progress(f"would delete CRD {crd['metadata']['name']} with {len(await _all(host, kind))} objects")


# -- how it goes -------------------------------------------------------------------------------------------------------


async def _delete(
    host: ApiServer, resource: ApiResource, items: Sequence[Json], progress: Callable[[str], None]
) -> None:
    for item in items:
        await host.delete(resource, item["metadata"]["name"], item["metadata"].get("namespace"))
    if items:
        progress(f"{resource.kind} {', '.join(sorted(map(_path, items)))}: deleted")


async def _release(host: ApiServer, progress: Callable[[str], None]) -> None:
    """Delete bindings and Works without the processes that would see them off."""
    remains = await look(host)
    for resource, items, finalizer in (
        (WORKS, remains.works, keys.WORK_FINALIZER),
        (BINDINGS, remains.bindings, keys.BINDING_FINALIZER),
    ):
        for item in items:
            meta = item["metadata"]
            rest = [each for each in _finalizers(item) if each != finalizer]
            # The policies may be enforced for a moment after they are gone.
            reason = {keys.BREAK_GLASS: f"{rfc3339(time.time())} atollctl uninstall --force"}
            patch = {"metadata": {"uid": meta["uid"], "annotations": reason, "finalizers": rest}}
            try:
                await host.merge_patch(resource, meta["name"], patch, meta["namespace"], field_manager=FIELD_MANAGER)
            except errors.NotFound:
                continue
        await _delete(host, resource, items, progress)


async def release_kinds(host: ApiServer) -> None:
    """Let WorkloadKinds be deleted without the process that would see them off."""
    for item in await _all(host, WORKLOAD_KINDS):
        if keys.KIND_FINALIZER in _finalizers(item):
            rest = [each for each in _finalizers(item) if each != keys.KIND_FINALIZER]
            patch = {"metadata": {"uid": item["metadata"]["uid"], "finalizers": rest}}
            await host.merge_patch(WORKLOAD_KINDS, item["metadata"]["name"], patch, field_manager=FIELD_MANAGER)


async def _opt_out(host: ApiServer, progress: Callable[[str], None]) -> None:
    """Take back what `init` opted in; the others were opted in by their owners."""
    for namespace in await host.list(NAMESPACES, label_selector=keys.ENABLED):
        meta = namespace["metadata"]
        if any(each.get("manager") == FIELD_MANAGER for each in meta.get("managedFields") or ()):
            # What this manager does not name any more goes, unless another names it too.
            left = await host.apply(NAMESPACES, _bare(meta["name"]), field_manager=FIELD_MANAGER)
            if keys.ENABLED not in (left["metadata"].get("labels") or {}):
                progress(f"namespace {meta['name']}: label {keys.ENABLED} removed")


def _bare(name: str) -> Json:
    return {"apiVersion": NAMESPACES.api_version, "kind": NAMESPACES.kind, "metadata": {"name": name}}


async def _wait_gone(host: ApiServer, resource: ApiResource, names: Sequence[str], timeout: float) -> None:
    clock = asyncio.get_running_loop().time
    end = clock() + timeout
    while left := sorted({each["metadata"]["name"] for each in await host.list(resource)} & set(names)):
        if clock() > end:
            raise Refused(
                f"{resource.kind} {', '.join(left)}: still there after {timeout:.0f} s; `kubectl describe` says what is"
                " left; run the command again then"
            )
        await asyncio.sleep(_POLL_S)
