"""Metrics of the processes of a federation, as Prometheus reads them."""

from __future__ import annotations

import re

import aiohttp

from tests.integration.federation import Site


async def scraped(site: Site, process: str) -> dict[str, float]:
    """Series of Atoll's own with their labels -> value."""
    ready = site.federation.process(process).process.spec.ready_url
    assert ready is not None
    async with aiohttp.ClientSession() as session, session.get(ready.replace("/readyz", "/metrics")) as answer:
        text = await answer.text()
    return {name: float(value) for name, value in re.findall(r"^(atoll_\S+) (\S+)$", text, re.M)}
