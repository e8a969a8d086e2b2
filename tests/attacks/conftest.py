"""A tenant of the test's namespace, with his own account."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.federation import Site
from tests.integration.tenants import Tenant, made, rights_count


@pytest_asyncio.fixture(loop_scope="session")
async def tenant(site: Site) -> AsyncIterator[Tenant]:
    """With the built-in role `edit` in that namespace, and nothing else."""
    found = await made(site, "edit")
    await rights_count(found)
    yield found
    await found.api.close()
    found.kubeconfig.unlink()
