"""Policies of deschedulers (of Volcano, Koordinator, Kubernetes): nothing in Atoll reads them, which is said."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

NAMESPACES: Final = ("volcano-system", "koordinator-system", "kube-system")
"""Where they usually are."""
_POLICY = re.compile(r"^\s*[\"']?apiVersion[\"']?:\s*[\"']?descheduler/", re.MULTILINE)


def unread(obj: Mapping[str, Any]) -> str:
    """What is to be said of an object that is the policy of a descheduler; empty of any other."""
    kind, metadata = str(obj.get("kind")), obj.get("metadata") or {}
    data = obj.get("data") if kind == "ConfigMap" and isinstance(obj.get("data"), Mapping) else {}
    bare = str(obj.get("apiVersion", "")).startswith("descheduler/")
    if not bare and not any(_POLICY.search(str(text)) for text in (data or {}).values()):
        return ""
    name = "/".join(filter(None, (metadata.get("namespace"), metadata.get("name"))))
    return (
        f"{kind}{f' {name}' if name else ''} is the policy of a descheduler: nothing in Atoll reads it, and Atoll"
        " moves no pods that run"
    )
