"""A divided gang that runs and is scaled by its user: it keeps the size that it was dispatched with."""

from __future__ import annotations

import dataclasses

import pytest

from tests.dispatcher.builders import GPU, make_binding, make_queue
from tests.dispatcher.virtual import Town, gpus


@pytest.mark.parametrize("pods", [1, 2, 3, 6])
def test_it_keeps_its_size_and_every_invariant_holds(pods: int) -> None:
    t = Town(make_queue("q"), m=gpus(8), n=gpus(8), check=True)
    t.submit(make_binding("wide").tasks(4, gpu=4).divided())
    t.run(20)
    assert t.running() == ["wide"]
    view = t.views["uid-wide"]
    assert len(view.parts) == 2
    gang = make_binding("wide").tasks(pods, gpu=4).divided().build().gang
    t.see(dataclasses.replace(view, gang=gang, generation=view.generation + 1))
    t.run(100)
    assert t.used("q", GPU) == 16
    t.lead_anew()
    t.core.check()
    t.run(10)
    assert t.used("q", GPU) == 16
    assert t.evicted() == []
