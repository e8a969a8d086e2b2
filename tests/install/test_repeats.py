"""`init` and `join` repeated on a running federation, as the docs advise: they change only what their flags say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from atoll.kube.errors import NotFound
from atoll.kube.transport import ApiServer
from atoll.local.atoll_federation import AtollFederation
from atoll.local.layout import FederationConfig
from atoll.local.ports import free_ports
from atoll.model import keys
from atoll.model.apiresource import (
    API_SERVICES,
    CLUSTER_ROLES,
    CLUSTERS,
    JOBS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    SECRETS,
    SERVICES,
    VALIDATING_WEBHOOKS,
)
from atoll.model.conditions import condition, is_true
from tests.atollctl import Ran, atollctl
from tests.integration.federation import job, until

Json = dict[str, Any]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration]

_SEEN_S = 1.5
"""Seconds until an API server works with changed webhook configurations."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AtollFederation]:
    nodes = [{"count": 2, "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}}]
    members = [
        {"name": "east", "nodes": nodes, "allow_exec": True, "labels": {"gpu": "h100"}},
        {"name": "west", "nodes": nodes, "push": True},
    ]
    config = FederationConfig.model_validate({"members": members})
    async with AtollFederation(config, tmp_path_factory.mktemp("federation")) as federation:
        yield federation


@pytest_asyncio.fixture(loop_scope="module")
async def host(fed: AtollFederation) -> AsyncIterator[ApiServer]:
    async with await fed.host.connect() as api:
        yield api


@pytest_asyncio.fixture(loop_scope="module")
async def east(fed: AtollFederation) -> AsyncIterator[ApiServer]:
    async with await fed.members["east"].connect() as api:
        yield api


async def init(fed: AtollFederation, *flags: str) -> Ran:
    return await atollctl("init", f"--kubeconfig={fed.host.kubeconfig}", f"--out={fed.atoll.credentials}", *flags)


async def join(fed: AtollFederation, name: str, *flags: str) -> Ran:
    return await atollctl(
        "join", name, f"--kubeconfig={fed.host.kubeconfig}", f"--out={fed.atoll.credentials}",
        f"--member-kubeconfig={fed.members[name].kubeconfig}", *flags,
    )  # fmt: skip


async def settings(host: ApiServer) -> Json:
    """What an installation was told: the addresses on the host, and what it knows of its members."""
    hooks = [await host.get(resource, keys.WEBHOOKS) for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)]
    clusters = {each["metadata"]["name"]: each for each in await host.list(CLUSTERS)}
    return {
        "addresses": [
            {key: value for key, value in entry["clientConfig"].items() if key != "caBundle"}
            for each in hooks
            for entry in each["webhooks"]
        ],
        "noted": [each["metadata"]["annotations"][keys.CLIENT_CONFIG] for each in hooks],
        "query": (await host.get(SERVICES, keys.QUERY_SERVICE, keys.SYSTEM_NAMESPACE))["spec"]["externalName"],
        "profile": (await host.get(NAMESPACES, keys.SYSTEM_NAMESPACE))["metadata"]["labels"].get(keys.HOST_PROFILE),
        "members": {
            name: (each["spec"], each["metadata"].get("labels"), each["metadata"].get("annotations"))
            for name, each in clusters.items()
        },
    }


async def runs(host: ApiServer, name: str) -> None:
    """A job is taken and runs, and the query API answers."""
    await asyncio.sleep(_SEEN_S)
    made = job(name, cpu="1", seconds=None)
    await host.create(JOBS, {**made, "metadata": {"name": name, "namespace": "default"}})

    async def phase() -> bool:
        found = await host.get(JOBS, name, "default")
        return ((found.get("status") or {}).get("state") or {}).get("phase") == "Running"

    async def answered() -> bool:
        return is_true(condition(await host.get(API_SERVICES, keys.QUERY_API), "Available"))

    await until(phase, what=f"job {name} runs", deadline=120)
    await until(answered, what="the query API is available", deadline=120)
    await host.delete(JOBS, name, "default")


async def test_init_without_flags_keeps_every_address_and_jobs_are_taken(fed: AtollFederation, host: ApiServer) -> None:
    """Renewed credentials, and the first step of an upgrade: `init` in its shortest form."""
    before = await settings(host)
    ran = await init(fed)
    assert ran.code == 0, ran.said
    assert await settings(host) == before
    await runs(host, "renewed")


async def test_init_opts_a_namespace_in_and_changes_nothing_else(fed: AtollFederation, host: ApiServer) -> None:
    before = await settings(host)
    await host.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research"}})
    ran = await init(fed, "--enable-namespace=research")
    assert ran.code == 0, ran.said
    assert (await host.get(NAMESPACES, "research"))["metadata"]["labels"][keys.ENABLED] == "true"
    assert (await host.get(NAMESPACES, "default"))["metadata"]["labels"][keys.ENABLED] == "true"
    assert await settings(host) == before


async def test_init_replaces_a_deleted_authority_at_the_same_address(fed: AtollFederation, host: ApiServer) -> None:
    before = await settings(host)
    await host.delete(SECRETS, "atoll-webhook-ca", keys.SYSTEM_NAMESPACE)
    ran = await init(fed)
    assert ran.code == 0, ran.said
    assert await settings(host) == before
    await runs(host, "resigned")


async def test_init_fills_a_registration_that_lost_its_webhooks(fed: AtollFederation, host: ApiServer) -> None:
    before = await settings(host)
    await host.merge_patch(MUTATING_WEBHOOKS, keys.WEBHOOKS, {"webhooks": []})
    await host.delete(VALIDATING_WEBHOOKS, keys.WEBHOOKS)
    ran = await init(fed)
    assert ran.code == 0, ran.said
    assert await settings(host) == before
    await runs(host, "filled")


@pytest.mark.parametrize("member", ["east", "west"])
async def test_join_without_flags_keeps_what_the_host_knows_and_what_the_member_allows(
    fed: AtollFederation, host: ApiServer, east: ApiServer, member: str
) -> None:
    """Renewed credentials, and the last step of an upgrade: `join` in its shortest form."""
    before = await settings(host)
    ran = await join(fed, member)
    assert ran.code == 0, ran.said
    assert await settings(host) == before
    assert ("--member-secret" in ran.out) == (member == "west"), "the agent beside the host stays there"
    assert await east.get(CLUSTER_ROLES, "atoll-agent-exec")
    await runs(host, f"joined-{member}")


async def test_join_changes_what_its_flags_say(fed: AtollFederation, host: ApiServer, east: ApiServer) -> None:
    before = (await host.get(CLUSTERS, "east"))["metadata"].get("annotations")
    flags = ("--region=eu-1", "--provider=own", "--zone=a", "--zone=b", "--label=pool=x", "--accept-namespace=default")
    assert (await join(fed, "east", *flags)).code == 0
    found = await host.get(CLUSTERS, "east")
    assert [found["spec"][key] for key in ("region", "provider", "zones")] == ["eu-1", "own", ["a", "b"]]
    assert found["metadata"]["labels"] == {"gpu": "h100", "pool": "x"}
    assert found["metadata"].get("annotations") == before
    assert await east.get(CLUSTER_ROLES, "atoll-agent-exec")
    assert (await join(fed, "east", "--region=", "--zone=")).code == 0
    spec = (await host.get(CLUSTERS, "east"))["spec"]
    assert (spec.get("region"), spec["provider"], spec.get("zones")) == (None, "own", None)


async def test_leave_to_enter_pods_is_taken_back_when_that_is_said_and_given_again(
    fed: AtollFederation, east: ApiServer
) -> None:
    assert (await join(fed, "east", "--no-allow-exec")).code == 0
    with pytest.raises(NotFound):
        await east.get(CLUSTER_ROLES, "atoll-agent-exec")
    assert (await join(fed, "east")).code == 0
    with pytest.raises(NotFound):
        await east.get(CLUSTER_ROLES, "atoll-agent-exec")
    assert (await join(fed, "east", "--allow-exec")).code == 0
    assert await east.get(CLUSTER_ROLES, "atoll-agent-exec")


async def test_join_without_flags_gives_new_nodes_of_atolls_pool_their_taint(
    fed: AtollFederation, east: ApiServer
) -> None:
    async def tainted() -> set[str]:
        return {
            node["metadata"]["name"]
            for node in await east.list(NODES)
            if any(taint["key"] == keys.NODES for taint in node["spec"].get("taints") or ())
        }

    assert (await join(fed, "east", "--nodes=pool=batch")).code == 0
    assert await tainted() == set()
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late", "labels": {"pool": "batch"}}}
    await east.create(NODES, node)
    try:
        assert (await join(fed, "east")).code == 0
        assert await tainted() == {"late"}
    finally:
        await east.delete(NODES, "late")
        assert (await join(fed, "east", "--nodes=")).code == 0


async def test_an_agent_moves_away_from_the_host_when_that_is_said(fed: AtollFederation, host: ApiServer) -> None:
    ran = await join(fed, "west", "--no-beside-host")
    assert ran.code == 0, ran.said
    assert "--member-kubeconfig=" in ran.out
    assert "secretRef" not in (await host.get(CLUSTERS, "west"))["spec"]
    with pytest.raises(NotFound):
        await host.get(SECRETS, "atoll-member", "karmada-es-west")
    assert "--member-secret" in (await join(fed, "west", "--beside-host")).out
    assert (await host.get(CLUSTERS, "west"))["spec"]["secretRef"]["name"] == "atoll-member"


async def test_a_new_address_of_the_webhook_that_does_not_answer_is_refused_unless_forced(
    fed: AtollFederation, host: ApiServer
) -> None:
    before = await settings(host)
    [port] = free_ports(1, "127.0.0.1")
    for flag, why in (
        (f"--webhook-url=https://127.0.0.1:{port}", "connection refused"),
        ("--webhook-service=atoll-system/atoll-webhook:443", 'service "atoll-webhook" not found'),
        (f"--webhook-url={fed.host.url}", "not atoll-webhook"),
    ):
        ran = await init(fed, flag)
        assert ran.code != 0
        assert why in ran.said
        assert "--force" in ran.said
        assert await settings(host) == before
    await runs(host, "unmoved")
    url = before["noted"][0].removeprefix('{"url":"').removesuffix('"}')
    dead = f"https://127.0.0.1:{port}"
    assert (await init(fed, f"--webhook-url={dead}", "--force")).code == 0
    assert (await settings(host))["noted"] == [f'{{"url":"{dead}"}}'] * 2
    ran = await init(fed, f"--webhook-url={url}")
    assert ran.code == 0, ran.said
    assert await settings(host) == before
    await runs(host, "moved-back")


async def test_a_new_address_of_the_query_api_that_does_not_answer_is_refused_unless_forced(
    fed: AtollFederation, host: ApiServer
) -> None:
    before = await settings(host)
    ran = await init(fed, "--query-outside=127.0.0.2")
    assert ran.code != 0
    assert "connection refused" in ran.said
    assert await settings(host) == before
    assert (await init(fed, "--query-outside=127.0.0.2", "--force")).code == 0
    assert (await settings(host))["query"] == "127.0.0.2"
    ran = await init(fed, f"--query-outside={before['query']}")
    assert ran.code == 0, ran.said
    assert await settings(host) == before
    await runs(host, "asked")


async def test_a_host_stays_of_its_kind(fed: AtollFederation, host: ApiServer) -> None:
    before = await settings(host)
    ran = await init(fed, "--on=karmada")
    assert ran.code != 0
    assert "atollctl uninstall" in ran.said
    assert await settings(host) == before
