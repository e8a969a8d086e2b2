"""The real API server that the test of the whole process needs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from atoll.control.install import host_crds
from atoll.local.binaries import ensure
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig, Member


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def host_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """Administrator of a host that has the CRDs and nothing else of Atoll."""
    config = FederationConfig(members=[Member(name="unused", nodes=[])])
    directory = tmp_path_factory.mktemp("webhook")
    binaries = ensure(report=lambda _: None)
    async with Federation(config, directory=directory, binaries=binaries, crds=host_crds()) as bare:
        yield bare.host.kubeconfig
