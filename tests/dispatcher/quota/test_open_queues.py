"""Queues that are open to some namespaces only: what comes from others waits, whenever that became so."""

from __future__ import annotations

import pytest

from atoll.dispatcher.core import Event, NamespaceGone, NamespaceSet, NamespaceView, QueueGone, Strategy
from atoll.model.verdict import Blocker, Reason
from tests.dispatcher.builders import (
    GPU,
    Scene,
    evicted,
    explained,
    let_go,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
)

OURS = {"matchLabels": {"team": "a"}}
CLOSED = make_queue("q", view={"namespaces": OURS})
OPENED = NamespaceSet(NamespaceView("default", labels={"team": "a"}))
OTHER = NamespaceSet(NamespaceView("default", labels={"team": "b"}))


def scene(*events: Event) -> Scene:
    return Scene(make_cluster("m"), make_capacity("m", [4]), *events)


@pytest.mark.parametrize(
    "events",
    [
        pytest.param((CLOSED, OTHER), id="other labels"),
        pytest.param((CLOSED,), id="a namespace that nobody told of"),
        pytest.param((CLOSED, OPENED, NamespaceGone("default")), id="one that is gone"),
        pytest.param((CLOSED, NamespaceSet(NamespaceView("default", {GPU: 4}))), id="a namespace with a quota alone"),
    ],
)
def test_what_comes_from_another_namespace_waits_and_says_why(events: tuple[Event, ...]) -> None:
    s = scene(*events).submit(make_binding("a"))
    told = explained(s.run())["a"].decision
    assert (told.reason, told.blocker) == (Reason.QUEUE_NOT_OPEN, Blocker("Queue", "q"))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(OPENED, id="the namespace gets the label"),
        pytest.param(make_queue("q"), id="the queue is opened to all"),
        pytest.param(make_queue("q", view={"namespaces": {"matchLabels": {"team": "b"}}}), id="the queue wants others"),
    ],
)
def test_it_goes_once_the_queue_is_open_to_it(change: Event) -> None:
    s = scene(CLOSED, OTHER).submit(make_binding("a"))
    assert names(s.run()) == []
    assert names(s.tell(change).run()) == ["a"]


def test_a_workload_that_named_its_queue_before_that_existed_waits() -> None:
    s = scene(OTHER).submit(make_binding("a"))
    s.run()
    assert s.verdict("a") is Reason.QUEUE_NOT_FOUND
    s.tell(CLOSED)
    assert names(s.run()) == []
    assert s.verdict("a") is Reason.QUEUE_NOT_OPEN
    s.tell(QueueGone("q"))
    s.run()
    assert s.verdict("a") is Reason.QUEUE_NOT_FOUND


@pytest.mark.parametrize(
    "change", [OTHER, NamespaceGone("default"), make_queue("q", view={"namespaces": {"matchLabels": {"x": "y"}}})]
)
def test_what_runs_goes_on_and_what_waits_does_not_start_when_the_queue_is_shut(change: Event) -> None:
    s = scene(CLOSED, OPENED).submit(make_binding("a").tasks(3), make_binding("b").tasks(2))
    assert names(s.run()) == ["a"]
    s.bound("a", generation=1)
    s.tell(change)
    assert evicted(s.run()) == []
    assert (s.used("q"), s.verdict("b")) == (3, Reason.QUEUE_NOT_OPEN)
    s.gone("a")
    s.tell(make_capacity("m", [4], generation=2))
    assert names(s.run()) == []
    assert names(s.tell(CLOSED, OPENED).run()) == ["b"]


def test_what_was_evicted_meanwhile_waits_outside() -> None:
    s = scene(CLOSED, OPENED).submit(make_binding("a"))
    s.run()
    s.tell(OTHER)
    s.change("a", gang=make_binding("a").held().build().gang)
    assert evicted(s.run()) == ["a"]
    let_go(s, "a")
    s.change("a", gang=make_binding("a").build().gang)
    assert names(s.run()) == []
    assert s.verdict("a") is Reason.QUEUE_NOT_OPEN


@pytest.mark.parametrize("strategy", list(Strategy))
def test_no_workload_waits_for_one_that_is_outside(strategy: Strategy) -> None:
    """Neither behind it in a strict queue nor because of room that was kept for it."""
    s = scene(make_queue("q", view={"namespaces": OURS, "strategy": strategy}), OPENED)
    s.tell(NamespaceSet(NamespaceView("theirs", labels={"team": "a"})))
    s.submit(make_binding("runs").tasks(2))
    s.run()
    s.submit(
        make_binding("large").tasks(4), make_binding("small").having(namespace="theirs").created("2026-01-01T00:00:01Z")
    )
    s.run()
    s.tell(OTHER)
    s.run()
    assert s.view("small").parts, "it was started"


def test_an_elastic_workload_grows_no_more() -> None:
    s = scene(CLOSED, OPENED).submit(make_binding("a").tasks(4, minimum=1), make_binding("b").tasks(2).priority(1))
    s.run()
    s.bound("b", generation=1)
    s.bound("a", generation=1)
    pods = s.used("q")
    s.tell(OTHER)
    s.gone("b")
    s.tell(make_capacity("m", [2], generation=2))
    s.run()
    assert s.used("q") == pods - 2
