"""The real API server that the tests of the whole process need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def host_kubeconfig() -> Path:
    """Administrator of a host that has the CRDs and nothing else of Atoll."""
    named = os.environ.get("ATOLL_TEST_KUBECONFIG")
    if not named:
        pytest.skip("ATOLL_TEST_KUBECONFIG names no API server with Atoll's CRDs")
    return Path(named)
