"""Fixtures for tests of members of one form: see forms.py."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from atoll.local.atoll_federation import AtollFederation
from tests.integration.federation import Site
from tests.members.forms import federation_of, site_of

Start = Callable[..., Awaitable[AtollFederation]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def forms(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Start]:
    """Starts federations that last for the module: `await forms("volcano", "plain")`; one that has all members of these
    forms already serves again.
    """
    running: list[AtollFederation] = []
    async with contextlib.AsyncExitStack() as stack:

        async def start(*names: str) -> AtollFederation:
            for each in running:
                if each.members.keys() >= set(names):
                    return each
            directory = tmp_path_factory.mktemp("-".join(names))
            running.append(await stack.enter_async_context(federation_of(*names, directory=directory)))
            return running[-1]

        yield start


@pytest_asyncio.fixture(loop_scope="session")
async def member_site(forms: Start, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """A test's view of a federation of the forms that its mark names: `@pytest.mark.members("plain", "volcano")`."""
    mark = request.node.get_closest_marker("members")
    assert mark is not None, "say which members: @pytest.mark.members(...)"
    async with site_of(await forms(*mark.args)) as made:
        yield made
