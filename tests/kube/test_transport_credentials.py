"""Credentials that age: renewed before they expire, read again when their files change, and once after a 401."""

from __future__ import annotations

import asyncio
import datetime
import json
import ssl
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

import atoll.kube
from atoll.kube import config, errors, plainconfig
from atoll.kube.config import BadKubeconfig, Connection
from atoll.kube.transport import ApiServer
from atoll.local.certificates import Authority
from atoll.model.apiresource import PODS
from tests.kube.servers import serving

Json = dict[str, Any]


def write(path: Path, user: Json, server: str = "https://127.0.0.1:1", **cluster: Any) -> Path:
    """A kubeconfig with one context."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


class Plugin:
    """An exec plugin that gives what the test says and counts how often it was asked."""

    def __init__(self, directory: Path) -> None:
        self.asked_file, self.answer_file = directory / "asked", directory / "answer"
        self.asked_file.write_text("")
        self.program = directory / "plugin.py"
        self.program.write_text(
            f"open({str(self.asked_file)!r}, 'a').write('x')\nprint(open({str(self.answer_file)!r}).read())\n"
        )

    def user(self) -> Json:
        api = "client.authentication.k8s.io/v1"
        return {"exec": {"apiVersion": api, "command": sys.executable, "args": [str(self.program)]}}

    def answer(self, token: str, lifetime: float | None = None) -> None:
        status: Json = {"token": token}
        if lifetime is not None:
            expiry = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=lifetime)
            status["expirationTimestamp"] = expiry.strftime("%Y-%m-%dT%H:%M:%SZ")
        answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        self.answer_file.write_text(json.dumps(answer))

    @property
    def asked(self) -> int:
        return len(self.asked_file.read_text())


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


class Clock:
    """Time as the credentials see it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = 0.0
        wall, steady = time.time, time.monotonic

        class Shifted:
            time = staticmethod(lambda: wall() + self.passed)
            monotonic = staticmethod(lambda: steady() + self.passed)

        monkeypatch.setattr(config, "time", Shifted)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def test_a_plugin_is_asked_again_shortly_before_its_token_expires(
    plugin: Plugin, tmp_path: Path, clock: Clock
) -> None:
    plugin.answer("one", lifetime=3600)
    connection = await config.load(write(tmp_path / "k", plugin.user()))
    plugin.answer("two", lifetime=7200)
    clock.passed = 3500.0
    assert await connection.authorize() == "Bearer one"
    clock.passed = 3545.0
    assert await connection.authorize() == "Bearer two"
    assert plugin.asked == 2


async def test_a_token_without_an_expiry_is_good_until_the_server_says_otherwise(
    plugin: Plugin, tmp_path: Path, clock: Clock
) -> None:
    plugin.answer("one")
    connection = await config.load(write(tmp_path / "k", plugin.user()))
    plugin.answer("two")
    clock.passed = 86400.0
    assert await connection.authorize() == "Bearer one"
    assert await connection.renew("Bearer one")
    assert await connection.authorize() == "Bearer two"


async def test_many_that_were_refused_ask_the_plugin_once(plugin: Plugin, tmp_path: Path) -> None:
    plugin.answer("one")
    connection = await config.load(write(tmp_path / "k", plugin.user()))
    plugin.answer("two")
    assert all(await asyncio.gather(*(connection.renew("Bearer one") for _ in range(20))))
    assert plugin.asked == 2


async def test_a_plugin_that_gives_the_same_again_is_left_alone_for_a_while(plugin: Plugin, tmp_path: Path) -> None:
    plugin.answer("one")
    connection = await config.load(write(tmp_path / "k", plugin.user()))
    for _ in range(5):
        assert not await connection.renew("Bearer one")
    assert plugin.asked == 2


