"""When tokens of accounts expire, and tokens of anything else."""

from __future__ import annotations

import base64
import re
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import pytest
import yaml
from prometheus_client import generate_latest

from atoll.kube import token_renewal
from atoll.kube.process import Process
from atoll.kube.settings import ProcessSettings
from atoll.kube.transport import ApiServer


def made(expires: float) -> str:
    """A token of an account."""
    claims = {"sub": "system:serviceaccount:atoll-system:atoll-control", "iat": 1e9, "exp": expires}
    return f"head.{base64.urlsafe_b64encode(orjson.dumps(claims)).decode().rstrip('=')}.signature"


@pytest.mark.parametrize("token", ["", "opaque", "a.b.c", "a." + base64.b64encode(orjson.dumps({"sub": "x"})).decode()])
def test_what_is_no_token_of_an_account_is_left_alone(token: str) -> None:
    assert token_renewal.claims_of(token) is None


def kubeconfig(token: str) -> str:
    return yaml.safe_dump({"users": [{"name": "u", "user": {"token": token}}]})


@pytest.mark.parametrize(
    ("text", "expires"),
    [
        pytest.param(kubeconfig(made(2e9)), 2e9, id="token of an account"),
        pytest.param(kubeconfig("opaque"), 0.0, id="another token"),
        pytest.param("users: [", 0.0, id="no YAML"),
        pytest.param(None, 0.0, id="no file"),
    ],
)
async def test_a_process_shows_when_the_token_in_its_file_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, expires: float
) -> None:
    file = tmp_path / "host.kubeconfig"
    if text is not None:
        file.write_text(text, "utf-8")
    process = Process("control")

    async def client(*_: object, **__: object) -> AsyncExitStack:
        stack = AsyncExitStack()
        stack.close = stack.aclose  # type: ignore[attr-defined]
        return stack

    monkeypatch.setattr(ApiServer, "from_kubeconfig", client)
    async with process.stack:
        await process.connect(ProcessSettings(kubeconfig=str(file)))
        shown = generate_latest(process.metrics).decode()
    process.discard()
    [found] = re.findall(r'^atoll_token_expiry_timestamp_seconds\{cluster="host"\} (\S+)$', shown, re.M)
    assert float(found) == expires
