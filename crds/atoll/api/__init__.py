"""Every API that Atoll serves, one module per API group, and the CRDs generated from them.

May be imported by every other package; imports nothing of Atoll itself.
What leaves: pydantic models with their place in the API server (`KINDS`, `kind_of`), and
`crdgen.load_crds()` for installers.
"""

from __future__ import annotations

from atoll.api import atoll, batch, bus, cluster, flow, override, policy, scheduling, topology, training, work
from atoll.api.base import KINDS, ApiModel, ApiObject, Resource, kind_of

__all__ = [
    "KINDS",
    "ApiModel",
    "ApiObject",
    "Resource",
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
