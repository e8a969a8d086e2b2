"""What the binding of a workload is called: Karmada's rule, which control follows and readers rely on."""

from __future__ import annotations

import hashlib

from atoll.model.apiresource import ApiResource


def binding_names(resource: ApiResource, name: str) -> tuple[str, str]:
    """The binding's name, and the one to use when another kind of that name has it.

    Args:
        resource: of the workload.
        name: of the workload.
    """
    plain = f"{name}-{resource.kind}".lower()
    return plain, f"{plain}-{hashlib.sha256(resource.group.encode()).hexdigest()[:8]}"
