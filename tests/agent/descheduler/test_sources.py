"""Figures of a Prometheus and of the metrics API: whatever is missing, old, wrong or late is unknown, never 0."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import count
from typing import Any, cast

import pytest
import tenacity
from aiohttp import web

from atoll.agent.descheduler.policy import MetricsApi, Prometheus
from atoll.agent.descheduler.settings import PrometheusSettings
from atoll.agent.descheduler.sources import take
from atoll.agent.descheduler.world import Figures
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import POD_METRICS
from atoll.model.timestamps import rfc3339_micro
from tests.agent.descheduler.prometheus import Standin, prometheus

NAMES = ("te1", "te2")
NOBODY = cast(ApiServer, None)
PLAIN = PrometheusSettings()


async def ask(standin: Standin, settings: PrometheusSettings = PLAIN) -> Figures:
    ticks: Iterator[int] = count(7)
    source = Prometheus(standin.address, 120)
    return await take(
        source, NOBODY, NAMES, settings, stale=180, clock=lambda: float(next(ticks)), wait=tenacity.wait_none()
    )


FULL: dict[str, Any] = {
    "nodes_cpu": {"te1": 1.5, "te2": 0},
    "nodes_memory": {"te1": 2**30, "te2": 2**20},
    "pods_cpu": {"work/a": 0.25},
    "pods_memory": {"work/a": 2**20},
}


async def test_one_query_asks_for_all_nodes_and_one_for_all_pods() -> None:
    async with prometheus(**FULL) as standin:
        found = await ask(standin)
    assert found.problem == ""
    assert found.taken == 7
    assert found.nodes == {"te1": {"cpu": 1500, "memory": 2**30}, "te2": {"cpu": 0, "memory": 2**20}}
    assert found.pods == {"work/a": {"cpu": 250, "memory": 2**20}}
    assert len(standin.asked) == 6
    assert "rate(node_cpu_usage_seconds_total[120s])" in standin.asked[0]


@pytest.mark.parametrize(
    ("cpu", "memory"),
    [
        pytest.param('container_cpu_usage_seconds_total{id="/"}', 'container_memory_working_set_bytes{id="/"}', id="cAdvisor"),
        pytest.param("node_cpu_seconds_total", "node_memory_MemAvailable_bytes", id="node_exporter"),
    ],
)  # fmt: skip
async def test_other_exporters_are_found(cpu: str, memory: str) -> None:
    series = {cpu: "nodes_cpu", memory: "nodes_memory"}
    async with prometheus(**FULL, series=series, label="instance") as standin:
        found = await ask(standin)
    assert found.nodes["te1"] == {"cpu": 1500, "memory": 2**30}
    assert found.pods == {}


async def test_own_queries_are_asked_with_the_window() -> None:
    settings = PrometheusSettings(node_cpu="mine($window)", pod_cpu="of_pods")
    async with prometheus(**FULL) as standin:
        standin.series |= {"mine": "nodes_cpu"}
        found = await ask(standin, settings)
    assert standin.asked[0] == "mine(120s)"
    assert found.nodes["te1"]["cpu"] == 1500
    assert found.pods["work/a"] == {"memory": 2**20}


@pytest.mark.parametrize("wrong", ["NaN", "+Inf", "-1"])
async def test_a_figure_that_can_not_be_leaves_the_node_unknown(wrong: str) -> None:
    async with prometheus(**{**FULL, "nodes_cpu": {"te1": wrong, "te2": 1}, "pods_cpu": {"work/a": wrong}}) as standin:
        found = await ask(standin)
    assert found.nodes == {"te1": {"memory": 2**30}, "te2": {"cpu": 1000, "memory": 2**20}}
    assert found.pods == {"work/a": {"memory": 2**20}}


async def test_a_node_that_is_not_scraped_any_more_is_unknown() -> None:
    async with prometheus(**FULL, ages={"te2": 181.0}) as standin:
        found = await ask(standin)
    assert set(found.nodes) == {"te1"}


async def test_an_empty_answer_is_no_idle_cluster() -> None:
    async with prometheus() as standin:
        assert (await ask(standin)).problem == "the source knows no node"


async def test_a_busy_prometheus_is_asked_again_and_a_dead_one_is_a_problem() -> None:
    async with prometheus(**FULL, statuses=[503, 429]) as standin:
        assert (await ask(standin)).problem == ""
    async with prometheus(**FULL, statuses=[503] * 4) as standin:
        found = await ask(standin)
    assert "HTTP 503" in found.problem
    assert (found.nodes, found.pods) == ({}, {})
    assert "Connect call failed" in (await ask(standin)).problem


async def test_a_slow_prometheus_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    release = asyncio.Event()

    async def late(self: Standin, request: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    monkeypatch.setattr(Standin, "answer", late)
    async with prometheus() as standin:
        found = await ask(standin, PrometheusSettings(patience=0.05))
        release.set()
    assert found.problem == "no answer in time"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<html>", "no answer of a Prometheus"),
        ('{"status": "error", "error": "parse error"}', "parse error"),
        ('{"status": "success", "data": {"resultType": "matrix", "result": []}}', "no vector"),
        ('{"status": "success", "data": {"resultType": "vector", "result": [{"value": [1, "x"]}]}}', "no answer of"),
        ("[]", "no answer of a Prometheus"),
    ],
)
async def test_another_answer_is_a_problem(body: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(self: Standin, request: web.Request) -> web.Response:
        return web.Response(text=body)

    monkeypatch.setattr(Standin, "answer", answer)
    async with prometheus() as standin:
        assert said in (await ask(standin)).problem


async def test_a_token_goes_over_https_alone() -> None:
    async with prometheus(**FULL) as standin:
        found = await ask(standin, PrometheusSettings(token_file="/nowhere"))
    assert "over https:// alone" in found.problem
    assert standin.asked == []


class Metrics:
    """The metrics API of a cluster."""

    def __init__(self, age: float = 0, error: errors.ApiError | None = None) -> None:
        self.stamp, self.error = rfc3339_micro(time.time() - age), error

    async def list(self, resource: Any) -> list[dict[str, Any]]:
        if self.error is not None:
            raise self.error
        if resource == POD_METRICS:
            use = [{"usage": {"cpu": "100m", "memory": "1Mi"}}, {"usage": {"cpu": "1", "memory": "1Mi"}}]
            broken = {
                "metadata": {"namespace": "w", "name": "b"},
                "timestamp": self.stamp,
                "containers": [{"usage": 3}],
            }
            return [{"metadata": {"namespace": "w", "name": "a"}, "timestamp": self.stamp, "containers": use}, broken]
        return [{"metadata": {"name": "te1"}, "timestamp": self.stamp, "usage": {"cpu": "500m", "memory": "1Gi"}}]


async def test_the_metrics_api_sums_containers_and_drops_old_figures() -> None:
    async def asked(api: Metrics) -> Figures:
        return await take(MetricsApi(), cast(ApiServer, api), NAMES, PrometheusSettings(), stale=180, clock=lambda: 1.0)

    found = await asked(Metrics())
    assert found.nodes == {"te1": {"cpu": 500, "memory": 2**30}}
    assert found.pods == {"w/a": {"cpu": 1100, "memory": 2**21}}
    assert (await asked(Metrics(age=181))).problem == "the source knows no node"
    # A clock far ahead is as doubtful.
    assert (await asked(Metrics(age=-600))).problem == "the source knows no node"
    assert (await asked(Metrics(error=errors.NotFound("no such API")))).problem == "no such API"
