"""The queue of what is charged: another one on the binding moves no charge, it counts once the workload waits again."""

from __future__ import annotations

import dataclasses

from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    Scene,
    evicted,
    let_go,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
)


def scene() -> Scene:
    s = Scene(make_queue("small", gpu=2), make_queue("other", gpu=2), make_cluster("m"), make_capacity("m", [16]))
    s.submit(make_binding("a").queue("small").tasks(2))
    assert names(s.run()) == ["a"]
    s.bound("a", generation=1)
    return s


def relabel(s: Scene, name: str, queue: str, *, hold: bool = False) -> None:
    gang = s.view(name).gang
    assert gang is not None
    changes = {name: getattr(gang, name) for name in gang.__struct_fields__} | {"queue": queue, "hold": hold}
    s.change(name, gang=type(gang)(**changes))


def test_what_runs_goes_on_being_charged_to_the_queue_that_admitted_it() -> None:
    s = scene()
    relabel(s, "a", "other")
    assert (s.used("small"), s.used("other")) == (2, 0)
    s.submit(make_binding("b").queue("small"), make_binding("c").queue("other").tasks(2))
    assert names(s.run()) == ["c"]
    assert s.verdict("b") is Reason.QUOTA_EXCEEDED


def test_what_was_evicted_is_charged_there_until_it_has_gone_and_then_waits_in_the_other() -> None:
    s = scene()
    relabel(s, "a", "other", hold=True)
    assert evicted(s.run()) == ["a"]
    relabel(s, "a", "other")
    assert (s.used("small"), s.used("other")) == (2, 0)
    s.submit(make_binding("c").queue("other").tasks(2))
    assert names(s.run()) == ["c"]
    let_go(s, "a")
    assert (s.used("small"), s.used("other")) == (0, 2)
    s.run()
    assert s.verdict("a") is Reason.QUOTA_EXCEEDED


def test_a_dispatch_that_another_leader_decided_is_charged_as_it_says() -> None:
    s = scene()
    relabel(s, "a", "other")
    s.see(dataclasses.replace(s.view("a"), epoch=s.view("a").epoch + 2))
    assert (s.used("small"), s.used("other")) == (0, 2)
