"""Output of pods, read for users of the host."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.agent import tunnel
from atoll.agent.objects import Pod, Starting
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
    agent = Tunnel(None, None, "m", lambda _: pods, lambda _: "")  # type: ignore[arg-type]
    said = await agent.read(None, 1, Wanted("n", "uid"))  # type: ignore[arg-type]
    assert ("simulated nodes have none" in said, sent) == (error, lines)


async def test_pods_are_told_by_name_with_their_racks_and_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the asked namespace alone, as many as may be told at once."""
    sent: list[str] = []

    async def send(_socket: Any, answer: Answer) -> None:
        sent.append(answer.text)

    def pod(name: str, namespace: str = "n", **fields: Any) -> Pod:
        return Pod(metadata=Meta(name=name, namespace=namespace, uid=name), **fields)

    pods = [
        pod("c", unscheduled=("Unschedulable", "0/3 nodes")),
        pod("b", node="n1", starting=Starting("ImagePullBackOff", "", "")),
        pod("a", node="n0", phase="Running", restarts=2),
        pod("x", namespace="other"),
    ]
    monkeypatch.setattr(tunnel, "send", send)
    agent = Tunnel(None, None, "m", lambda _: pods, {"n0": "rack-0", "n1": "rack-1", "": ""}.__getitem__)  # type: ignore[arg-type]
    assert await agent.read(None, 1, Wanted("n", "uid", pods=True)) == ""  # type: ignore[arg-type]
    told = [msgspec.json.decode(line) for line in "".join(sent).splitlines()]
    assert [tuple(each.values()) for each in told] == [
        ("m", "a", "n0", "rack-0", "Running", 2, ""),
        ("m", "b", "n1", "rack-1", "Pending", 0, "ImagePullBackOff"),
        ("m", "c", "", "", "Pending", 0, "Unschedulable: 0/3 nodes"),
    ]
    sent.clear()
    assert "more pods" in await agent.read(None, 1, Wanted("n", "uid", pods=True, most=200))  # type: ignore[arg-type]
    assert len("".join(sent).splitlines()) == 1
