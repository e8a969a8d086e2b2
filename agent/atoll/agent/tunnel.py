"""The agent's outgoing connection to the query API, by which users of the host read output and Events of their pods.

The host never reaches a member; the member's agent keeps a connection open and answers what comes over it, whether it
runs in the member or beside the host. The host has decided before about the right to read: here only pods of the one
binding that is named are read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

import aiohttp
import msgspec
import structlog

from atoll.agent.objects import Pod
from atoll.agent.sessions import NoSession, Sessions, chosen, send
from atoll.agent.settings import TunnelSettings
from atoll.kube import errors
from atoll.kube.backoff import pause
from atoll.kube.transport import ApiServer
from atoll.model import tunnel
from atoll.model.apiresource import EVENTS, PODS, TUNNELS
from atoll.model.tunnel import Answer, Session, Wanted

_BROKEN = (OSError, aiohttp.ClientError)
"""What the connection to the host ends with."""
_UNREADABLE = "no output of its pods can be read: simulated nodes have none, and the kubelets of others must answer"

log = structlog.get_logger(__name__)


class Tunnel:
    """One agent's end."""

    def __init__(
        self,
        host: ApiServer,
        member: ApiServer,
        cluster: str,
        pods: Callable[[str], Iterable[Pod]],
        domain: Callable[[str], str],
        *,
        settings: TunnelSettings = TunnelSettings(),
    ) -> None:
        """No I/O happens here.

        Args:
            host: whose query API is connected to.
            member: whose pods are read.
            cluster: its name on the host.
            pods: pods of a binding's UID.
            domain: lowest topology domain of a node, by their names; empty where it has none.
            settings: times and bounds.
        """
        self._host, self._member, self._pods, self._settings = host, member, pods, settings
        self._domain = domain
        self._cluster = cluster
        self._path = TUNNELS.path(name=cluster, subresource=tunnel.SUBRESOURCE)
        self._sessions = Sessions(member, pods, self._settings)
        #: number -> who answers it
        self._answering: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Keep the connection until cancelled: the dispatcher that leads changes, and may be of an older version."""
        failures, said = 0, ""
        while True:
            try:
                async with self._host.websocket(self._path, heartbeat=self._settings.heartbeat) as socket:
                    failures, said = 0, ""
                    await self._serve(socket)
            except (errors.ApiError, msgspec.MsgspecError, *_BROKEN) as error:
                if str(error) != said:
                    log.info("users can't read logs of this member", error=str(error))
                said = str(error)
            except Exception:
                # A defect of ours here is no reason to place nothing.
                log.exception("users can't read logs of this member")
            failures += 1
            await asyncio.sleep(pause(self._settings.again, failures, self._settings.longest_again))

    async def _serve(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async with asyncio.TaskGroup() as tasks:
            try:
                async for message in socket:
                    if message.type == aiohttp.WSMsgType.TEXT:
                        ask = tunnel.to_ask(message.data)
                        if ask.data or ask.end:
                            self._sessions.give(ask.number, ask.data)
                            continue
                        running = self._answering.pop(ask.number, None)
                        if running is not None:
                            running.cancel()
                        asked = ask.wanted or ask.session
                        if asked is not None:
                            if isinstance(asked, Session):
                                self._sessions.expect(ask.number)
                            task = tasks.create_task(self._answer(socket, ask.number, asked))
                            self._answering[ask.number] = task
            finally:
                for task in self._answering.values():
                    task.cancel()
                self._answering.clear()

    async def _answer(self, socket: aiohttp.ClientWebSocketResponse, number: int, wanted: Wanted | Session) -> None:
        error, code = "", 0
        try:
            if len(self._answering) > self._settings.streams:
                error = f"{self._settings.streams} logs are read there already; try again"
            elif isinstance(wanted, Session):
                code = await self._sessions.hold(socket, number, wanted)
            else:
                error = await self.read(socket, number, wanted)
        except NoSession as refusal:
            error = str(refusal)
        except errors.ApiError as refusal:
            error = refusal.said
        except _BROKEN:
            # With the connection went who asked.
            return
        finally:
            self._answering.pop(number, None)
            self._sessions.forget(number)
        with contextlib.suppress(*_BROKEN):
            await send(socket, Answer(number, end=True, error=error, code=code))

    async def read(self, socket: aiohttp.ClientWebSocketResponse, number: int, wanted: Wanted) -> str:
        """Why there is nothing to read; empty once all is sent."""
        if wanted.events:
            return await self._tell(socket, number, wanted)
        if wanted.pods:
            return await self._name(socket, number, wanted)
        pods = chosen(wanted, self._pods(wanted.binding))
        if not pods:
            return "it has no such pod, or none that has a node"
        several = len(pods) > 1
        if wanted.follow:
            if len(pods) > self._settings.streams:
                text = (
                    f"[the first {self._settings.streams} of {len(pods)} pods are followed; choose by task and index]\n"
                )
                await send(socket, Answer(number, text))
                pods = pods[: self._settings.streams]
            async with asyncio.TaskGroup() as tasks:
                for pod in pods:
                    tasks.create_task(self._follow(socket, number, pod, wanted, named=several))
            return ""
        refused: list[tuple[Pod, str]] = []
        for pod in pods:
            try:
                await self._copy(socket, number, pod, wanted, named=several, most=wanted.most // len(pods))
            except errors.ApiError as refusal:
                refused.append((pod, refusal.said))
        if len(refused) == len(pods):
            return f"{_UNREADABLE} ({refused[0][1]})"
        for pod, why in refused:
            # Of one among many that has not begun, the others' output is still wanted.
            await send(socket, Answer(number, f"[{pod.metadata.name}] ({why})\n"))
        return ""

    async def _tell(self, socket: aiohttp.ClientWebSocketResponse, number: int, wanted: Wanted) -> str:
        """Send the Events of the binding's pods, and of what owns them, the newest if they are too many."""
        pods = [pod for pod in self._pods(wanted.binding) if pod.metadata.namespace == wanted.namespace]
        about = {pod.metadata.uid for pod in pods} | {pod.metadata.controller_uid for pod in pods} - {""}
        lines: list[bytes] = []
        async for page in self._member.pages(EVENTS, wanted.namespace):
            for raw in page.items:
                event = msgspec.json.decode(raw)
                if (event.get("regarding") or {}).get("uid") in about:
                    lines.append(msgspec.json.encode({"cluster": self._cluster, **event}) + b"\n")
        left = wanted.most
        for line in reversed(lines):
            left -= len(line)
            if left < 0 or len(line) > tunnel.CHUNK:
                return "it has more Events than are told at once"
            await self._pass_on(socket, number, line)
        return ""

    async def _name(self, socket: aiohttp.ClientWebSocketResponse, number: int, wanted: Wanted) -> str:
        """Send the binding's pods in order of their names, up to `wanted.most` bytes."""
        pods = [pod for pod in self._pods(wanted.binding) if pod.metadata.namespace == wanted.namespace]
        lines, left = b"", wanted.most
        for pod in sorted(pods, key=lambda pod: pod.metadata.name):
            line = msgspec.json.encode({"cluster": self._cluster, **described(pod, self._domain(pod.node))}) + b"\n"
            left -= len(line)
            if left < 0:
                await self._pass_on(socket, number, lines)
                return "it has more pods than are told at once"
            lines += line
        await self._pass_on(socket, number, lines)
        return ""

    async def _follow(
        self, socket: aiohttp.ClientWebSocketResponse, number: int, pod: Pod, wanted: Wanted, *, named: bool
    ) -> None:
        with contextlib.suppress(*_BROKEN):
            try:
                await self._copy(socket, number, pod, wanted, named=named, most=0)
            except errors.ApiError as refusal:
                await send(socket, Answer(number, f"[{pod.metadata.name}] ({refusal.said})\n"))

    async def _copy(
        self, socket: aiohttp.ClientWebSocketResponse, number: int, pod: Pod, wanted: Wanted, *, named: bool, most: int
    ) -> None:
        """Send whole lines, with the pod's name where there are several; never faster than the settings say."""
        path = PODS.path(pod.metadata.namespace, pod.metadata.name, "log")
        params = {"tailLines": str(wanted.tail)}
        params |= {"limitBytes": str(most)} if most else {}
        params |= {"container": wanted.container} if wanted.container else {}
        params |= {"follow": "true"} if wanted.follow else {}
        params |= {"previous": "true"} if wanted.previous else {}
        head = f"[{pod.metadata.name}] ".encode() if named else b""
        rest = b""
        async for chunk in self._member.stream(PODS, path, params):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > tunnel.CHUNK:
                lines, rest = [*lines, rest], b""
            await self._pass_on(socket, number, b"".join(head + line + b"\n" for line in lines))
        if rest:
            await self._pass_on(socket, number, head + rest + b"\n")

    async def _pass_on(self, socket: aiohttp.ClientWebSocketResponse, number: int, text: bytes) -> None:
        for begin in range(0, len(text), tunnel.CHUNK):
            part = text[begin : begin + tunnel.CHUNK]
            await send(socket, Answer(number, part.decode(errors="replace")))
            await asyncio.sleep(len(part) / self._settings.rate)


def described(pod: Pod, domain: str) -> dict[str, str | int]:
    """A pod for users of the host: `pod`, `node`, `domain`, `state`, `restarts` and `reason`, empty where there is
    none.
    """
    reason = pod.failure or pod.reason
    if not reason and pod.phase == "Pending":
        found = pod.starting if pod.node else None
        reason = found.reason if found is not None else ": ".join(pod.unscheduled or ())
    return {
        "pod": pod.metadata.name,
        "node": pod.node,
        "domain": domain,
        "state": "Terminating" if pod.terminating else pod.phase,
        "restarts": pod.restarts,
        "reason": reason,
    }
