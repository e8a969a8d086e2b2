"""What a member may do on the host, tried with its agent's own credentials; and what becomes of rubbish it reports."""

from __future__ import annotations

from typing import Any

import pytest

from atoll import install
from atoll.agent.push_credentials import member_connection
from atoll.install import roles
from atoll.install.rights import remove_rights
from atoll.kube import errors
from atoll.kube.config import BadKubeconfig
from atoll.kube.transport import JSON_PATCH, MERGE_PATCH, ApiServer
from atoll.model import keys
from atoll.model.apiresource import (
    BINDINGS,
    CAPACITIES,
    CLUSTERS,
    CONFIGMAPS,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    PODS,
    QUEUES,
    SECRETS,
    SERVICE_ACCOUNTS,
    WORKS,
    ApiResource,
)
from tests.integration.federation import Site, job, until

pytestmark = pytest.mark.integration

Json = dict[str, Any]
AGENT = "test-trust"
OWN, OTHER, SYSTEM = "karmada-es-alpha", "karmada-es-beta", keys.SYSTEM_NAMESPACE
EVERYTHING = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
ALLOWED = {
    (WORKS, ""): {"get", "list", "watch", "patch"},
    (WORKS, "status"): {"update", "patch"},
    (CAPACITIES, ""): {"list", "patch", "create", "delete"},
    (LEASES, ""): {"get", "patch"},
}
"""All that it may do, and only in its own namespace; of Leases only its own."""


def agent_of(site: Site, cluster: str = "alpha") -> Any:
    """The agent's credentials; the test of roles passes over what is asked under this name."""
    file, _ = install.agent_kubeconfigs(site.federation.atoll.credentials, cluster)
    return ApiServer.from_kubeconfig(file, user_agent=AGENT)


async def attempt(api: ApiServer, verb: str, resource: ApiResource, sub: str, namespace: str | None, name: str) -> None:
    """Do it for real as far as rights go; nothing is stored (dry run)."""
    named = resource.path(namespace, name) + (f"/{sub}" if sub else "")
    collection = resource.path(namespace)
    body = b'{"metadata":{"name":"%s"}}' % name.encode()
    dry = {"dryRun": "All"}
    match verb:
        case "get":
            await api.request("GET", named)
        case "list":
            await api.request("GET", collection, params={"limit": "1"})
        case "watch":
            await api.request("GET", collection, params={"watch": "true", "timeoutSeconds": "1"})
        case "create":
            await api.request("POST", collection + (f"/{name}/{sub}" if sub else ""), body=body, params=dry)
        case "update":
            await api.request("PUT", named, body=body, params=dry)
        case "patch":
            await api.request("PATCH", named, body=b"{}", content_type=MERGE_PATCH, params=dry)
        case "delete":
            await api.request("DELETE", named, params=dry)
        case "deletecollection":
            await api.request("DELETE", collection, params=dry)


async def may(
    api: ApiServer, verb: str, resource: ApiResource, sub: str, namespace: str | None, name: str = "x"
) -> bool:
    try:
        await attempt(api, verb, resource, sub, namespace, name)
    except errors.Forbidden:
        return False
    except (errors.NotFound, errors.Invalid, errors.Conflict, errors.Unexpected):
        # It got past the authorizer: there is no such object, or no such body.
        return True
    return True


async def test_a_member_may_do_in_its_own_namespace_what_is_listed_and_nothing_else(site: Site) -> None:
    async with await agent_of(site) as agent:
        for resource, sub in (
            (WORKS, ""), (WORKS, "status"), (CAPACITIES, ""), (LEASES, ""), (SECRETS, ""), (BINDINGS, ""),
            (BINDINGS, "status"), (JOBS, ""), (CONFIGMAPS, ""), (SERVICE_ACCOUNTS, ""), (PODS, ""), (EVENTS, ""),
        ):  # fmt: skip
            name = install.AGENT if resource is LEASES else "x"
            verbs = {"get", "update", "patch"} if sub else set(EVERYTHING)
            found = {verb for verb in verbs if await may(agent, verb, resource, sub, OWN, name)}
            assert found == ALLOWED.get((resource, sub), set()), f"{resource.plural}/{sub}"
        assert not await may(agent, "patch", LEASES, "", OWN, "another-lease")
        assert await may(agent, "create", SERVICE_ACCOUNTS, "token", OWN, install.AGENT), "it renews its own token"
        assert not await may(agent, "create", SERVICE_ACCOUNTS, "token", OWN, "default")


