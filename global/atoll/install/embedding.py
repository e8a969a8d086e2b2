"""Bring an embedded host into its carrier and take it out again: `init --embedded` and `uninstall --embedded`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import yaml

from atoll.install import embedded, embedded_keys
from atoll.install.credentials import FIELD_MANAGER, MANAGED_BY
from atoll.install.embedded import EmbeddedValues
from atoll.install.refusal import Refused
from atoll.install.rights import ROLE_BINDINGS, ROLES
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import (
    BATCH_JOBS,
    BUDGETS,
    CLAIMS,
    CONFIGMAPS,
    CRON_JOBS,
    DEPLOYMENTS,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    STATEFUL_SETS,
    ApiResource,
)

Json = dict[str, Any]
Progress = Callable[[str], None]

_RESOURCES: Final = {
    each.kind: each
    for each in (
        *(NAMESPACES, CONFIGMAPS, NETWORK_POLICIES, BUDGETS, SERVICES, STATEFUL_SETS, DEPLOYMENTS),
        *(BATCH_JOBS, CRON_JOBS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, CLAIMS),
    )
}
_FIXED: Final = {"etcd_replicas": "etcdReplicas", "storage": "storage", "storage_class": "storageClass"}
"""Values that a StatefulSet or the members of an etcd can't change."""
_POLL_S: Final = 1.0


async def embed(
    carrier: ApiServer,
    given: Mapping[str, Any],
    *,
    timeout: float | None = 600.0,
    progress: Progress = lambda _: None,
) -> EmbeddedValues:
    """Bring a host into a carrier, or change and renew one that is there. Safe to repeat: data and authorities stay.

    Args:
        carrier: with rights to all of the namespace.
        given: keys of `host.embedded`, which win over the values of the last time.
        timeout: seconds for each step until its pods are ready; None waits for none.
        progress: gets a line per step.

    Returns the values in force.

    Raises:
        Refused: a value is missing or can't change, the authorities are gone, or pods are not ready in time.
        ApiError: the carrier refused.
    """
    values = await _settle_values(carrier, given)
    if not values.image:
        raise Refused(
            "no image of Atoll is published: build it (make image, docs/image.md), push it to a registry that the"
            " carrier's nodes reach, and give its name with --image"
        )
    namespace, *foundation = embedded.foundation(values)
    if await _is_ours(carrier, values.namespace):
        await _apply(carrier, namespace)
    else:
        progress(f"namespace {values.namespace} was there before: its labels stay as they are")
    for each in foundation:
        await _apply(carrier, each)
    ends = await renew(carrier, values)
    progress(f"namespace {values.namespace}: certificates of the host, the first ends on {ends:%Y-%m-%d}")
    await _bring(carrier, embedded.control_plane(values), timeout, progress)
    if values.service_type == "LoadBalancer" and not values.endpoint and timeout is not None:
        return await _embed_at_balancer(carrier, values, timeout, progress)
    job = embedded.init_job(values)
    # The template of a Job can't change.
    await carrier.delete(BATCH_JOBS, embedded.INIT, values.namespace)
    if timeout is not None:
        await _until_gone(carrier, values.namespace, timeout)
    await _bring(carrier, [job], timeout, progress)
    await _bring(carrier, embedded.processes(values) + embedded.upkeep(values), timeout, progress)
    return values


async def prepare(carrier: ApiServer, given: Mapping[str, Any], progress: Progress = lambda _: None) -> None:
    """Keep the values and make the Secrets, where a chart brings all other objects. Safe to repeat.

    Raises:
        Refused: a value can't change, or the authorities are gone.
        ApiError: the carrier refuses a write.
    """
    values = await _settle_values(carrier, given)
    [kept] = [each for each in embedded.foundation(values) if each["kind"] == CONFIGMAPS.kind]
    await _apply(carrier, kept)
    ends = await renew(carrier, values)
    progress(f"namespace {values.namespace}: certificates of the host, the first ends on {ends:%Y-%m-%d}")


