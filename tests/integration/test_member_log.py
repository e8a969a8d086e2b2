"""What an agent records of its scheduler on a real API server is decided again with the same result."""

from __future__ import annotations

import pytest

from atoll.model.apiresource import POD_GROUPS, PODS
from atoll.sim import replay
from tests.integration.beside import bare, beside
from tests.integration.federation import Site, until

pytestmark = pytest.mark.integration

GROUP = "scheduling.k8s.io/group-name"


async def test_a_recorded_run_of_a_member_is_decided_again_with_the_same_result(site: Site) -> None:
    """1. A gang of two is bound, a pod asks for more than any node has. 2. The gang goes, and another comes. 3. The log
    holds all of it, only its owner may read it, and a fresh core answers the same.
    """
    async with beside(site, "beta") as member:
        await member.create(PODS, bare("large", site.namespace, cpu="99"))
        for gang in ("first", "second"):
            group = {
                "apiVersion": POD_GROUPS.api_version,
                "kind": POD_GROUPS.kind,
                "metadata": {"name": gang, "namespace": site.namespace},
                "spec": {"minMember": 2},
            }
            await member.create(POD_GROUPS, group)
            for index in range(2):
                await member.create(PODS, bare(f"{gang}-{index}", site.namespace, notes={GROUP: gang}))

            async def bound(gang: str = gang) -> bool:
                pods = [
                    pod for pod in await member.list(PODS, site.namespace) if pod["metadata"]["name"].startswith(gang)
                ]
                return len(pods) == 2 and all(pod["spec"].get("nodeName") for pod in pods)

            await until(bound, what=f"gang {gang} is bound")
            await member.delete(PODS, f"{gang}-0", site.namespace)
    path = site.federation.federation.directory / "agent-beta.log"
    assert path.stat().st_mode & 0o777 == 0o600
    lines = path.read_bytes().splitlines(keepends=True)
    assert any(f'"{site.namespace}/first-0"'.encode() in line for line in lines if line.startswith(b'["Commands"'))
    done = replay.replay(lines)
    assert (done.events > 20, done.commands > 4) == (True, True)
