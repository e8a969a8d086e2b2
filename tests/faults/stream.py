"""A watch on its way through the proxy, line by line, with what happens to its events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import orjson

from tests.faults import wire
from tests.faults.play import EVENTS_ONLY, STRIKES, Fault, Play
from tests.faults.request import Request

if TYPE_CHECKING:
    from tests.faults.proxy import Link

_REMEMBERED = 256
"""Events among which an earlier state of an object is looked for."""
_SLOW_PIECES = 10
_ON_EVENTS = EVENTS_ONLY | STRIKES | {Fault.SLOW, Fault.LATENCY}

EXPIRED = orjson.dumps(
    {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410,
        "message": "too old resource version (said by a fault proxy)",
    }
)  # fmt: skip


class Broken(Exception):
    """A fault has ended this connection."""


class Stream:
    """One open watch."""

    def __init__(self, link: Link, request: Request) -> None:
        self._link, self.request = link, request
        #: whole lines, as they were sent by the server
        self._past: deque[bytes] = deque(maxlen=_REMEMBERED)
        #: an event that waits for its successor
        self._held: bytes | None = None
        self._release: asyncio.TimerHandle | None = None
        #: set by a strike: the fault that has ended this stream, and its play
        self.struck: Play | None = None

    async def relay(self, pieces: AsyncIterator[bytes]) -> None:
        """Pass the stream on until the server ends it.

        Raises:
            Broken: a fault has ended it.
        """
        rest = b""
        try:
            async for piece in pieces:
                lines = (rest + piece if rest else piece).split(b"\n")
                rest = lines.pop()
                await self._link.proxy.passing()
                if self._held is None and not self._link.proxy.may_hit(self.request):
                    self._past.extend(lines)
                    await self._send(b"".join(line + b"\n" for line in lines))
                    continue
                for line in lines:
                    await self._event(line + b"\n")
                    self._past.append(line)
            self._let_go()
            await self._send(rest)
            self._link.writer.write(wire.chunk(b""))
        finally:
            if self._release is not None:
                self._release.cancel()

    def strike(self, play: Play) -> None:
        """End or silence the stream now, as the play's fault does."""
        if self.struck is not None:
            return
        self.struck = play
        link = self._link
        match play.fault:
            case Fault.DROP:
                # Half an event must never be taken for a whole one.
                if self._past:
                    link.writer.write(wire.chunk(self._past[-1][: play.after_bytes or len(self._past[-1]) // 2]))
                link.writer.close()
            case Fault.RESET:
                link.reset()
            case Fault.GONE:
                link.writer.write(wire.chunk(b'{"type":"ERROR","object":' + EXPIRED + b"}\n") + wire.chunk(b""))
                link.writer.close()
            case Fault.HANG:
                link.after(play, link.writer.close)
        if play.fault is not Fault.HANG:
            link.forget_upstream()

    async def _event(self, line: bytes) -> None:
        play = self._link.proxy.draw(self.request, _ON_EVENTS)
        if play is None:
            await self._send_in_turn(line)
        elif play.fault in STRIKES:
            self.strike(play)
            raise Broken(play.fault)
        else:
            await self._alter(line, play)

    async def _alter(self, line: bytes, play: Play) -> None:
        match play.fault:
            case Fault.DUPLICATE:
                await self._send_in_turn(line + line)
            case Fault.STALE:
                earlier = self._earlier(line)
                if earlier is None:
                    self._link.proxy.missed(play)
                await self._send_in_turn(line if earlier is None else line + earlier)
            case Fault.REORDER if self._held is None:
                self._held = line
                # An event that nothing follows is not held back for ever; that is no hit then.
                self._release = asyncio.get_running_loop().call_later(
                    1.0 if play.seconds is None else play.seconds, self._let_go, play
                )
            case Fault.LATENCY:
                await asyncio.sleep(0.2 if play.seconds is None else play.seconds)
                await self._send_in_turn(line)
            case Fault.SLOW:
                self._let_go()
                size = max(1, len(line) // _SLOW_PIECES)
                for start in range(0, len(line), size):
                    await self._send(line[start : start + size])
                    await asyncio.sleep((2.0 if play.seconds is None else play.seconds) / _SLOW_PIECES)
            case _:
                self._link.proxy.missed(play)
                await self._send_in_turn(line)

    async def _send_in_turn(self, data: bytes) -> None:
        held, self._held = self._held, None
        await self._send(data if held is None else data + held)

    def _let_go(self, play: Play | None = None) -> None:
        held, self._held = self._held, None
        if held is not None and self.struck is None and not self._link.writer.is_closing():
            self._link.writer.write(wire.chunk(held))
            if play is not None:
                self._link.proxy.missed(play)

    async def _send(self, data: bytes) -> None:
        if self.struck is not None:
            raise Broken(self.struck.fault)
        # An empty chunk would end the stream.
        if data:
            self._link.writer.write(wire.chunk(data))
            await self._link.writer.drain()

    def _earlier(self, line: bytes) -> bytes | None:
        """An event before this one about the same object in another state."""
        uid, version = _state(line)
        if not uid:
            return None
        for past in reversed(self._past):
            other = _state(past)
            if other[0] == uid and other[1] != version:
                return past + b"\n"
        return None


def _state(line: bytes) -> tuple[str, str]:
    """UID and resourceVersion of an event's object; empty for a bookmark."""
    event: dict[str, Any] = orjson.loads(line)
    metadata = event["object"].get("metadata") or {}
    return metadata.get("uid") or "", metadata.get("resourceVersion") or ""