async def renew(carrier: ApiServer, values: EmbeddedValues) -> datetime:
    """Make missing contents of Secrets, and renew certificates that have lived for two thirds of its life; return when
    the first one ends.

    Raises:
        Refused: the authorities are gone, or over.
    """
    now = datetime.now(UTC)
    found = {name: each for name in embedded.SECRETS if (each := await _get(carrier, SECRETS, name, values.namespace))}
    if embedded.AUTHORITIES not in found:
        if found:
            raise Refused(
                f"Secret {values.namespace}/{embedded.AUTHORITIES} is gone, and nothing that members and pods have fits"
                f" new ones: put it back from a copy, or delete Secrets {', '.join(found)} and join all members again"
            )
        made = embedded_keys.make_authorities(values, now)
        found[embedded.AUTHORITIES] = made
        # Of two that run at once one fails here.
        await carrier.create(SECRETS, made, field_manager=FIELD_MANAGER)
    for secret in embedded_keys.make_secrets(values, found, now):
        found[secret["metadata"]["name"]] = secret
        await carrier.apply(SECRETS, secret, field_manager=FIELD_MANAGER)
    return embedded_keys.ends(found)


async def present_values(carrier: ApiServer, namespace: str) -> EmbeddedValues:
    """The values of the host in that namespace.

    Raises:
        Refused: there is none.
    """
    found = await _get(carrier, CONFIGMAPS, embedded.VALUES, namespace)
    if found is None:
        raise Refused(f"namespace {namespace} has no embedded host (ConfigMap {embedded.VALUES}); -n names another")
    return msgspec.convert(yaml.safe_load(found["data"]["values.yaml"]), EmbeddedValues)


async def admin_kubeconfig(carrier: ApiServer, namespace: str, server: str = "") -> tuple[str, str]:
    """The administrator's kubeconfig and the URL in it: `server`, else the endpoint, else a port that is forwarded.

    Raises:
        Refused: there is no such host.
    """
    values = await present_values(carrier, namespace)
    url = server or values.endpoint or "https://127.0.0.1:6443"
    return embedded_keys.admin_kubeconfig(await carrier.get(SECRETS, embedded.ADMIN, namespace), url), url


async def remove(
    carrier: ApiServer, namespace: str, *, data: bool, progress: Progress = lambda _: None
) -> EmbeddedValues:
    """Delete the pods of a host with all that serves them; `data`: also volumes, backups, keys and the namespace.

    Raises:
        Refused: there is no such host.
    """
    values = await present_values(carrier, namespace)
    for each in reversed(embedded.objects(values)):
        resource, name = _RESOURCES[each["kind"]], each["metadata"]["name"]
        # With its values, keys and volumes it can come back.
        if resource in (NAMESPACES, CLAIMS, CONFIGMAPS):
            continue
        await carrier.delete(resource, name, namespace)
    progress(f"namespace {namespace}: pods of the host deleted")
    if not data:
        return values
    selector = f"app.kubernetes.io/name={embedded.VALUES}"
    claims = [each["metadata"]["name"] for each in await carrier.list(CLAIMS, namespace, label_selector=selector)]
    for resource, names in ((CLAIMS, [*claims, embedded.BACKUP]), (SECRETS, [*embedded.SECRETS])):
        for name in names:
            await carrier.delete(resource, name, namespace)
    await carrier.delete(CONFIGMAPS, embedded.VALUES, namespace)
    progress(f"namespace {namespace}: volumes {', '.join([*claims, embedded.BACKUP])} and keys deleted")
    if await _is_ours(carrier, namespace):
        await carrier.delete(NAMESPACES, namespace)
        progress(f"namespace {namespace} deleted")
    return values


async def _settle_values(carrier: ApiServer, given: Mapping[str, Any]) -> EmbeddedValues:
    namespace = given.get("namespace") or embedded.NAMESPACE
    found = await _get(carrier, CONFIGMAPS, embedded.VALUES, namespace)
    before = yaml.safe_load(found["data"]["values.yaml"]) if found else {}
    values = msgspec.convert({**before, **given}, EmbeddedValues)
    if found:
        old = msgspec.convert(before, EmbeddedValues)
        changed = [said for each, said in _FIXED.items() if getattr(values, each) != getattr(old, each)]
        if changed:
            raise Refused(f"{', '.join(changed)}: etcd keeps the volumes and members that it has; leave the old value")
    return values


async def _embed_at_balancer(
    carrier: ApiServer, values: EmbeddedValues, timeout: float, progress: Progress
) -> EmbeddedValues:
    """Once more, with the address that the carrier's load balancer has by now."""
    found: list[str] = []

    async def has_address() -> bool:
        service = await carrier.get(SERVICES, embedded.APISERVER, values.namespace)
        ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
        found[:] = [each.get("hostname") or each.get("ip") for each in ingress]
        return bool(found)

    async def unready() -> str:
        return f"Service {embedded.APISERVER} has no address of a load balancer"

    await _until(has_address, timeout, unready)
    host = f"[{found[0]}]" if ":" in found[0] else found[0]
    progress(f"Service {values.namespace}/{embedded.APISERVER}: the load balancer is at {host}")
    endpoint = msgspec.structs.replace(values, endpoint=f"https://{host}:6443")
    return await embed(carrier, msgspec.to_builtins(endpoint), timeout=timeout, progress=progress)


