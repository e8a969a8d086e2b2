"""One real federation for a whole test run, and a namespace of its own for every test."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from atoll.kube.transport import ApiServer
from atoll.local.atoll_federation import QUICK_ELECTION, AtollFederation
from atoll.local.layout import FederationConfig
from tests.integration.federation import Site, member

# Of the twenty programs of a federation one or two run at any time: in threads for each processor they wake each other
# in vain.
os.environ.setdefault("GOMAXPROCS", "1")

# A machine that is busy makes single examples slow; what must be fast is measured in bench/.
settings.register_profile("atoll", deadline=None)
settings.load_profile("atoll")

LAYOUT = FederationConfig(members=[member("alpha", 8), member("beta", 4), member("topo", 4, tree=False)])


_ASKS = re.compile(
    r"(?:fixture[^\n]*\n(?:async )?def \w+|^(?:async )?def test_\w+)"
    r"\([^)]*\b(?:site: Site|federation: AtollFederation)\b",
    re.MULTILINE,
)
_OWN = re.compile(r"^async def (?:site|federation)\(", re.MULTILINE)


class _ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """A file's tests in one process, all that use the session's federation in the first one.

    The first process begins with what starts federations, the others with what does not: as long as there is some of
    both, one federation at a time has the machine's processors, and its deadlines hold.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "federation" if uses_federation(file) else file

    def _assign_work_unit(self, node: Any) -> None:
        if node is not self.nodes[0]:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


@cache
def uses_federation(file: str) -> bool:
    """Whether tests of this file use the session's federation, and not merely one like it."""
    text = (Path(__file__).parent.parent / file).read_text()
    return bool(_ASKS.search(text)) and not _OWN.search(text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In several processes what needs a federation goes first, what needs none last."""
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if uses_federation(item.nodeid.partition("::")[0]):
        return 0
    return 1 if item.get_closest_marker("integration") else 2


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByFile:
    """Where tests run in several processes (-n 2)."""
    # The order is that of the collection.
    config.option.loadscopereorder = False
    return _ByFile(config, log)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def federation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AtollFederation]:
    """A host and three members, with every process of Atoll."""
    directory: Path = tmp_path_factory.mktemp("federation")
    quick = {
        "control": QUICK_ELECTION,
        "dispatcher": (*QUICK_ELECTION, "--most-refusals=2"),
        "agent": QUICK_ELECTION,
        "agent-beta": (f"--record={directory / 'agent-beta.log'}",),
    }
    async with AtollFederation(LAYOUT, directory, flags=quick) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def site(federation: AtollFederation) -> AsyncIterator[Site]:
    """The federation as one test sees it: a fresh namespace that has opted in, and administrator's clients."""
    host = await federation.host.connect()
    members: dict[str, ApiServer] = {name: await each.connect() for name, each in federation.members.items()}
    made = Site(federation, host, members)
    await made.open()
    try:
        yield made
    finally:
        await made.close()
        await asyncio.gather(host.close(), *(api.close() for api in members.values()))
