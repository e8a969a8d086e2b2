"""One federation with real nodes for all of these tests: two in member `east`, one in `west`, and none that is simulated.

The agent of `west` runs in push mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from atoll.local import processes
from atoll.local.atoll_federation import AtollFederation
from atoll.local.layout import FederationConfig, Member
from atoll.local.realnodes import images, node, requirements
from tests.e2e.jobs import left, pid_of
from tests.integration.federation import Site, until

_HERE = Path(__file__).parent
_IMAGES = _HERE.parents[1] / "examples" / "images"
CONFIG = FederationConfig(
    members=[
        Member(name="east", real_nodes=2, allow_exec=True),
        Member(name="west", real_nodes=1, allow_exec=True, push=True),
    ],
    images=[_IMAGES / "mpi"],
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder are e2e tests."""
    here = f"{_HERE}/"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session", autouse=True)
def able() -> None:
    """Skip where the machine can't run real nodes; start processes as users do."""
    processes.launch = processes.execute
    try:
        requirements.check({**requirements.RUN, **requirements.BUILD})
    except requirements.Missing as error:
        pytest.skip(str(error))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real(able: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AtollFederation]:
    """A host and two members whose nodes run containers."""
    flags = {"agent-east": ("--set=busy.every=10",)}
    async with AtollFederation(CONFIG, tmp_path_factory.mktemp("real"), flags=flags) as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def large(request: pytest.FixtureRequest, real: AtollFederation) -> AsyncIterator[dict[str, asyncio.Task[str]]]:
    """Folder -> the name of its image, once node `west-real0` has it: while other tests run, as it takes a while."""
    wanted = {name for each in request.session.items for name in ("torch", "ray") if name in each.fixturenames}  # type: ignore[attr-defined]
    given = {name: asyncio.create_task(_give(real, name)) for name in sorted(wanted)}
    yield given
    await asyncio.gather(*given.values(), return_exceptions=True)


async def _give(federation: AtollFederation, folder: str) -> str:
    name, archive = await asyncio.to_thread(images.build, _IMAGES / folder, print)
    await asyncio.to_thread(images.load, archive, node.containerd_socket(pid_of(federation, "west-real0")))
    return name


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def leaves_nothing(real: AtollFederation) -> AsyncIterator[list[str]]:
    """Namespaces of which real nodes have nothing in the end.

    Looked at after all tests: a kubelet looks for sandboxes of pods that are gone once a minute.
    """
    namespaces: list[str] = []
    yield namespaces
    names = [name for each in CONFIG.members for name in each.real_node_names()]

    async def none() -> bool:
        return not any([await left(real, name, each) for name in names for each in namespaces])

    await until(none, deadline=150, what="no container, address or mount is left")


@pytest_asyncio.fixture(loop_scope="session")
async def site(real: AtollFederation, large: dict[str, asyncio.Task[str]]) -> AsyncIterator[Site]:
    """The federation as one test sees it: a fresh namespace that has opted in, and administrator's clients."""
    host = await real.host.connect()
    members = {name: await each.connect() for name, each in real.members.items()}
    made = Site(real, host, members)
    await made.open()
    try:
        yield made
    finally:
        await made.close()
        await asyncio.gather(host.close(), *(api.close() for api in members.values()))
