"""Which namespaces are never opted in: one rule for the detector, the webhook and the admission policies; and how a
member says that one is its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from atoll.model import keys
from atoll.model.apiresource import (
    CLAIMS,
    LIMIT_RANGES,
    NETWORK_POLICIES,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    ApiResource,
)

NAMES: Final = (keys.SYSTEM_NAMESPACE, "karmada-cluster", "karmada-system")
"""System namespaces by name."""
PREFIXES: Final = (keys.EXECUTION_PREFIX, "kube-")
"""Beginnings of the names of all others: execution namespaces, and what Kubernetes keeps for itself."""

NOT_ACCEPTED: Final = "exists there and was not made by Atoll"
"""What an agent says of a namespace of its member that nothing from the host may enter."""

PROPAGATED: Final = {each.plural: each for each in (LIMIT_RANGES, RESOURCE_QUOTAS, NETWORK_POLICIES)}
"""Rules that annotation `atoll.sh/propagate` of a namespace may name."""


def propagated(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The kinds of rules that a namespace hands on to members, by their plurals; unknown ones are left out."""
    asked = _asked(annotations)
    return tuple(plural for plural in PROPAGATED if plural in asked)


HANDED_ON: Final = (SECRETS, CLAIMS, SERVICE_ACCOUNTS)
"""What workloads refer to that goes to members only where annotation `atoll.sh/propagate` of their namespace names it;
of ServiceAccounts the name goes anyway.
"""


def handed_on(annotations: Mapping[str, str]) -> frozenset[ApiResource]:
    """What of `HANDED_ON` a namespace of the host lets go to members."""
    asked = _asked(annotations)
    return frozenset(each for each in HANDED_ON if each.plural in asked)


def _asked(annotations: Mapping[str, str]) -> set[str]:
    return {each.strip() for each in annotations.get(keys.PROPAGATE, "").split(",")}


ALL: Final = "true"
"""Value of label `atoll.sh/enabled` with which all workloads of a namespace are Atoll's."""
LABELLED: Final = "labelled"
"""Its value with which only those are that name a queue in their metadata: the rest is the host's."""


def opted_in(labels: Mapping[str, str]) -> bool:
    """Whether the labels of a namespace opt it in, with all of its workloads or with those that name a queue."""
    return labels.get(keys.ENABLED) in (ALL, LABELLED)


def needs_queues(labels: Mapping[str, str]) -> bool:
    """Whether only what names a queue is Atoll's in a namespace with these labels."""
    return labels.get(keys.ENABLED) == LABELLED


def selector(*values: str) -> dict[str, list[dict[str, object]]]:
    """The label selector of namespaces with one of these values; without any, of all that have opted in."""
    return {"matchExpressions": [{"key": keys.ENABLED, "operator": "In", "values": list(values or (ALL, LABELLED))}]}


def lets_work_in(labels: Mapping[str, str]) -> bool:
    """Whether work from the host may enter a namespace of a member: Atoll made it, or its administrator accepts."""
    return "true" in (labels.get(keys.MADE), labels.get(keys.ACCEPT))


def is_system(name: str) -> bool:
    """Whether a namespace belongs to the cluster's own machinery; label `atoll.sh/enabled` has no effect there."""
    return name in NAMES or name.startswith(PREFIXES)


def system_rule(name: str) -> str:
    """`is_system` as a CEL expression; `name` is the expression of the namespace's name."""
    prefixes = "".join(f" || {name}.startsWith({json.dumps(prefix)})" for prefix in PREFIXES)
    return f"({name} in {json.dumps(NAMES)}{prefixes})"