@pytest.mark.parametrize("namespace", [OTHER, SYSTEM, "default"])
async def test_a_member_may_do_nothing_in_another_namespace(site: Site, namespace: str) -> None:
    async with await agent_of(site) as agent:
        for resource, sub, name in (
            (WORKS, "", "x"), (WORKS, "status", "x"), (CAPACITIES, "", "nodes"), (LEASES, "", "atoll-agent"),
            (LEASES, "", "atoll-control"), (LEASES, "", "atoll-dispatcher"), (BINDINGS, "", "x"),
            (BINDINGS, "status", "x"), (SECRETS, "", "atoll-webhook-ca"), (JOBS, "", "x"), (JOBS, "status", "x"),
        ):  # fmt: skip
            verbs = {"get", "update", "patch"} if sub else set(EVERYTHING)
            found = {verb for verb in verbs if await may(agent, verb, resource, sub, namespace, name)}
            assert not found, f"{resource.plural}/{sub}"


@pytest.mark.parametrize("resource", [QUEUES, CLUSTERS, NAMESPACES])
async def test_of_what_is_in_no_namespace_a_member_reads_queues_as_everybody_and_nothing_else(
    site: Site, resource: ApiResource
) -> None:
    names = {QUEUES: "default", CLUSTERS: "alpha", NAMESPACES: "default"}
    async with await agent_of(site) as agent:
        for sub in ("", "status"):
            verbs = {"get", "update", "patch"} if sub else set(EVERYTHING)
            found = {verb for verb in verbs if await may(agent, verb, resource, sub, None, names[resource])}
            own = {(QUEUES, ""): {"get", "list", "watch"}, (CLUSTERS, ""): {"get"}}
            assert found == own.get((resource, sub), set()), sub
        assert not await may(agent, "get", CLUSTERS, "", None, "beta"), "of Clusters it reads its own"


async def test_of_its_own_works_a_member_can_change_nothing_but_finalizers_and_status(site: Site) -> None:
    await site.submit(job("steady", seconds=None, cpu="1"))
    await site.phase("steady", "Running")
    cluster = await site.where("steady")
    namespace = keys.execution_namespace(cluster)
    works = await site.host.list(WORKS, namespace)
    work = next(w for w in works if w["metadata"]["annotations"][keys.BINDING_NAMESPACE] == site.namespace)
    path = WORKS.path(namespace, work["metadata"]["name"])
    async with await agent_of(site, cluster) as agent:
        patches: list[Json] = [
            {"metadata": {"labels": {"a": "b"}}},
            {"metadata": {"annotations": {keys.BINDING_UID: "another"}}},
            {"metadata": {"annotations": {keys.EPOCH: "99"}}},
            {"spec": {"suspendDispatching": True}},
            {"spec": {"workload": {"manifests": []}}},
        ]
        for patch in patches:
            with pytest.raises(errors.Forbidden):
                await agent.merge_patch(WORKS, work["metadata"]["name"], patch, namespace)
        # Through the status it reaches nothing else: the API server drops the rest.
        body = b'[{"op":"add","path":"/spec/suspendDispatching","value":true}]'
        await agent.request("PATCH", path + "/status", body=body, content_type=JSON_PATCH)
    after = await site.host.get(WORKS, work["metadata"]["name"], namespace)
    assert after["spec"] == work["spec"]


# -- rubbish -----------------------------------------------------------------------------------------------------------


