"""`init` and `join` against real API servers: what they make, what they keep, what they refuse."""

from __future__ import annotations

import base64
import stat
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from atoll import install
from atoll.agent.push_credentials import member_connection, secret_renewal
from atoll.dispatcher.query import Query
from atoll.dispatcher.settings import QuerySettings
from atoll.dispatcher.shell import Shell
from atoll.install.crds import incompatible, install_crds, is_foreign
from atoll.install.credentials import Endpoint, write_kubeconfig
from atoll.install.member import LEAVING, unread_policies
from atoll.install.query import ensure_query
from atoll.kube import authority, token_renewal
from atoll.kube.authority import make_signer
from atoll.kube.errors import Forbidden, NotFound
from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
from atoll.local.federation import Federation
from atoll.local.install import wait_until
from atoll.local.layout import FederationConfig
from atoll.model import keys
from atoll.model.apiresource import (
    API_SERVICES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTERS,
    CONFIGMAPS,
    CRDS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    FLOW_SCHEMAS,
    HYPER_NODES,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    QUEUES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    WORKS,
    ApiResource,
)
from tests.integration.federation import until

Json = dict[str, Any]

DOCUMENTS = Path(__file__).parents[1] / "documents"
ADDRESS = {"url": "https://127.0.0.1:1"}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Federation]:
    """A host and two members, all of them empty."""
    config = FederationConfig.model_validate({"members": [{"name": "east"}, {"name": "west"}]})
    async with Federation(config, directory=tmp_path_factory.mktemp("federation"), binaries=ensure()) as federation:
        yield federation


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prepared(bare: Federation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of credentials of a host that was initialised once."""
    out = tmp_path_factory.mktemp("credentials")
    await run_init(bare, out, [])
    return out


async def run_init(bare: Federation, out: Path, said: list[str]) -> None:
    async with await bare.host.connect() as api:
        at = await install.endpoint(bare.host.kubeconfig)
        await install.init(api, at, out=out, webhook_client_config=ADDRESS, progress=said.append)


async def run_join(bare: Federation, member: str, name: str, out: Path, **options: Any) -> list[str]:
    handle = bare.members[member]
    async with await bare.host.connect() as host, await handle.connect() as api:
        return await install.join(
            host,
            api,
            name,
            host_at=await install.endpoint(bare.host.kubeconfig),
            member_at=await install.endpoint(handle.kubeconfig),
            out=out,
            **options,
        )


async def versions(api: ApiServer) -> dict[str, str]:
    """What was written last, object by object; a second run must not write."""
    found: dict[str, str] = {}
    for resource in (CRDS, NAMESPACES, SERVICE_ACCOUNTS, QUEUES, CLUSTERS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        try:
            items = await api.list(resource)
        except NotFound:
            continue
        for item in items:
            meta = item["metadata"]
            found[f"{resource.plural} {meta.get('namespace', '')}/{meta['name']}"] = meta["resourceVersion"]
    return found


async def test_init_makes_what_processes_expect(prepared: Path, host: ApiServer) -> None:
    ours = {crd["metadata"]["name"] for crd in install.host_crds()}
    assert ours <= {crd["metadata"]["name"] for crd in await host.list(CRDS)}
    assert (await host.get(QUEUES, "default"))["spec"]["weight"] == 1
    assert await host.list(NAMESPACES, label_selector=keys.ENABLED) == []
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        made = await host.get(resource, "atoll")
        signer = authority.from_secret(await host.get(SECRETS, authority.SECRET, keys.SYSTEM_NAMESPACE)).signer
        assert authority.trusted_by(made) == (signer.certificate,)
        assert made["metadata"]["annotations"][keys.CLIENT_CONFIG] == '{"url":"https://127.0.0.1:1"}'
    for process in install.PROCESSES:
        file = install.kubeconfig_of(prepared, process)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        async with await ApiServer.from_kubeconfig(file) as api:
            review = await api.create(
                ApiResource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False),
                {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}},
            )
            assert review["status"]["userInfo"]["username"] == f"system:serviceaccount:atoll-system:atoll-{process}"
            assert await api.list(QUEUES)
            with pytest.raises(Forbidden):
                await api.list(CLUSTER_ROLE_BINDINGS)


async def test_atolls_requests_have_their_own_places_in_the_api_servers_queues(
    bare: Federation, prepared: Path, host: ApiServer, east: ApiServer
) -> None:
    await run_join(bare, "east", "east", prepared)
    for api, names in (
        (host, ("atoll-leases", "atoll-controllers", "atoll-agent-east-leases", "atoll-agent-east-controllers")),
        (east, ("atoll-agent-leases", "atoll-agent-controllers")),
    ):
        for name in names:

            async def whole(api: ApiServer = api, name: str = name) -> str:
                found = (await api.get(FLOW_SCHEMAS, name)).get("status") or {}
                told = {each["type"]: each["status"] for each in found.get("conditions") or ()}
                return "" if told == {"Dangling": "False"} else f"{name}: {told}"

            await wait_until(whole, f"FlowSchema {name} has its level", 30)


async def test_until_a_dispatcher_leads_the_query_api_is_in_the_way_of_nothing(prepared: Path, host: ApiServer) -> None:
    """An APIService whose Service does not answer would keep namespaces from being deleted."""
    with pytest.raises(NotFound):
        await host.get(API_SERVICES, keys.QUERY_API)
    metadata = {"name": "brief"}
    await host.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    await host.delete(NAMESPACES, "brief")

    async def missing() -> str:
        return "there still" if "brief" in [each["metadata"]["name"] for each in await host.list(NAMESPACES)] else ""

    await wait_until(missing, "the end of a namespace", 30)


async def test_users_get_their_rights_from_the_roles_that_kubernetes_has(prepared: Path, host: ApiServer) -> None:
    for aggregated in ("view", "edit"):
        role = await host.get(CLUSTER_ROLES, f"atoll-{aggregated}")
        assert role["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{aggregated}"] == "true"
        for rule in role["rules"]:
            assert "*" not in [*rule["verbs"], *rule["resources"]]
            assert not {"works", "clustercapacities", "queues"} & {*rule["resources"]}
            if {"resourcebindings", "resourcebindings/status"} & {*rule["resources"]}:
                assert not {*rule["verbs"]} - {"get", "list", "watch"}


async def test_a_dispatcher_in_the_host_is_found_by_endpoints_one_outside_by_its_name(
    bare: Federation, prepared: Path, host: ApiServer
) -> None:
    where = (keys.QUERY_SERVICE, keys.SYSTEM_NAMESPACE)
    assert (await host.get(SERVICES, *where))["spec"]["type"] == "ClusterIP"
    found = await host.get(ENDPOINT_SLICES, *where)
    assert found["metadata"]["labels"]["kubernetes.io/service-name"] == keys.QUERY_SERVICE
    await ensure_query(host, "127.0.0.1")
    assert (await host.get(SERVICES, *where))["spec"]["externalName"] == "127.0.0.1"
    at = await install.endpoint(bare.host.kubeconfig)
    with pytest.raises(install.Refused, match="IPv6 address; give a DNS name"):
        await install.init(host, at, out=prepared, webhook_client_config=ADDRESS, query_outside="fd00::1")
    await run_init(bare, prepared, [])
    assert (await host.get(SERVICES, *where))["spec"]["externalName"] == "127.0.0.1", "as before, where nothing is said"
    await install.init(host, at, out=prepared, query_outside="")
    assert (await host.get(SERVICES, *where))["spec"]["type"] == "ClusterIP"


async def test_a_leader_in_the_host_writes_its_address_with_the_rights_of_its_account(
    prepared: Path, host: ApiServer
) -> None:
    async with await ApiServer.from_kubeconfig(install.kubeconfig_of(prepared, "dispatcher")) as api:
        query = Query(api, Shell(api), settings=QuerySettings(host="0.0.0.0", address="10.1.2.3"))
        certificate = make_signer(datetime.now(UTC)).certificate
        for _ in range(2):
            await query.register(certificate)
        found = await host.get(ENDPOINT_SLICES, keys.QUERY_SERVICE, keys.SYSTEM_NAMESPACE)
        assert [each["addresses"] for each in found["endpoints"]] == [["10.1.2.3"]]
        assert [(each["name"], each["port"]) for each in found["ports"]] == [("https", 8443)]
        service = (await host.get(API_SERVICES, keys.QUERY_API))["spec"]["service"]
        assert service == {"namespace": keys.SYSTEM_NAMESPACE, "name": keys.QUERY_SERVICE, "port": 443}
        await Query(api, Shell(api), settings=QuerySettings(address="fd00::1")).register(certificate)
        addresses = {
            each["metadata"]["name"]: [found["addresses"] for found in each.get("endpoints") or ()]
            for each in await host.list(ENDPOINT_SLICES, keys.SYSTEM_NAMESPACE)
        }
        assert addresses == {"atoll-query": [], "atoll-query-ipv6": [["fd00::1"]]}
        await query.leave()
        await query.register(certificate)
    with pytest.raises(NotFound):
        await host.get(API_SERVICES, keys.QUERY_API)


async def test_init_again_writes_nothing_and_says_so(bare: Federation, prepared: Path, host: ApiServer) -> None:
    before = await versions(host)
    said: list[str] = []
    await run_init(bare, prepared, said)
    assert await versions(host) == before
    assert "queue default is there" in said
    assert any("valid until" in line for line in said)


async def test_init_says_what_the_webhook_is_asked_and_keeps_what_it_trusts_and_changed_queues(
    bare: Federation, prepared: Path, host: ApiServer
) -> None:
    """1. A host of an earlier version: the webhook wrote its own registration, more than it is asked now, with a CA that
    some replica serves. 2. `init` is repeated."""
    wanted = await host.get(VALIDATING_WEBHOOKS, keys.WEBHOOKS)
    [before] = authority.trusted_by(wanted) or ()
    served = authority.make_signer(datetime.now(UTC)).certificate
    hooks = [
        {**each, "clientConfig": {**each["clientConfig"], "caBundle": authority.ca_bundle((served,))}}
        for each in [{**wanted["webhooks"][0], "name": "old.atoll.sh"}, *wanted["webhooks"][1:]]
    ]
    head = {"apiVersion": wanted["apiVersion"], "kind": wanted["kind"], "metadata": {"name": keys.WEBHOOKS}}
    await host.merge_patch(VALIDATING_WEBHOOKS, keys.WEBHOOKS, {"webhooks": []})
    await host.apply(VALIDATING_WEBHOOKS, {**head, "webhooks": hooks}, field_manager="atoll-webhook")
    await host.merge_patch(QUEUES, "default", {"spec": {"weight": 7}})
    said: list[str] = []
    await run_init(bare, prepared, said)
    found = await host.get(VALIDATING_WEBHOOKS, keys.WEBHOOKS)
    assert [each["name"] for each in found["webhooks"]] == [each["name"] for each in wanted["webhooks"]]
    assert authority.trusted_by(found) == (before, served)
    assert (await host.get(QUEUES, "default"))["spec"]["weight"] == 7
    assert f"ValidatingWebhookConfiguration atoll: {len(wanted['webhooks'])} webhooks" in said


async def test_init_asks_for_an_address_that_was_deleted_with_the_registration(
    bare: Federation, prepared: Path, host: ApiServer
) -> None:
    at = await install.endpoint(bare.host.kubeconfig)
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        await host.delete(resource, keys.WEBHOOKS)
    with pytest.raises(install.Refused, match="give --webhook-url or --webhook-service"):
        await install.init(host, at, out=prepared)
    assert keys.WEBHOOKS not in {each["metadata"]["name"] for each in await host.list(MUTATING_WEBHOOKS)}
    await run_init(bare, prepared, [])
    await install.init(host, at, out=prepared)
    found = await host.get(MUTATING_WEBHOOKS, keys.WEBHOOKS)
    assert found["metadata"]["annotations"][keys.CLIENT_CONFIG] == '{"url":"https://127.0.0.1:1"}'


@pytest.mark.parametrize(
    ("name", "system"), [("volcano-controllers", "Volcano"), ("kueue-controller-manager", "Kueue")]
)
async def test_a_host_that_runs_another_queueing_system_is_refused(
    bare: Federation, prepared: Path, host: ApiServer, name: str, system: str
) -> None:
    labels = {"app": name}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }
    await host.create(DEPLOYMENTS, deployment)
    try:
        with pytest.raises(install.Refused, match=f"runs {system} .Deployment {name}"):
            await run_init(bare, prepared, [])
        await host.merge_patch(DEPLOYMENTS, name, {"spec": {"replicas": 0}}, "default")
        await run_init(bare, prepared, [])
    finally:
        await host.delete(DEPLOYMENTS, name, "default")


async def test_join_makes_an_agent_that_sees_its_own_namespace_only(
    bare: Federation, prepared: Path, host: ApiServer
) -> None:
    facts = install.MemberFacts({"gpu": "h100"}, "eu-1", "own", ("a", "b"))
    command = await run_join(bare, "east", "east", prepared, facts=facts)
    host_file, member_file = install.agent_kubeconfigs(prepared, "east")
    assert command == [
        "atoll-agent", "--cluster=east", f"--kubeconfig={host_file}", f"--member-kubeconfig={member_file}"
    ]  # fmt: skip
    cluster = await host.get(CLUSTERS, "east")
    assert cluster["metadata"]["labels"] == {"gpu": "h100"}
    spec = cluster["spec"]
    assert (spec["syncMode"], spec["apiEndpoint"]) == ("Pull", bare.members["east"].url)
    assert (spec["region"], spec["provider"], spec["zones"]) == ("eu-1", "own", ["a", "b"])
    assert "secretRef" not in spec
    async with await ApiServer.from_kubeconfig(host_file) as agent:
        assert await agent.list(WORKS, "karmada-es-east") == []
        for resource, namespace in (
            (WORKS, "karmada-es-west"),
            (LEASES, "atoll-system"),
            (CLUSTERS, None),
        ):
            with pytest.raises(Forbidden):
                await agent.list(resource, namespace)
    async with await ApiServer.from_kubeconfig(member_file) as agent:
        assert await agent.list(HYPER_NODES) == []
        with pytest.raises(Forbidden):
            await agent.list(SECRETS)


async def test_join_again_writes_nothing_and_keeps_what_is_not_given(
    bare: Federation, prepared: Path, host: ApiServer, east: ApiServer
) -> None:
    await run_join(bare, "east", "east", prepared, facts=install.MemberFacts(region="eu-1"))
    await host.merge_patch(CLUSTERS, "east", {"metadata": {"labels": {"by": "hand"}}})
    before = {**await versions(host), **{f"east {key}": value for key, value in (await versions(east)).items()}}
    await run_join(bare, "east", "east", prepared)
    after = {**await versions(host), **{f"east {key}": value for key, value in (await versions(east)).items()}}
    assert {key for key in after if before.get(key) != after[key]} == set()
    cluster = await host.get(CLUSTERS, "east")
    assert cluster["metadata"]["labels"]["by"] == "hand"
    assert cluster["spec"]["region"] == "eu-1"


async def test_nodes_that_are_atolls_get_a_taint_and_lose_it_again(
    bare: Federation, prepared: Path, host: ApiServer, east: ApiServer
) -> None:
    """1. One of two nodes becomes Atoll's. 2. The other one does instead. 3. None does, and nodes are shared."""

    async def tainted() -> set[str]:
        nodes = await east.list(NODES)
        return {
            node["metadata"]["name"]
            for node in nodes
            if any(taint["key"] == keys.NODES for taint in node["spec"].get("taints") or ())
        }

    for name, pool in (("pool-a", "a"), ("pool-b", "b")):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"pool": pool}}}
        await east.create(NODES, {**node, "spec": {"taints": [{"key": "own", "effect": "NoSchedule"}]}})
    for selector, expected in (("pool=a", {"pool-a"}), ("pool in (b)", {"pool-b"}), ("", set())):
        await run_join(bare, "east", "east", prepared, placing=install.PlacingWish(nodes=selector))
        assert await tainted() == expected
        annotations = (await host.get(CLUSTERS, "east"))["metadata"].get("annotations") or {}
        assert annotations.get(keys.NODES, "") == selector
    assert all(any(taint["key"] == "own" for taint in node["spec"]["taints"]) for node in await east.list(NODES)), (
        "taints of others stay"
    )
    for name in ("pool-a", "pool-b"):
        await east.delete(NODES, name)


