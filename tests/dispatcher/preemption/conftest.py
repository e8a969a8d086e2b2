"""Both ways in which victims are found."""

from __future__ import annotations

import pytest

from atoll.dispatcher.core.settings import PreemptionSettings
from tests.dispatcher.preemption.stage import Stage


@pytest.fixture(params=[4096, 0], ids=["trying all sets", "searching"])
def tries(request, monkeypatch):
    monkeypatch.setattr(Stage, "settings", PreemptionSettings(exhaustive=request.param))
