"""Administrators' clients of the empty clusters of a module: its fixture `bare`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from atoll.kube.transport import ApiServer
from atoll.local.federation import Federation


@pytest_asyncio.fixture(loop_scope="module")
async def host(bare: Federation) -> AsyncIterator[ApiServer]:
    async with await bare.host.connect() as api:
        yield api


@pytest_asyncio.fixture(loop_scope="module")
async def east(bare: Federation) -> AsyncIterator[ApiServer]:
    async with await bare.members["east"].connect() as api:
        yield api
