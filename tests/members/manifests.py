"""Objects of any kind, brought into a member as its administrator would."""

from __future__ import annotations

import subprocess
import time
from typing import Any

import orjson

from atoll.local.binaries import ensure
from atoll.local.cluster import ClusterHandle


def apply(handle: ClusterHandle, objects: list[dict[str, Any]], *, tries: int = 1) -> None:
    """`kubectl apply`, again each half second where webhooks that are just starting may refuse it. Blocks."""
    kubectl = str(ensure(report=lambda _: None).kubectl)
    items = orjson.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    for left in reversed(range(tries)):
        run = subprocess.run(
            [kubectl, f"--kubeconfig={handle.kubeconfig}", "apply", "--server-side", "--force-conflicts", "-f", "-"],
            input=items,
            capture_output=True,
            check=False,
        )
        if run.returncode == 0:
            return
        if not left:
            raise AssertionError(run.stderr.decode())
        time.sleep(0.5)
