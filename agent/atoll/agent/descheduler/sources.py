"""Where figures come from: a Prometheus, or the metrics API of the cluster.

An empty answer, a figure that can't be, an old one or a failed request leave use unknown; none of them is 0. One query
asks for all nodes, one for all pods.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson
import tenacity

from atoll.agent.descheduler.policy import MetricsApi, Prometheus
from atoll.agent.descheduler.settings import WINDOW, PrometheusSettings
from atoll.agent.descheduler.world import CPU, MEMORY, Figures, sane
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import quantity
from atoll.model.apiresource import NODE_METRICS, POD_METRICS
from atoll.model.timestamps import to_seconds

MOST: Final = 64 << 20
"""Bytes of an answer: 100,000 pods have about 20 MB."""
_LABELS: Final = ("node", "kubernetes_node", "nodename", "instance")
"""Labels that may hold a node's name, the surest first."""
_BY: Final = ", ".join(_LABELS)
_MILLI: Final = 1000.0
_PAUSE: Final = tenacity.wait_exponential_jitter(multiplier=0.3, max=5, jitter=0.3)
_ATTEMPTS: Final = 4
_BUSY: Final = (429, *range(500, 600))

_NODES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    CPU: (
        ("node_cpu_usage_seconds_total", f"max by ({_BY}) (rate(node_cpu_usage_seconds_total[{WINDOW}]))"),
        (
            'container_cpu_usage_seconds_total{id="/"}',
            f'max by ({_BY}) (rate(container_cpu_usage_seconds_total{{id="/"}}[{WINDOW}]))',
        ),
        (
            "node_cpu_seconds_total",
            f'sum by ({_BY}) (rate(node_cpu_seconds_total{{mode!~"idle|iowait"}}[{WINDOW}]))',
        ),
    ),
    MEMORY: (
        ("node_memory_working_set_bytes", f"max by ({_BY}) (avg_over_time(node_memory_working_set_bytes[{WINDOW}]))"),
        (
            'container_memory_working_set_bytes{id="/"}',
            f'max by ({_BY}) (avg_over_time(container_memory_working_set_bytes{{id="/"}}[{WINDOW}]))',
        ),
        (
            "node_memory_MemAvailable_bytes",
            f"max by ({_BY}) (avg_over_time(node_memory_MemTotal_bytes[{WINDOW}])"
            f" - avg_over_time(node_memory_MemAvailable_bytes[{WINDOW}]))",
        ),
    ),
}
"""Resource -> (series, query): what kubelets, cAdvisor and node_exporter have, the first that answers."""
_OF_CONTAINER: Final = '{container!="",container!="POD",pod!=""}'
_PODS: Final[Mapping[str, tuple[str, ...]]] = {
    # Two jobs that scrape the same series must not count twice: the maximum of each container.
    CPU: (
        f"max by (namespace, pod) (rate(pod_cpu_usage_seconds_total[{WINDOW}]))",
        "sum by (namespace, pod) (max by (namespace, pod, container)"
        f" (rate(container_cpu_usage_seconds_total{_OF_CONTAINER}[{WINDOW}])))",
    ),
    MEMORY: (
        f"max by (namespace, pod) (avg_over_time(pod_memory_working_set_bytes[{WINDOW}]))",
        "sum by (namespace, pod) (max by (namespace, pod, container)"
        f" (avg_over_time(container_memory_working_set_bytes{_OF_CONTAINER}[{WINDOW}])))",
    ),
}


class SourceError(Exception):
    """No figures; the message says which answer was wrong."""


class _Passing(SourceError):
    """It may answer when it is asked again."""


async def take(
    source: MetricsApi | Prometheus,
    api: ApiServer,
    nodes: Iterable[str],
    settings: PrometheusSettings,
    *,
    stale: float,
    clock: Callable[[], float],
    wait: tenacity.wait.wait_base = _PAUSE,
) -> Figures:
    """Figures of a source as they are now; with a problem where it gives none.

    Args:
        source: of the policy.
        api: the cluster, for its metrics API.
        nodes: names of nodes that there are.
        settings: how a Prometheus is asked.
        stale: seconds after which a figure says nothing.
        clock: seconds of a clock that never goes back.
        wait: between two attempts.
    """
    began = clock()
    try:
        if isinstance(source, MetricsApi):
            used, pods = await _of_api(api, stale)
        else:
            async with asyncio.timeout(settings.patience):
                used, pods = await _of_prometheus(source, frozenset(nodes), settings, stale, wait)
    except (SourceError, errors.ApiError, OSError) as error:
        problem = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        return Figures(problem=problem or type(error).__name__, taken=began)
    # Figures are as old as the question: an answer may take its time.
    return Figures(used, pods, "" if used else "the source knows no node", began)


_Table = dict[str, dict[str, float]]


async def _of_api(api: ApiServer, stale: float) -> tuple[_Table, _Table]:
    nodes, pods = await asyncio.gather(api.list(NODE_METRICS), api.list(POD_METRICS))
    now = time.time()
    used: _Table = {}
    for each in nodes:
        found = _amounts([each.get("usage")])
        if found and _fresh(each, now, stale):
            used[str(each["metadata"]["name"])] = found
    weighed: _Table = {}
    for each in pods:
        found = _amounts([part.get("usage") for part in each.get("containers") or ()])
        if found and _fresh(each, now, stale):
            metadata = each["metadata"]
            weighed[f"{metadata['namespace']}/{metadata['name']}"] = found
    return used, weighed


