"""Make a cluster a host: everything that Atoll's processes expect to find there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from atoll.install import flows, foreign, policies, roles, versions
from atoll.install.crds import host_crds, install_crds, karmada_crds
from atoll.install.credentials import (
    FIELD_MANAGER,
    MANAGED_BY,
    Endpoint,
    ensure_account,
    ensure_namespace,
    issue_token,
    write_kubeconfig,
)
from atoll.install.policies import ensure_policies
from atoll.install.query import ensure_query
from atoll.install.refusal import Refused
from atoll.install.registration import ensure_registration
from atoll.install.rights import ensure_kind_rights, ensure_rights
from atoll.install.users import ensure_user_roles
from atoll.kinds import KINDS
from atoll.kube import authority, errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import (
    BINDINGS,
    CLUSTERS,
    DEPLOYMENTS,
    NAMESPACES,
    QUEUES,
    SECRETS,
    WORKS,
)
from atoll.model.namespaces import is_system

PROCESSES: Final = ("webhook", "control", "dispatcher")
"""What runs on the host, in the order of its start; each has the ServiceAccount `atoll-<process>`."""

Json = dict[str, Any]

KARMADA: Final = "karmada"
"""Profile of a host that is a Karmada's API server."""

_NOT_PROPAGATED: Final = "namespace.karmada.io/skip-auto-propagation"
"""Label of namespaces that a Karmada does not make in its members."""

_WHY: Final = {
    "Volcano": "which would act on the same workloads: remove it from the host, or choose another host; members may"
    " keep it",
    "Kueue": "which would act on the same workloads: remove it from the host, or choose another host; members may"
    " keep it",
    "Karmada": "which would act on the same bindings, Works and Clusters: choose another host, or have Atoll queue"
    " Karmada's own bindings (--on karmada)",
}
"""Why a system can't be on a host, and what to do."""


