"""Kubeconfigs of servers that play an API server."""

from __future__ import annotations

import json
from pathlib import Path


def kubeconfig(url: str, file: Path) -> str:
    """Write one with namespace `team` for this server; gives the file's path."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    file.write_text(json.dumps(content))
    return str(file)
