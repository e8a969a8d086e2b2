"""Places in the queues of API servers (API Priority and Fairness) for Atoll's own requests.

Without them Atoll's accounts share the place of all service accounts: a pod that lists in a loop would cost a leader
its lease, and every queue its decisions. Leases go where the leases of Kubernetes' own controllers go, all else where
these controllers are; both levels are of every API server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from atoll.install.credentials import FIELD_MANAGER, MANAGED_BY
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import FLOW_SCHEMAS

Json = dict[str, Any]
Account = tuple[str, str]
"""Namespace and name of a ServiceAccount; `*` for all of the namespace."""

_LEASES: Final = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}
_ALL: Final = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
#: purpose -> level, place in the order of all schemas, requests
_SCHEMAS: Final = {
    "leases": ("leader-election", 400, _LEASES),
    "controllers": ("workload-high", 800, _ALL),
}
HOST: Final[Account] = (keys.SYSTEM_NAMESPACE, "*")
"""The host's processes."""


def schemas(name: str, accounts: Sequence[Account]) -> list[Json]:
    """The FlowSchemas of these accounts.

    Args:
        name: that theirs begin with.
        accounts: whose requests they are for.
    """
    subjects = [
        {"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": account}}
        for namespace, account in accounts
    ]
    return [
        {
            "apiVersion": FLOW_SCHEMAS.api_version,
            "kind": FLOW_SCHEMAS.kind,
            "metadata": {"name": f"{name}-{what}", "labels": MANAGED_BY},
            "spec": {
                "priorityLevelConfiguration": {"name": level},
                "matchingPrecedence": precedence,
                "distinguisherMethod": {"type": "ByUser"},
                "rules": [
                    {
                        "subjects": subjects,
                        "resourceRules": [{**requests, "namespaces": ["*"], "clusterScope": what != "leases"}],
                    }
                ],
            },
        }
        for what, (level, precedence, requests) in _SCHEMAS.items()
    ]


async def ensure_flows(api: ApiServer, name: str, accounts: Sequence[Account]) -> bool:
    """Create or update them; safe to repeat. Whether the API server has such queues: an administrator may switch them
    off, and nothing is lost then.
    """
    try:
        for schema in schemas(name, accounts):
            await api.apply(FLOW_SCHEMAS, schema, field_manager=FIELD_MANAGER)
    except errors.NotFound:
        return False
    return True


async def remove_flows(api: ApiServer, name: str) -> None:
    """The inverse of `ensure_flows`."""
    for schema in schemas(name, ()):
        try:
            await api.delete(FLOW_SCHEMAS, schema["metadata"]["name"])
        except errors.NotFound:
            return
