"""`python -m tests.kube.connect_proxy PORT LOG`: an HTTP proxy on loopback that writes each target of a CONNECT to LOG.

Every name leads to this machine, so that a name which nobody else knows is reached through the proxy alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path


async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()


async def serve(port: int, log: Path) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, _ = (await reader.readline()).decode().split()
        while (await reader.readline()).strip():
            pass
        with log.open("a") as file:
            file.write(f"{method} {target}\n")
        there, back = await asyncio.open_connection("127.0.0.1", int(target.rpartition(":")[2]))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, back), pump(there, writer))

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
