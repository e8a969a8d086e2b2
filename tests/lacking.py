"""Rights that Atoll's accounts asked for and did not have, from the audit log of a cluster."""

from __future__ import annotations

from pathlib import Path

from atoll.local import audit
from atoll.model import keys


def lacking(audit_log: Path) -> set[str]:
    """The refusals; admission answers 403 as well, in other words."""
    return {
        event.response_status.message
        for event in audit.read(audit_log)
        if event.user.username.startswith(f"system:serviceaccount:{keys.SYSTEM_NAMESPACE}:")
        and event.response_status.code == 403
        and " cannot " in event.response_status.message
    }
