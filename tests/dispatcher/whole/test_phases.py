"""Which phase may follow which is one table; what is not in it is a defect that tells the story."""

from __future__ import annotations

import re

import pytest

from atoll.dispatcher.core.lifecycle.phases import NEXT, IllegalTransition, follow
from atoll.model.decision import Phase
from tests.dispatcher.builders import make_binding, make_capacity, make_cluster, scene


def test_every_phase_has_its_line() -> None:
    assert NEXT.keys() == set(Phase)


@pytest.mark.parametrize(("before", "after"), [(a, b) for a in Phase for b in Phase])
def test_only_what_the_table_names_is_decided(before: Phase, after: Phase) -> None:
    s = scene().submit(make_binding("a"))
    binding = s.core.bindings["uid-a"]
    binding.phase = before
    if after in NEXT[before]:
        follow(binding, after)
        assert binding.phase is after
        return
    with pytest.raises(IllegalTransition):
        follow(binding, after)
    assert binding.phase is before


def test_what_does_not_follow_is_told_with_the_story() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [8]))).submit(make_binding("a").tasks(1))
    s.run()
    binding = s.core.bindings["uid-a"]
    assert binding.phase is Phase.DISPATCHED
    with pytest.raises(IllegalTransition, match=re.escape("/a: Dispatched -> Reserving; story: ")) as raised:
        s.core.state.change_phase(binding, Phase.RESERVING)
    assert f"Dispatched {binding.view.decision.story[-1].reason}" in str(raised.value)
