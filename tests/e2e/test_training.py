"""PyTorch and Ray themselves, on one node of the push member: images of some size are given to no other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.jobs import PATIENCE, job, kill, shell, task
from tests.integration.federation import Site, until

MEMBER, NODE = "west", "west-real0"


TRAIN = """
import os, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
total = torch.tensor([float(rank)])
dist.all_reduce(total)
assert (size, total.item()) == (3, 3.0), (size, total)
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
for step in range(20):
    inputs = torch.randn(64, 4)
    loss = (model(inputs).squeeze(1) - inputs.sum(1)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    losses.append(loss.item())
    if rank == 0:
        print("step", step, flush=True)
    if step == 4 and os.environ["ATTEMPT"] == "0":
        time.sleep(600)
assert losses[-1] < losses[0] / 10, losses
weights = [torch.empty(4) for _ in range(size)]
dist.all_gather(weights, model.module.weight.detach()[0])
assert all(torch.equal(each, weights[0]) for each in weights), weights
print("rank", rank, "trained")
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def torch(large: dict[str, asyncio.Task[str]]) -> str:
    return await large["torch"]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ray(large: dict[str, asyncio.Task[str]]) -> str:
    return await large["ray"]


@pytest.mark.timeout(600)
async def test_torchrun_trains_on_three_pods_and_again_after_one_was_killed(site: Site, torch: str) -> None:
    await site.only(MEMBER)
    attempt = {"fieldRef": {"fieldPath": "metadata.annotations['volcano.sh/job-retry-count']"}}
    container = shell(
        f"echo '{TRAIN}' > /tmp/train.py; exec torchrun /tmp/train.py",
        image=torch,
        memory="1Gi",
        env=[
            {"name": "ATTEMPT", "valueFrom": attempt},
            {"name": "OMP_NUM_THREADS", "value": "1"},
            {"name": "PYTHONUNBUFFERED", "value": "1"},
        ],
    )
    tasks = [task("master", container), task("worker", container, replicas=2)]
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    await site.submit(job("train", *tasks, plugins={"pytorch": []}, policies=policies))

    async def says(words: str) -> bool:
        logs = ("logs", "train-master-0", "-n", site.namespace)
        return words in await asyncio.to_thread(site.both, *logs, cluster=MEMBER)

    await until(lambda: says("step 4"), deadline=PATIENCE, what="it trains")
    pods = {each["metadata"]["name"]: each for each in await site.pods(MEMBER)}
    await kill(site.federation, NODE, pods["train-worker-1"])
    done = await site.phase("train", "Completed", deadline=PATIENCE)
    assert (done["status"]["retryCount"], done["status"]["succeeded"]) == (1, 3)
    assert await says("rank 0 trained")


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
found = ray.get([square.options(scheduling_strategy=next(nodes)).remote(n) for n in range(30)])
assert sum(each for each, _ in found) == 8555, found
print("squares on", len({where for _, where in found}), "nodes")
"""


@pytest.mark.timeout(600)
async def test_a_head_of_ray_and_two_workers_compute_together(site: Site, ray: str) -> None:
    await site.only(MEMBER)
    # The plugin gives containers without a command theirs.
    roles: dict[str, Any] = {"image": ray, "memory": "2Gi", "env": [{"name": "RAY_DISABLE_DASHBOARD", "value": "1"}]}
    head, worker = ({**shell("", **roles), "name": name} for name in ("head", "worker"))
    for each in (head, worker):
        del each["command"]
    await site.submit(job("squares", task("head", head), task("worker", worker, replicas=2), plugins={"ray": []}))
    await site.phase("squares", "Running", deadline=PATIENCE)
    # Beside Ray in the head, and again until Ray is up: the three of them take their time to start.
    again = "until python3 /tmp/squares.py > /tmp/said 2>&1; do sleep 1; done"
    begin = f"echo '{SQUARES}' > /tmp/squares.py; ( {again} ) < /dev/null > /dev/null 2>&1 &"
    into = ("exec", "squares-head-0", "-n", site.namespace, "--")
    await asyncio.to_thread(site.kubectl, *into, "sh", "-c", begin, cluster=MEMBER)

    async def computed() -> bool:
        return "squares on 3 nodes" in await asyncio.to_thread(site.both, *into, "cat", "/tmp/said", cluster=MEMBER)

    await until(computed, deadline=4 * PATIENCE, what="all three nodes of Ray compute")
