"""A divided gang that runs and is scaled by its user: it keeps the size that it was dispatched with, and says so."""

from __future__ import annotations

import dataclasses

import pytest

from atoll.model.verdict import Reason
from tests.dispatcher.builders import GPU, make_binding, make_queue
from tests.dispatcher.virtual import Town, gpus


def scale(t: Town, pods: int) -> None:
    t.edit("uid-wide", make_binding("wide").tasks(pods, gpu=4).divided())
    t.run(10)


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


@pytest.mark.parametrize("pods", [1, 6])
def test_its_user_is_told_for_as_long_as_it_is_so(pods: int) -> None:
    t = Town(make_queue("q"), m=gpus(8), n=gpus(8), check=True)
    t.submit(make_binding("wide").tasks(4, gpu=4).divided())
    t.run(20)
    scale(t, pods)
    decision = t.views["uid-wide"].decision
    assert decision.reason is Reason.SIZE_KEPT
    told = f"it runs in several members and keeps the size that it began with: clusters m, n: 4 pods, {pods} asked for"
    assert decision.story[-1].text.startswith(told)
    count = len(t.commands)
    t.run(100)
    t.lead_anew()
    t.run(100)
    assert len(t.commands) == count, "it is told once"
    scale(t, pods + 1)
    assert f"{pods + 1} asked for" in t.views["uid-wide"].decision.story[-1].text
    scale(t, 4)
    assert t.views["uid-wide"].decision.reason is Reason.DISPATCHED
    assert t.used("q", GPU) == 16
