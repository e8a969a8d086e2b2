"""Sessions of users of the host with one pod of a member: a command in it, or a connection to a port.

The agent has the right to that only where the member's administrator chose so (`atollctl join --allow-exec`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import aiohttp
import msgspec

from atoll.agent.jobs.state import index_of
from atoll.agent.objects import Pod
from atoll.agent.settings import TunnelSettings
from atoll.kube.transport import ApiServer
from atoll.model import tunnel
from atoll.model.apiresource import PODS, SELF_REVIEWS
from atoll.model.tunnel import Answer, Session, Wanted

_EXEC, _FORWARD = "v5.channel.k8s.io", "v4.channel.k8s.io"
"""Subprotocols of Kubernetes: the first byte of a message is its channel."""
_STDIN, _STDOUT, _STDERR, _STATUS, _CLOSE = 0, 1, 2, 3, 255
_BEHIND = 64
"""Messages of input that wait for a slow pod."""


class NoSession(Exception):
    """There is none, or it broke; says why."""


class Sessions:
    """Open sessions."""

    def __init__(self, member: ApiServer, pods: Callable[[str], Iterable[Pod]], settings: TunnelSettings) -> None:
        """No I/O happens here."""
        self._member, self._pods, self._settings = member, pods, settings
        #: number -> input that is still to be passed on; None is its end
        self._inputs: dict[int, asyncio.Queue[bytes | None]] = {}

    def expect(self, number: int) -> None:
        """Input of this session may come from now on."""
        self._inputs[number] = asyncio.Queue(_BEHIND)

    def give(self, number: int, data: bytes) -> None:
        """Input of a session; empty for its end. Excess input is dropped, and the session ends."""
        queue = self._inputs.get(number)
        if queue is None:
            return
        if queue.full():
            queue.get_nowait()
            data = b""
        queue.put_nowait(data or None)

    def forget(self, number: int) -> None:
        """It is over."""
        self._inputs.pop(number, None)

    async def hold(self, socket: aiohttp.ClientWebSocketResponse, number: int, session: Session) -> int:
        """Pass on what both sides say until the pod ends it; the exit code of its command.

        Raises:
            NoSession: it can't be had.
            ApiError: the member refused.
        """
        pod = self._pod(session)
        sub = "portforward" if session.port else "exec"
        if not await self._may(sub, session.namespace):
            text = f"its administrator does not allow {sub}: `atollctl join --allow-exec` gives its agent the right"
            raise NoSession(text)
        params = [("ports", str(session.port))]
        if not session.port:
            params = [("command", word) for word in session.command]
            params += [("stdout", "true"), ("stderr", "true"), *([("stdin", "true")] if session.stdin else [])]
            params += [("container", session.container)] if session.container else []
        path = PODS.path(pod.metadata.namespace, pod.metadata.name, sub)
        protocol = _FORWARD if session.port else _EXEC
        async with self._member.websocket(
            path, heartbeat=self._settings.heartbeat, params=params, protocols=[protocol]
        ) as there:
            await send(socket, Answer(number, began=True))
            giving = asyncio.ensure_future(self._pass_input(there, number, session))
            try:
                return await self._pass_output(socket, there, number, session)
            finally:
                giving.cancel()

    def _pod(self, session: Session) -> Pod:
        found = [pod for pod in chosen(session, self._pods(session.binding)) if not pod.finished]
        if not found:
            raise NoSession("it has no such pod that runs")
        if len(found) > 1:
            names = ", ".join(pod.metadata.name for pod in found[:5]) + (", ..." if len(found) > 5 else "")
            raise NoSession(f"it has {len(found)} such pods ({names}): choose one by task and index")
        return found[0]

    async def _may(self, sub: str, namespace: str) -> bool:
        """Asked before, so that no refusal of the member's API server is a riddle."""
        what = {"verb": "create", "group": "", "resource": PODS.plural, "subresource": sub, "namespace": namespace}
        head: dict[str, Any] = {"apiVersion": SELF_REVIEWS.api_version, "kind": SELF_REVIEWS.kind, "metadata": {}}
        answer = await self._member.create(SELF_REVIEWS, {**head, "spec": {"resourceAttributes": what}})
        return bool(answer["status"]["allowed"])

    async def _pass_input(self, there: aiohttp.ClientWebSocketResponse, number: int, session: Session) -> None:
        queue = self._inputs[number]
        with contextlib.suppress(OSError, aiohttp.ClientError):
            while (data := await queue.get()) is not None:
                await there.send_bytes(bytes([_STDIN]) + data)
            if session.port:
                # A stream of this protocol has no end of one side alone.
                await there.close()
            else:
                await there.send_bytes(bytes([_CLOSE, _STDIN]))

    async def _pass_output(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        there: aiohttp.ClientWebSocketResponse,
        number: int,
        session: Session,
    ) -> int:
        heads = {0, 1} if session.port else set[int]()
        async for message in there:
            if message.type != aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel in heads:
                # The first message of each channel of a port names that port.
                heads.discard(channel)
                data = data[2:]
            if session.port and channel == 1 and data:
                raise NoSession(data.decode(errors="replace").strip())
            if not session.port and channel == _STATUS:
                return _exit_code(data)
            if channel in ((0,) if session.port else (_STDOUT, _STDERR)):
                await self._tell(socket, number, data, channel if not session.port else _STDOUT)
        if session.port:
            return 0
        raise NoSession("the connection to the pod broke")

    async def _tell(self, socket: aiohttp.ClientWebSocketResponse, number: int, data: bytes, stream: int) -> None:
        for begin in range(0, len(data), tunnel.CHUNK):
            part = data[begin : begin + tunnel.CHUNK]
            await send(socket, Answer(number, data=part, stream=stream))
            await asyncio.sleep(len(part) / self._settings.rate)


def _exit_code(data: bytes) -> int:
    """Of the status with which a command ends.

    Raises:
        NoSession: it could not be run.
    """
    try:
        status = msgspec.json.decode(data)
    except msgspec.MsgspecError as error:
        raise NoSession("the member says what is no status") from error
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or ()
    if status.get("reason") == "NonZeroExitCode" and causes:
        return int(causes[0]["message"])
    raise NoSession(str(status.get("message") or "it could not be run"))


def chosen(wanted: Wanted | Session, pods: Iterable[Pod]) -> list[Pod]:
    """Requested pods of a binding that have a node, in the order of task and index."""
    found = [
        pod
        for pod in pods
        if pod.node
        and pod.metadata.namespace == wanted.namespace
        and wanted.task in ("", pod.task)
        and wanted.index in (-1, index_of(pod.metadata.name))
    ]
    return sorted(found, key=lambda pod: (pod.task, index_of(pod.metadata.name), pod.metadata.name))


async def send(socket: aiohttp.ClientWebSocketResponse, answer: Answer) -> None:
    """Over the connection to the host."""
    await socket.send_str(tunnel.encode(answer).decode())
