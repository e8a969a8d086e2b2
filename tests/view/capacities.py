"""Capacity of a member."""

from __future__ import annotations

from typing import Any

from atoll.model import keys

Json = dict[str, Any]

GPU = "nvidia.com/gpu"


def capacity(**spec: Any) -> Json:
    return {
        "metadata": {"name": "top", "namespace": keys.execution_namespace("east")},
        "spec": {
            "cluster": "east",
            "generation": 1,
            "root": "",
            "objects": 1,
            "total": {GPU: 32, "cpu": 64000},
            **spec,
        },
    }


def three_racks() -> Json:
    return capacity(
        domains=[
            {"name": "block", "tier": 2},
            {"name": "rack-a", "tier": 1, "tierName": "rack", "parent": "block"},
            {"name": "rack-b", "tier": 1, "parent": "block"},
        ],
        profiles=[{"allocatable": {GPU: "8", "cpu": "16"}}],
        classes=[
            {"domain": "rack-a", "profile": 0, "nodes": 2, "free": {GPU: 8}},
            {"domain": "rack-b", "profile": 0, "nodes": 1, "free": {GPU: 3}},
            {"domain": "rack-b", "profile": 0, "nodes": 1, "free": {}},
        ],
    )
