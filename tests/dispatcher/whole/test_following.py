"""A core that follows another's decisions keeps nothing of what has gone, and decides like one that has just begun.

Whole histories are in `tests/dispatcher/quota/test_two_tenants.py`.
"""

from __future__ import annotations

from atoll.dispatcher.core import BindingGone, BindingSet, ClusterSet, Dispatcher, Event, Pass, QueueSet
from atoll.dispatcher.core.events import Circuit, ClusterView, Failure
from tests.dispatcher.builders import BACKFILL, Scene, make_binding, make_cluster, make_queue, named
from tests.dispatcher.memory import remembered, size


def surroundings() -> list[Event]:
    return [make_queue("q", view=BACKFILL), make_cluster("m"), named("m", [4, 4])]


def follower(*events: Event) -> Dispatcher:
    core = Dispatcher()
    for event in (*surroundings(), *events):
        core.follow(event)
    return core


def test_what_came_and_went_meanwhile_is_forgotten() -> None:
    """Each waits, runs, and is deleted; some in queues that there are not."""
    leader, core = Scene(*surroundings()), follower()

    def one(number: int) -> None:
        name = f"b{number}"
        queue = "q" if number % 3 else f"none-{number}"
        core.follow(BindingSet(leader.see(make_binding(name).queue(queue).tasks(2).build())))
        for _ in range(3):
            leader.run(after=1.0)
            core.follow(BindingSet(leader.view(name)))
        uid = leader.view(name).uid
        leader.gone(name)
        core.follow(BindingGone(uid))
        core.check()

    for number in range(50):
        one(number)
    before = size(core)
    for number in range(50, 250):
        one(number)
    names = [f"{kind}{number}" for kind in ("b", "uid-b", "none-") for number in range(250)]
    # Times that are over are swept in lots.
    assert len(remembered(core, names)) <= 64
    assert size(core) <= before + 300


def test_the_breaker_of_a_member_is_as_its_cluster_says_last() -> None:
    """The state of the first sight would keep work from a member that binds again."""
    opened = Circuit(True, 1, 1e12, Failure.NOT_BOUND)
    core = follower(ClusterSet(ClusterView("m"), opened))
    assert core.breakers.circuit("m") is not None
    core.follow(ClusterSet(ClusterView("m"), None))
    assert core.breakers.circuit("m") is None


def test_what_was_decided_meanwhile_is_charged_once() -> None:
    leader, core = Scene(*surroundings()), follower()
    for name in ("a", "b", "c"):
        leader.see(make_binding(name).tasks(4).build())
    leader.run()
    for view in leader.views.values():
        core.follow(BindingSet(view))
        core.follow(BindingSet(view))
    assert core.handle(Pass(leader.now + 1)) == []
    assert core.tree.queue("q").used == leader.core.tree.queue("q").used
    core.check()


def test_a_queue_that_changes_is_followed() -> None:
    core = follower(BindingSet(make_binding("a").tasks(2).build()))
    closed = make_queue("q", is_open=False)
    core.follow(QueueSet(closed.queue))
    assert not [each for each in core.handle(Pass(1.0)) if type(each).__name__ == "Dispatch"]