def _fresh(item: Mapping[str, Any], now: float, stale: float) -> bool:
    try:
        # A clock that is wrong by more than that makes figures as doubtful as age does.
        return abs(now - to_seconds(str(item.get("timestamp")))) <= stale
    except ValueError:
        return False


def _amounts(parts: list[Any]) -> dict[str, float]:
    """The sum of use; empty where a part of it can't be read."""
    total = {CPU: 0.0, MEMORY: 0.0}
    for part in parts:
        try:
            use = quantity.capacity(part)
            for name in total:
                total[name] += use[name]
        except (AttributeError, KeyError, TypeError, ValueError):
            return {}
    return total if parts and all(map(sane, total.values())) else {}


async def _of_prometheus(
    source: Prometheus,
    nodes: frozenset[str],
    settings: PrometheusSettings,
    stale: float,
    wait: tenacity.wait.wait_base,
) -> tuple[_Table, _Table]:
    # The system's authorities were read once, when the process started: that takes longer than a look.
    trust = ssl.create_default_context(cafile=settings.ca_file) if settings.ca_file else True
    headers = {"Accept": "application/json"}
    if settings.token_file:
        if not (settings.address or source.address).startswith("https://"):
            raise SourceError("prometheus.tokenFile: a token is sent over https:// alone")
        headers["Authorization"] = f"Bearer {_token(settings.token_file)}"
    address = settings.address.rstrip("/") or source.address
    window = f"{max(1, round(source.window))}s"
    async with aiohttp.ClientSession(headers=headers) as session:

        async def ask(query: str) -> list[tuple[Mapping[str, Any], float]]:
            retrying = tenacity.AsyncRetrying(
                stop=tenacity.stop_after_attempt(_ATTEMPTS),
                wait=wait,
                retry=tenacity.retry_if_exception_type(_Passing),
                reraise=True,
            )
            return await retrying(_asked, session, address, query.replace(WINDOW, window), trust)

        used: _Table = {}
        for resource, own in ((CPU, settings.node_cpu), (MEMORY, settings.node_memory)):
            for series, query in (("", own),) if own else _NODES[resource]:
                if found := _by_node(await ask(query), nodes):
                    old = _by_node(await ask(f"time() - max by ({_BY}) (timestamp({series}))"), nodes) if series else {}
                    for name, value in found.items():
                        if not series or old.get(name, stale + 1) <= stale:
                            used.setdefault(name, {})[resource] = _units(resource, value)
                    break
        pods: _Table = {}
        for resource, own in ((CPU, settings.pod_cpu), (MEMORY, settings.pod_memory)):
            for query in (own,) if own else _PODS[resource]:
                if answer := await ask(query):
                    for labels, value in answer:
                        if sane(value) and labels.get("namespace") and labels.get("pod"):
                            key = f"{labels['namespace']}/{labels['pod']}"
                            pods.setdefault(key, {})[resource] = _units(resource, value)
                    break
    return used, pods


def _token(file: str) -> str:
    return Path(file).read_text("utf-8").strip()


def _units(resource: str, value: float) -> float:
    return value * _MILLI if resource == CPU else value


def _by_node(answer: list[tuple[Mapping[str, Any], float]], nodes: frozenset[str]) -> dict[str, float]:
    """Node -> its largest figure; nothing of a node one of whose figures can't be."""
    found: dict[str, float] = {}
    wrong = set()
    for labels, value in answer:
        texts = (str(labels.get(each) or "") for each in _LABELS)
        names = (each for text in texts for each in (text, text.rpartition(":")[0]))
        name = next((each for each in names if each in nodes), None)
        if name is None:
            continue
        if not sane(value):
            wrong.add(name)
        found[name] = max(value, found.get(name, 0.0))
    return {name: value for name, value in found.items() if name not in wrong}


async def _asked(
    session: aiohttp.ClientSession, address: str, query: str, trust: ssl.SSLContext | bool
) -> list[tuple[Mapping[str, Any], float]]:
    try:
        async with session.post(
            f"{address}/api/v1/query", data={"query": query}, ssl=trust, allow_redirects=False
        ) as response:
            if response.status in _BUSY:
                raise _Passing(f"{address}: HTTP {response.status}")
            body = b""
            async for chunk in response.content.iter_chunked(1 << 20):
                body += chunk
                if len(body) > MOST:
                    raise SourceError(f"{address}: more than {MOST >> 20} MiB")
            status = response.status
    except (aiohttp.ClientConnectorCertificateError, aiohttp.InvalidURL) as error:
        raise SourceError(f"{address}: {error}") from error
    except aiohttp.ClientConnectorError as error:
        # Its own text has an object of this process in it.
        raise _Passing(f"{address}: {error.os_error}") from error
    except aiohttp.ClientError as error:
        raise _Passing(f"{address}: {error or 'the connection broke'}") from error
    return _read(address, status, body)


def _read(address: str, status: int, body: bytes) -> list[tuple[Mapping[str, Any], float]]:
    try:
        answer = orjson.loads(body)
        if answer["status"] != "success":
            raise SourceError(f"{address}: {str(answer.get('error'))[:300]}")
        if answer["data"]["resultType"] != "vector":
            raise SourceError(f"{address}: the query gives a {str(answer['data']['resultType'])[:20]}, no vector")
        return [(dict(each["metric"]), float(each["value"][1])) for each in answer["data"]["result"]]
    except (AttributeError, KeyError, LookupError, TypeError, ValueError) as error:
        raise SourceError(f"{address}: HTTP {status}, which is no answer of a Prometheus") from error
