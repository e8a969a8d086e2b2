"""Ray itself, on one node of the push member: images of some size are given to no other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from atoll.local.atoll_federation import AtollFederation
from atoll.local.realnodes import images, node
from tests.e2e.jobs import PATIENCE, job, pid_of, shell, task
from tests.integration.federation import Site, until

_IMAGES = Path(__file__).parents[2] / "examples" / "images"
MEMBER, NODE = "west", "west-real0"


async def given(federation: AtollFederation, folder: str) -> str:
    """Name of an image that the node has from now on."""
    name, archive = await asyncio.to_thread(images.build, _IMAGES / folder, print)
    await asyncio.to_thread(images.load, archive, node.containerd_socket(pid_of(federation, NODE)))
    return name


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ray(real: AtollFederation) -> str:
    return await given(real, "ray")


SQUARES = """
import itertools, time, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
ray.init(address="auto")
while len(ray.nodes()) < 3:
    time.sleep(0.2)
@ray.remote
def square(n):
    return n * n, ray.get_runtime_context().get_node_id()
nodes = itertools.cycle(NodeAffinitySchedulingStrategy(each["NodeID"], soft=False) for each in ray.nodes())
found = ray.get([square.options(scheduling_strategy=next(nodes)).remote(n) for n in range(30)], timeout=60)
assert sum(each for each, _ in found) == 8555, found
print("squares on", len({where for _, where in found}), "nodes")
"""


# Three raylets start on the processors of one machine: minutes where it does anything else.
@pytest.mark.long
@pytest.mark.timeout(400)
async def test_a_head_of_ray_and_two_workers_compute_together(site: Site, ray: str) -> None:
    await site.only(MEMBER)
    # The plugin gives containers without a command theirs.
    roles: dict[str, Any] = {"image": ray, "memory": "2Gi", "env": [{"name": "RAY_DISABLE_DASHBOARD", "value": "1"}]}
    head, worker = ({**shell("", **roles), "name": name} for name in ("head", "worker"))
    for each in (head, worker):
        del each["command"]
    await site.submit(job("squares", task("head", head), task("worker", worker, replicas=2), plugins={"ray": []}))
    await site.phase("squares", "Running", deadline=PATIENCE)
    run = ("exec", "squares-head-0", "-n", site.namespace, "--", "python3", "-c", SQUARES)

    async def computed() -> bool:
        return "squares on 3 nodes" in await asyncio.to_thread(site.both, *run, cluster=MEMBER)

    await until(computed, deadline=PATIENCE, what="all three nodes of Ray compute")
