"""The quick reader of kubeconfigs says what the `kubernetes` package says, or leaves the file to it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from atoll.kube import packageconfig, plainconfig
from atoll.kube.access import Access, Material

Json = dict[str, Any]

PEM = b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
DATA = base64.b64encode(PEM).decode()


def kubeconfig(folder: Path, cluster: Json, user: Json, **others: Any) -> str:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [
            {"name": "there", "context": {"cluster": "c", "user": "other"}},
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://host:6443/", **cluster}}],
        "users": [{"name": "u", "user": user}, {"name": "other", "user": {"token": "of another"}}],
        **others,
    }
    (folder / "token").write_text("from a file\n")
    (folder / "ca.pem").write_bytes(PEM)
    path = folder / "config"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def comparable(access: Access) -> tuple[object, ...]:
    def content(each: Material | None) -> bytes | None:
        return Path(each).read_bytes() if isinstance(each, str) else each

    pem = [content(each) for each in (access.authority, access.certificate, access.key)]
    header = (access.header or "").strip()
    return (access.url, header, *pem, access.verify, access.proxy, access.server_name, access.expires)


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        pytest.param({}, {"token": "secret"}, id="a token"),
        pytest.param({"certificate-authority-data": DATA}, {"tokenFile": "token"}, id="a token file beside it"),
        pytest.param({}, {"token": "secret", "tokenFile": "token"}, id="a token before its file"),
        pytest.param({"certificate-authority": "ca.pem"}, {"token": "t"}, id="an authority beside it"),
        pytest.param({}, {"client-certificate-data": DATA, "client-key-data": DATA}, id="a client certificate"),
        pytest.param({}, {"client-certificate": "ca.pem", "client-key": "ca.pem"}, id="one in files"),
        pytest.param(
            {"insecure-skip-tls-verify": True, "tls-server-name": "n", "proxy-url": "http://p:1", "extensions": []},
            {"token": "t"},
            id="all else that a cluster may say",
        ),
    ],
)
@pytest.mark.parametrize("context", [None, "there"])
async def test_both_readers_say_the_same(tmp_path: Path, cluster: Json, user: Json, context: str | None) -> None:
    path = kubeconfig(tmp_path, cluster, user)
    quick = plainconfig.read(path, context)
    assert quick is not None
    thorough = await packageconfig.read(path, context)
    assert comparable(quick) == comparable(thorough)
    assert path in quick.files


@pytest.mark.parametrize(
    ("cluster", "user", "others"),
    [
        pytest.param({}, {"exec": {"command": "x"}}, {}, id="a plugin"),
        pytest.param({}, {"token": "t", "as": "somebody"}, {}, id="acting as another user"),
        pytest.param({}, {"username": "u", "password": "p"}, {}, id="a password"),
        pytest.param({"server": "host"}, {"token": "t"}, {}, id="no URL"),
        pytest.param({"certificate-authority": "none.pem"}, {"token": "t"}, {}, id="a file that is not there"),
        pytest.param({"certificate-authority-data": "%"}, {"token": "t"}, {}, id="no base64"),
        pytest.param({}, {"token": 7}, {}, id="a number as token"),
        pytest.param({}, {"client-certificate-data": DATA}, {}, id="a certificate without its key"),
        pytest.param({}, {}, {"current-context": "nowhere"}, id="no such context"),
        pytest.param({}, {}, {"users": "none"}, id="no list"),
    ],
)
def test_everything_else_is_left_to_the_package(tmp_path: Path, cluster: Json, user: Json, others: Json) -> None:
    assert plainconfig.read(kubeconfig(tmp_path, cluster, user, **others), None) is None


def test_of_several_files_none_is_chosen(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {}, {"token": "t"})
    assert plainconfig.read_one(f"{path}:{tmp_path / 'none'}", None) is not None
    assert plainconfig.read_one(f"{path}:{tmp_path / 'ca.pem'}", None) is None
