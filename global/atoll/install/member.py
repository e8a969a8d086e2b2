"""Join a member: objects for its agent in the member, and facts about it on the host."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from atoll.install import flows, versions
from atoll.install.crds import install_crds, member_crds
from atoll.install.credentials import (
    FIELD_MANAGER,
    MANAGED_BY,
    YEAR,
    Endpoint,
    ensure_account,
    ensure_namespace,
    issue_token,
    kubeconfig,
    write_kubeconfig,
)
from atoll.install.placing import PlacingWish, mark_nodes, plan
from atoll.install.quota import ensure_quota
from atoll.install.refusal import Refused
from atoll.install.rights import ensure_kind_rights, ensure_rights, has_rights, remove_rights
from atoll.install.roles import (
    AGENT_IN_MEMBER,
    EXEC_IN_MEMBER,
    Grant,
    agent_on_host,
    asker_of_certificate,
    reader_of_cluster,
    reader_of_secret,
)
from atoll.kube import errors
from atoll.kube.token_renewal import expiry_in
from atoll.kube.transport import ApiServer
from atoll.model import deschedulers, keys
from atoll.model.apiresource import CLUSTERS, CONFIGMAPS, NAMESPACES, SECRETS
from atoll.model.namespaces import ALL, LABELLED, is_system, lets_work_in
from atoll.model.timestamps import rfc3339_seconds

AGENT: Final = "atoll-agent"
"""Name of the agent's ServiceAccount, in the member and in its execution namespace on the host."""
AGENT_EXEC: Final = "atoll-agent-exec"
"""Name of the agent's role in the member that an administrator of it chooses."""
MEMBER_SECRET: Final = "atoll-member"
"""Name of the Secret in the execution namespace with the member's kubeconfig, for an agent beside the host."""

LEAVING: Final = {"key": "atoll.sh/leaving", "effect": "NoSchedule"}
"""Taint of a Cluster whose member leaves."""

