"""A webhook that reads nothing but the UID: what calling any webhook costs, however little it does.

The same HTTP server, the same TLS and the same answers as Atoll's, made once for all reviews; `bench.webhook` sets the
cost of Atoll's webhook against it.
"""

from __future__ import annotations

import argparse
import re
import ssl
import sys
from datetime import UTC, datetime
from pathlib import Path

import orjson
from aiohttp import web

from atoll.admission import jsonpatch
from atoll.kube import authority, certificates
from atoll.local.processes import Process, ProcessSpec, python_path
from atoll.webhook import protocol

_UID = re.compile(rb'"uid":"([0-9a-f-]{36})"')
_PLACEHOLDER = "-" * 36
_CA, _LEAF, _PATCHES = "ca.crt", "leaf.pem", "patches.json"


def prepare(directory: Path, port: int, patches: dict[int, list[jsonpatch.Operation]]) -> tuple[Process, bytes]:
    """The process, not started yet, and the CA (PEM) that it can be reached with.

    Args:
        directory: for its files.
        port: to listen on, of 127.0.0.1.
        patches: what it answers a mutation with, by the size of the object in kB.
    """
    directory.mkdir(parents=True)
    now = datetime.now(UTC)
    signer = authority.make_signer(now)
    leaf = certificates.issue(signer, ["127.0.0.1"], now)
    (directory / _CA).write_bytes(signer.certificate)
    (directory / _LEAF).write_bytes(leaf.key + leaf.chain)
    (directory / _PATCHES).write_bytes(orjson.dumps(patches, option=orjson.OPT_NON_STR_KEYS))
    argv = [sys.executable, "-m", "bench.bare", str(directory), str(port)]
    url = f"https://127.0.0.1:{port}/readyz"
    spec = ProcessSpec("bare-webhook", argv, {"PYTHONPATH": python_path()}, url, ready_ca=directory / _CA)
    return Process(spec, directory / "bare-webhook.log"), signer.certificate


def _application(patches: dict[str, list[jsonpatch.Operation]]) -> web.Application:
    allowed = _halves(protocol.encode(_PLACEHOLDER))
    patched = {int(size): _halves(protocol.encode(_PLACEHOLDER, patch=patch)) for size, patch in patches.items()}

    async def review(request: web.Request) -> web.Response:
        body = await request.read()
        before, after = allowed
        if request.path.startswith("/mutate/"):
            before, after = patched[min(patched, key=lambda size: abs(size * 1000 - len(body)))]
        found = _UID.search(body)
        uid = found[1] if found else b""
        return web.Response(body=before + uid + after, content_type="application/json")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = web.Application(client_max_size=8 * 2**20)
    app.router.add_get("/readyz", readyz)
    app.router.add_post("/{act}/{kind}", review)
    return app


def _halves(answer: bytes) -> tuple[bytes, bytes]:
    before, _, after = answer.partition(_PLACEHOLDER.encode())
    return before, after


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(prog="python -m bench.bare", description=__doc__)
    parser.add_argument("directory", type=Path, help="what `prepare` wrote")
    parser.add_argument("port", type=int)
    chosen = parser.parse_args()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(chosen.directory / _LEAF)
    app = _application(orjson.loads((chosen.directory / _PATCHES).read_bytes()))
    web.run_app(app, host="127.0.0.1", port=chosen.port, ssl_context=tls, access_log=None, print=None)


if __name__ == "__main__":
    main()
