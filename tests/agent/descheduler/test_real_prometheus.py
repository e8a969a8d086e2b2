"""A real Prometheus answers the queries: for series of kubelets, cAdvisor and node_exporter, and for a dead exporter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from atoll.agent.descheduler.policy import Prometheus
from atoll.agent.descheduler.settings import PrometheusSettings
from atoll.agent.descheduler.sources import take
from atoll.agent.descheduler.world import Figures
from atoll.kube.transport import ApiServer
from tests.monitoring.prometheus import serving

GI = 2**30
NOBODY = cast(ApiServer, None)


def kubelet(cores: float) -> str:
    """/metrics/resource."""
    used = cores * time.time()
    return f"""
node_cpu_usage_seconds_total {used}
node_memory_working_set_bytes {GI}
pod_cpu_usage_seconds_total{{namespace="work",pod="a"}} {used / 2}
pod_memory_working_set_bytes{{namespace="work",pod="a"}} {GI / 2}
"""


def cadvisor(cores: float) -> str:
    """/metrics/cadvisor, where the pause container and sums of pods must not count."""
    used = cores * time.time()
    name = "container_cpu_usage_seconds_total"
    size = "container_memory_working_set_bytes"
    return f"""
{name}{{id="/",cpu="total"}} {used}
{name}{{id="/p",namespace="work",pod="a",container=""}} {used / 2}
{name}{{id="/p/1",namespace="work",pod="a",container="c"}} {used / 4}
{name}{{id="/p/2",namespace="work",pod="a",container="d"}} {used / 4}
{size}{{id="/"}} {GI}
{size}{{id="/p/1",namespace="work",pod="a",container="c"}} {GI / 4}
{size}{{id="/p/2",namespace="work",pod="a",container="d"}} {GI / 4}
"""


def node_exporter(cores: float) -> str:
    """Two processors."""
    used = cores * time.time() / 2
    lines = [f'node_cpu_seconds_total{{cpu="{cpu}",mode="user"}} {used}' for cpu in range(2)]
    lines += [f'node_cpu_seconds_total{{cpu="{cpu}",mode="idle"}} {7 * time.time()}' for cpu in range(2)]
    return "\n".join([*lines, f"node_memory_MemTotal_bytes {4 * GI}", f"node_memory_MemAvailable_bytes {3 * GI}", ""])


class Exporters:
    """Of two nodes, te1 with one core and a half in use, te2 with half a core."""

    def __init__(self, series: Callable[[float], str]) -> None:
        self.series, self.dead = series, set[str]()

    async def answer(self, request: web.Request) -> web.Response:
        node = request.match_info["node"]
        if node in self.dead:
            return web.Response(status=500)
        return web.Response(text=self.series({"te1": 1.5, "te2": 0.5}[node]))


@asynccontextmanager
async def scraping(exporters: Exporters, folder: Path) -> AsyncIterator[str]:
    """The address of a Prometheus that scrapes them each second, by two jobs that name the same node."""
    app = web.Application()
    app.router.add_get("/{node}", exporters.answer)
    async with TestServer(app) as server:
        jobs = [
            {
                "job_name": f"{job}-{node}",
                "metrics_path": f"/{node}",
                "static_configs": [{"targets": [f"127.0.0.1:{server.port}"], "labels": {"node": node}}],
            }
            for job in ("one", "two")
            for node in ("te1", "te2")
        ]
        async with serving(jobs, folder, interval="1s") as address:
            yield address


async def until(address: str, right: Callable[[Figures], bool]) -> Figures:
    """Figures, once they are right; the last ones fail the test after a minute."""
    end, found = time.monotonic() + 60, Figures()
    while time.monotonic() < end:
        settings = PrometheusSettings(patience=10)
        found = await take(Prometheus(address, 20), NOBODY, ("te1", "te2"), settings, stale=5, clock=time.monotonic)
        if right(found):
            return found
        await asyncio.sleep(0.2)
    raise AssertionError(found)


def near(value: float | None, wanted: float) -> bool:
    return value is not None and abs(value - wanted) <= 0.2 * wanted


@pytest.mark.parametrize("series", [kubelet, cadvisor, node_exporter])
async def test_its_answers_are_cores_and_bytes_and_jobs_do_not_add_up(
    series: Callable[[float], str], tmp_path: Path
) -> None:
    exporters = Exporters(series)
    async with scraping(exporters, tmp_path) as address:

        def right(found: Figures) -> bool:
            nodes = [found.nodes.get(name, {}) for name in ("te1", "te2")]
            return near(nodes[0].get("cpu"), 1500) and near(nodes[1].get("cpu"), 500)

        found = await until(address, right)
        assert {use["memory"] for use in found.nodes.values()} == {GI}
        if series is not node_exporter:
            assert near(found.pods["work/a"]["cpu"], 750) or near(found.pods["work/a"]["cpu"], 250)
            assert found.pods["work/a"]["memory"] == GI / 2
        exporters.dead.add("te2")
        await until(address, lambda found: set(found.nodes) == {"te1"})