Json = dict[str, Any]

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAME_LENGTH = 48
_READY_S = 5.0
_SHORT_S: Final = 600
"""Of a token that a certificate takes the place of."""


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """Facts of a Cluster object about its member, its address aside; None leaves a fact, empty removes it."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """In addition to present labels."""
    region: str | None = None
    provider: str | None = None
    zones: tuple[str, ...] | None = None


async def join(
    host: ApiServer,
    member: ApiServer,
    name: str,
    *,
    host_at: Endpoint,
    member_at: Endpoint,
    out: Path | None,
    facts: MemberFacts | None = None,
    placing: PlacingWish | None = None,
    beside_host: bool | None = None,
    accept: Sequence[str] = (),
    allow_exec: bool | None = None,
    by_certificate: bool | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Join a member under a name and write the kubeconfigs of its agent into `out`. Safe to repeat; starts nothing.

    Args:
        host: with an administrator's credentials.
        member: with an administrator's credentials.
        name: DNS label of at most 48 characters; also the name of the Cluster object.
        host_at: where the agent will find the host.
        member_at: where the agent will find the member; `spec.apiEndpoint` of the Cluster.
        out: folder for `atoll-agent-<name>.host.kubeconfig` and `.member.kubeconfig`; None issues no credentials,
            and leaves `beside_host` undone.
        facts: labels, region, provider and zones of the Cluster; omitted ones stay as they are.
        placing: the placer in the member, through which queue, on which nodes; omitted ones stay.
        beside_host: the agent runs beside the host and reads the member's kubeconfig from a Secret there; None: as
            before, and not beside it at first.
        accept: namespaces of the member's own that work from host namespaces of the same names may enter, in
            addition to present permissions.
        allow_exec: users of the host may exec into their pods; False revokes an earlier permission, None leaves it.
        by_certificate: the agent's credentials for the host are a certificate; None: as before, and a token at first.
        progress: gets a line per step.

    Returns the command line that starts the agent.

    Raises:
        Refused: the name can't be used or is taken by another member, or the member is the host itself, can't be
            reached, is too old, or can't be prepared.
        ApiError: the host or the member refused.
    """
    identity = await inspect(member, name, progress)
    present = await check_acceptable(host, name, member_at.url, identity)
    asked = placing or PlacingWish()
    agreed = await plan(member, name, asked, present["metadata"].get("annotations") or {})
    progress(f"member {name}: {agreed.placer} places ({agreed.sentence})")
    await accept_work(member, name, accept, progress)
    for namespace in await _closed(host, member):
        text = f"namespace {namespace} lets no work in, though it is opted in on the host; to let it in"
        progress(f"member {name}: {text}: --accept-namespace {namespace}")
    nodes = agreed.wish.nodes if asked.nodes is not None or agreed.wish.nodes else None
    await prepare(member, name, allow_exec=allow_exec, nodes=nodes, progress=progress)
    await register(host, name, member_at.url, identity, facts or MemberFacts(), asked, present, progress)
    certified = await certify(host, name, by_certificate)
    if out is None:
        return []

    execution = keys.execution_namespace(name)
    host_file, member_file = agent_kubeconfigs(out, name)
    token, expires = await issue_token(host, AGENT, execution, _SHORT_S if certified else YEAR)
    write_kubeconfig(host_file, host_at, AGENT, token, namespace=execution)
    if certified:
        expires = await _certificate(host, host_at, host_file, name)
    progress(f"{host_file}: credentials of {execution}/{AGENT}, valid until {expires}")
    token, expires = await issue_token(member, AGENT, keys.SYSTEM_NAMESPACE)
    said = f"credentials of {keys.SYSTEM_NAMESPACE}/{AGENT}, valid until {expires}"
    command = ["atoll-agent", f"--cluster={name}", f"--kubeconfig={host_file}"]
    if beside_host or (beside_host is None and _is_beside_host(name, present.get("spec") or {})):
        await _keep_on_host(host, name, kubeconfig(member_at, AGENT, token, namespace=keys.SYSTEM_NAMESPACE))
        progress(f"host: Secret {execution}/{MEMBER_SECRET}: {said}")
        return [*command, "--member-secret"]
    write_kubeconfig(member_file, member_at, AGENT, token, namespace=keys.SYSTEM_NAMESPACE)
    progress(f"{member_file}: {said}")
    if beside_host is False:
        await _leave_host(host, name)
    return [*command, f"--member-kubeconfig={member_file}"]


async def inspect(member: ApiServer, name: str, progress: Callable[[str], None] = lambda _: None) -> str:
    """The identity of a cluster that may become a member of that name.

    Raises:
        Refused: the name can't be used, or the cluster can't be reached or is too old.
    """
    check_name(name)
    await _check_reachable(member, name)
    progress(f"member {name}: {versions.said(await versions.check_member(member, name))}")
    return await cluster_identity(member)


async def check_acceptable(host: ApiServer, name: str, url: str, identity: str) -> Json:
    """Whether the host can take this cluster; gives its Cluster, or one that says nothing.

    Args:
        host: with an administrator's credentials.
        name: of the member.
        url: of its API server; empty where only its own pods know it.
        identity: see `cluster_identity`.

    Raises:
        Refused: it is the host itself, or a member under another name, or the name is another cluster's.
    """
    if identity and identity == await cluster_identity(host):
        raise Refused(
            f"the cluster at {url or identity} is the host itself: a host runs no workloads of its own federation; give"
            " the kubeconfig of another cluster"
        )
    await _check_not_taken(host, name, url, identity)
    return await _cluster(host, name)


