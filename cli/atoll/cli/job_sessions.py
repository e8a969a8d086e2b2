"""`atollctl job exec` and `atollctl job port-forward`: sessions with one pod of a workload, in whichever member it is.

The host's API server decides who may and writes it to its audit log; the agent of the member carries it out, where that
member's administrator allowed it (`atollctl join --allow-exec`).
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import CommandError
from atoll.cli.lookup import binding_of, find
from atoll.cli.options import settings
from atoll.cli.workloads import Name

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

Task = Annotated[str, typer.Option("--task", help="Of this task.")]
Index = Annotated[int | None, typer.Option("--index", min=0, help="With this index in its task.")]
Cluster = Annotated[str, typer.Option("--cluster", help="In this member; needed where pods are in several.")]
_HEARTBEAT = 20.0
_PART = 2**15


def exec_(
    ctx: typer.Context,
    name: Name,
    command: Annotated[list[str], typer.Argument(help="What to run, after `--`.")],
    task: Task = "",
    index: Index = None,
    cluster: Cluster = "",
    container: Annotated[str, typer.Option("--container", "-c", help="Of pods with several containers.")] = "",
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Give it what comes on standard input.")] = False,
) -> None:
    """Run a command in one pod of a job; its exit code is that of the command."""
    from atoll.cli.connection import call

    options = settings(ctx)
    query = [*_pod(task, index, cluster), *(("command", word) for word in command)]
    query += [("container", container)] if container else []
    query += [("stdin", "true")] if stdin else []

    async def work(host: ApiServer) -> int:
        path = await _path(host, name, options.one_namespace, "exec", query)
        return await _run(host, path, query, stdin=stdin)

    if code := call(options, work):
        raise SystemExit(code)


def port_forward(
    ctx: typer.Context,
    name: Name,
    port: Annotated[str, typer.Argument(help="Port of the pod, or LOCAL:PORT.", metavar="[LOCAL:]PORT")],
    task: Task = "",
    index: Index = None,
    cluster: Cluster = "",
    address: Annotated[str, typer.Option("--address", help="Where to listen.")] = "127.0.0.1",
) -> None:
    """Listen on a local port and connect each connection to a port of one pod of a job, until interrupted."""
    from atoll.cli.connection import call

    local, _, remote = port.rpartition(":")
    numbers = [text for text in (local or remote, remote) if text.isascii() and text.isdigit() and int(text) < 65536]
    if len(numbers) != 2 or int(remote) == 0:
        raise CommandError(f"{port!r} is no port; use PORT or LOCAL:PORT, each at most 65535", 2)
    options = settings(ctx)
    query = [*_pod(task, index, cluster), ("port", remote)]

    async def work(host: ApiServer) -> None:
        path = await _path(host, name, options.one_namespace, "portforward", query)
        await _listen(host, path, query, address, int(local or remote), remote)

    with contextlib.suppress(KeyboardInterrupt):
        call(options, work)


def _pod(task: str, index: int | None, cluster: str) -> list[tuple[str, str]]:
    query = [("task", task), ("index", "" if index is None else str(index)), ("cluster", cluster)]
    return [(key, text) for key, text in query if text]


async def _path(host: ApiServer, workload: str, namespace: str, what: str, query: list[tuple[str, str]]) -> str:
    """Where the session is to be had.

    Raises:
        ApiError: it is not, in the words of who refuses it: those of a connection that is refused are not heard.
    """
    from urllib.parse import urlencode

    from atoll.model.apiresource import VERDICTS

    resource, found = await find(host, workload, namespace)
    binding = await binding_of(host, resource, found)
    if binding is None:
        raise CommandError(f"{workload} has no binding yet: it has no pods; `atollctl explain {workload}` says why")
    meta = binding["metadata"]
    path = VERDICTS.path(meta["namespace"], meta["name"], what)
    async for _ in host.stream(VERDICTS, f"{path}?{urlencode(query)}", {}):
        pass
    return path


async def _run(host: ApiServer, path: str, query: list[tuple[str, str]], *, stdin: bool) -> int:
    async with host.websocket(path, heartbeat=_HEARTBEAT, params=query) as socket:
        giving = asyncio.ensure_future(_give_stdin(socket)) if stdin else None
        try:
            return await _take(socket, lambda stream, data: _print(sys.stderr if stream == 2 else sys.stdout, data))
        finally:
            if giving is not None:
                giving.cancel()


def _print(stream: Any, data: bytes) -> None:
    stream.buffer.write(data)
    stream.buffer.flush()


async def _give_stdin(socket: Any) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while data := await reader.read(_PART):
        await socket.send_bytes(b"\x00" + data)
    await socket.send_bytes(b"\xff")


async def _take(socket: Any, show: Callable[[int, bytes], None]) -> int:
    """Show what comes; the exit code.

    Raises:
        CommandError: there is none.
    """
    import msgspec

    async for message in socket:
        stream, data = message.data[0], message.data[1:]
        if stream != 3:
            show(stream, data)
            continue
        end = msgspec.json.decode(data)
        if end["error"]:
            raise CommandError(end["error"])
        return int(end["code"])
    raise CommandError("the connection to the host broke; the command may still run")


async def _listen(
    host: ApiServer, path: str, query: list[tuple[str, str]], address: str, local: int, remote: str
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from atoll.kube.errors import ApiError

        try:
            async with host.websocket(path, heartbeat=_HEARTBEAT, params=query) as socket:

                async def give() -> None:
                    while data := await reader.read(_PART):
                        await socket.send_bytes(b"\x00" + data)
                    await socket.send_bytes(b"\xff")

                giving = asyncio.ensure_future(give())
                try:
                    await _take(socket, lambda _, data: writer.write(data))
                finally:
                    giving.cancel()
        except (ApiError, CommandError, OSError) as error:
            print(f"connection ended: {error}", file=sys.stderr)
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(serve, address, local)
    except OSError as error:
        raise CommandError(f"{address}:{local} can't be listened on: {error.strerror}; choose LOCAL:PORT") from error
    at = server.sockets[0].getsockname()[1]
    print(f"Forwarding from {address}:{at} to {remote}", flush=True)
    async with server:
        await server.serve_forever()
