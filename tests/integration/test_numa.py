"""A pod that no NUMA node can align waits on the host, whatever else the federation has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from atoll.kube.transport import ApiServer
from atoll.model.apiresource import BINDINGS, CAPACITIES, CRDS, NODES, NUMA_TOPOLOGIES
from tests.integration.federation import Site, job, until
from tests.integration.foreign_crds import bring
from tests.integration.gangs import allow_division

pytestmark = pytest.mark.integration
NAMES = ("alpha", "beta")


def topology(node: str, policy: str) -> dict[str, Any]:
    """Two NUMA nodes of two CPUs."""
    return {
        "apiVersion": NUMA_TOPOLOGIES.api_version,
        "kind": NUMA_TOPOLOGIES.kind,
        "metadata": {"name": node},
        "spec": {
            "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": policy},
            "numares": {"cpu": {"allocatable": "0-3", "capacity": 4}},
            "cpuDetail": {str(cpu): {"numa": cpu // 2, "socket": 0, "core": cpu} for cpu in range(4)},
        },
    }


def guaranteed(name: str, *, cpu: str = "3", **more: Any) -> dict[str, Any]:
    made = job(name, seconds=None, **more)
    amounts = {"cpu": cpu, "memory": "64Mi"}
    container = made["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": amounts, "limits": amounts}
    return made


async def told(site: Site, policy: str | None) -> None:
    """Wait until the host knows this policy of every node of both members; of none, where it is None."""

    async def look() -> bool:
        found = [each["spec"] for name in NAMES for each in await site.host.list(CAPACITIES, f"karmada-es-{name}")]
        said = {(profile.get("numa") or {}).get("policy") for each in found for profile in each["profiles"]}
        return len(found) >= len(NAMES) and said == {policy}

    await until(look, what=f"the host knows of {policy}")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def described(administrator: tuple[ApiServer, dict[str, ApiServer]]) -> AsyncIterator[list[ApiServer]]:
    """Both members, which have the CRD of Numatopologies some time after their agents began."""
    members = [administrator[1][name] for name in NAMES]
    await bring(members, [NUMA_TOPOLOGIES])
    yield members
    for member in members:
        await member.delete(CRDS, f"{NUMA_TOPOLOGIES.plural}.{NUMA_TOPOLOGIES.group}")


@pytest.fixture
async def numa(site: Site, described: list[ApiServer], request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Numatopologies of this policy."""
    policy: str = request.param
    try:
        for member in described:
            await _describe(member, policy)
        await told(site, policy)
        yield policy
    finally:
        for member in described:
            for each in await member.list(NUMA_TOPOLOGIES):
                await member.delete(NUMA_TOPOLOGIES, each["metadata"]["name"])
        await told(site, None)


async def _describe(member: ApiServer, policy: str) -> None:
    for node in await member.list(NODES):
        await member.create(NUMA_TOPOLOGIES, topology(node["metadata"]["name"], policy))


@pytest.mark.parametrize("numa", ["single-numa-node"], indirect=True)
@pytest.mark.parametrize("divided", [False, True])
async def test_what_no_numa_node_can_align_is_never_dispatched_and_its_verdict_names_numa(
    site: Site, numa: str, divided: bool
) -> None:
    if divided:
        await allow_division(site, *NAMES)
    else:
        await site.only("alpha")
    await site.submit(guaranteed("wide", replicas=2 if divided else 1))
    decision = await site.decided("wide")
    assert decision["reason"] == "NoNodeMatches", decision
    assert "NUMA" in decision["blocker"]["message"]
    await site.submit(guaranteed("fits", cpu="2", replicas=2 if divided else 1))
    await site.phase("fits", "Running")
    binding = await site.find(BINDINGS, "wide-job")
    assert binding is not None
    assert not binding["spec"].get("clusters")
    said = site.kubectl("get", "events", "-n", site.namespace, "-o", "jsonpath={.items[*].reason}")
    assert "PartRefused" not in said


@pytest.mark.parametrize("numa", ["none", "best-effort", "restricted"], indirect=True)
async def test_a_pod_of_two_numa_nodes_runs_where_the_policy_takes_it(site: Site, numa: str) -> None:
    await site.only("alpha")
    await site.submit(guaranteed("wide"))
    await site.phase("wide", "Running")