async def test_a_member_that_reports_rubbish_does_not_stop_the_host_from_serving_the_others(site: Site) -> None:
    """
    1. A job runs in alpha; alpha's credentials write statuses of every wrong kind into its Work, and broken
       capacities beside its own.
    2. The binding says that a report was refused, and keeps what the host itself decided.
    3. Jobs go to beta and to alpha as before.
    """
    await site.submit(job("victim", seconds=None, cpu="1"))
    await site.phase("victim", "Running")
    cluster = await site.where("victim")
    namespace = keys.execution_namespace(cluster)
    works = await site.host.list(WORKS, namespace)
    work = next(w for w in works if w["metadata"]["annotations"][keys.BINDING_NAMESPACE] == site.namespace)
    identifier = work["status"]["manifestStatuses"][0]["identifier"]

    async def say(agent: ApiServer, status: Json) -> None:
        item = {"identifier": identifier, "status": status, "health": "Healthy"}
        operations = [{"op": "add", "path": "/status", "value": {"manifestStatuses": [item]}}]
        await agent.json_patch(WORKS, work["metadata"]["name"], operations, namespace, subresource="status")

    def capacity(name: str, **spec: Any) -> Json:
        whole = {"cluster": "beta", "generation": 1, "root": name, "objects": 1, **spec}
        head = {"apiVersion": CAPACITIES.api_version, "kind": CAPACITIES.kind}
        return {**head, "metadata": {"name": name, "namespace": namespace}, "spec": whole}

    cycle = [
        {"name": "cycle", "tier": 3},
        {"name": "a", "tier": 1, "parent": "b"},
        {"name": "b", "tier": 1, "parent": "a"},
    ]
    huge = {"domain": "huge", "profile": 0, "nodes": 2_000_000_000, "free": {"cpu": 2**62, "pods": 2**63 - 1}}
    broken = [
        capacity("cycle", domains=cycle),
        capacity("huge", domains=[{"name": "huge", "tier": 1}], profiles=[{}], classes=[huge]),
        capacity("stray", domains=[], profiles=[], classes=[{"domain": "no", "profile": 7, "nodes": 1, "free": {}}]),
    ]
    async with await agent_of(site, cluster) as agent:
        for obj in broken:
            await agent.apply(CAPACITIES, obj, field_manager=AGENT)
        for status in (
            {"running": -1},
            {"succeeded": "many"},
            {"state": [], "taskStatusCount": {"worker": {"phase": {"Running": {}}}}},
            {"placement": {"generation": 2**60, "nodes": {"../etc": 1}}},
            {"placement": {"nodes": {"n": "x"}}},
        ):
            await say(agent, status)

            async def refused() -> bool:
                binding = await site.find(BINDINGS, "victim-job")
                conditions = ((binding or {}).get("status") or {}).get("conditions") or []
                return any(c["type"] == "ReportsAccepted" and c["status"] == "False" for c in conditions)

            # The true agent corrects its Work within a moment; to see the refusal, repeat until it was seen once.
            if not await refused():
                for _ in range(20):
                    await say(agent, status)
                    if await refused():
                        break
        for number, size in enumerate((4, 2)):
            await site.submit(job(f"other-{number}", replicas=size, cpu="1"))
        for number in range(2):
            await site.phase(f"other-{number}", "Completed")
        for obj in broken:
            await agent.delete(CAPACITIES, obj["metadata"]["name"], namespace)

    async def accepted() -> bool:
        binding = await site.find(BINDINGS, "victim-job")
        conditions = ((binding or {}).get("status") or {}).get("conditions") or []
        return any(c["type"] == "ReportsAccepted" for c in conditions) and all(
            c["status"] == "True" for c in conditions if c["type"] == "ReportsAccepted"
        )

    await until(accepted, what="the agent's own report is believed again, after one was refused")
    victim = await site.phase("victim", "Running")
    assert victim["status"]["running"] == 1


# -- the member's credentials in a Secret ------------------------------------------------------------------------------


async def test_an_agent_beside_the_host_reads_one_cluster_and_one_secret(site: Site) -> None:
    """The rights that `--member-secret` needs, tried by an account that has them and nothing else."""
    metadata = {"name": install.AGENT, "namespace": site.namespace}
    await site.host.create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    grants = (*roles.reader_of_cluster("alpha"), *roles.reader_of_secret(site.namespace, "member-alpha"))
    await install.ensure_rights(site.host, f"push-{site.namespace}", (site.namespace, install.AGENT), grants)
    token, _ = await install.issue_token(site.host, install.AGENT, site.namespace)
    file = site.federation.atoll.credentials / "push.kubeconfig"
    install.write_kubeconfig(file, await install.endpoint(site.federation.host.kubeconfig), "push", token)
    _, member_file = install.agent_kubeconfigs(site.federation.atoll.credentials, "alpha")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "member-alpha", "namespace": site.namespace}}
    try:
        async with await ApiServer.from_kubeconfig(file, user_agent=AGENT) as agent:
            with pytest.raises(BadKubeconfig, match=r"spec.secretRef is not set"):
                await member_connection(agent, "alpha")
            reference = {"namespace": site.namespace, "name": "member-alpha"}
            await site.host.merge_patch(CLUSTERS, "alpha", {"spec": {"secretRef": reference}})
            await site.host.create(SECRETS, {**secret, "stringData": {"kubeconfig": member_file.read_text()}})
            async with ApiServer(await member_connection(agent, "alpha"), user_agent=AGENT) as member:
                assert await member.list(PODS) is not None
            for resource, namespace, name in (
                (SECRETS, site.namespace, "another"), (SECRETS, SYSTEM, "atoll-webhook-ca"), (CLUSTERS, None, "beta"),
            ):  # fmt: skip
                assert not await may(agent, "get", resource, "", namespace, name)
                assert not await may(agent, "list", resource, "", namespace, name)
            with pytest.raises(BadKubeconfig, match="by name"):
                await member_connection(agent, "beta")
    finally:
        await site.host.merge_patch(CLUSTERS, "alpha", {"spec": {"secretRef": None}})
        await remove_rights(site.host, f"push-{site.namespace}", grants)
        file.unlink()
