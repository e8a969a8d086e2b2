"""A kubeconfig of any content is a connection or a BadKubeconfig, whether it comes from a Secret or from a file."""

from __future__ import annotations

import asyncio
import base64
import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll.kube import config
from atoll.kube.config import BadKubeconfig, Connection
from atoll.kube.secretconfig import from_secret
from tests.fuzz import examples
from tests.kube.kubeconfigs import kubeconfig

Json = dict[str, Any]

WORDS = [
    "token", "tokenFile", "exec", "auth-provider", "as", "server", "certificate-authority", "username", "password",
    "certificate-authority-data", "client-certificate-data", "client-key-data", "insecure-skip-tls-verify",
    "proxy-url", "tls-server-name", "name", "cluster", "user", "context", "current-context", "extensions",
]  # fmt: skip
# No absolute path and no program: what is loaded from a file may read and run them.
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["c", "u", "https://m"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A good kubeconfig in which some values, anywhere, are others."""
    made: Any = copy.deepcopy(kubeconfig())
    holder: Any
    key: Any
    for _ in range(draw(st.integers(1, 3))):
        holder, key = None, None
        node = made
        while isinstance(node, dict | list) and node and (holder is None or draw(st.booleans())):
            holder = node
            key = draw(st.sampled_from(sorted(node, key=str) if isinstance(node, dict) else range(len(node))))
            node = node[key]
        if holder is not None:
            if isinstance(holder, dict) and draw(st.booleans()):
                key = draw(st.sampled_from(WORDS))
            holder[key] = draw(VALUES)
    return made


def judged(read: Any) -> None:
    try:
        connection = read()
    except BadKubeconfig:
        return
    assert isinstance(connection, Connection)
    assert connection.url.startswith("http")


def in_secret(text: bytes) -> None:
    data = {"kubeconfig": base64.b64encode(text).decode()}
    judged(lambda: from_secret(data, "Secret a/b"))


@given(mutated() | VALUES)
@settings(max_examples=examples(40, share=0.1))
def test_mutated_in_a_secret(content: Any) -> None:
    in_secret(yaml.safe_dump(content).encode())


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@settings(max_examples=examples(30, share=0.1))
def test_any_bytes_in_a_secret(text: bytes) -> None:
    in_secret(text)


@given(st.data())
@settings(max_examples=examples(30, share=0.1))
def test_text_with_bytes_changed_in_a_secret(data: st.DataObject) -> None:
    text = bytearray(yaml.safe_dump(kubeconfig()).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 6))] = data.draw(
            st.binary(max_size=6) | st.sampled_from([b": ", b"- ", b"&a", b"*a"])
        )
    in_secret(bytes(text))


@given(
    st.dictionaries(st.sampled_from(["token", "caBundle", "kubeconfig"]), st.text(max_size=20)),
    st.text(max_size=20) | st.just("https://m"),
)
@settings(max_examples=examples(30, share=0.1))
def test_any_secret(data: dict[str, str], endpoint: str) -> None:
    judged(lambda: from_secret(data, "Secret a/b", endpoint=endpoint))


@given(mutated() | VALUES)
@settings(max_examples=examples(30, share=0.1), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_mutated_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Any) -> None:
    monkeypatch.setattr("atoll.kube.packageconfig.ExecProvider", _NoProgram)
    monkeypatch.setattr("kubernetes.aio.config.kube_config.ExecProvider", _NoProgram)
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    judged(lambda: asyncio.run(config.load(file)))


class _NoProgram:
    """Stands for a plugin, so that no random words are run as a program."""

    def __init__(self, _: object) -> None: ...

    async def run(self) -> None:
        raise RuntimeError("programs are not run here")
