"""A leader that is lost is followed within seconds, and never is anything decided twice.

The leader is cut off here, which asks most of the tests in late writes; `-m long` has the other losses, and
`python -m tests.faults.leadership` the table over many repetitions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from atoll.local.atoll_federation import AtollFederation
from tests.faults.leadership import BOUND_S, Candidate, Loss, candidates, play
from tests.integration.federation import Site

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pair(federation: AtollFederation, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[list[Candidate]]:
    """Two dispatchers behind proxies, in place of the federation's own."""
    own = federation.process("dispatcher")
    await own.stop()
    directory: Path = tmp_path_factory.mktemp("proxies")
    try:
        async with candidates(federation, directory) as found:
            yield found
    finally:
        await own.start()
        await own.ready()


@pytest.mark.parametrize(
    "loss", [each if each is Loss.CUT else pytest.param(each, marks=pytest.mark.long) for each in Loss]
)
async def test_the_standby_decides_in_time_and_nothing_is_decided_twice(
    pair: list[Candidate], site: Site, loss: Loss
) -> None:
    """1. A decision is on its way. 2. The leader is lost. 3. The standby decides. 4. The old one can act again, and
    what it had sent arrives: it is refused, by the test of the epoch that it was made on.
    """
    seen = await play(site, pair, loss)
    # The bound is that of a machine that does nothing else (`python -m tests.faults.leadership`).
    assert seen.takeover <= BOUND_S + 60
    assert (seen.doubled, seen.late_done, seen.fresh) == (0, 0, 0)
    assert loss is not Loss.CUT or seen.late_refused