# -- writes and waits --------------------------------------------------------------------------------------------------


async def _get(api: ApiServer, resource: ApiResource, name: str, namespace: str | None = None) -> Json | None:
    try:
        return await api.get(resource, name, namespace)
    except errors.NotFound:
        return None


async def _is_ours(carrier: ApiServer, namespace: str) -> bool:
    """Whether an installation made the namespace, or will."""
    found = await _get(carrier, NAMESPACES, namespace)
    return found is None or MANAGED_BY.items() <= (found["metadata"].get("labels") or {}).items()


async def _apply(carrier: ApiServer, obj: Json) -> None:
    await carrier.apply(_RESOURCES[obj["kind"]], obj, field_manager=FIELD_MANAGER)


async def _bring(carrier: ApiServer, wanted: list[Json], timeout: float | None, progress: Progress) -> None:
    for each in wanted:
        await _apply(carrier, each)
    if timeout is None:
        return
    for each in wanted:
        resource, meta = _RESOURCES[each["kind"]], each["metadata"]
        if resource not in (STATEFUL_SETS, DEPLOYMENTS, BATCH_JOBS):
            continue
        name, namespace = meta["name"], meta["namespace"]

        async def ready(resource: ApiResource = resource, name: str = name, namespace: str = namespace) -> bool:
            return _is_ready(await carrier.get(resource, name, namespace))

        async def unready(namespace: str = namespace) -> str:
            return await _unready(carrier, namespace)

        await _until(ready, timeout, unready)
        progress(f"{each['kind']} {namespace}/{name} is {'done' if resource is BATCH_JOBS else 'ready'}")


async def _until_gone(carrier: ApiServer, namespace: str, timeout: float) -> None:
    async def gone() -> bool:
        return await _get(carrier, BATCH_JOBS, embedded.INIT, namespace) is None

    async def unready() -> str:
        return f"Job {embedded.INIT} of an earlier run does not go"

    await _until(gone, timeout, unready)


def _is_ready(obj: Json) -> bool:
    """Whether a Job is done, or all pods of a Deployment or StatefulSet are new and ready.

    Raises:
        Refused: a Job has failed.
    """
    status, meta = obj.get("status") or {}, obj["metadata"]
    conditions = {each["type"]: each for each in status.get("conditions") or () if each["status"] == "True"}
    if obj["kind"] == BATCH_JOBS.kind:
        if "Failed" in conditions:
            raise Refused(f"Job {meta['name']} failed: kubectl logs -n {meta['namespace']} job/{meta['name']}")
        return "Complete" in conditions
    wanted = obj["spec"]["replicas"]
    return (
        status.get("observedGeneration") == meta["generation"]
        and all(status.get(each, 0) == wanted for each in ("updatedReplicas", "readyReplicas"))
        and status.get("replicas") == wanted
    )


async def _unready(carrier: ApiServer, namespace: str) -> str:
    """The pods that are not ready, and why, as far as their status tells."""
    said = []
    for pod in await carrier.list(PODS, namespace):
        status = pod.get("status") or {}
        conditions = {each["type"]: each for each in status.get("conditions") or ()}
        if status.get("phase") == "Succeeded" or (conditions.get("Ready") or {}).get("status") == "True":
            continue
        waiting = [
            f"{state.get('reason')} {state.get('message') or ''}".strip()
            for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
            if (state := (each.get("state") or {}).get("waiting"))
        ]
        scheduled = (conditions.get("PodScheduled") or {}).get("message")
        said.append(f"{pod['metadata']['name']} ({'; '.join(waiting) or scheduled or status.get('phase')})")
    return ", ".join(said) or "there are no pods"


async def _until(check: Callable[[], Awaitable[bool]], timeout: float, unready: Callable[[], Awaitable[str]]) -> None:
    clock = asyncio.get_running_loop().time
    end = clock() + timeout
    while not await check():
        if clock() > end:
            raise Refused(f"not ready after {timeout:.0f} s: {await unready()}; what is there stays, repeat init then")
        await asyncio.sleep(_POLL_S)
