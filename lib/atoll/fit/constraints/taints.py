"""Taints that keep pods away, and tolerations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atoll.model import selectors

Json = Mapping[str, Any]


def accepts(tolerations: Sequence[Json], taints: Sequence[Json]) -> bool:
    """Whether every taint that keeps pods away is tolerated."""
    return not taints or selectors.untolerated(taints, tolerations) is None


def refusal(tolerations: Sequence[Json], taints: Sequence[Json]) -> str:
    """The first taint that is not, in kube-scheduler's words; empty where there is none."""
    taint = selectors.untolerated(taints, tolerations)
    if taint is None:
        return ""
    if taint.get("key") == "node.kubernetes.io/unschedulable":
        return "node(s) were unschedulable"
    return f"node(s) had untolerated taint {{{taint.get('key')}: {taint.get('value') or ''}}}"