async def test_who_places_is_said_when_a_member_joins_and_can_be_changed(
    bare: Federation, prepared: Path, host: ApiServer, east: ApiServer
) -> None:
    said: list[str] = []

    async def leads() -> bool:
        return any(each["metadata"]["name"] == "kube-scheduler" for each in await east.list(LEASES, "kube-system"))

    await until(leads, what="the member's kube-scheduler holds its Lease")
    await run_join(bare, "east", "east", prepared, progress=said.append)
    assert "member east: kube-scheduler places (detected: Lease kube-system/kube-scheduler)" in said
    for placer, expected in (("atoll", "atoll"), ("auto", "auto")):
        await run_join(bare, "east", "east", prepared, placing=install.PlacingWish(placer=placer))
        assert (await host.get(CLUSTERS, "east"))["metadata"]["annotations"][keys.PLACER] == expected


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        pytest.param(install.PlacingWish(placer="yours"), "'yours' is none of atoll", id="a placer that is none"),
        pytest.param(install.PlacingWish(placer="kueue"), "needs --member-queue", id="Kueue without its queue"),
        pytest.param(install.PlacingWish(nodes="a b"), "is no label selector", id="a selector that is none"),
        pytest.param(install.PlacingWish(queue="nope"), "Volcano has no queue nope", id="a queue that Volcano lacks"),
    ],
)
async def test_placing_that_can_not_be_is_refused(
    bare: Federation, prepared: Path, east: ApiServer, wish: install.PlacingWish, why: str
) -> None:
    container = {"name": "c", "image": "registry.example.com/vc-controller-manager:v1"}
    template = {"metadata": {"labels": {"x": "y"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"x": "y"}}, "template": template}
    about = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "batch", "namespace": "default"}}
    await east.create(DEPLOYMENTS, {**about, "spec": spec})
    try:
        with pytest.raises(install.Refused, match=why):
            await run_join(bare, "east", "east", prepared, placing=wish)
    finally:
        await east.delete(DEPLOYMENTS, "batch", "default")


