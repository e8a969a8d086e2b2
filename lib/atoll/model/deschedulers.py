"""Policies of deschedulers (of Volcano, Koordinator, Kubernetes): who reads them, as a sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

NAMESPACES: Final = ("volcano-system", "koordinator-system", "kube-system")
"""Where they usually are."""
_POLICY = re.compile(r"^\s*[\"']?apiVersion[\"']?:\s*[\"']?descheduler/", re.MULTILINE)
_SERVED = re.compile(r"^\s*[\"']?kind[\"']?:\s*[\"']?DeschedulerPolicy\b", re.MULTILINE)


def readers(obj: Mapping[str, Any]) -> str:
    """A sentence on who reads the policy of a descheduler; empty for any other object."""
    kind, metadata = str(obj.get("kind")), obj.get("metadata") or {}
    data = obj.get("data") if kind == "ConfigMap" and isinstance(obj.get("data"), Mapping) else {}
    bare = str(obj.get("apiVersion", "")).startswith("descheduler/")
    texts = [str(text) for text in (data or {}).values()]
    if not bare and not any(map(_POLICY.search, texts)):
        return ""
    name = "/".join(filter(None, (metadata.get("namespace"), metadata.get("name"))))
    served = kind == "DeschedulerPolicy" if bare else any(map(_SERVED.search, texts))
    who = "atoll-descheduler reads it in a member (docs/rescheduling.md)" if served else "nothing in Atoll reads it"
    return f"{kind}{f' {name}' if name else ''} is the policy of a descheduler: {who}"
