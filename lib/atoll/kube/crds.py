"""Resources that come and go with their CRDs: their caches ask again when a CRD of theirs changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import CRDS, ApiResource
from atoll.model.objects import Slim, decode_meta


def crds(api: ApiServer) -> Reflector[Slim]:
    """The CRDs of an API server, metadata only."""
    return Reflector(api, CRDS, decode_meta, metadata_only=True)


def crd_name(resource: ApiResource) -> str:
    """Name of the CRD that brings a resource."""
    return f"{resource.plural}.{resource.group}"


def wake(found: Reflector[Slim], caches: Iterable[Reflector[Any]]) -> None:
    """Have these caches look when their CRD changes; before `found` runs.

    Args:
        found: see `crds`.
        caches: of optional resources.
    """
    by_name = {crd_name(each.resource): each for each in caches}

    def changed(old: Slim | None, new: Slim | None) -> None:
        either = new or old
        if either is not None and (cache := by_name.get(either.metadata.name)) is not None:
            cache.look()

    found.on_change(changed)
