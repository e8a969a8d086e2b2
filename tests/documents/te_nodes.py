"""The nodes that the documents speak of: te1 to te8, as `examples/topology` makes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from atoll.model.apiresource import CAPACITIES, HYPER_NODES, JOBS, NODES, POLICIES
from tests.integration.federation import Site, until

HERE = Path(__file__).parent
NODES_FILE = HERE.parents[1] / "examples" / "topology" / "nodes.yaml"
MEMBER = "topo"
NAMES = {f"te{number}" for number in range(1, 9)}


@asynccontextmanager
async def te_nodes(site: Site) -> AsyncIterator[Site]:
    """The member without a topology of its own has these nodes as well; jobs of the test go there and nowhere else."""
    policy = {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": {"name": "there", "namespace": site.namespace},
        "spec": {
            "resourceSelectors": [{"apiVersion": JOBS.api_version, "kind": JOBS.kind}],
            "placement": {"clusterAffinity": {"clusterNames": [MEMBER]}},
        },
    }
    await site.host.create(POLICIES, policy)
    site.kubectl("apply", "-f", str(NODES_FILE), cluster=MEMBER)
    await until(lambda: knows(site, NAMES), what="the nodes are known on the host")
    try:
        yield site
    finally:
        # Before their nodes, without which nothing ends them.
        await site.no_jobs()
        for resource in (HYPER_NODES, NODES):
            for obj in await site.members[MEMBER].list(resource):
                if resource is HYPER_NODES or obj["metadata"]["name"] in NAMES:
                    await site.members[MEMBER].delete(resource, obj["metadata"]["name"])


async def specs(site: Site) -> list[dict[str, object]]:
    """What the member publishes."""
    return [each["spec"] for each in await site.host.list(CAPACITIES, f"karmada-es-{MEMBER}")]


async def knows(site: Site, names: set[str], root: str | None = None) -> bool:
    """Whether these nodes are published; with a root, all in objects of that one."""
    found = [each for each in await specs(site) if root in (None, each["root"])]
    published = {name for each in found for one in each["classes"] for name in one.get("names", ())}  # type: ignore[attr-defined]
    return names <= published


def nodes_in(file: str) -> list[dict[str, object]]:
    """The objects of a document."""
    return list(yaml.safe_load_all((HERE / file).read_text()))
