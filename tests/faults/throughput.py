"""What the fault proxy costs: requests and watch events a second through it and without it, and its time for each.

`python -m tests.faults.throughput [--requests N] [--in-flight N]` starts one API server and prints a table.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
from atoll.local.cluster import ClusterHandle
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig
from atoll.model.apiresource import NAMESPACES
from tests.faults.proxy import FaultProxy
from tests.integration.federation import member


async def _measure(api: ApiServer, requests: int, in_flight: int) -> tuple[float, float]:
    """Requests a second, and this process' CPU seconds for each."""
    left = iter(range(requests))

    async def one() -> None:
        for _ in left:
            await api.get(NAMESPACES, "default")

    await api.get(NAMESPACES, "default")
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(one() for _ in range(in_flight)))
    return requests / (time.perf_counter() - began), (time.process_time() - cpu) / requests


async def _compare(host: ClusterHandle, directory: Path, requests: int, in_flight: int) -> None:
    async with FaultProxy(host.kubeconfig, directory, seed=1) as proxy:
        rows = []
        for name, kubeconfig in (("direct", host.kubeconfig), ("proxy", proxy.kubeconfig(host.kubeconfig))):
            async with await ApiServer.from_kubeconfig(kubeconfig) as api:
                rows.append((name, 1, *await _measure(api, requests // 8, 1)))
                rows.append((name, in_flight, *await _measure(api, requests, in_flight)))
    print(f"{'way':<8}{'in flight':>10}{'requests/s':>12}{'CPU us/request':>16}")
    for name, width, rate, cpu in rows:
        print(f"{name:<8}{width:>10}{rate:>12.0f}{cpu * 1e6:>16.0f}")
    print("CPU of client and proxy together, which share one process; the difference is the proxy's")


async def _main(requests: int, in_flight: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        config = FederationConfig(members=[member("alpha", 1)])
        async with Federation(config, directory=directory / "federation", binaries=ensure()) as federation:
            await _compare(federation.host, directory / "proxy", requests, in_flight)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=8000, help="of each measurement (default: 8000)")
    parser.add_argument("--in-flight", type=int, default=32, help="at once (default: 32)")
    given = parser.parse_args()
    asyncio.run(_main(given.requests, given.in_flight))
