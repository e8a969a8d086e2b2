"""What `atollctl topology` asks a cluster for: nothing that it does not show."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.atollctl import atollctl
from tests.cli.kubeconfigs import kubeconfig

RACKS = "apiVersion: topology.volcano.sh/v1alpha1\nkind: HyperNode\nmetadata: {name: r}\nspec: {tier: 1, members: []}\n"


@contextlib.contextmanager
def cluster(tmp_path: Path) -> Iterator[tuple[Path, list[str]]]:
    """A kubeconfig of a server that has nothing, and the resources that it is asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path.partition("?")[0].rpartition("/")[2])
            body = orjson.dumps({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []})
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    file = tmp_path / "kubeconfig"
    kubeconfig(f"http://127.0.0.1:{server.server_port}", file)
    try:
        yield file, asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        pytest.param(["tree"], {"hypernodes", "nodes", "pods"}, id="tree shows what is free"),
        pytest.param(["check"], {"hypernodes", "nodes"}, id="check"),
        pytest.param(["diff", "-f", "RACKS"], {"hypernodes"}, id="diff"),
        pytest.param(["discover", "--labels", "example.com/rack"], {"hypernodes", "nodes"}, id="discover"),
    ],
)
async def test_it_asks_only_for_what_it_needs(command: list[str], needed: set[str], tmp_path: Path) -> None:
    racks = tmp_path / "racks.yaml"
    racks.write_text(RACKS)
    arguments = [str(racks) if each == "RACKS" else each for each in command]
    with cluster(tmp_path) as (kubeconfig, asked):
        await atollctl("topology", *arguments, "--kubeconfig", str(kubeconfig))
    assert set(asked) == needed
