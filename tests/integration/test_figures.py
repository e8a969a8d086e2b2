"""Metrics of queues and members, as a scrape of the running processes shows them."""

from __future__ import annotations

import pytest

from tests.integration.federation import Site, job, until
from tests.integration.scrapes import scraped

pytestmark = pytest.mark.integration


async def test_times_by_queue_and_figures_by_member_are_exported(site: Site) -> None:
    queue = await site.queue()
    await site.submit(job("a", seconds=None, queue=queue))
    await site.phase("a", "Running")
    where = await site.where("a")

    async def times() -> bool:
        found = await scraped(site, "dispatcher")
        counts = [f'atoll_queue_{name}_seconds_count{{queue="{queue}"}}' for name in ("admission", "running")]
        return [found.get(each) for each in counts] == [1, 1]

    await until(times, what="both times are counted")

    async def running() -> bool:
        found = await scraped(site, "control")
        of = {name: found.get(f'atoll_member_{name}{{cluster="{where}"}}', 0) for name in ("ready", "nodes", "running")}
        gpus = found.get(f'atoll_member_allocatable{{cluster="{where}",resource="nvidia.com/gpu"}}', 0)
        heard = found.get(f'atoll_member_last_report_timestamp_seconds{{cluster="{where}"}}', 0)
        return of["ready"] == 1 and of["nodes"] > 0 and of["running"] > 0 and gpus > 0 and heard > 1.7e9

    await until(running, what="the member's figures")
