"""Install CRDs without ever touching CRDs of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atoll.api.shipped import load_crds
from atoll.install.credentials import FIELD_MANAGER, MANAGED_BY
from atoll.install.refusal import Refused
from atoll.kinds import DELIVERED
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import CAPACITIES, CRDS, HYPER_NODES, POD_GROUPS, QUEUES, ApiResource
from atoll.model.release import VERSION
from atoll.model.skew import is_newer

Json = dict[str, Any]

_ESTABLISHED_S = 30.0
_POLL_S = 0.05


def host_crds() -> list[Json]:
    """Every CRD, labelled as ours."""
    return [_labelled(crd) for crd in load_crds()]


def karmada_crds() -> list[Json]:
    """The CRDs that a Karmada lacks, labelled as ours."""
    wanted = {_crd_name(resource) for resource in (QUEUES, CAPACITIES)}
    return [crd for crd in host_crds() if crd["metadata"]["name"] in wanted]


def member_crds() -> list[Json]:
    """The CRDs that a member needs, labelled as ours."""
    delivered = [kind.resource for kind in DELIVERED if not kind.optional]
    wanted = {_crd_name(resource) for resource in (*delivered, POD_GROUPS, QUEUES, HYPER_NODES)}
    return [crd for crd in host_crds() if crd["metadata"]["name"] in wanted]


async def install_crds(api: ApiServer, crds: Sequence[Json], progress: Callable[[str], None]) -> None:
    """Create missing ones, update ours, compare others; return once all are served.

    Raises:
        Refused: a foreign CRD can't stand in for ours, or one was not established in time; the first case changes
        nothing.
    """
    found = {crd["metadata"]["name"]: crd for crd in await api.list(CRDS)}
    foreign = [crd for crd in crds if is_foreign(found.get(crd["metadata"]["name"]))]
    wrong = [difference for crd in foreign if (difference := incompatible(crd, found[crd["metadata"]["name"]]))]
    refuse_newer(found, crds)
    if wrong:
        raise Refused(
            "; ".join(wrong) + ". They were installed by someone else and are not overwritten:"
            " update them, or remove the system that brought them"
        )
    for crd in foreign:
        progress(f"CRD {crd['metadata']['name']}: made by someone else, compatible, left as it is")
    ours = [crd for crd in crds if crd not in foreign]
    await asyncio.gather(*(api.apply(CRDS, crd, field_manager=FIELD_MANAGER) for crd in ours))
    await _wait_established(api, {crd["metadata"]["name"] for crd in crds})
    progress(f"{len(crds)} CRDs are established")


def refuse_newer(found: Mapping[str, Json], crds: Sequence[Json]) -> None:
    """Leave CRDs alone that a newer release brought.

    Args:
        found: the CRDs of a cluster by name.
        crds: the CRDs of this release.

    Raises:
        Refused: one is newer.
    """
    newer = [name for crd in crds if is_newer(_release((found.get(name := crd["metadata"]["name"])) or {}))]
    if newer:
        made = _release(found[newer[0]])
        raise Refused(
            f"CRDs {', '.join(sorted(newer))} are of Atoll {made}, newer than this atollctl ({VERSION}): use one of"
            " that version"
        )


def is_foreign(crd: Json | None) -> bool:
    """Whether this CRD exists and no installation of ours made it."""
    if crd is None:
        return False
    labels = crd["metadata"].get("labels") or {}
    return any(labels.get(key) != value for key, value in MANAGED_BY.items())


def incompatible(ours: Json, theirs: Json) -> str:
    """Why a foreign CRD can't stand in for ours; empty when it can."""
    name = ours["metadata"]["name"]
    for field in ("scope", "kind"):
        wanted, got = (
            crd["spec"]["scope"] if field == "scope" else crd["spec"]["names"]["kind"] for crd in (ours, theirs)
        )
        if wanted != got:
            return f"CRD {name} has {field} {got}, {wanted} is needed"
    served = {version["name"]: version for version in theirs["spec"]["versions"] if version.get("served", True)}
    for version in ours["spec"]["versions"]:
        their = served.get(version["name"])
        if their is None:
            return f"CRD {name} serves {', '.join(sorted(served)) or 'no version'}, {version['name']} is needed"
        if "status" in (version.get("subresources") or {}) and "status" not in (their.get("subresources") or {}):
            return f"CRD {name} has no status subresource in {version['name']}"
    return ""


async def _wait_established(api: ApiServer, names: set[str]) -> None:
    clock = asyncio.get_running_loop().time
    end = clock() + _ESTABLISHED_S
    while waiting := names - {crd["metadata"]["name"] for crd in await api.list(CRDS) if _established(crd)}:
        if clock() > end:
            raise Refused(
                f"CRDs are not established after {_ESTABLISHED_S:.0f} s: {', '.join(sorted(waiting))};"
                " `kubectl describe crd` says why"
            )
        await asyncio.sleep(_POLL_S)


def _established(crd: Json) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)


def _crd_name(resource: ApiResource) -> str:
    return f"{resource.plural}.{resource.group}"


def _release(crd: Json) -> str:
    """The version of Atoll that brought it; empty where it does not say."""
    return str(((crd.get("metadata") or {}).get("annotations") or {}).get(keys.RELEASE, ""))


def _labelled(crd: Json) -> Json:
    metadata = crd["metadata"]
    labels = {**(metadata.get("labels") or {}), **MANAGED_BY}
    annotations = {**(metadata.get("annotations") or {}), keys.RELEASE: VERSION}
    return {**crd, "metadata": {**metadata, "labels": labels, "annotations": annotations}}