async def test_a_namespace_of_the_member_is_accepted_at_join(bare: Federation, prepared: Path, east: ApiServer) -> None:
    """Only where its administrator says so; one that is not there, and the system's own, are refused."""
    said: list[str] = []
    hint = "--accept-namespace default"
    on = {"metadata": {"labels": {keys.ENABLED: "true"}}}
    async with await bare.host.connect() as api:
        await api.merge_patch(NAMESPACES, "default", on)
        try:
            await run_join(bare, "east", "east", prepared, progress=said.append)
            assert any(hint in line for line in said)
            assert keys.ACCEPT not in (await east.get(NAMESPACES, "default"))["metadata"]["labels"]
            said.clear()
            await run_join(bare, "east", "east", prepared, accept=("default",), progress=said.append)
            assert not any(hint in line for line in said)
        finally:
            await api.merge_patch(NAMESPACES, "default", {"metadata": {"labels": {keys.ENABLED: None}}})
    assert (await east.get(NAMESPACES, "default"))["metadata"]["labels"][keys.ACCEPT] == "true"
    for name, why in (("kube-system", "the cluster's own machinery"), ("none", "has no namespace none")):
        with pytest.raises(install.Refused, match=why):
            await run_join(bare, "east", "east", prepared, accept=(name,))


async def test_rights_of_an_older_installation_are_replaced(bare: Federation, prepared: Path, host: ApiServer) -> None:
    await host.delete(CLUSTER_ROLE_BINDINGS, "atoll-dispatcher")
    binding = {
        "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
        "kind": CLUSTER_ROLE_BINDINGS.kind,
        "metadata": {"name": "atoll-dispatcher"},
        "roleRef": {"apiGroup": CLUSTER_ROLE_BINDINGS.group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "atoll-dispatcher", "namespace": "atoll-system"}],
    }
    await host.create(CLUSTER_ROLE_BINDINGS, binding)
    await run_init(bare, prepared, [])
    found = await host.get(CLUSTER_ROLE_BINDINGS, "atoll-dispatcher")
    assert found["roleRef"]["name"] == "atoll-dispatcher"


