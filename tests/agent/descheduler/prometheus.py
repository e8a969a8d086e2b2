"""A stand-in that answers queries as a Prometheus would which scrapes kubelets, or cAdvisor, or node_exporter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

KUBELETS = {
    "node_cpu_usage_seconds_total": "nodes_cpu",
    "node_memory_working_set_bytes": "nodes_memory",
    "pod_cpu_usage_seconds_total": "pods_cpu",
    "pod_memory_working_set_bytes": "pods_memory",
}


@dataclass
class Standin:
    """Figures that it gives: node or `namespace/pod` -> value, in cores and bytes."""

    nodes_cpu: dict[str, Any] = field(default_factory=dict)
    nodes_memory: dict[str, Any] = field(default_factory=dict)
    pods_cpu: dict[str, Any] = field(default_factory=dict)
    pods_memory: dict[str, Any] = field(default_factory=dict)
    ages: dict[str, float] = field(default_factory=dict)
    """Node -> seconds since its last scrape; 15 where nothing is named."""
    label: str = "node"
    series: dict[str, str] = field(default_factory=lambda: dict(KUBELETS))
    statuses: list[int] = field(default_factory=list)
    """HTTP statuses of the next answers."""
    asked: list[str] = field(default_factory=list)
    address: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        query = str((await request.post())["query"])
        self.asked.append(query)
        if self.statuses:
            return web.Response(status=self.statuses.pop(0), text="busy")
        which = next((kept for name, kept in self.series.items() if name in query), "")
        values: dict[str, Any] = getattr(self, which) if which else {}
        if query.startswith("time()"):
            values = {name: self.ages.get(name, 15.0) for name in values}
        result = [{"metric": self._labels(which, name), "value": [1.0, str(value)]} for name, value in values.items()]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    def _labels(self, which: str, name: str) -> dict[str, str]:
        if which.startswith("pods"):
            namespace, _, pod = name.partition("/")
            return {"namespace": namespace, "pod": pod}
        return {self.label: f"{name}:9100" if self.label == "instance" else name}


@asynccontextmanager
async def prometheus(**figures: Any) -> AsyncIterator[Standin]:
    """It serves at `address` meanwhile."""
    standin = Standin(**figures)
    app = web.Application()
    app.router.add_post("/api/v1/query", standin.answer)
    async with TestServer(app) as server:
        standin.address = str(server.make_url("")).rstrip("/")
        yield standin
