"""One module, or one folder, per workload kind behind one interface: pure functions on dicts.

A kind says what admission checks and fills in, what its pods need, how its object is rewritten for a member, what a
member reports of it, and how the reports of all members become the status on the host. Nothing outside this package
knows a workload's fields. It imports only `atoll.api`, `atoll.model` and `atoll.admission`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atoll.kinds import batch_job, volcano_job
from atoll.kinds.interface import Kind, Outcome, Part, Report, Standing
from atoll.model.apiresource import ApiResource

KINDS: tuple[Kind, ...] = (volcano_job.KIND, batch_job.KIND)
"""Every workload kind that Atoll takes."""

BY_RESOURCE: dict[ApiResource, Kind] = {kind.resource: kind for kind in KINDS}
BY_GVK: dict[tuple[str, str], Kind] = {(kind.resource.api_version, kind.resource.kind): kind for kind in KINDS}


def kind_of(manifest: Mapping[str, Any]) -> Kind | None:
    """The kind of an object; None for one that is no workload of ours."""
    return BY_GVK.get((manifest.get("apiVersion", ""), manifest.get("kind", "")))


__all__ = ["BY_GVK", "BY_RESOURCE", "KINDS", "Kind", "Outcome", "Part", "Report", "Standing", "kind_of"]