async def init(
    host: ApiServer,
    at: Endpoint,
    *,
    out: Path,
    webhook_client_config: Json,
    query_outside: str = "",
    enable: Sequence[str] = (),
    on_karmada: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Prepare the host and write one kubeconfig per process into `out`. Safe to repeat; starts nothing.

    Args:
        host: with an administrator's credentials.
        at: where the processes will find the host.
        out: folder for `atoll-<process>.kubeconfig`.
        webhook_client_config: `{"url": ...}` or `{"service": {...}}`: where the API server will find the webhook.
        query_outside: address at which the API server reaches a dispatcher that does not run in the host itself;
            empty where it does.
        enable: namespaces to opt in; they must exist. None is, unless it is said here.
        on_karmada: the host is the API server of a Karmada, whose controllers make bindings and Works: Atoll decides
            where and when those of policies with `schedulerName: atoll` run.
        progress: gets a line per step.

    Raises:
        Refused: the host runs Volcano, Kueue or, unless that is said, Karmada; is too old, or has CRDs that can't be
            used; or a namespace can't be opted in.
        ApiError: the host said no.
    """
    if ":" in query_outside:
        raise Refused(
            f"--query-outside {query_outside}: a Service of type ExternalName can't hold an IPv6 address; give a DNS"
            " name that leads to it"
        )
    if on_karmada:
        await _check_karmada(host, enable)
    await _refuse_foreign(host, allowed=("Karmada",) if on_karmada else ())
    progress(f"the host is {versions.said(await versions.check_host(host))}")
    await _check_namespaces(host, enable)
    await install_crds(host, karmada_crds() if on_karmada else host_crds(), progress)

    shared = not on_karmada and await _runs_deployments(host)
    labels = {keys.HOST_PROFILE: KARMADA, _NOT_PROPAGATED: "true"} if on_karmada else {}
    if shared:
        labels = {keys.HOST_PROFILE: "shared"}
    await ensure_namespace(host, keys.SYSTEM_NAMESPACE, labels)
    alone = [kind.words.title for kind in KINDS if kind.dedicated]
    if shared:
        progress(f"this host runs Deployments itself: {', '.join(alone)} are refused in opted-in namespaces")
    grants = roles.ON_KARMADA if on_karmada else roles.HOST
    for process in PROCESSES:
        await ensure_account(host, _account(process), keys.SYSTEM_NAMESPACE)
        await ensure_rights(host, _account(process), (keys.SYSTEM_NAMESPACE, _account(process)), grants[process])
    if not on_karmada:
        await ensure_kind_rights(host, (keys.SYSTEM_NAMESPACE, _account("control")))
    progress(
        f"namespace {keys.SYSTEM_NAMESPACE} has the accounts of {', '.join(PROCESSES)}, each with a role of its own"
    )

    if await flows.ensure_flows(host, "atoll", [flows.HOST]):
        progress("FlowSchemas atoll-leases and atoll-controllers: other accounts' load does not hold Atoll up")
    trusted = await _ensure_authority(host, progress)
    wanted = policies.ON_KARMADA if on_karmada else policies.POLICIES
    await ensure_policies(host, wanted)
    progress(f"{len(wanted)} admission policies: decisions are written by Atoll's accounts alone")
    await ensure_user_roles(host)
    progress("roles view, edit and admin have Atoll's objects of their namespaces; every user reads queues")
    await ensure_query(host, query_outside)
    progress(f"Service {keys.SYSTEM_NAMESPACE}/{keys.QUERY_SERVICE}: ready for the dispatcher that leads")
    await _ensure_default_queue(host, progress)
    for line in await ensure_registration(host, webhook_client_config, trusted, on_karmada=on_karmada):
        progress(line)
    for name in enable:
        await ensure_namespace(host, name, {keys.ENABLED: "true"})
        progress(f"namespace {name} is opted in ({keys.ENABLED}=true)")

    for process in PROCESSES:
        token, expires = await issue_token(host, _account(process), keys.SYSTEM_NAMESPACE)
        path = kubeconfig_of(out, process)
        write_kubeconfig(path, at, _account(process), token, namespace=keys.SYSTEM_NAMESPACE)
        progress(f"{path}: credentials of {_account(process)}, valid until {expires}")


async def _runs_deployments(host: ApiServer) -> bool:
    """Whether controllers of the host run Deployments: one that is not Atoll's has a status."""
    return any(
        (each.get("status") or {}).get("observedGeneration")
        and keys.QUEUE_LABEL not in (each["metadata"].get("labels") or {})
        for each in await host.list(DEPLOYMENTS)
    )


def kubeconfig_of(out: Path, process: str) -> Path:
    """The file in which `init` leaves the credentials of a host process."""
    return out / f"{_account(process)}.kubeconfig"


def _account(process: str) -> str:
    return f"atoll-{process}"


async def _check_karmada(host: ApiServer, enable: Sequence[str]) -> None:
    """What `--on karmada` is for is a Karmada's API server, and namespaces need not opt in there."""
    if enable:
        raise Refused("--enable-namespace: on a Karmada a policy opts its workloads in: give it schedulerName: atoll")
    for resource in (BINDINGS, WORKS, CLUSTERS):
        try:
            await host.list(resource)
        except errors.NotFound as error:
            raise Refused(
                f"this is no Karmada's API server: it has no {resource.plural}.{resource.group}; give the kubeconfig of"
                " karmada-apiserver (karmada-apiserver.config)"
            ) from error


async def _refuse_foreign(host: ApiServer, allowed: Sequence[str]) -> None:
    """Two systems that admit the same jobs would start them twice."""
    for system, marks in (await foreign.running(host)).items():
        if system in allowed:
            continue
        raise Refused(f"the host runs {system} ({', '.join(marks)}), {_WHY[system]}")


async def _check_namespaces(host: ApiServer, names: Sequence[str]) -> None:
    """Nothing is made of a name that was mistyped."""
    for name in names:
        if is_system(name):
            raise Refused(f"namespace {name}: a system namespace can't be opted in; name another")
        try:
            await host.get(NAMESPACES, name)
        except errors.NotFound:
            raise Refused(f"namespace {name}: there is none; create it first") from None


async def _ensure_authority(host: ApiServer, progress: Callable[[str], None]) -> tuple[bytes, ...]:
    """The webhook's CA, and what is to be trusted; one that is there stays, the webhook itself rotates it.

    Raises:
        Refused: a Secret of that name holds something else.
    """
    where = f"Secret {keys.SYSTEM_NAMESPACE}/{authority.SECRET}"
    new = authority.make_authority(datetime.now(UTC))
    made = authority.to_secret(new)
    made["metadata"]["labels"] = MANAGED_BY
    try:
        await host.create(SECRETS, made, field_manager=FIELD_MANAGER)
    except errors.AlreadyExists:
        try:
            found = authority.from_secret(await host.get(SECRETS, authority.SECRET, keys.SYSTEM_NAMESPACE))
        except authority.BadSecret as error:
            raise Refused(f"{where}: {error}") from error
        progress(f"{where}: the webhook's certificate authority is there")
        return found.trusted
    progress(f"{where}: certificate authority of the webhook made")
    return new.trusted


async def _ensure_default_queue(host: ApiServer, progress: Callable[[str], None]) -> None:
    queue = {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "metadata": {"name": keys.DEFAULT_QUEUE},
        "spec": {"weight": 1},
    }
    try:
        await host.create(QUEUES, queue, field_manager=FIELD_MANAGER)
    except errors.AlreadyExists:
        progress(f"queue {keys.DEFAULT_QUEUE} is there")
    else:
        progress(f"queue {keys.DEFAULT_QUEUE} created")
