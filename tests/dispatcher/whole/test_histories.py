"""Random histories with each extension keep what must hold."""

from __future__ import annotations

import pytest

from tests.dispatcher.builders import GPU, make_binding, make_queue
from tests.dispatcher.virtual import Town
from tests.dispatcher.whole.histories import EXTENSIONS, play


def test_members_that_failed_are_forgotten_though_nothing_happens_any_more() -> None:
    town = Town(make_queue("q"), answers=lambda *_: False, m=[{GPU: 4, "pods": 100}], n=[{GPU: 4, "pods": 100}])
    uid = town.submit(make_binding("wide").tasks(8, gpu=1).divided(most=2))
    town.run(10)
    assert town.core.state.failures.known
    town.delete(uid)
    town.run()
    assert not town.core.state.failures.known
    assert town.core.next_deadline is None


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_random_histories_keep_what_must_hold(extension: str) -> None:
    assert sum(play(extension, seed) for seed in range(3)) > 20, "too little runs to judge anything"


@pytest.mark.long
@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize("seed", range(3, 100))
def test_and_many_more(extension: str, seed: int) -> None:
    play(extension, seed)
