"""An agent that answers the dispatcher's tunnel."""

from __future__ import annotations

import aiohttp

from atoll.model import tunnel
from atoll.model.tunnel import Answer, Ask


class Agent:
    """Of one member: the test says what it answers."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def asked(self) -> Ask:
        return tunnel.to_ask(await self.socket.receive_str(timeout=5))

    async def say(self, answer: Answer) -> None:
        await self.socket.send_str(tunnel.encode(answer).decode())
