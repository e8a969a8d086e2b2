"""Make a cluster a host: everything that Atoll's processes expect to find there."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from atoll.install.query import ensure_query, present_query
from atoll.install.reach import unreached
from atoll.install.refusal import Refused
from atoll.install.registration import ensure_registration, registered
from atoll.install.rights import ensure_kind_rights, ensure_rights
from atoll.install.users import ensure_user_roles
from atoll.kinds import KINDS, Kind
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
    SERVICES,
    WORKS,
)
from atoll.model.namespaces import ALL, LABELLED, is_system

PROCESSES: Final = ("webhook", "control", "dispatcher")
"""What runs on the host, in the order of its start; each has the ServiceAccount `atoll-<process>`."""

Json = dict[str, Any]

WEBHOOK_SERVICE: Final[Json] = {"service": {"namespace": keys.SYSTEM_NAMESPACE, "name": "atoll-webhook", "port": 443}}
"""Where a new host's API server looks for the webhook by default."""

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
    out: Path | None,
    webhook_client_config: Json | None = None,
    query_outside: str | None = None,
    enable: Sequence[str] = (),
    on_karmada: bool | None = None,
    force: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> bool:
    """Prepare the host and write one kubeconfig per process into `out`. Safe to repeat; starts nothing.

    On a host that is prepared already, None for an argument keeps the present value, and a new address is written only
    if the API server reaches it.

    Args:
        host: with an administrator's credentials.
        at: where the processes will find the host.
        out: folder for `atoll-<process>.kubeconfig`; None issues no credentials.
        webhook_client_config: `{"url": ...}` or `{"service": {...}}`: where the API server will find the webhook; on a
            new host None is `WEBHOOK_SERVICE`.
        query_outside: address at which the API server reaches a dispatcher that does not run in the host itself;
            empty where it does, as None on a new host.
        enable: namespaces to opt in, which must exist: NAME, or NAME=labelled where only workloads that name a queue
            are Atoll's. None by default.
        on_karmada: the host is the API server of a Karmada, whose controllers make bindings and Works: Atoll decides
            where and when bindings of policies with `schedulerName: atoll` run.
        force: write a new address although the API server does not reach it.
        progress: gets a line per step.

    Returns whether the host is the API server of a Karmada.

    Raises:
        Refused: the host runs Volcano, Kueue or, unless permitted, Karmada; is too old, or has CRDs that can't be
            used; was prepared for the other value of `on_karmada`; does not reach a new address; or a namespace can't
            be opted in.
        ApiError: the host refused.
    """
    if ":" in (query_outside or ""):
        raise Refused(
            f"--query-outside {query_outside}: a Service of type ExternalName can't hold an IPv6 address; give a DNS"
            " name that leads to it"
        )
    present = await _present(host)
    if on_karmada is None:
        on_karmada = present.on_karmada is True
    elif present.on_karmada is not None and on_karmada != present.on_karmada:
        kinds = {True: "on a Karmada", False: "of Atoll's own"}
        raise Refused(
            f"this is a host {kinds[present.on_karmada]} and can't become one {kinds[on_karmada]}: take Atoll off it"
            " first (atollctl uninstall)"
        )
    client_config = webhook_client_config or present.client_config or WEBHOOK_SERVICE
    outside = query_outside if query_outside is not None else present.query_outside
    if on_karmada:
        await _check_karmada(host, enable)
    await refuse_foreign(host, allowed=("Karmada",) if on_karmada else ())
    progress(f"the host is {versions.said(await versions.check_host(host))}")
    await _check_namespaces(host, enable)
    if not force:
        await _check_addresses(host, present, webhook_client_config, query_outside)
    if client_config is WEBHOOK_SERVICE and await _has_lost_its_registration(host):
        raise Refused(
            f"this host was prepared before, but its webhook configurations {keys.WEBHOOKS} are gone, and with them the"
            f" address of atoll-webhook; there is no {_text(client_config)} either: give --webhook-url or"
            " --webhook-service"
        )
    await install_crds(host, karmada_crds() if on_karmada else host_crds(), progress)

    run = [] if on_karmada else await _run_by_host(host)
    labels = {keys.HOST_PROFILE: KARMADA, _NOT_PROPAGATED: "true"} if on_karmada else {}
    if run:
        labels = {keys.HOST_PROFILE: "shared"}
        labels |= {f"{keys.HOST_RUNS}{kind.resource.plural}.{kind.resource.group}": "true" for kind in run}
    await ensure_namespace(host, keys.SYSTEM_NAMESPACE, labels)
    if run:
        titles = ", ".join(kind.words.title for kind in run)
        progress(
            f"this host runs Deployments itself: {titles} are refused in opted-in namespaces, but those"
            f" without a queue where the label is {keys.ENABLED}={LABELLED}"
        )
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
    trusted = await ensure_authority(host, progress)
    wanted = policies.ON_KARMADA if on_karmada else policies.POLICIES
    await ensure_policies(host, wanted)
    progress(f"{len(wanted)} admission policies: decisions are written by Atoll's accounts alone")
    await ensure_user_roles(host)
    progress("roles view, edit and admin have Atoll's objects of their namespaces; every user reads queues")
    await ensure_query(host, outside)
    progress(f"Service {keys.SYSTEM_NAMESPACE}/{keys.QUERY_SERVICE}: ready for the dispatcher that leads")
    await ensure_default_queue(host, progress)
    for line in await ensure_registration(host, client_config, trusted, on_karmada=on_karmada):
        progress(line)
    progress(f"the API server calls atoll-webhook at {_text(client_config)}{await _lacking(host, client_config)}")
    for name, way in map(_way, enable):
        await ensure_namespace(host, name, {keys.ENABLED: way})
        progress(f"namespace {name} is opted in ({keys.ENABLED}={way})")

    if out is None:
        return on_karmada
    for process in PROCESSES:
        token, expires = await issue_token(host, _account(process), keys.SYSTEM_NAMESPACE)
        path = kubeconfig_of(out, process)
        write_kubeconfig(path, at, _account(process), token, namespace=keys.SYSTEM_NAMESPACE)
        progress(f"{path}: credentials of {_account(process)}, valid until {expires}")
    return on_karmada