async def prepare(
    member: ApiServer,
    name: str,
    *,
    allow_exec: bool | None,
    nodes: str | None,
    progress: Callable[[str], None],
) -> None:
    """Write the objects for its agent into a member. Safe to repeat.

    Args:
        member: with an administrator's credentials.
        name: of the member, for messages.
        allow_exec: see `join`.
        nodes: label selector of the nodes that are Atoll's alone, empty for all; None leaves their taints.
        progress: gets a line per step.
    """
    for said in await unread_policies(member):
        progress(f"member {name}: {said}")
    await install_crds(member, member_crds(), lambda line: progress(f"member {name}: {line}"))
    await ensure_namespace(member, keys.SYSTEM_NAMESPACE)
    await ensure_account(member, AGENT, keys.SYSTEM_NAMESPACE)
    await ensure_rights(member, AGENT, (keys.SYSTEM_NAMESPACE, AGENT), AGENT_IN_MEMBER)
    await ensure_kind_rights(member, (keys.SYSTEM_NAMESPACE, AGENT))
    if allow_exec is None:
        allow_exec = await has_rights(member, AGENT_EXEC, EXEC_IN_MEMBER)
    if allow_exec:
        await ensure_rights(member, AGENT_EXEC, (keys.SYSTEM_NAMESPACE, AGENT), EXEC_IN_MEMBER)
        progress(f"member {name}: users of the host who may exec into pods there may do so here, in their own")
    else:
        await remove_rights(member, AGENT_EXEC, EXEC_IN_MEMBER)
    await flows.ensure_flows(member, AGENT, [(keys.SYSTEM_NAMESPACE, AGENT)])
    progress(f"member {name}: account {AGENT}")
    if nodes is not None:
        await mark_nodes(member, name, nodes, progress)


async def register(
    host: ApiServer,
    name: str,
    url: str,
    identity: str,
    facts: MemberFacts,
    placing: PlacingWish,
    present: Json,
    progress: Callable[[str], None],
) -> None:
    """Write the facts about a member into the host. Safe to repeat.

    Args:
        host: with an administrator's credentials.
        name: of the member.
        url: see `check_acceptable`.
        identity: see `cluster_identity`.
        facts: of its Cluster.
        placing: see `join`.
        present: its Cluster as it is, see `check_acceptable`.
        progress: gets a line per step.
    """
    execution = keys.execution_namespace(name)
    await ensure_namespace(host, execution)
    await ensure_quota(host, execution)
    await ensure_account(host, AGENT, execution)
    await ensure_rights(host, AGENT, (execution, AGENT), agent_on_host(name))
    roles, grants = cluster_rights(name)
    await ensure_rights(host, roles, (execution, AGENT), grants)
    await flows.ensure_flows(host, f"{AGENT}-{name}", [(execution, AGENT)])
    progress(f"host: namespace {execution} with account {AGENT}")
    await _ensure_cluster(host, name, url, identity, facts, placing, present)
    progress(f"host: Cluster {name}")


async def certify(host: ApiServer, name: str, by_certificate: bool | None) -> bool:
    """Give the agent the right to ask for certificates, or take it; None leaves it. Tells whether it has it."""
    roles, grants = certificate_rights(name)
    if by_certificate is None:
        by_certificate = await has_rights(host, roles, grants)
    if by_certificate:
        await ensure_rights(host, roles, (keys.execution_namespace(name), AGENT), grants)
    else:
        await remove_rights(host, roles, grants)
    return by_certificate


async def _certificate(host: ApiServer, at: Endpoint, file: Path, name: str) -> str:
    """Replace the token in a kubeconfig by a certificate; gives its end."""
    from atoll.kube import client_certificates

    async def approve(request: Json) -> None:
        await client_certificates.approve(host, request, FIELD_MANAGER)

    async with await ApiServer.from_kubeconfig(file) as account:
        try:
            fresh = await client_certificates.ask(account, name, approve=approve)
        except client_certificates.NotSigned as error:
            raise Refused(str(error)) from error
    write_kubeconfig(file, at, AGENT, fresh, namespace=keys.execution_namespace(name))
    return rfc3339_seconds(expiry_in(str(file)))


async def unread_policies(member: ApiServer) -> list[str]:
    """Messages about policies of deschedulers in the member."""
    try:
        found = [each for namespace in deschedulers.NAMESPACES for each in await member.list(CONFIGMAPS, namespace)]
    except errors.Forbidden:
        return []
    # Items of a list don't name their kind.
    said = [deschedulers.readers({"kind": CONFIGMAPS.kind, **each}) for each in found]
    return [text for text in said if text]