async def test_a_plugin_that_fails_later_leaves_the_old_token(plugin: Plugin, tmp_path: Path, clock: Clock) -> None:
    plugin.answer("one", lifetime=3600)
    connection = await config.load(write(tmp_path / "k", plugin.user()))
    plugin.answer_file.unlink()
    clock.passed = 3550.0
    assert await connection.authorize() == "Bearer one"
    asked = plugin.asked
    assert await connection.authorize() == "Bearer one"
    assert plugin.asked == asked, "not at every request"


async def test_a_plugin_that_fails_at_first_is_an_error_with_its_words(plugin: Plugin, tmp_path: Path) -> None:
    plugin.program.write_text("import sys; sys.exit('log in first')")
    with pytest.raises(BadKubeconfig, match="log in first"):
        await config.load(write(tmp_path / "k", plugin.user()))


async def test_a_plugin_that_hangs_is_given_up(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "EXEC_DEADLINE", 0.3)
    plugin.program.write_text("import time; time.sleep(60)")
    with pytest.raises(BadKubeconfig, match="did not answer within"):
        await config.load(write(tmp_path / "k", plugin.user()))


def without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the package that reads exec plugins, as images are."""
    monkeypatch.setitem(sys.modules, "atoll.kube.packageconfig", None)
    monkeypatch.delattr(atoll.kube, "packageconfig", raising=False)


async def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path, clock: Clock) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    connection = await config.load(write(tmp_path / "k", {"tokenFile": "token"}))
    assert await connection.authorize() == "Bearer one"
    token.write_text("second\n")
    clock.passed = config.LOOK + 1
    assert await connection.authorize() == "Bearer second"


async def test_the_token_of_a_pod_is_read_again_when_it_changes(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    (tmp_path / "ca.crt").write_bytes(Authority(tmp_path / "ca", "ca").path.read_bytes())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setattr(plainconfig, "ACCOUNT_FOLDER", tmp_path)
    without_the_package(monkeypatch)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    connection = await config.load()
    assert (connection.url, await connection.authorize()) == ("https://10.0.0.1:443", "Bearer one")
    token.write_text("second")
    clock.passed = config.LOOK + 1
    assert await connection.authorize() == "Bearer second"


async def test_a_plugin_without_the_package_that_runs_it_names_the_extra(
    plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_the_package(monkeypatch)
    with pytest.raises(BadKubeconfig, match=r"install atoll\[cli\]"):
        await config.load(write(tmp_path / "k", plugin.user()))


async def test_a_kubeconfig_that_is_written_anew_is_read_again(tmp_path: Path, clock: Clock) -> None:
    file = write(tmp_path / "k", {"token": "one"})
    connection = await config.load(file)
    write(file, {"token": "second"})
    clock.passed = config.LOOK + 1
    assert await connection.authorize() == "Bearer second"


async def test_a_file_that_is_broken_for_a_moment_does_no_harm(tmp_path: Path, clock: Clock) -> None:
    file = write(tmp_path / "k", {"token": "one"})
    connection = await config.load(file)
    file.write_text("clusters: [")
    clock.passed = config.LOOK + 1
    assert await connection.authorize() == "Bearer one"
    write(file, {"token": "second"})
    clock.passed *= 2
    assert await connection.authorize() == "Bearer second"


async def test_a_client_certificate_that_is_replaced_on_disk_is_used(tmp_path: Path, clock: Clock) -> None:
    authority = Authority(tmp_path / "ca", "ca")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def put(name: str) -> None:
        made, its_key = authority.issue(name)
        certificate.write_bytes(made.read_bytes())
        key.write_bytes(its_key.read_bytes())

    seen = []

    async def whoami(request: web.Request) -> web.Response:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert")
        seen.append(peer["subject"][-1][0][1])
        return web.json_response({})

    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.path))
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(*authority.issue("server"))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", whoami)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server).start()
    put("first")
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    address = f"https://127.0.0.1:{runner.addresses[0][1]}"
    file = write(tmp_path / "k", user, address, **{"certificate-authority": str(authority.path)})
    async with await ApiServer.from_kubeconfig(file) as api:
        try:
            await api.get(PODS, "p", "n")
            put("second")
            clock.passed = config.LOOK + 1
            await api.get(PODS, "p", "n")
        finally:
            await api.close()
            await runner.cleanup()
    assert seen == ["first", "second"]


async def test_a_key_that_does_not_belong_to_its_certificate_is_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca", "ca")
    (certificate, _), (_, key) = authority.issue("a"), authority.issue("b")
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    with pytest.raises(BadKubeconfig, match="certificates can't be used"):
        await config.load(write(tmp_path / "k", user))


@pytest.mark.parametrize(
    ("user", "cluster", "words"),
    [
        pytest.param({"token": "a", "as": "root"}, {}, "acting as another user", id="impersonation is not dropped"),
        pytest.param({"token": "a\r\nX: y"}, {}, "no token has", id="a token with a line break"),
        pytest.param({"token": "a"}, {"certificate-authority": "/none"}, "/none", id="an authority that is not there"),
    ],
)
async def test_what_can_not_be_used_is_named(tmp_path: Path, user: Json, cluster: Json, words: str) -> None:
    with pytest.raises(BadKubeconfig, match=words):
        await config.load(write(tmp_path / "k", user, **cluster))


# -- the same as the transport uses it ---------------------------------------------------------------------------------


class Guard:
    """Knows one token at a time."""

    def __init__(self, known: str) -> None:
        self.known, self.seen = known, list[str]()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        header = request.headers.get("Authorization", "")
        self.seen.append(f"{request.method} {header}")
        if header != f"Bearer {self.known}":
            return web.json_response({"message": "who are you"}, status=401)
        if "watch" in request.query:
            return web.Response(body=b'{"type":"BOOKMARK","object":{}}\n')
        return web.json_response({"metadata": {}})


def with_token(api: ApiServer, tokens: list[str]) -> None:
    """Give the client these tokens, the next one at each renewal."""

    async def authorize() -> str | None:
        return f"Bearer {tokens[0]}"

    async def renew(refused: str | None) -> bool:
        if len(tokens) > 1:
            tokens.pop(0)
        return await authorize() != refused

    api._connection = Connection(api.url, None, authorize, renew=renew)


async def test_any_request_is_repeated_once_with_new_credentials() -> None:
    guard = Guard("new")
    async with serving(guard) as api:
        with_token(api, ["old", "new"])
        await api.create(PODS, {"metadata": {"name": "p", "namespace": "n"}})
    assert guard.seen == ["POST Bearer old", "POST Bearer new"]


async def test_a_watch_is_repeated_once_with_new_credentials() -> None:
    guard = Guard("new")
    async with serving(guard) as api:
        with_token(api, ["old", "new"])
        assert [line async for line in api.watch(PODS)] == [b'{"type":"BOOKMARK","object":{}}']
    assert len(guard.seen) == 2


async def watched(api: ApiServer) -> list[bytes]:
    return [line async for line in api.watch(PODS)]


@pytest.mark.parametrize("call", [watched, lambda api: api.get(PODS, "p", "n")], ids=["watch", "get"])
async def test_credentials_that_can_not_be_renewed_are_an_error_at_once(call) -> None:
    guard = Guard("new")
    async with serving(guard) as api:
        with_token(api, ["old"])
        with pytest.raises(errors.Unauthorized):
            await call(api)
    assert len(guard.seen) == 1


async def test_credentials_that_take_for_ever_end_with_the_deadline() -> None:
    async def never() -> str | None:
        await asyncio.Event().wait()
        return None

    async with ApiServer(Connection("http://127.0.0.1:1", None, never)) as api:
        with pytest.raises(errors.Unreachable):
            async with asyncio.timeout(2):
                await api.request("POST", "/x", body=b"{}", deadline=0.2)


async def test_without_credentials_no_header_is_sent() -> None:
    seen = []

    async def see(request: web.Request) -> web.Response:
        seen.append("Authorization" in request.headers)
        return web.json_response({})

    async with serving(see) as api:
        await api.get(PODS, "p", "n")
    assert seen == [False]
