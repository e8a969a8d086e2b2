"""A member joins by invitation, on two real API servers: rights of the token, order, refusals, renewal."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sys
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
from atoll.agent import joining
from atoll.agent.push_credentials import host_connection, host_renewal, host_secret
from atoll.kube import token_renewal
from atoll.kube.authority import make_signer
from atoll.kube.endpoint import Endpoint, ca_hash
from atoll.kube.errors import ApiError, Forbidden, Invalid, Unauthorized, Unreachable
from atoll.kube.transport import ApiServer
from atoll.local import audit
from atoll.local.binaries import ensure
from atoll.local.federation import Federation
from atoll.local.install import wait_until
from atoll.local.layout import FederationConfig
from atoll.local.ports import free_ports
from atoll.model import keys
from atoll.model.apiresource import (
    CAPACITIES,
    CLUSTER_REQUESTS,
    CLUSTERS,
    NAMESPACES,
    SECRETS,
    SERVICE_ACCOUNTS,
    ApiResource,
)
from atoll.model.timestamps import rfc3339_seconds

Json = dict[str, Any]

RULES = ApiResource("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False)
EVERYBODYS = {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Federation]:
    """A host and two clusters that may become members."""
    config = FederationConfig.model_validate({"members": [{"name": "east"}, {"name": "west"}]})
    async with Federation(config, directory=tmp_path_factory.mktemp("federation"), binaries=ensure()) as federation:
        async with await federation.host.connect() as api:
            at = await install.endpoint(federation.host.kubeconfig)
            out = tmp_path_factory.mktemp("credentials")
            await install.init(api, at, out=out, webhook_client_config={"url": "https://127.0.0.1:1"})
        for member in federation.members.values():
            async with await member.connect() as api:
                await install.prepare_invited(api, "x", placing=install.PlacingWish())
        yield federation


@pytest_asyncio.fixture(loop_scope="module")
async def east(bare: Federation) -> AsyncIterator[ApiServer]:
    """A cluster that is not joined, and an empty list of invitations, before and after."""
    async with await bare.members["east"].connect() as api:
        yield api
        await api.delete(SECRETS, keys.HOST_SECRET, keys.SYSTEM_NAMESPACE)
    async with await bare.host.connect() as api:
        for each in await install.requests(api):
            await api.delete(CLUSTER_REQUESTS, each["metadata"]["name"])
        for each in await api.list(CLUSTERS):
            await install.unjoin(api, None, each["metadata"]["name"], force=True)


async def invited(bare: Federation, host: ApiServer, name: str = "east", **options: Any) -> joining.Invitation:
    made = await install.invite(host, name, await install.endpoint(bare.host.kubeconfig), **options)
    return joining.Invitation(made.url, made.token, made.ca_hash)


async def identity(api: ApiServer) -> str:
    return str((await api.get(NAMESPACES, "kube-system"))["metadata"]["uid"])


@contextlib.asynccontextmanager
async def asking(
    east: ApiServer, invitation: joining.Invitation, host: ApiServer, name: str = "east", **facts: Any
) -> AsyncIterator[asyncio.Task[None]]:
    """The member asks; returns once the host has the request."""
    task = asyncio.create_task(joining.join(east, name, invitation, facts, lambda _: None))

    async def missing() -> str:
        if task.done():
            task.result()
        return "" if (await host.get(CLUSTER_REQUESTS, name)).get("status") else "no request"

    await wait_until(missing, "the request", 60)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def client(bare: Federation, invitation: joining.Invitation) -> ApiServer:
    """A client with the token of an invitation."""
    return ApiServer(joining.connection(Endpoint(invitation.url, ca_of(bare)), invitation.token))


def ca_of(bare: Federation) -> bytes:
    text = bare.host.kubeconfig.read_text()
    [line] = [each for each in text.splitlines() if "certificate-authority-data" in each]
    return base64.b64decode(line.split(":")[1].strip())


async def test_an_approved_cluster_gets_the_credentials_of_its_agent_and_the_invitation_is_gone(
    bare: Federation, host: ApiServer, east: ApiServer
) -> None:
    invitation = await invited(bare, host)
    async with asking(east, invitation, host, labels={"gpu": "h100"}, region="eu-1") as task:
        request = await install.pending(host, "east")
        assert request["status"]["id"] == await identity(east)
        assert await host_secret(east) is None
        await install.approve(host, request, install.MemberFacts({"tier": "gold"}, region="eu-2"))
        await asyncio.wait_for(task, 60)
    cluster = await host.get(CLUSTERS, "east")
    assert cluster["metadata"]["labels"] == {"gpu": "h100", "tier": "gold"}
    assert cluster["spec"] == {"syncMode": "Pull", "id": await identity(east), "region": "eu-2"}
    connection = await host_connection(east, "east")
    async with ApiServer(connection) as agent:
        assert await agent.list(CAPACITIES, "karmada-es-east") == []
        with pytest.raises(Forbidden):
            await agent.list(SECRETS, "karmada-es-east")
        assert (await agent.get(CLUSTERS, "east"))["spec"]["region"] == "eu-2"

    async def left() -> str:
        found = await host.list(SERVICE_ACCOUNTS, keys.SYSTEM_NAMESPACE)
        return ", ".join(each["metadata"]["name"] for each in found if "join" in each["metadata"]["name"])

    assert await install.requests(host) == []
    await wait_until(left, "the account of the invitation to go", 60)
    with pytest.raises(joining.NotJoined, match="the invitation has ended, was used"):
        await joining.join(east, "east", invitation, {}, lambda _: None)
    with pytest.raises(install.Refused, match="Cluster east is joined already"):
        await invited(bare, host)


async def test_the_token_can_ask_and_nothing_else(bare: Federation, host: ApiServer, east: ApiServer) -> None:
    invitation = await invited(bare, host)
    async with client(bare, invitation) as api:
        for namespace in ("atoll-system", "default", "kube-system", "karmada-es-east"):
            review = {"apiVersion": RULES.api_version, "kind": RULES.kind, "metadata": {}}
            answer = await api.create(RULES, {**review, "spec": {"namespace": namespace}})
            rights = {
                (resource, verb, tuple(rule.get("resourceNames") or ()))
                for rule in answer["status"]["resourceRules"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
            mine = {
                each
                for each in rights
                # What every user of the host has.
                if each[0] not in EVERYBODYS and not (each[0] in ("queues", "workloadkinds") and each[1] in READ)
            }
            assert mine == {
                ("clusterrequests", "get", ("east",)),
                ("clusterrequests", "delete", ("east",)),
                ("clusterrequests/status", "patch", ("east",)),
            }, namespace
        for resource, where in ((SECRETS, "atoll-system"), (CLUSTERS, None), (CLUSTER_REQUESTS, None)):
            with pytest.raises(Forbidden):
                await api.list(resource, where)
        with pytest.raises(Forbidden):
            await api.merge_patch(CLUSTER_REQUESTS, "east", {"spec": {"decision": "Approved"}})
        with pytest.raises(Forbidden):
            await api.create_in(SERVICE_ACCOUNTS, "atoll-agent", "karmada-es-east", "token", {"spec": {}})
        status = {"id": "0", "askedAt": "now"}
        written = await api.merge_patch(
            CLUSTER_REQUESTS,
            "east",
            {"metadata": {"annotations": {"a": "b"}}, "spec": {"decision": "Approved"}, "status": status},
            subresource="status",
        )
        assert "decision" not in written["spec"]
        assert "annotations" not in written["metadata"]


READ = ("get", "list", "watch")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"labels": {f"l{number}": "x" for number in range(33)}}, "must have at most 32"),
        ({"labels": {"l" * 400: "x"}}, "317 characters"),
        ({"labels": {"a": "x" * 64}}, "may not be more than 63"),
        ({"region": "x" * 254}, "may not be more than 253"),
        ({"zones": ["x"] * 17}, "must have at most 16"),
    ],
    ids=["labels", "key of a label", "value of a label", "region", "zones"],
)
async def test_a_request_has_a_largest_size(
    bare: Federation, host: ApiServer, east: ApiServer, status: Json, said: str
) -> None:
    invitation = await invited(bare, host)
    with pytest.raises(joining.NotJoined, match=f"the host refuses the request: .*{said}"):
        await joining.join(east, "east", invitation, status, lambda _: None)


async def test_a_request_can_be_made_once(bare: Federation, host: ApiServer, east: ApiServer) -> None:
    invitation = await invited(bare, host)
    async with await bare.members["west"].connect() as west, asking(east, invitation, host) as task:
        with pytest.raises(joining.NotJoined, match=r"another cluster \(UID .*\) has used this invitation"):
            await joining.join(west, "east", invitation, {}, lambda _: None)
        async with client(bare, invitation) as api:
            for patch in ({"id": "0"}, {"labels": {"gpu": "h100"}}):
                with pytest.raises(Invalid, match="one invitation is for one request"):
                    await api.merge_patch(CLUSTER_REQUESTS, "east", {"status": patch}, subresource="status")
            with pytest.raises(Invalid, match="one invitation is for one request"):
                await api.merge_patch(CLUSTER_REQUESTS, "east", {"status": None}, subresource="status")
        assert not task.done()
        # The same cluster may ask again: its process was started anew, or has a second replica.
        second = asyncio.create_task(joining.join(east, "east", invitation, {}, lambda _: None))
        await install.approve(host, await install.pending(host, "east"), install.MemberFacts())
        await asyncio.wait_for(asyncio.gather(task, second), 60)


async def test_a_denied_cluster_is_told_why(bare: Federation, host: ApiServer, east: ApiServer) -> None:
    invitation = await invited(bare, host)
    async with asking(east, invitation, host) as task:
        await install.deny(host, "east", "not this\x1b[2J one")
        with pytest.raises(joining.NotJoined, match="the administrator of the host denied the request: not this"):
            await asyncio.wait_for(task, 60)
    assert await host_secret(east) is None
    assert await host.list(CLUSTERS) == []
    with pytest.raises(install.Refused, match="the request of east is denied already"):
        await install.pending(host, "east")
    await invited(bare, host)


async def test_an_invitation_that_was_taken_back_or_is_over_is_worth_nothing(
    bare: Federation, host: ApiServer, east: ApiServer
) -> None:
    invitation = await invited(bare, host)
    with pytest.raises(install.Refused, match="east is invited already, until"):
        await invited(bare, host)
    with pytest.raises(install.Refused, match="no cluster has asked yet"):
        await install.pending(host, "east")
    async with asking(east, invitation, host) as task:
        past = rfc3339_seconds(time.time() - 1)
        await host.merge_patch(CLUSTER_REQUESTS, "east", {"spec": {"expires": past}})
        with pytest.raises(install.Refused, match="its hour is over"):
            await install.pending(host, "east")
        assert await install.requests(host) == []
        with pytest.raises(joining.NotJoined, match="the invitation is over"):
            await asyncio.wait_for(task, 60)

    async def refused() -> str:
        async with client(bare, invitation) as api:
            try:
                await api.get(CLUSTER_REQUESTS, "east")
            except Unauthorized:
                return ""
            except ApiError as error:
                return str(error)
        return "the token is taken"

    await wait_until(refused, "the token to be unknown", 60)
    await invited(bare, host)
    await install.deny(host, "east")
    assert await install.requests(host) == []


async def test_a_cluster_that_was_approved_in_advance_waits_for_nobody_and_no_other_may_ask(
    bare: Federation, host: ApiServer, east: ApiServer
) -> None:
    invitation = await invited(bare, host, only=await identity(east), facts=install.MemberFacts({"gpu": "h100"}))
    async with await bare.members["west"].connect() as west:
        with pytest.raises(joining.NotJoined, match="this invitation is for another cluster"):
            await joining.join(west, "east", invitation, {}, lambda _: None)
    await asyncio.wait_for(joining.join(east, "east", invitation, {"labels": {"gpu": "b200"}}, lambda _: None), 60)
    assert (await host.get(CLUSTERS, "east"))["metadata"]["labels"] == {"gpu": "h100"}
    with pytest.raises(install.Refused, match="is the host itself"):
        await invited(bare, host, "self", only=await identity(host))
    with pytest.raises(install.Refused, match="is a member already, under the name east"):
        await invited(bare, host, "second", only=await identity(east))
    with pytest.raises(joining.NotJoined, match="this cluster has joined as east"):
        await joining.join(east, "second", await invited(bare, host, "second"), {}, lambda _: None)


async def test_of_two_replicas_one_withdraws_the_invitation(bare: Federation, host: ApiServer, east: ApiServer) -> None:
    invitation = await invited(bare, host, only=await identity(east))
    began = time.time()
    await asyncio.gather(*(joining.join(east, "east", invitation, {}, lambda _: None) for _ in range(2)))
    # With the first one's withdrawal the token has lost its rights.
    gone = [
        event.response_status.code
        for event in audit.read(bare.host.audit_log)
        if event.verb == "delete" and event.object_ref.path == "clusterrequests"
        if event.user.username.endswith(":atoll-join-east") and event.at > began
    ]
    assert gone == [200]


async def test_the_host_can_not_become_its_own_member(bare: Federation, host: ApiServer, east: ApiServer) -> None:
    await install.prepare_invited(host, "self", placing=install.PlacingWish())
    async with asking(host, await invited(bare, host, "self"), host, "self"):
        with pytest.raises(install.Refused, match="is the host itself"):
            await install.approve(host, await install.pending(host, "self"), install.MemberFacts())


async def test_the_token_is_sent_to_the_host_of_the_invitation_alone(
    bare: Federation, host: ApiServer, east: ApiServer
) -> None:
    invitation = await invited(bare, host)
    other = ca_hash(make_signer(datetime.now(UTC)).certificate)
    with pytest.raises(joining.NotJoined, match="another server is in between; the token was not sent"):
        await joining.join(east, "east", replace(invitation, ca_hash=other), {}, lambda _: None)
    with pytest.raises(joining.NotJoined, match="the token is an invitation for east, not for west"):
        await joining.join(east, "west", invitation, {}, lambda _: None)
    with pytest.raises(joining.NotJoined, match="not one of an invitation"):
        await joining.join(east, "east", replace(invitation, token="abc"), {}, lambda _: None)
    with pytest.raises(joining.NotJoined, match="is none"):
        await joining.join(east, "east", replace(invitation, url="http://127.0.0.1"), {}, lambda _: None)
    # With the certificate itself nothing has to be read by strangers.
    given = replace(invitation, ca=ca_of(bare))
    async with asking(east, given, host) as task:
        await install.approve(host, await install.pending(host, "east"), install.MemberFacts())
        await asyncio.wait_for(task, 60)


async def test_credentials_are_renewed_in_the_members_secret_and_taken_up(
    bare: Federation, host: ApiServer, east: ApiServer
) -> None:
    invitation = await invited(bare, host, only=await identity(east))
    await joining.join(east, "east", invitation, {}, lambda _: None)
    connection = await host_connection(east, "east")
    async with ApiServer(connection) as agent:
        renewal = host_renewal(east, agent)
        before = await host_secret(east)
        assert before is not None
        await renewal.look(time.time())
        assert renewal.expires > time.time()
        assert await host_secret(east) == before
        # Four fifths of a year later.
        await renewal.look(time.time() + 330 * 24 * 3600)
        after = await host_secret(east)
        assert after is not None
        assert after["data"] != before["data"]
        old, new = (base64.b64decode(each["data"]["kubeconfig"]).decode() for each in (before, after))
        assert token_renewal.in_kubeconfig(old) != token_renewal.in_kubeconfig(new)
        await install.unjoin(host, None, "east", force=True)
        await invited_again(bare, host, east)
        # The token from before is unknown: its account is another one by now.
        assert (await agent.get(CLUSTERS, "east"))["metadata"]["name"] == "east"


async def invited_again(bare: Federation, host: ApiServer, east: ApiServer) -> None:
    invitation = await invited(bare, host, only=await identity(east))
    await joining.join(east, "east", invitation, {}, lambda _: None)


async def test_requests_and_agents_reach_the_host_through_a_proxy(
    bare: Federation, host: ApiServer, east: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [port] = free_ports(1)
    log = tmp_path / "log"
    log.touch()
    target = host.url.removeprefix("https://")
    proxy = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.kube.connect_proxy", str(port), str(log), cwd=Path(__file__).parents[2]
    )
    try:

        async def closed() -> str:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError as error:
                return str(error)
            writer.close()
            return ""

        await wait_until(closed, "the proxy", 60)
        invitation = await invited(bare, host, only=await identity(east))
        through = replace(invitation, proxy=f"http://127.0.0.1:{port}")
        await joining.join(east, "east", through, {}, lambda _: None)
        # The CA is read by a stranger, over a connection of its own.
        assert log.read_text().splitlines() == [f"CONNECT {target}"] * 2
        async with ApiServer(await host_connection(east, "east")) as agent:
            await agent.get(CLUSTERS, "east")
        assert log.read_text().splitlines() == [f"CONNECT {target}"] * 3

        # A name that only the proxy knows, as kubectl would reach it.
        kubeconfig = yaml.safe_load(bare.host.kubeconfig.read_text())
        for each in kubeconfig["clusters"]:
            each["cluster"] |= {
                "server": f"https://host.atoll.test:{target.rpartition(':')[2]}",
                "tls-server-name": "127.0.0.1",
            }
        file = tmp_path / "named.kubeconfig"
        file.write_text(yaml.safe_dump(kubeconfig))
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("NO_PROXY", "")
        async with await ApiServer.from_kubeconfig(file) as named:
            assert await named.list(CLUSTERS)
            async with asyncio.timeout(60):
                async for _ in named.watch(CLUSTERS, resource_version="0"):
                    break
        assert "CONNECT host.atoll.test" in log.read_text()
        monkeypatch.setenv("NO_PROXY", "atoll.test")
        async with await ApiServer.from_kubeconfig(file) as named:
            with pytest.raises(Unreachable):
                await named.request("GET", "/readyz", deadline=1)
    finally:
        proxy.terminate()
        await proxy.wait()


async def test_an_agent_asks_with_the_rights_of_its_account_and_keeps_what_it_gets(
    bare: Federation, host: ApiServer, east: ApiServer, tmp_path: Path
) -> None:
    at = await install.endpoint(bare.members["east"].kubeconfig)
    command = await install.agent_of_invited(east, "east", at, tmp_path)

    async def run(*flags: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "atoll.agent", *command[1:], "--join-only", *flags, stderr=asyncio.subprocess.PIPE
        )
        _, said = await asyncio.wait_for(process.communicate(), 120)
        return process.returncode, said.decode()

    code, said = await run()
    assert code == 1
    assert "Secret atoll-system/atoll-host of the member: there is none" in said
    invitation = await invited(bare, host, only=await identity(east))
    token = tmp_path / "token"
    token.write_text(invitation.token + "\n")
    flags = (f"--host-url={invitation.url}", f"--host-ca-hash={invitation.ca_hash}", f"--host-token-file={token}")
    assert (await run(*flags))[0] == 0
    async with ApiServer(await host_connection(east, "east")) as agent:
        assert (await agent.get(CLUSTERS, "east"))["spec"]["id"] == await identity(east)
    # Started anew it has what it needs, though the invitation is used.
    assert (await run(*flags))[0] == 0
    assert "it is of member east, not of other" in (await run(*flags, "--cluster=other"))[1]
