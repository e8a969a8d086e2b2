"""Whether a workload may be divided over members: by its policy, or by annotation `atoll.sh/divided` of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atoll.model import keys


def is_most(text: str) -> bool:
    """Whether this is a number of members, or `any`."""
    return text == "any" or (text.isascii() and text.isdigit() and 0 < len(text) < 6 and int(text) > 0)


def may_divide(placement: Mapping[str, Any], annotations: Mapping[str, str]) -> bool:
    """Whether a workload may have pods in several members at once, as far as that is known before it is placed.

    What has the wrong type says nothing.

    Args:
        placement: of its policy.
        annotations: its own.
    """
    said, scheduling = annotations.get(keys.DIVIDED, ""), placement.get("replicaScheduling")
    asked = isinstance(scheduling, dict) and scheduling.get("replicaSchedulingType", "Divided") == "Divided"
    constraints = placement.get("spreadConstraints")
    spread = [each for each in constraints if isinstance(each, dict)] if isinstance(constraints, list) else []
    most = [each.get("maxGroups") for each in spread if (each.get("spreadByField") or "cluster") == "cluster"]
    return (is_most(said) or asked) and said != "1" and 1 not in most
