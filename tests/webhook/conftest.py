"""The real API server that the tests of policies, process and replicas need, one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from atoll.install import host_crds
from atoll.local.binaries import ensure
from atoll.local.cluster import ClusterHandle
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def bare_host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClusterHandle]:
    """A host that has the CRDs. Whoever prepares it takes the webhook configurations away again: `init` keeps those
    that are there, with their address.
    """
    config = FederationConfig.model_construct(members=[])
    directory = tmp_path_factory.mktemp("webhook")
    binaries = ensure(report=lambda _: None)
    async with Federation(config, directory=directory, binaries=binaries, crds=host_crds()) as bare:
        yield bare.host
