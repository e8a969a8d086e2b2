"""Tokens are renewed by the process that uses them, and stored where they came from."""

from __future__ import annotations

import base64
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
import pytest_asyncio

from atoll import install
from atoll.agent.credentials import secret_renewal
from atoll.kube import tokens
from atoll.kube.errors import Forbidden
from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig
from atoll.model.apiresource import SECRETS, SERVICE_ACCOUNTS, WORKS

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def joined(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Federation, Path]]:
    """A host and a member whose agent runs beside the host; no process of Atoll."""
    config = FederationConfig.model_validate({"members": [{"name": "east"}]})
    out = tmp_path_factory.mktemp("credentials")
    async with Federation(config, directory=tmp_path_factory.mktemp("federation"), binaries=ensure()) as federation:
        member = federation.members["east"]
        async with await federation.host.connect() as host, await member.connect() as api:
            at = await install.endpoint(federation.host.kubeconfig)
            await install.init(host, at, out=out, webhook_client_config={"url": "https://127.0.0.1:1"})
            member_at = await install.endpoint(member.kubeconfig)
            await install.join(host, api, "east", host_at=at, member_at=member_at, out=out, beside_host=True)
        yield federation, out


async def test_a_token_in_a_file_is_renewed_once_four_fifths_of_its_life_are_over(
    joined: tuple[Federation, Path],
) -> None:
    file, _ = install.agent_kubeconfigs(joined[1], "east")
    old = tokens.in_kubeconfig(file.read_text())
    claims = tokens.claims_of(old or "")
    assert claims is not None
    assert (claims.namespace, claims.name) == ("karmada-es-east", "atoll-agent")
    async with await ApiServer.from_kubeconfig(file) as agent:
        renewal = tokens.of_file(agent, file)
        assert renewal is not None
        assert await renewal.look(time.time()) > 1
        assert tokens.in_kubeconfig(file.read_text()) == old, "it is early"
        assert renewal.expires == claims.expires
        await renewal.look(claims.due + 1)
        assert renewal.problem == ""
        with pytest.raises(Forbidden):
            await agent.create_in(SERVICE_ACCOUNTS, "default", "karmada-es-east", "token", {"spec": {}})
    assert tokens.in_kubeconfig(file.read_text()) not in (None, old)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    async with await ApiServer.from_kubeconfig(file) as agent:
        assert await agent.list(WORKS, "karmada-es-east") == []


async def test_a_token_in_a_secret_is_renewed_there(joined: tuple[Federation, Path]) -> None:
    from atoll.agent.credentials import member_connection

    file, _ = install.agent_kubeconfigs(joined[1], "east")
    async with await ApiServer.from_kubeconfig(file) as agent:

        async def stored() -> str:
            data = (await agent.get(SECRETS, "atoll-member", "karmada-es-east"))["data"]
            return tokens.in_kubeconfig(base64.b64decode(data["kubeconfig"]).decode()) or ""

        old = await stored()
        claims = tokens.claims_of(old)
        assert claims is not None
        async with ApiServer(await member_connection(agent, "east")) as member:
            renewal = secret_renewal(agent, member, "east")
            await renewal.look(claims.due + 1)
            assert renewal.problem == ""
        assert await stored() not in ("", old)


async def test_a_token_that_can_not_be_stored_is_a_problem_and_no_end(
    joined: tuple[Federation, Path], tmp_path: Path
) -> None:
    file, _ = install.agent_kubeconfigs(joined[1], "east")
    async with await ApiServer.from_kubeconfig(file) as agent:

        async def read() -> str | None:
            return tokens.in_kubeconfig(file.read_text())

        async def store(old: str, new: str) -> None:
            raise PermissionError(13, "Read-only file system")

        renewal = tokens.Renewal(agent, read, store)
        assert await renewal.look(time.time() + 10**9) == 60
        assert "Read-only file system" in renewal.problem
        assert renewal.expires > 0


@pytest.mark.parametrize("token", ["", "opaque", "a.b.c", "a." + base64.b64encode(orjson.dumps({"sub": "x"})).decode()])
async def test_what_is_no_token_of_an_account_is_left_alone(token: str) -> None:
    assert tokens.claims_of(token) is None
