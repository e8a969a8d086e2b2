"""`examples/topology`, applied as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from atoll.model.apiresource import CAPACITIES, HYPER_NODES, JOBS, NODES, PODS, POLICIES
from tests.integration.federation import Site, until

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[2] / "examples" / "topology"
MEMBER = "topo"
GROUPS = ({"te1", "te2", "te3", "te4"}, {"te5", "te6", "te7", "te8"})


@pytest_asyncio.fixture(loop_scope="session")
async def example(site: Site) -> AsyncIterator[Site]:
    """The example's nodes in the member that has no topology of its own; its jobs may go nowhere else."""
    site.kubectl("apply", "-f", str(EXAMPLE / "nodes.yaml"), "-f", str(EXAMPLE / "hypernodes.yaml"), cluster=MEMBER)
    policy = {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": {"name": "topology-example", "namespace": "default"},
        "spec": {
            "resourceSelectors": [{"apiVersion": JOBS.api_version, "kind": JOBS.kind}],
            "placement": {"clusterAffinity": {"clusterNames": [MEMBER]}},
        },
    }
    await site.host.create(POLICIES, policy)

    async def known() -> bool:
        published = await site.host.list(CAPACITIES, f"karmada-es-{MEMBER}")
        return any(each["spec"]["root"] == "te-root" for each in published)

    await until(known, what="the member's topology is known on the host")
    yield site
    for name in ("near", "too-near", "few-racks", "even", "replicas"):
        await site.host.delete(JOBS, name, "default")

    async def empty() -> bool:
        return not await site.members[MEMBER].list(PODS, "default")

    await until(empty, what="the example's pods are gone")
    await site.host.delete(POLICIES, "topology-example", "default")
    for resource, file in ((HYPER_NODES, "hypernodes.yaml"), (NODES, "nodes.yaml")):
        for obj in yaml.safe_load_all((EXAMPLE / file).read_text()):
            await site.members[MEMBER].delete(resource, obj["metadata"]["name"])


async def test_all_pods_of_a_hard_tier_2_job_land_in_one_group_and_a_rack_too_small_makes_it_wait(
    example: Site,
) -> None:
    example.kubectl("apply", "-f", str(EXAMPLE / "job.yaml"))

    async def bound() -> set[str] | None:
        pods = await example.members[MEMBER].list(PODS, "default")
        nodes = [pod["spec"].get("nodeName") for pod in pods]
        return set(nodes) if len(nodes) == 10 and all(nodes) else None

    nodes = await until(bound, what="ten pods are bound")
    assert any(nodes <= group for group in GROUPS)

    example.kubectl("apply", "-f", str(EXAMPLE / "job-one-rack.yaml"))
    example.namespace, own = "default", example.namespace
    try:
        decision = await example.reason("too-near", "NoDomainFits")
    finally:
        example.namespace = own
    blocker = decision["blocker"]
    assert blocker["kind"] == "Domain"
    assert blocker["name"].startswith(f"{MEMBER}/te-rack")
    assert (blocker["requested"], blocker["available"], blocker["resource"]) == ("6", "4", "pods")
    assert not [p for p in await example.members[MEMBER].list(PODS, "default") if "too-near" in p["metadata"]["name"]]


async def test_soft_mode_takes_as_few_racks_as_possible(example: Site) -> None:
    example.kubectl("apply", "-f", str(EXAMPLE / "job-soft.yaml"))

    async def bound() -> list[str] | None:
        pods = await example.members[MEMBER].list(PODS, "default")
        nodes = [pod["spec"].get("nodeName") for pod in pods]
        return nodes if len(nodes) == 10 and all(nodes) else None

    racks = {(int(node.removeprefix("te")) + 1) // 2 for node in await until(bound, what="ten pods are bound")}
    assert len(racks) == 3


async def test_pods_are_balanced_over_racks_and_groups_are_in_racks_of_their_own(example: Site) -> None:
    member = example.members[MEMBER]
    example.kubectl("apply", "-f", str(EXAMPLE / "job-balanced.yaml"), "-f", str(EXAMPLE / "job-apart.yaml"))

    async def bound() -> dict[str, int] | None:
        nodes = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in await member.list(PODS, "default")}
        if len(nodes) != 10 or not all(nodes.values()):
            return None
        return {name: (int(node.removeprefix("te")) + 1) // 2 for name, node in nodes.items()}

    racks = await until(bound, what="ten pods are bound")
    even = Counter(rack for name, rack in racks.items() if name.startswith("even-"))
    assert sorted(even.values()) == [3, 3]
    first, second = ({racks[f"replicas-server-{index}"] for index in pair} for pair in ((0, 1), (2, 3)))
    assert (len(first), len(second), len(first | second)) == (1, 1, 2)
