"""Which namespaces are never opted in: one rule for the detector, the webhook and the admission policies."""

from __future__ import annotations

import json
from typing import Final

from atoll.model import keys

NAMES: Final = (keys.SYSTEM_NAMESPACE, "karmada-cluster", "karmada-system")
"""System namespaces by name."""
PREFIXES: Final = (keys.EXECUTION_PREFIX, "kube-")
"""Beginnings of the names of all others: execution namespaces, and what Kubernetes keeps for itself."""


def is_system(name: str) -> bool:
    """Whether a namespace belongs to the cluster's own machinery; label `atoll.sh/enabled` has no effect there."""
    return name in NAMES or name.startswith(PREFIXES)


def system_rule(name: str) -> str:
    """`is_system` as a CEL expression; `name` is the expression of the namespace's name."""
    prefixes = "".join(f" || {name}.startsWith({json.dumps(prefix)})" for prefix in PREFIXES)
    return f"({name} in {json.dumps(NAMES)}{prefixes})"
