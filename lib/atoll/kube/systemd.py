"""The protocol of systemd's `Type=notify`: a process says when it is ready, that it lives, and that it stops."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

_PERIOD = 1.0
"""Seconds from one sign of life to the next; the units allow 60."""


def supervises() -> bool:
    """Whether systemd asked for messages."""
    return "NOTIFY_SOCKET" in os.environ


def notify(state: str) -> None:
    """Send one message; without effect where no reader asked for it, or none reads."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            # A leading @ stands for the NUL of an abstract name.
            sender.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
        except OSError:
            # systemd misses the message and acts on that; the process goes on.
            return


async def keep_informed(ready: Callable[[], bool], alive: Callable[[], bool]) -> None:
    """Say READY=1 once, and WATCHDOG=1 again and again for as long as the process is alive; runs until cancelled."""
    told = False
    while True:
        if not told and ready():
            notify("READY=1")
            told = True
        if alive():
            notify("WATCHDOG=1")
        await asyncio.sleep(_PERIOD)