async def test_a_name_that_is_taken_by_another_cluster_is_refused(bare: Federation, prepared: Path) -> None:
    await run_join(bare, "east", "east", prepared)
    with pytest.raises(install.Refused, match="Cluster east is joined already, at https"):
        await run_join(bare, "west", "east", prepared)


async def test_a_cluster_can_not_join_under_two_names(bare: Federation, prepared: Path) -> None:
    await run_join(bare, "east", "east", prepared)
    with pytest.raises(install.Refused, match="a member already, under the name east"):
        await run_join(bare, "east", "other", prepared)


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_host_can_not_be_its_own_member(
    bare: Federation, prepared: Path, host: ApiServer, elsewhere: bool
) -> None:
    """Under whichever address it is reached."""
    at = await install.endpoint(bare.host.kubeconfig)
    if elsewhere:
        at = replace(at, url=at.url.replace("127.0.0.1", "localhost"))
    with pytest.raises(install.Refused, match=f"the cluster at {at.url} is the host itself"):
        await install.join(host, host, "self", host_at=at, member_at=at, out=prepared)
    assert "self" not in {each["metadata"]["name"] for each in await host.list(CLUSTERS)}


async def test_a_member_that_was_about_to_leave_takes_work_again_once_it_joins(
    bare: Federation, prepared: Path, host: ApiServer
) -> None:
    """1. `unjoin` is stopped after its first step. 2. The member joins again."""
    await run_join(bare, "east", "east", prepared)
    own = {"key": "by-hand", "effect": "NoSchedule"}
    await host.merge_patch(CLUSTERS, "east", {"spec": {"taints": [own, LEAVING]}})
    await run_join(bare, "east", "east", prepared)
    assert (await host.get(CLUSTERS, "east"))["spec"]["taints"] == [own]
    await host.merge_patch(CLUSTERS, "east", {"spec": {"taints": []}})


