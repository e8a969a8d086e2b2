"""How many objects an agent may make on the host, in the one namespace that is its own."""

from __future__ import annotations

from typing import Any, Final

from atoll.install.credentials import FIELD_MANAGER
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import RESOURCE_QUOTAS

NAME: Final = "atoll-agent"
HARD: Final = {
    # Twice as many as count: objects of a new layout are made before old ones are deleted.
    "count/clustercapacities.atoll.sh": "512",
}
"""The ResourceQuota of an execution namespace: all kinds of which an agent may make objects of any name."""


async def ensure_quota(host: ApiServer, namespace: str) -> None:
    """Make it, or set it right.

    Raises:
        errors.ApiError: the host's answer.
    """
    quota: dict[str, Any] = {
        "apiVersion": RESOURCE_QUOTAS.api_version,
        "kind": RESOURCE_QUOTAS.kind,
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {"hard": HARD},
    }
    made = await host.apply(RESOURCE_QUOTAS, quota, field_manager=FIELD_MANAGER)
    if not (made.get("status") or {}).get("used"):
        # Kubernetes counts a kind that has just been installed half a minute later, and refuses all creates until then.
        begun = {"hard": HARD, "used": dict.fromkeys(HARD, "0")}
        await host.merge_patch(
            RESOURCE_QUOTAS, NAME, {"status": begun}, namespace, subresource="status", field_manager=FIELD_MANAGER
        )
