"""The cache of a real API server: by pages, by watch-list, metadata only, and over changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from atoll.kube.reflector import Reflector
from atoll.model.apiresource import CONFIGMAPS
from atoll.model.objects import Full, decode_full
from tests.integration.federation import Site
from tests.kube.servers import eventually

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    "options",
    [{}, {"watch_list": True}, {"metadata_only": True}, {"metadata_only": True, "watch_list": True}],
    ids=["pages", "watch-list", "metadata in pages", "metadata by watch-list"],
)
async def test_a_cache_holds_what_the_server_has_and_follows_it(site: Site, options: dict[str, Any]) -> None:
    def config_map(name: str, **data: str) -> dict[str, Any]:
        meta = {"name": name, "namespace": site.namespace, "labels": {"cached": "yes"}}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}

    for name in ("kept", "replaced"):
        await site.host.create(CONFIGMAPS, config_map(name, text="first"))
    heard: list[tuple[str, str]] = []
    cache: Reflector[Full] = Reflector(
        site.host, CONFIGMAPS, decode_full, namespace=site.namespace, label_selector="cached=yes", **options
    )
    cache.on_change(lambda old, new: heard.append((old.metadata.uid if old else "", new.metadata.uid if new else "")))
    task = asyncio.create_task(cache.run())
    try:
        await asyncio.wait_for(cache.synced.wait(), 30)
        prefix = f"{site.namespace}/"
        assert sorted(cache.store) == [f"{prefix}kept", f"{prefix}replaced"]
        assert all(("data" in each.body) is ("metadata_only" not in options) for each in cache)
        # It was not the way back from a refused watch-list.
        assert cache._watch_list is options.get("watch_list", False)
        before = cache.store[f"{prefix}replaced"].metadata.uid
        await site.host.delete(CONFIGMAPS, "replaced", site.namespace)
        made = await site.host.create(CONFIGMAPS, config_map("replaced", text="second"))
        await site.host.delete(CONFIGMAPS, "kept", site.namespace)
        await eventually(lambda: list(cache.store) == [f"{prefix}replaced"] and len(heard) == 5, 30)
        assert heard[2:4] == [(before, ""), ("", made["metadata"]["uid"])]
        assert (cache.relists, cache.stale) == (0, 0)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
