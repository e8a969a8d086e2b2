"""What a story tells of other tenants: their queue, and nothing of their workloads."""

from __future__ import annotations

import msgspec

from tests.dispatcher.builders import make_binding, make_queue
from tests.dispatcher.virtual import Town, gpus


def test_a_story_names_the_queues_of_others_and_not_their_workloads() -> None:
    """1. `lent` runs in all of the room. 2. What queue `owed` deserves is taken back for `secret-claimant`."""
    t = Town(
        make_queue("owed", view={"deserved": {"nvidia.com/gpu": 4}}),
        make_queue("lends", view={"deserved": {"nvidia.com/gpu": 4}}),
        m=gpus(8),
    )
    for number in range(8):
        t.submit(make_binding(f"secret-victim-{number}").queue("lends"))
    t.run(200)
    t.submit(make_binding("secret-claimant").queue("owed").tasks(2))
    t.run(60)
    assert t.started("secret-claimant") is not None
    assert len(t.evicted()) == 2
    told = {view.name: msgspec.json.encode(view.decision.story).decode() for view in t.views.values()}
    victims = [text for name, text in told.items() if "Reclaimed" in text]
    assert victims
    for name, text in told.items():
        others = [each for each in told if each != name and each in text]
        assert not others, f"{name} tells of {others}: {text}"
    assert any("owed" in text for text in victims)
