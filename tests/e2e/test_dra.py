"""Devices of a DRA driver on a real kubelet: claim, allocation, preparation, and the container's environment.

The driver of `examples/dra` runs as its DaemonSet; the runtime is a containerd with CDI.
"""

from __future__ import annotations

import asyncio
import subprocess
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from atoll.local import build
from atoll.local.atoll_federation import AtollFederation
from atoll.local.layout import FederationConfig, Member
from atoll.local.realnodes import images, node
from atoll.model.apiresource import RESOURCE_CLAIMS
from tests.e2e.charts import ENVIRONMENT, Ways, place_of
from tests.e2e.jobs import pid_of
from tests.integration.federation import Site, until
from tests.members.manifests import apply

Json = dict[str, Any]

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200), pytest.mark.asyncio(loop_scope="module")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "dra"
DRIVER = "registry.example.org/fake-devices:1"
CONFIG = FederationConfig(members=[Member(name="east", real_nodes=1, cdi=True)])
PATIENCE = 300.0


def driver_image(folder: Path) -> Path:
    """An archive of the driver, as the example's Dockerfile builds it."""
    build.check_go(EXAMPLE)
    program, layer, target = folder / "dra", folder / "layer.tar", folder / "driver.tar"
    argv = ["go", "build", "-mod=readonly", "-ldflags=-s -w", "-o", str(program), "."]
    subprocess.run(argv, cwd=EXAMPLE, env=build.environment(), check=True)
    with tarfile.open(layer, "w") as tar:
        tar.add(program, "dra", filter=images.as_root)
    images.archive(images.Recipe(name=DRIVER, command=["/dra"]), [layer], folder, target)
    return target


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def own(able: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AtollFederation]:
    """A member of one node, whose pods reach its API server, with the driver and a DeviceClass for each kind."""
    folder, ways = tmp_path_factory.mktemp("dra"), Ways()
    try:
        archive = await asyncio.to_thread(driver_image, folder)
    except build.BuildError as error:
        pytest.skip(str(error))
    async with AtollFederation(CONFIG, folder / "federation") as running, ways.stack:
        east = running.members["east"]
        await place_of(east, ways)
        await asyncio.to_thread(images.load, archive, node.containerd_socket(pid_of(running, "east-real0")))
        objects: list[Json] = list(yaml.safe_load_all((EXAMPLE / "driver.yaml").read_text()))
        [driver] = [each for each in objects if each["kind"] == "DaemonSet"]
        [container] = driver["spec"]["template"]["spec"]["containers"]
        container["env"] += ENVIRONMENT
        await asyncio.to_thread(apply, east, objects)
        yield running


async def test_each_container_has_a_gpu_and_the_nic_beside_it(own: AtollFederation) -> None:
    async with await own.host.connect() as host, await own.members["east"].connect() as east:
        site = Site(own, host, {"east": east})
        await site.open()
        objects = list(yaml.safe_load_all((EXAMPLE / "job.yaml").read_text()))
        [template] = [each["spec"]["tasks"][0]["template"]["spec"] for each in objects if each["kind"] == "Job"]
        template["containers"][0]["image"] = images.BUSYBOX
        site.kubectl("apply", "-n", site.namespace, "-f", "-", stdin=yaml.safe_dump_all(objects))
        done = await site.phase("train", "Completed", deadline=PATIENCE)
        assert done["status"]["succeeded"] == 2

        async def free() -> bool:
            claims = await east.list(RESOURCE_CLAIMS, site.namespace)
            return not any((claim.get("status") or {}).get("reservedFor") for claim in claims)

        await until(free, deadline=PATIENCE, what="no claim is reserved any more")
        await site.close()