async def test_the_kubeconfig_of_another_cluster_is_refused_when_a_member_leaves(
    bare: Federation, prepared: Path, host: ApiServer
) -> None:
    await run_join(bare, "east", "east", prepared)
    await run_join(bare, "west", "west", prepared)
    async with await bare.members["west"].connect() as west:
        with pytest.raises(install.Refused, match="is member west, not member east"):
            await install.unjoin(host, west, "east")
        with pytest.raises(install.Refused, match="is the host, not member east"):
            await install.unjoin(host, host, "east", purge=True)
        assert await west.get(SERVICE_ACCOUNTS, "atoll-agent", "atoll-system")
        await install.unjoin(host, west, "west")
    assert (await host.get(CLUSTERS, "east"))["spec"].get("taints") in (None, [])


async def test_a_member_that_does_not_answer_is_refused(
    bare: Federation, prepared: Path, host: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.install.member._READY_S", 0.3)
    at = replace(await install.endpoint(bare.members["west"].kubeconfig), url="https://127.0.0.1:1")
    dead = tmp_path / "dead"
    write_kubeconfig(dead, at, "admin", "none")
    async with await ApiServer.from_kubeconfig(dead) as api:
        with pytest.raises(install.Refused, match=r"member west at https://127\.0\.0\.1:1 is not ready"):
            await install.join(host, api, "west", host_at=at, member_at=at, out=tmp_path)
    with pytest.raises(NotFound):
        await host.get(CLUSTERS, "west")


async def test_a_foreign_crd_is_compared_and_left_alone(bare: Federation) -> None:
    ours = next(crd for crd in install.host_crds() if crd["metadata"]["name"] == "works.work.karmada.io")
    theirs = {**ours, "metadata": {"name": ours["metadata"]["name"], "labels": {"made-by": "another"}}}
    async with await bare.members["west"].connect() as west:
        made = await west.create(CRDS, theirs)
        said: list[str] = []
        await install_crds(west, [ours], said.append)
        kept = await west.get(CRDS, "works.work.karmada.io")
        assert kept["metadata"]["labels"] == {"made-by": "another"}
        assert kept["metadata"]["uid"] == made["metadata"]["uid"]
        assert said[0].endswith("made by someone else, compatible, left as it is")
        newer = {**ours, "spec": {**ours["spec"], "versions": [{**ours["spec"]["versions"][0], "name": "v9"}]}}
        before = await versions(west)
        with pytest.raises(install.Refused, match="serves v1alpha1, v9 is needed"):
            await install_crds(west, [newer, *install.member_crds()], said.append)
        assert await versions(west) == before


async def test_the_policy_of_a_descheduler_in_the_member_is_named(bare: Federation) -> None:
    policy = yaml.safe_load((DOCUMENTS / "003-descheduler.yaml").read_text("utf-8"))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "volcano-system"}}
    async with await bare.members["west"].connect() as west:
        assert await unread_policies(west) == []
        await west.create(NAMESPACES, namespace)
        await west.create(CONFIGMAPS, policy)
        [said] = await unread_policies(west)
        assert (
            "volcano-system/volcano-descheduler is the policy of a descheduler: atoll-descheduler reads it in a member"
            in said
        )
        await west.delete(NAMESPACES, "volcano-system")