async def accept_work(member: ApiServer, name: str, namespaces: Sequence[str], progress: Callable[[str], None]) -> None:
    """Let work into namespaces of the member's own.

    Raises:
        Refused: there is none of such a name, or it belongs to the cluster's own machinery.
    """
    for namespace in namespaces:
        if is_system(namespace):
            raise Refused(f"namespace {namespace} belongs to the cluster's own machinery: no work may enter it")
        try:
            await member.merge_patch(
                NAMESPACES, namespace, {"metadata": {"labels": {keys.ACCEPT: "true"}}}, field_manager=FIELD_MANAGER
            )
        except errors.NotFound as error:
            text = f"member {name} has no namespace {namespace}: leave it out, Atoll makes it when work goes there"
            raise Refused(text) from error
        progress(f"member {name}: namespace {namespace} lets work in")


async def _closed(host: ApiServer, member: ApiServer) -> list[str]:
    """Namespaces of the member's own of which the host has one of the same name that has opted in."""
    opted_in = await host.list(NAMESPACES, label_selector=f"{keys.ENABLED} in ({ALL},{LABELLED})")
    names = {each["metadata"]["name"] for each in opted_in}
    there = [each["metadata"] for each in await member.list(NAMESPACES)]
    return sorted(
        each["name"] for each in there if each["name"] in names and not lets_work_in(each.get("labels") or {})
    )


async def _keep_on_host(host: ApiServer, name: str, text: str) -> None:
    """Leave the member's kubeconfig where the agent's account, and no other of Atoll's, can read it."""
    execution = keys.execution_namespace(name)
    secret = {
        "apiVersion": SECRETS.api_version,
        "kind": SECRETS.kind,
        "metadata": {"name": MEMBER_SECRET, "namespace": execution, "labels": MANAGED_BY},
        "stringData": {"kubeconfig": text},
    }
    await host.apply(SECRETS, secret, field_manager=FIELD_MANAGER)
    spec = {"syncMode": "Push", "secretRef": _reference(name)}
    await host.merge_patch(CLUSTERS, name, {"spec": spec}, field_manager=FIELD_MANAGER)
    roles, grants = secret_rights(name)
    await ensure_rights(host, roles, (execution, AGENT), grants)


def _reference(name: str) -> Json:
    """To the Secret with the member's kubeconfig."""
    return {"namespace": keys.execution_namespace(name), "name": MEMBER_SECRET}


def _is_beside_host(name: str, spec: Json) -> bool:
    return bool(spec.get("secretRef") == _reference(name))


def joined(cluster: Json) -> bool:
    """Whether `join` made a Cluster; a Karmada's own members are none of ours."""
    spec = cluster.get("spec") or {}
    return spec.get("syncMode") in (None, "Pull") or _is_beside_host(cluster["metadata"]["name"], spec)


async def _leave_host(host: ApiServer, name: str) -> None:
    """The inverse of `_keep_on_host`."""
    spec = {"syncMode": "Pull", "secretRef": None}
    await host.merge_patch(CLUSTERS, name, {"spec": spec}, field_manager=FIELD_MANAGER)
    await remove_rights(host, *secret_rights(name))
    await host.delete(SECRETS, MEMBER_SECRET, keys.execution_namespace(name))


def cluster_rights(name: str) -> tuple[str, tuple[Grant, ...]]:
    """The rights of an agent to read its own Cluster, and the name of their roles."""
    return f"{AGENT}-{name}", reader_of_cluster(name)


def certificate_rights(name: str) -> tuple[str, tuple[Grant, ...]]:
    """The rights of an agent to ask for its certificate, and the name of their roles."""
    return f"atoll-certificate-{name}", asker_of_certificate(name)


def secret_rights(name: str) -> tuple[str, tuple[Grant, ...]]:
    """The rights of an agent beside the host to find its member's kubeconfig, and the name of their roles."""
    return f"{AGENT}-{name}", reader_of_secret(keys.execution_namespace(name), MEMBER_SECRET)


def agent_kubeconfigs(out: Path, name: str) -> tuple[Path, Path]:
    """The files in which `join` leaves the agent's credentials: for the host, for the member."""
    return out / f"{AGENT}-{name}.host.kubeconfig", out / f"{AGENT}-{name}.member.kubeconfig"


