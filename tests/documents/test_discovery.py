"""`atollctl topology` on the nodes of the documents, with the labels that their text sets."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import pytest_asyncio

from atoll.model.apiresource import HYPER_NODES
from tests.atollctl import atollctl
from tests.documents.te_nodes import HERE, MEMBER, NAMES, knows, te_nodes
from tests.integration.federation import Site, until

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture(loop_scope="session")
async def there(site: Site) -> AsyncIterator[Site]:
    async with te_nodes(site):
        yield site


async def topology(site: Site, *args: str, code: int = 0) -> str:
    kubeconfig = site.federation.members[MEMBER].kubeconfig
    ran = await atollctl("topology", *args, f"--kubeconfig={kubeconfig}")
    assert ran.code == code, ran.out + ran.said
    return ran.out + ran.said


async def test_the_labels_of_the_text_become_hyper_nodes_that_the_member_uses(there: Site, tmp_path: Path) -> None:
    assert "no HyperNodes" in await topology(there, "tree")
    for line in (HERE / "003-labels.sh").read_text().splitlines():
        there.kubectl(*shlex.split(line)[1:], cluster=MEMBER)
    asked = ("discover", "--labels", "volcano.sh/rack", "--split", "-")
    shown = await topology(there, *asked)
    assert "hypernode/s0-s1-rack-1 would be created" in shown
    assert "nothing was changed: add --apply" in shown
    assert await there.members[MEMBER].list(HYPER_NODES) == []

    assert "hypernode/s0 created" in await topology(there, *asked, "--apply")
    await until(lambda: knows(there, NAMES, "s0"), what="the whole tree is known on the host")
    assert (await topology(there, *asked, "--apply")).endswith("\nnothing to change\n")
    drawn = await topology(there, "tree", "-r", "cpu")
    assert drawn.startswith("s0  tier 3, 8 nodes, 32 of 32 cpu free\n├─ s0-s1  tier 2, 4 nodes, 16 of 16 cpu free\n")
    assert "│  └─ s0-s1-rack-2  tier 1, 2 nodes, 8 of 8 cpu free: te3, te4\n" in drawn
    picture = tmp_path / "tree.svg"
    assert "7 domains" in await topology(there, "tree", "-r", "cpu", "--svg", str(picture))
    texts = [each.text for each in ElementTree.fromstring(picture.read_text()).iter() if each.text]
    assert "s0-s1-rack-2: tier 1, 2 nodes, 8 of 8 free (cpu)" in texts
    assert "7 domains in 3 tiers, 8 nodes: nothing is wrong" in await topology(there, "check")

    # Racks that somebody wrote say the same by names of nodes.
    assert "labelMatch" in await topology(there, "diff", "-f", str(HERE / "003-racks.yaml"), code=1)
    # A node moves; its rack is found empty and goes.
    for node in ("te1", "te2"):
        there.kubectl("label", "node", node, "volcano.sh/rack=s0-s1-rack-2", "--overwrite", cluster=MEMBER)
    changed = await topology(there, *asked, "--apply")
    assert "hypernode/s0-s1-rack-1 deleted" in changed


async def test_what_is_wrong_is_said_before_it_is_applied(there: Site) -> None:
    said = await topology(there, "check", "-f", str(HERE / "003-racks.yaml"))
    assert "4 domains in 1 tiers, 8 nodes" in said
    assert "give one of --labels" in await topology(there, "discover", code=2)
    assert "no node has all of these labels" in await topology(there, "discover", "--preset", "aws", code=1)
