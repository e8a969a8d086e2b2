"""Let a member go: what `atollctl unjoin` does.

In this order, so that it can be stopped and repeated at any point: nothing new goes to the member, what runs there is
taken back, its objects on the host go, and then what the installation made in the member.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from atoll.install.crds import is_foreign, member_crds
from atoll.install.flows import remove_flows
from atoll.install.member import (
    AGENT,
    AGENT_EXEC,
    LEAVING,
    agent_kubeconfigs,
    certificate_rights,
    check_name,
    cluster_identity,
    cluster_rights,
    secret_rights,
    taints_but_leaving,
)
from atoll.install.placing import mark_nodes
from atoll.install.refusal import Refused, some
from atoll.install.rights import remove_kind_rights, remove_rights
from atoll.install.roles import AGENT_IN_MEMBER, EXEC_IN_MEMBER
from atoll.kinds import DELIVERED
from atoll.kube import errors
from atoll.kube.served import served
from atoll.kube.transport import ApiServer
from atoll.model import decision, keys
from atoll.model.apiresource import (
    BINDINGS,
    CLUSTER_REQUESTS,
    CLUSTERS,
    CRDS,
    LEASES,
    NAMESPACES,
    SECRETS,
    SERVICE_ACCOUNTS,
    WORKS,
)
from atoll.model.decision import Decision, Line, Phase
from atoll.model.timestamps import rfc3339, to_seconds
from atoll.model.verdict import Reason

Json = dict[str, Any]

_FIELD_MANAGER: Final = "atoll-unjoin"
_POLL_S = 0.2
_LOOK_S = 2.0
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Left:
    """What `unjoin` could not see to its end."""

    may_run: Sequence[str] = field(default_factory=tuple)
    """Workloads, `namespace/name`, whose pods may still run in the member."""


async def unjoin(
    host: ApiServer,
    member: ApiServer | None,
    name: str,
    *,
    force: bool = False,
    purge: bool = False,
    give_up: bool = False,
    timeout: float = 60.0,
    credentials: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Left:
    """Take a member out of the federation. Safe to repeat; the agent's process is its operator's to stop.

    Args:
        host: with an administrator's credentials.
        member: the same; None leaves our account and role in the member.
        name: of the Cluster.
        force: although workloads run there: they go back to their queues. If the agent does not answer, they are
            released without it.
        purge: also remove our CRDs, with all objects of them, the batch Jobs that Atoll brought, and our namespace.
        give_up: with `force`: workloads not ended in time are released without the agent, too.
        timeout: seconds for the workloads to end, and again for the execution namespace to go.
        credentials: folder in which `join` left the agent's kubeconfigs; they are deleted.
        progress: gets a line per step.

    Raises:
        Refused: there is no such member, `member` is another cluster, workloads run there, or they did not end in time.
        ApiError: the host or the member refused.
    """
    check_name(name)
    execution = keys.execution_namespace(name)
    cluster = await _find(host, name)
    if member is not None:
        await _check_same(host, member, name, cluster)
    if cluster is not None:
        await _close(host, cluster)
        progress(f"host: nothing new goes to {name}")
    running = await _running(host, name)
    if running and not force:
        if cluster is not None:
            patch = {"spec": {"taints": taints_but_leaving(cluster)}}
            await host.merge_patch(CLUSTERS, name, patch, field_manager=_FIELD_MANAGER)
        raise Refused(
            f"{len(running)} workloads are dispatched to {name} ({some(running)}): wait until they end, delete them,"
            " or use --force, which sends them back to their queues"
        )
    answers = await _agent_answers(host, execution)
    if cluster is not None:
        await host.delete(CLUSTERS, name, uid=cluster["metadata"]["uid"])
        progress(f"host: Cluster {name} deleted")
    # Once more: something may have been dispatched between the first look and the end of the Cluster.
    left = await _drain(host, name, answers, force, give_up, timeout, progress)
    await remove_rights(host, *cluster_rights(name))
    await remove_rights(host, *secret_rights(name))
    await remove_rights(host, *certificate_rights(name))
    await remove_flows(host, f"{AGENT}-{name}")
    await host.delete(CLUSTER_REQUESTS, name)
    await host.delete(NAMESPACES, execution)
    await _wait_gone(host, execution, timeout)
    progress(f"host: namespace {execution} and the credentials of its agent are gone")
    for path in agent_kubeconfigs(credentials, name) if credentials is not None else ():
        if path.exists():
            path.unlink()
            progress(f"{path}: deleted")
    if member is not None:
        await _clean(member, name, purge, progress)
    return left


async def _find(host: ApiServer, name: str) -> Json | None:
    """The Cluster; None if it is gone but its namespace is not, as after an interrupted run."""
    try:
        return await host.get(CLUSTERS, name)
    except errors.NotFound:
        try:
            await host.get(NAMESPACES, keys.execution_namespace(name))
        except errors.NotFound:
            known = ", ".join(each["metadata"]["name"] for each in await host.list(CLUSTERS)) or "none"
            raise Refused(f"there is no member {name}; members: {known}") from None
        return None


async def _check_same(host: ApiServer, member: ApiServer, name: str, cluster: Json | None) -> None:
    """Another cluster would lose the account of its own agent."""
    identity = await cluster_identity(member)
    known = {(each.get("spec") or {}).get("id"): each["metadata"]["name"] for each in await host.list(CLUSTERS)}
    if identity and identity == await cluster_identity(host):
        what = "the host"
    elif known.get(identity, name) != name:
        what = f"member {known[identity]}"
    elif identity and cluster is not None and (cluster.get("spec") or {}).get("id") not in (None, identity):
        what = "another cluster"
    else:
        return
    raise Refused(f"the cluster at {member.url} is {what}, not member {name}: give the kubeconfig of {name}")


async def _close(host: ApiServer, cluster: Json) -> None:
    patch = {"spec": {"taints": [*taints_but_leaving(cluster), LEAVING]}}
    await host.merge_patch(CLUSTERS, cluster["metadata"]["name"], patch, field_manager=_FIELD_MANAGER)


async def _running(host: ApiServer, name: str) -> dict[str, Json]:
    """`namespace/workload` -> binding of workloads dispatched to the member that have not ended."""
    found = {}
    for binding in await host.list(BINDINGS):
        spec = binding.get("spec") or {}
        conditions = (binding.get("status") or {}).get("conditions") or ()
        ended = any(each["type"] == "Finished" and each["status"] == "True" for each in conditions)
        if not ended and any(target["name"] == name for target in spec.get("clusters") or ()):
            found[f"{binding['metadata']['namespace']}/{spec['resource']['name']}"] = binding
    return found


async def _agent_answers(host: ApiServer, execution: str) -> bool:
    """Whether the agent renews its lease and reaches the member."""
    try:
        lease = await host.get(LEASES, AGENT, execution)
    except errors.NotFound:
        return False
    spec = lease.get("spec") or {}
    renewed = to_seconds(spec["renewTime"]) if spec.get("renewTime") else 0.0
    health = (lease["metadata"].get("annotations") or {}).get(keys.READYZ, "ok")
    return health == "ok" and time.time() - renewed < float(spec.get("leaseDurationSeconds") or 40)


async def _drain(
    host: ApiServer,
    name: str,
    answers: bool,
    force: bool,
    give_up: bool,
    timeout: float,
    progress: Callable[[str], None],
) -> Left:
    """Evict workloads dispatched to the member and wait until its Works are gone."""
    execution = keys.execution_namespace(name)
    clock = asyncio.get_running_loop().time
    end = clock() + timeout
    told = False
    looked = clock()
    while True:
        if answers and force and clock() - looked >= _LOOK_S:
            # One that was stopped a moment ago has still a lease.
            answers, looked = await _agent_answers(host, execution), clock()
        for workload, binding in (await _running(host, name)).items():
            await _take_back(host, binding, name)
            progress(f"host: {workload} goes back to its queue")
        works = await host.list(WORKS, execution)
        if not works:
            return Left()
        for work in works:
            if not work["metadata"].get("deletionTimestamp"):
                await host.delete(WORKS, work["metadata"]["name"], execution, uid=work["metadata"]["uid"])
        if not answers and force:
            return await _release(host, works, "the agent does not answer", progress)
        if not told:
            progress(f"host: waiting for {len(works)} workloads to leave {name}")
            told = True
        if clock() > end and force and give_up:
            return await _release(host, works, f"not gone from {name} after {timeout:.0f} s", progress)
        if clock() > end:
            waits = "its agent does not answer: start it, or use --force" if not answers else "look at its agent's log"
            raise Refused(
                f"{len(works)} Works are still in {execution} after {timeout:.0f} s"
                f" ({some(_workloads(works))}); {waits}, and run the command again"
            )
        await asyncio.sleep(_POLL_S)


async def _take_back(host: ApiServer, binding: Json, member: str) -> None:
    """What the dispatcher writes to evict a binding; it adopts a decision that it did not make."""
    meta = binding["metadata"]
    for _ in range(_TRIES):
        annotations = meta.get("annotations") or {}
        epoch = annotations.get(keys.EPOCH, "0")
        before = decision.decode(annotations.get(keys.DECISION))
        line = Line(rfc3339(time.time()), Phase.EVICTING, Reason.EVICTED, f"member {member} leaves the federation")
        after = Decision(
            int(epoch) + 1, Phase.EVICTING, Reason.EVICTED, story=before.told(line), evicted=before.evictions
        )
        prefix = "/metadata/annotations/"
        operations: list[Json] = [
            {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
            {"op": "test", "path": "/metadata/generation", "value": meta["generation"]},
            {"op": "test", "path": prefix + keys.EPOCH.replace("/", "~1"), "value": epoch},
            {"op": "replace", "path": prefix + keys.EPOCH.replace("/", "~1"), "value": str(after.epoch)},
            {"op": "add", "path": prefix + keys.DECISION.replace("/", "~1"), "value": decision.encode(after)},
            # An admission policy keeps administrators from deciding; this is the command that it refers them to.
            {"op": "add", "path": prefix + keys.BREAK_GLASS.replace("/", "~1"), "value": _reason(member)},
            {"op": "add", "path": "/spec/clusters", "value": []},
            {"op": "add", "path": "/spec/suspension/scheduling", "value": True},
        ]
        try:
            await host.json_patch(BINDINGS, meta["name"], operations, meta["namespace"], field_manager=_FIELD_MANAGER)
        except errors.NotFound:
            return
        except errors.Invalid:
            try:
                binding = await host.get(BINDINGS, meta["name"], meta["namespace"])
            except errors.NotFound:
                return
            meta = binding["metadata"]
            if not any(target["name"] == member for target in binding["spec"].get("clusters") or ()):
                return
        else:
            return


async def _release(host: ApiServer, works: list[Json], why: str, progress: Callable[[str], None]) -> Left:
    """Let Works go without their agent."""
    for work in works:
        meta = work["metadata"]
        try:
            await host.merge_patch(
                WORKS,
                meta["name"],
                {
                    "metadata": {
                        "uid": meta["uid"],
                        "annotations": {keys.BREAK_GLASS: _reason(meta["namespace"])},
                        "finalizers": None,
                    }
                },
                meta["namespace"],
                field_manager=_FIELD_MANAGER,
            )
        except errors.NotFound:
            continue
    left = _workloads(works)
    progress(f"host: {why}; {len(left)} workloads were released without the agent")
    return Left(tuple(left))


def _reason(leaves: str) -> str:
    return f"{rfc3339(time.time())} atollctl unjoin: {leaves} leaves"


def _workloads(works: list[Json]) -> list[str]:
    result = []
    for work in works:
        manifest = work["spec"]["workload"]["manifests"][-1]
        meta = (orjson.loads(manifest) if isinstance(manifest, str) else manifest)["metadata"]
        result.append(f"{meta['namespace']}/{meta['name']}")
    return sorted(result)


async def _wait_gone(host: ApiServer, namespace: str, timeout: float) -> None:
    clock = asyncio.get_running_loop().time
    end = clock() + timeout
    while clock() < end:
        try:
            await host.get(NAMESPACES, namespace)
        except errors.NotFound:
            return
        await asyncio.sleep(_POLL_S)
    raise Refused(f"namespace {namespace} is still there after {timeout:.0f} s; `kubectl describe` says what is left")


async def _clean(member: ApiServer, name: str, purge: bool, progress: Callable[[str], None]) -> None:
    """Remove what `join` made in the member; CRDs and workloads only with `purge`."""
    if purge:
        found = {crd["metadata"]["name"]: crd for crd in await member.list(CRDS)}
        ours = [crd for crd in member_crds() if not is_foreign(found.get(crd["metadata"]["name"]))]
        for crd in ours:
            await member.delete(CRDS, crd["metadata"]["name"])
        told = [f"{len(ours)} CRDs with their objects"]
        with_crds = {(crd["spec"]["group"], crd["spec"]["names"]["plural"]) for crd in member_crds()}
        for kind in DELIVERED:
            if (kind.resource.group, kind.resource.plural) in with_crds:
                continue
            if not await served(member, [kind.resource]):
                continue
            found_here = await member.list(kind.resource, label_selector=f"{keys.MANAGED}=true")
            for each in found_here:
                await member.delete(kind.resource, each["metadata"]["name"], each["metadata"]["namespace"])
            told.append(f"{len(found_here)} {kind.words.title}s")
        progress(f"member {name}: {' and '.join(told)} deleted")
    await mark_nodes(member, name, "", progress)
    await remove_rights(member, AGENT, AGENT_IN_MEMBER)
    await remove_kind_rights(member)
    await remove_rights(member, AGENT_EXEC, EXEC_IN_MEMBER)
    await remove_flows(member, AGENT)
    await member.delete(SERVICE_ACCOUNTS, AGENT, keys.SYSTEM_NAMESPACE)
    await member.delete(SECRETS, keys.HOST_SECRET, keys.SYSTEM_NAMESPACE)
    progress(f"member {name}: account {AGENT} and its role deleted")
    if purge:
        await member.delete(NAMESPACES, keys.SYSTEM_NAMESPACE)
        progress(f"member {name}: namespace {keys.SYSTEM_NAMESPACE} deleted")
