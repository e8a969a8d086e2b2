"""The models of every API, by group, and by kind in `KINDS`."""

from __future__ import annotations

from atoll.api import array, atoll, batch, bus, cluster, flow, override, policy, scheduling, topology, training, work
from atoll.api.base import KINDS, ApiModel, ApiObject, Resource, kind_of

__all__ = [
    "KINDS",
    "ApiModel",
    "ApiObject",
    "Resource",
    "array",
    "atoll",
    "batch",
    "bus",
    "cluster",
    "flow",
    "kind_of",
    "override",
    "policy",
    "scheduling",
    "topology",
    "training",
    "work",
]
