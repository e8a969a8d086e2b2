"""Output of pods, read for users of the host."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.agent import tunnel
from atoll.agent.objects import Pod
from atoll.agent.tunnel import Tunnel
from atoll.kube import errors
from atoll.model.objects import Meta
from atoll.model.tunnel import Answer, Wanted


@pytest.mark.parametrize(
    ("readable", "error", "lines"),
    [
        pytest.param((), True, [], id="no pod has any: an error, and nothing of a log"),
        pytest.param(("a-0",), False, ["[a-1] (Config not found)\n"], id="one has: the others say why not"),
    ],
)
async def test_output_that_no_pod_has_is_an_error(
    monkeypatch: pytest.MonkeyPatch, readable: tuple[str, ...], error: bool, lines: list[str]
) -> None:
    pods = [Pod(metadata=Meta(name=name, namespace="n", uid=name)) for name in ("a-0", "a-1")]
    sent: list[str] = []

    async def copy(_self: Any, _socket: Any, _number: int, pod: Pod, _wanted: Wanted, **_: Any) -> None:
        if pod.metadata.name not in readable:
            raise errors.NotFound("GET: Config not found", said="Config not found")

    async def send(_socket: Any, answer: Answer) -> None:
        sent.append(answer.text)

    monkeypatch.setattr(Tunnel, "_copy", copy)
    monkeypatch.setattr(tunnel, "send", send)
    monkeypatch.setattr(tunnel, "chosen", lambda *_: pods)
    agent = Tunnel(None, None, "m", lambda _: pods)  # type: ignore[arg-type]
    said = await agent.read(None, 1, Wanted("n", "uid"))  # type: ignore[arg-type]
    assert ("simulated nodes have none" in said, sent) == (error, lines)
