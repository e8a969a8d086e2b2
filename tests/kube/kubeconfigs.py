"""Kubeconfigs with one server."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def kubeconfig() -> Json:
    """One that is fine."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://member.example:6443"}}],
        "users": [{"name": "u", "user": {"token": "t0ken"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "atoll-system"}}],
    }