@dataclass(frozen=True, slots=True)
class _Present:
    """What an earlier `init` left on a host; None where there is nothing."""

    client_config: Json | None = None
    trusted: str = ""
    """The CAs of the webhook, base64 of PEM."""
    on_karmada: bool | None = None
    query_outside: str = ""
    query_port: int = 0


async def _present(host: ApiServer) -> _Present:
    found, karmada = await registered(host), await is_karmada(host)
    outside, port = await present_query(host)
    if found is None:
        return _Present(on_karmada=karmada or None, query_outside=outside, query_port=port)
    return _Present(*found, karmada, outside, port)


async def is_karmada(host: ApiServer) -> bool:
    """Whether the host was prepared as the API server of a Karmada."""
    try:
        system = await host.get(NAMESPACES, keys.SYSTEM_NAMESPACE)
    except errors.NotFound:
        return False
    return (system["metadata"].get("labels") or {}).get(keys.HOST_PROFILE) == KARMADA


async def _check_addresses(
    host: ApiServer, present: _Present, client_config: Json | None, query_outside: str | None
) -> None:
    """A new address takes over from one that works: nothing is changed if the API server does not reach it."""
    asked = []
    # On a new host nothing listens yet.
    if client_config and present.client_config and client_config != present.client_config:
        asked.append(("atoll-webhook", client_config, present.trusted))
    # The port is known from a leader that runs outside, too.
    if query_outside and present.query_outside not in ("", query_outside) and present.query_port:
        asked.append(("atoll-dispatcher", {"url": f"https://{query_outside}:{present.query_port}"}, ""))
    for process, address, trusted in asked:
        if why := await unreached(host, address, trusted):
            raise Refused(
                f"the host's API server does not reach {process} at {_text(address)}: {why}. Nothing was changed; start"
                f" {process} there first, or use --force"
            )