async def test_crds_of_a_newer_version_are_not_replaced(bare: Federation) -> None:
    ours = next(crd for crd in install.host_crds() if crd["metadata"]["name"] == "clusters.cluster.karmada.io")
    annotations = {**ours["metadata"]["annotations"], keys.RELEASE: "99.1.0"}
    async with await bare.members["west"].connect() as west:
        made = await west.create(CRDS, {**ours, "metadata": {**ours["metadata"], "annotations": annotations}})
        with pytest.raises(install.Refused, match=r"clusters.cluster.karmada.io are of Atoll 99.1.0, newer than this"):
            await install_crds(west, [ours], lambda _: None)
        kept = await west.get(CRDS, ours["metadata"]["name"])
        # The API server writes its status meanwhile, so the resourceVersion rises.
        assert kept["metadata"]["generation"] == made["metadata"]["generation"]
        assert kept["metadata"]["annotations"][keys.RELEASE] == "99.1.0"
        await west.delete(CRDS, ours["metadata"]["name"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def beside(bare: Federation, prepared: Path) -> tuple[Path, Path]:
    """The kubeconfigs of an agent that runs beside the host."""
    await run_join(bare, "east", "east", prepared, beside_host=True)
    return install.agent_kubeconfigs(prepared, "east")


async def test_a_token_in_a_file_is_renewed_once_four_fifths_of_its_life_are_over(beside: tuple[Path, Path]) -> None:
    file, _ = beside
    old = token_renewal.in_kubeconfig(file.read_text())
    claims = token_renewal.claims_in(old or {})
    assert claims is not None
    assert (claims.namespace, claims.name) == ("karmada-es-east", "atoll-agent")
    async with await ApiServer.from_kubeconfig(file) as agent:
        renewal = token_renewal.of_file(agent, file)
        assert renewal is not None
        assert await renewal.look(time.time()) > 1
        assert token_renewal.in_kubeconfig(file.read_text()) == old, "it is early"
        assert renewal.expires == claims.expires
        await renewal.look(claims.due + 1)
        assert renewal.problem == ""
        with pytest.raises(Forbidden):
            await agent.create_in(SERVICE_ACCOUNTS, "default", "karmada-es-east", "token", {"spec": {}})
    assert token_renewal.in_kubeconfig(file.read_text()) not in (None, old)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    async with await ApiServer.from_kubeconfig(file) as agent:
        assert await agent.list(WORKS, "karmada-es-east") == []


async def test_a_token_in_a_secret_is_renewed_there(beside: tuple[Path, Path]) -> None:
    file, _ = beside
    async with await ApiServer.from_kubeconfig(file) as agent:

        async def stored() -> str:
            data = (await agent.get(SECRETS, "atoll-member", "karmada-es-east"))["data"]
            return (token_renewal.in_kubeconfig(base64.b64decode(data["kubeconfig"]).decode()) or {}).get("token", "")

        old = await stored()
        claims = token_renewal.claims_of(old)
        assert claims is not None
        async with ApiServer(await member_connection(agent, "east")) as member:
            renewal = secret_renewal(agent, member, "east")
            await renewal.look(claims.due + 1)
            assert renewal.problem == ""
        assert await stored() not in ("", old)


async def test_a_token_that_can_not_be_stored_is_a_problem_and_no_end(beside: tuple[Path, Path]) -> None:
    file, _ = beside
    async with await ApiServer.from_kubeconfig(file) as agent:

        async def read() -> token_renewal.Credentials | None:
            return token_renewal.in_kubeconfig(file.read_text())

        async def store(old: token_renewal.Credentials, new: token_renewal.Credentials) -> None:
            raise PermissionError(13, "Read-only file system")

        renewal = token_renewal.Renewal(agent, read, store)
        assert await renewal.look(time.time() + 10**9) == 60
        assert "Read-only file system" in renewal.problem
        assert renewal.expires > 0


async def test_beside_the_host_the_member_is_found_by_a_secret_which_leaves_with_it(
    bare: Federation, prepared: Path, host: ApiServer
) -> None:
    _, member_file = install.agent_kubeconfigs(prepared, "east")
    member_file.unlink(missing_ok=True)
    command = await run_join(bare, "east", "east", prepared, beside_host=True)
    assert command[-1] == "--member-secret"
    assert not member_file.exists()
    for flag, mode in ((None, "Push"), (False, "Pull"), (True, "Push")):
        await run_join(bare, "east", "east", prepared, beside_host=flag)
        spec = (await host.get(CLUSTERS, "east"))["spec"]
        assert (spec["syncMode"], "secretRef" in spec) == (mode, mode == "Push")
    host_file, _ = install.agent_kubeconfigs(prepared, "east")
    async with await ApiServer.from_kubeconfig(host_file) as agent:
        async with ApiServer(await member_connection(agent, "east")) as member:
            assert await member.list(NODES) is not None
        with pytest.raises(Forbidden):
            await agent.list(SECRETS, "karmada-es-east")
    await install.unjoin(host, None, "east")
    roles = {each["metadata"]["name"] for each in await host.list(CLUSTER_ROLES)}
    assert not {name for name in roles if name.startswith("atoll-agent-")}


@pytest.mark.parametrize("name", ["", "East", "a_b", "-a", "a-", "a.b", "a" * 49])
async def test_names_that_can_not_be_a_cluster(name: str) -> None:
    with pytest.raises(install.Refused, match="at most 48 characters"):
        install.check_name(name)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        pytest.param({}, "", id="an equal one is fine"),
        pytest.param({"scope": "Cluster"}, "has scope Cluster, Namespaced is needed", id="another scope"),
        pytest.param({"names": {"kind": "Other"}}, "has kind Other, Job is needed", id="another kind"),
        pytest.param({"versions": []}, "serves no version, v1alpha1 is needed", id="no version is served"),
        pytest.param(
            {"versions": [{"name": "v1alpha1", "served": True}]}, "no status subresource in v1alpha1", id="no status"
        ),
    ],
)
async def test_what_makes_a_foreign_crd_unusable(change: Json, difference: str) -> None:
    ours = next(crd for crd in install.host_crds() if crd["metadata"]["name"] == "jobs.batch.volcano.sh")
    theirs = {"metadata": {"name": "x"}, "spec": {**ours["spec"], **change}}
    found = incompatible(ours, theirs)
    assert found.endswith(difference)
    assert bool(found) == bool(difference)
    assert is_foreign(theirs)
    assert not is_foreign(ours)
    assert not is_foreign(None)


