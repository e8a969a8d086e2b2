"""A real federation for each process of a test run, and a namespace of its own for every test."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from atoll.install import member_crds
from atoll.kube.transport import ApiServer
from atoll.local import processes
from atoll.local.atoll_federation import QUICK_ELECTION, AtollFederation
from atoll.local.layout import FederationConfig
from tests import forked
from tests.integration.federation import Site, member
from tests.integration.foreign_crds import crd
from tests.integration.kind_samples import OF_OTHERS

# Of the twenty programs of a federation one or two run at any time: in threads for each processor they wake each other
# in vain.
os.environ.setdefault("GOMAXPROCS", "1")

processes.launch = forked.launch

# A machine that is busy makes single examples slow; what must be fast is measured in bench/.
# The same examples everywhere; `--hypothesis-profile=random`, as in `make fuzz`, looks for new ones.
settings.register_profile("atoll", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.load_profile("atoll")

LAYOUT = FederationConfig(members=[member("alpha", 8), member("beta", 4), member("topo", 4, tree=False)])


_ASKS = re.compile(
    r"(?:fixture[^\n]*\n(?:async )?def \w+|^(?:async )?def test_\w+)"
    r"\([^)]*\b(?:site: Site|federation: AtollFederation)\b",
    re.MULTILINE,
)
_OWN = re.compile(r"^async def (?:site|federation)\(", re.MULTILINE)
_INTEGRATION = "mark.integration"


class Needs(IntEnum):
    """What has to run for the tests of a file."""

    SESSION = 0
    """The session's federation: a process starts one for the first file that uses it."""
    OWN = 1
    """API servers that the file starts itself."""
    NOTHING = 2


_PREFERENCES = (
    (Needs.SESSION, Needs.OWN, Needs.NOTHING),
    (Needs.OWN, Needs.NOTHING, Needs.SESSION),
    (Needs.NOTHING, Needs.OWN, Needs.SESSION),
)
"""What the first, second and third process take first, the fourth as the first: tests with API servers partly wait, and
leave processors to those without.
"""
WORTH_A_FEDERATION = 10
"""So many files wait for each session's federation that runs when a further process starts one, which costs 35 seconds of CPU
and a sixth of a core as long as it runs.
"""


TOGETHER = {f"tests/webhook/test_{name}.py": "tests/webhook/test_policies.py" for name in ("process", "replicas")}
"""File -> the first of those that share a server: the same process runs them."""

LONGEST = {
    f"tests/{name}.py"
    for name in (
        "docs/test_install_page", "install/test_install", "install/test_invitations", "install/test_uninstall",
        "integration/test_lost", "integration/test_placers", "integration/test_restarts", "integration/test_shared_host",
        "integration/test_variants",
    )
}  # fmt: skip
"""Files that take a minute or two: at the end of a run nothing else would be left to do beside one of these."""


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """A file's tests in one process, and files with different needs in different ones as long as there are such; of those
    with equal needs the longest first.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        #: processes that have a session's federation
        self._federations: set[Any] = set()

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return TOGETHER.get(file, file)

    def _reschedule(self, node: Any) -> None:
        if self.workqueue and not self._open_to(node):
            node.shutdown()
        else:
            super()._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        preference = _PREFERENCES[self.nodes.index(node) % len(_PREFERENCES)]
        file = min(
            self._open_to(node) or self.workqueue,
            key=lambda file: (preference.index(needs(file)), file not in LONGEST),
        )
        if needs(file) is Needs.SESSION:
            self._federations.add(node)
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)

    def _open_to(self, node: Any) -> list[str]:
        """Files that wait, without those whose federations other processes have and that are not worth a further one."""
        using = sum(needs(file) is Needs.SESSION for file in self.workqueue)
        running = self._federations.intersection(self.nodes)
        if node in running or using >= len(running) * WORTH_A_FEDERATION:
            return list(self.workqueue)
        return [file for file in self.workqueue if needs(file) is not Needs.SESSION]


@cache
def needs(file: str) -> Needs:
    """What the tests of a file need."""
    if uses_federation(file):
        return Needs.SESSION
    return Needs.OWN if _INTEGRATION in _text(file) else Needs.NOTHING


@cache
def uses_federation(file: str) -> bool:
    """Whether tests of this file use the session's federation, and not merely one like it."""
    return bool(_ASKS.search(_text(file))) and not _OWN.search(_text(file))


def _text(file: str) -> str:
    return (Path(__file__).parent.parent / file).read_text()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test of real API servers that fails runs once more, and the summary tells it as RERUN.

    Twenty programs on two processors miss a deadline now and then. A test without them runs once.
    """
    for item in items:
        if item.get_closest_marker("integration"):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Where tests run in several processes (-n 4)."""
    # The order is that of the collection.
    config.option.loadscopereorder = False
    return ByFile(config, log)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def federation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AtollFederation]:
    """A host and three members, with every process of Atoll; `test_roles` finds its logs by the name of its folder."""
    directory: Path = tmp_path_factory.mktemp("session")
    quick = {
        "control": QUICK_ELECTION,
        "dispatcher": (*QUICK_ELECTION, "--most-refusals=2"),
        "agent": QUICK_ELECTION,
        "agent-alpha": ("--hami",),
        "agent-beta": (f"--record={directory / 'agent-beta.log'}",),
    }
    crds = [*member_crds(), *map(crd, OF_OTHERS)]
    async with AtollFederation(LAYOUT, directory, flags=quick, crds_of={"alpha": crds, "beta": crds}) as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def administrator(federation: AtollFederation) -> AsyncIterator[tuple[ApiServer, dict[str, ApiServer]]]:
    """Clients of the host and of every member: a test that made its own would pay for the handshakes."""
    host = await federation.host.connect()
    members = {name: await each.connect() for name, each in federation.members.items()}
    yield host, members
    await asyncio.gather(host.close(), *(api.close() for api in members.values()))


@pytest_asyncio.fixture(loop_scope="session")
async def site(
    federation: AtollFederation, administrator: tuple[ApiServer, dict[str, ApiServer]]
) -> AsyncIterator[Site]:
    """The federation as one test sees it: a fresh namespace that has opted in, and administrator's clients."""
    host, members = administrator
    made = Site(federation, host, dict(members))
    await made.open()
    try:
        yield made
    finally:
        await made.close()