def check_name(name: str) -> None:
    """Refuse what can't name a member.

    Raises:
        Refused: it is no DNS label, or too long.
    """
    if not _NAME.fullmatch(name) or len(name) > _NAME_LENGTH:
        raise Refused(
            f"cluster name {name!r}: use lower-case letters, digits and '-', beginning and ending with a letter or"
            f" digit, at most {_NAME_LENGTH} characters"
        )


async def _check_reachable(member: ApiServer, name: str) -> None:
    try:
        await member.request("GET", "/readyz", deadline=_READY_S)
    except errors.ApiError as error:
        raise Refused(
            f"member {name} at {member.url} is not ready: {error.message}; check its kubeconfig and that the API"
            " server answers /readyz from here"
        ) from error


async def cluster_identity(api: ApiServer) -> str:
    """The UID of kube-system, which distinguishes clusters at any address; empty if there is none."""
    try:
        return str((await api.get(NAMESPACES, "kube-system"))["metadata"]["uid"])
    except errors.NotFound:
        return ""


async def _check_not_taken(host: ApiServer, name: str, url: str, identity: str) -> None:
    for cluster in await host.list(CLUSTERS):
        spec, other = cluster.get("spec") or {}, cluster["metadata"]["name"]
        if other == name:
            same = spec.get("id") == identity if spec.get("id") and identity else spec.get("apiEndpoint") in (None, url)
            if not same:
                raise Refused(
                    f"Cluster {name} is joined already, at {spec.get('apiEndpoint') or spec['id']}, and"
                    f" {url or identity} is another cluster:"
                    f" choose another name, or remove the old one first (atollctl unjoin {name})"
                )
            if not joined(cluster):
                raise Refused(
                    f"Cluster {name} was joined in mode {spec['syncMode']} by another system: remove it there first"
                )
        elif (identity and spec.get("id") == identity) or (url and spec.get("apiEndpoint") == url):
            raise Refused(
                f"the cluster at {url or identity} is a member already, under the name {other}: one cluster can't be"
                f" counted twice; to rename it, atollctl unjoin {other} first"
            )


async def _cluster(host: ApiServer, name: str) -> Json:
    """The Cluster of that name; one that says nothing where there is none yet."""
    try:
        return await host.get(CLUSTERS, name)
    except errors.NotFound:
        return {"metadata": {}, "spec": {}}


def taints_but_leaving(cluster: Json) -> list[Json]:
    """The taints of a Cluster without the one of a member that leaves."""
    taints = (cluster.get("spec") or {}).get("taints") or ()
    return [taint for taint in taints if taint["key"] != LEAVING["key"]]


async def _ensure_cluster(
    host: ApiServer, name: str, url: str, identity: str, facts: MemberFacts, placing: PlacingWish, present: Json
) -> None:
    """Create the Cluster, or change given fields and leave the rest: labels and taints are set by hand as well."""
    known = {"apiEndpoint": url, "id": identity}
    mode = (present.get("spec") or {}).get("syncMode") or "Pull"
    spec: Json = {"syncMode": mode, **{field: value for field, value in known.items() if value}}
    zones = None if facts.zones is None else list(facts.zones)
    optional = {"region": facts.region, "provider": facts.provider, "zones": zones}
    spec.update({key: value or None for key, value in optional.items() if value is not None})
    taints = taints_but_leaving(present)
    if taints != ((present.get("spec") or {}).get("taints") or []):
        # An `unjoin` was stopped half-way: nothing would ever go there again.
        spec["taints"] = taints
    notes = placing.annotations
    content: Json = {"metadata": {"name": name, "labels": dict(facts.labels), "annotations": notes}, "spec": spec}
    head = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind}
    try:
        metadata = {**content["metadata"], "annotations": {key: text for key, text in notes.items() if text}}
        given = {key: value for key, value in spec.items() if value is not None}
        await host.create(CLUSTERS, {**head, "metadata": metadata, "spec": given}, field_manager=FIELD_MANAGER)
    except errors.AlreadyExists:
        await host.merge_patch(CLUSTERS, name, content, field_manager=FIELD_MANAGER)