async def test_a_kubeconfig_carries_everything_that_reaches_the_server(tmp_path: Path) -> None:
    at = Endpoint("https://h:6443", b"PEM", True, "name", "http://proxy:3128")
    path = tmp_path / "deep" / "file"
    write_kubeconfig(path, at, "me", "secret", namespace="ns")
    content = yaml.safe_load(path.read_text())
    assert content["clusters"][0]["cluster"] == {
        "server": "https://h:6443",
        "certificate-authority-data": base64.b64encode(b"PEM").decode(),
        "insecure-skip-tls-verify": True,
        "tls-server-name": "name",
        "proxy-url": "http://proxy:3128",
    }
    assert content["contexts"][0]["context"] == {"cluster": "cluster", "user": "me", "namespace": "ns"}


async def test_a_host_that_runs_deployments_itself_is_marked_as_shared(
    bare: Federation, prepared: Path, host: ApiServer
) -> None:
    def profile(namespace: dict[str, Any]) -> str | None:
        found: str | None = (namespace["metadata"].get("labels") or {}).get(keys.HOST_PROFILE)
        return found

    assert profile(await host.get(NAMESPACES, keys.SYSTEM_NAMESPACE)) is None
    container = {"name": "c", "image": "i"}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    metadata = {"name": "dns", "namespace": "kube-system"}
    await host.create(DEPLOYMENTS, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    status = [{"op": "add", "path": "/status/observedGeneration", "value": 1}]
    await host.json_patch(DEPLOYMENTS, "dns", status, "kube-system", subresource="status")

    async def runs() -> set[str]:
        labels = (await host.get(NAMESPACES, keys.SYSTEM_NAMESPACE))["metadata"]["labels"]
        return {each.removeprefix(keys.HOST_RUNS) for each in labels if each.startswith(keys.HOST_RUNS)}

    said: list[str] = []
    try:
        await run_init(bare, prepared, said)
        assert profile(await host.get(NAMESPACES, keys.SYSTEM_NAMESPACE)) == "shared"
        assert any("Deployment, StatefulSet are refused" in line for line in said)
        assert await runs() == {"deployments.apps", "statefulsets.apps"}
        container["image"] = "quay.example/kuberay/operator:v1.5"
        metadata = {"name": "ray", "namespace": "kube-system"}
        operator = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
        await host.create(DEPLOYMENTS, operator)
        await run_init(bare, prepared, said)
        assert await runs() == {"deployments.apps", "statefulsets.apps", "rayservices.ray.io"}
    finally:
        await host.delete(DEPLOYMENTS, "ray", "kube-system")
        await host.delete(DEPLOYMENTS, "dns", "kube-system")
    await run_init(bare, prepared, [])
    assert profile(await host.get(NAMESPACES, keys.SYSTEM_NAMESPACE)) is None
    assert await runs() == set()