def _text(client_config: Json) -> str:
    """An address as the flags of `init` name it."""
    if client_config.get("url"):
        return str(client_config["url"])
    service = client_config["service"]
    return f"Service {service['namespace']}/{service['name']}:{service.get('port', 443)}"


async def _has_lost_its_registration(host: ApiServer) -> bool:
    """Whether the webhook has a CA already, and no Service where nothing says where it is."""
    try:
        await host.get(SECRETS, authority.SECRET, keys.SYSTEM_NAMESPACE)
    except errors.NotFound:
        return False
    return bool(await _lacking(host, WEBHOOK_SERVICE))


async def _lacking(host: ApiServer, client_config: Json) -> str:
    """Missing part of an address that is a Service's."""
    service = client_config.get("service")
    if service:
        try:
            await host.get(SERVICES, service["name"], service["namespace"])
        except errors.NotFound:
            return ", which is not there yet: create it"
    return ""


async def _run_by_host(host: ApiServer) -> list[Kind]:
    """The kinds without a switch that controllers of the host run: none where no Deployment that is not Atoll's has a
    status; else Kubernetes' own, and the ones whose operator is one of the Deployments, by its name or image.
    """
    theirs = [
        each for each in await host.list(DEPLOYMENTS) if keys.QUEUE_LABEL not in (each["metadata"].get("labels") or {})
    ]
    if not any((each.get("status") or {}).get("observedGeneration") for each in theirs):
        return []
    words = {word for each in theirs for word in _words_of(each)}
    return [
        kind for kind in KINDS if kind.dedicated and (not kind.optional or words & _OPERATORS[kind.resource.plural])
    ]


_OPERATORS: Final = {"rayservices": {"kuberay"}, "leaderworkersets": {"lws", "leaderworkerset"}}
"""Kinds without a switch that others' operators run -> words in the name or an image of the operator's Deployment."""


def _words_of(deployment: Json) -> set[str]:
    pod = (deployment["spec"].get("template") or {}).get("spec") or {}
    images = [str(each.get("image")) for each in pod.get("containers") or ()]
    return set(re.split(r"[^a-z0-9]+", " ".join([deployment["metadata"]["name"], *images])))


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


async def refuse_foreign(host: ApiServer, allowed: Sequence[str]) -> None:
    """Two systems that admit the same jobs would start them twice."""
    for system, marks in (await foreign.running(host)).items():
        if system in allowed:
            continue
        raise Refused(f"the host runs {system} ({', '.join(marks)}), {_WHY[system]}")


async def _check_namespaces(host: ApiServer, names: Sequence[str]) -> None:
    """Nothing is made of a name that was mistyped."""
    for name, way in map(_way, names):
        if is_system(name):
            raise Refused(f"namespace {name}: a system namespace can't be opted in; name another")
        if way not in (ALL, LABELLED):
            raise Refused(f"namespace {name}: {way!r} opts nothing in; use {name} or {name}={LABELLED}")
        try:
            await host.get(NAMESPACES, name)
        except errors.NotFound:
            raise Refused(f"namespace {name}: there is none; create it first") from None


def _way(said: str) -> tuple[str, str]:
    """A namespace to opt in, and the value of its label."""
    name, _, way = said.partition("=")
    return name, way or ALL


async def ensure_authority(host: ApiServer, progress: Callable[[str], None]) -> tuple[bytes, ...]:
    """The webhook's CA, and the CAs to trust; a present one stays, the webhook itself rotates it.

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


async def ensure_default_queue(host: ApiServer, progress: Callable[[str], None]) -> None:
    """Create the default queue; one that is there stays as it is."""
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
