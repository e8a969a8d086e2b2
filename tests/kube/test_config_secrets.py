"""What a kubeconfig that comes out of a Secret may hold, and what it is refused for."""

from __future__ import annotations

import base64
import copy
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from atoll.kube.config import BadKubeconfig
from atoll.kube.secretconfig import MAX_BYTES, from_secret
from atoll.kube.transport import ApiServer
from atoll.local.certificates import Authority
from atoll.model.apiresource import PODS
from tests.kube.kubeconfigs import Json, kubeconfig

SOURCE = "Secret ns/member"


def encoded(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def read(config: Json | str) -> Any:
    return from_secret({"kubeconfig": encoded(config if isinstance(config, str) else yaml.safe_dump(config))}, SOURCE)


async def test_a_token_is_taken() -> None:
    connection = read(kubeconfig())
    assert (connection.url, await connection.authorize()) == ("https://member.example:6443", "Bearer t0ken")
    assert connection.tls is not None
    assert connection.tls.verify_mode is ssl.CERT_REQUIRED
    assert connection.tls.check_hostname


def user(**fields: Any) -> Callable[[Json], None]:
    return lambda config: config["users"][0]["user"].update(fields)


def cluster(**fields: Any) -> Callable[[Json], None]:
    return lambda config: config["clusters"][0]["cluster"].update(fields)


def another_user(**fields: Any) -> Callable[[Json], None]:
    return lambda config: config["users"].append({"name": "v", "user": fields})


def top(**fields: Any) -> Callable[[Json], None]:
    return lambda config: config.update(fields)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(user(exec={"command": "sh"}), r"users\[0\].user.exec: .*put a token there", id="a program"),
        pytest.param(user(**{"auth-provider": {"name": "gcp"}}), "auth-provider", id="an auth provider"),
        pytest.param(user(tokenFile="/var/run/token"), "tokenFile: .*use token", id="a token file"),
        pytest.param(user(**{"client-certificate": "/x"}), "client-certificate-data", id="a certificate file"),
        pytest.param(user(**{"client-key": "/x"}), "client-key-data", id="a key file"),
        pytest.param(user(username="a", password="b"), "(username|password): not allowed", id="a password"),
        pytest.param(user(**{"as": "root"}), "user.as: .*credentials of that user", id="another identity"),
        pytest.param(user(surprise=1), "surprise: .*remove it", id="a field that nobody knows"),
        pytest.param(another_user(exec={}), r"users\[1\].user.exec", id="a program of a user who is not used"),
        pytest.param(cluster(**{"certificate-authority": "/x"}), "certificate-authority-data", id="an authority file"),
        pytest.param(cluster(**{"insecure-skip-tls-verify": True}), "insecure-skip-tls-verify", id="no TLS checks"),
        pytest.param(cluster(**{"insecure-skip-tls-verify": False}), "insecure-skip-tls-verify", id="nor a word on it"),
        pytest.param(cluster(server="http://m"), "no https URL", id="plain HTTP"),
        pytest.param(cluster(server="https://u:p@m"), "no https URL", id="a password in the URL"),
        pytest.param(cluster(server="https://m/?a=b"), "no https URL", id="a query"),
        pytest.param(cluster(server="unix:///run/x"), "no https URL", id="a socket"),
        pytest.param(cluster(server=7), "text is wanted", id="a server that is a number"),
        pytest.param(cluster(server=None), "no https URL", id="no server"),
        pytest.param(cluster(**{"proxy-url": "socks5://x"}), "proxy-url", id="a proxy of another kind"),
        pytest.param(
            cluster(**{"certificate-authority-data": "!!"}), "no certificate", id="an authority not in base64"
        ),
        pytest.param(
            cluster(**{"certificate-authority-data": encoded("no PEM")}), "no certificate", id="an authority not in PEM"
        ),
        pytest.param(user(token="a\nb"), "characters that no token has", id="a token with a line break"),
        pytest.param(user(token=""), "neither token nor", id="no credential"),
        pytest.param(user(**{"client-certificate-data": "aa"}), "belong together", id="a certificate without its key"),
        pytest.param(
            user(**{"client-certificate-data": encoded("x"), "client-key-data": encoded("y")}),
            "no certificate with its key",
            id="a certificate that is none",
        ),
        pytest.param(top(users=[]), "there is no user 'u'", id="a user that is missing"),
        pytest.param(top(users=7), "users: a list is wanted", id="no list"),
        pytest.param(top(**{"current-context": "d"}), "current-context: 'd' is none", id="a context that is missing"),
        pytest.param(top(contexts=[]), "current-context", id="no context"),
        pytest.param(lambda c: c["users"].append(copy.deepcopy(c["users"][0])), "there twice", id="a name twice"),
        pytest.param(lambda c: c["users"].append("x"), "an object is wanted", id="a user that is a word"),
    ],
)
def test_refused(change: Callable[[Json], None], words: str) -> None:
    config = kubeconfig()
    change(config)
    with pytest.raises(BadKubeconfig, match=f"{SOURCE}: kubeconfig: .*{words}"):
        read(config)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "not YAML"),
        ("a: 0001-13-99", "not YAML"),
        ("[" * 5000, "more than 64 levels"),
        pytest.param(
            "a0: &a0 {k: v}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 26)),
            "are not allowed",
            id="merge keys that double what they stand for",
        ),
        ("- " * 20000, "more than 64 levels"),
        ("!!python/object/apply:os.system [id]", "not YAML"),
        ("7", "an object is wanted"),
        ("", "an object is wanted"),
        ("x" * (MAX_BYTES + 1), "the most that is read"),
    ],
)
def test_text_that_is_no_kubeconfig(text: str, words: str) -> None:
    with pytest.raises(BadKubeconfig, match=words):
        read(text)


@pytest.mark.parametrize(
    ("data", "endpoint", "words"),
    [
        ({}, "https://m", "neither `kubeconfig` nor `token`"),
        ({"kubeconfig": "*"}, "", "data.kubeconfig: it is not base64"),
        ({"token": "dA=="}, "", "set spec.apiEndpoint"),
        ({"token": "dA=="}, "http://m", "spec.apiEndpoint: .*no https URL"),
        ({"token": "dA==", "caBundle": "dA=="}, "https://m", "no certificate"),
        ({"token": encoded("a b")}, "https://m", "characters that no token has"),
    ],
)
def test_secrets_that_are_refused(data: dict[str, str], endpoint: str, words: str) -> None:
    with pytest.raises(BadKubeconfig, match=words):
        from_secret(data, SOURCE, endpoint=endpoint)


async def test_token_and_authority_as_karmada_has_them(tmp_path: Path) -> None:
    """Against a real TLS server, which only that authority vouches for."""
    authority = Authority(tmp_path, "ca")
    seen = []

    async def see(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.json_response({})

    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*authority.issue("server"))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", see)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server).start()
    data = {"token": encoded("t0ken\n"), "caBundle": encoded(authority.pem)}
    connection = from_secret(data, SOURCE, endpoint=f"https://127.0.0.1:{runner.addresses[0][1]}")
    async with ApiServer(connection) as api:
        try:
            await api.get(PODS, "p", "n")
        finally:
            await api.close()
            await runner.cleanup()
    assert seen == ["Bearer t0ken"]


def test_a_client_certificate_is_taken_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    certificate, key = Authority(tmp_path, "ca").issue("client")
    config = kubeconfig()
    config["users"][0]["user"] = {
        "client-certificate-data": encoded(certificate.read_bytes()),
        "client-key-data": encoded(key.read_bytes()),
    }
    read(config)
    assert list((tmp_path / "tmp").iterdir()) == []
