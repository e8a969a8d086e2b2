"""What a namespace may use now, by the core's own figures."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.dispatcher.core.events import Ceiling, NamespaceSet, NamespaceView
from atoll.dispatcher.explain import available
from atoll.model.query import Available, GangSize, QueueLeft
from tests.dispatcher.builders import (
    GPU,
    Scene,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    no_execute,
    scene,
    with_amounts,
)

RACKS = make_capacity("m", {"r1": [8, 3], "r2": [8, 8, 2]})


def ask(s: Scene, namespace: str = "default", only: str = "") -> Available:
    s.run()
    return available.available(
        s.core, namespace, s.core.members.by_name["m"], available.queues_of(s.core, namespace, only)
    )


def test_free_amounts_and_the_largest_gangs_in_the_member_and_in_a_rack() -> None:
    found = ask(scene(make_queue("q"), room=(make_cluster("m"), RACKS)))
    [stock] = found.stocks
    assert (stock.resource, stock.free, stock.node) == (GPU, "29", "8")
    assert stock.gangs == [GangSize("1", 29, 18), GangSize("2", 14, 9), GangSize("4", 6, 4), GangSize("8", 3, 2)]


def test_dispatched_pods_that_no_member_has_published_are_not_free() -> None:
    s = scene(make_queue("q"), room=(make_cluster("m"), RACKS)).submit(make_binding("a").tasks(2, gpu=8))
    [stock] = ask(s).stocks
    assert (stock.free, stock.gangs[-1].pods) == ("13", 1)


def test_a_queue_has_left_what_its_limits_and_ceilings_and_the_namespace_allow() -> None:
    limited = NamespaceSet(NamespaceView("tight", limits={GPU: 3}))
    s = scene(
        make_queue("q", gpu=20), make_queue("capped", view={"members": {"m": Ceiling(capability={GPU: 5})}}), limited,
        room=(make_cluster("m"), RACKS),
    ).submit(make_binding("a").tasks(2, gpu=8))  # fmt: skip
    assert ask(s).queues == [QueueLeft("capped", {GPU: "5"}), QueueLeft("q", {GPU: "4"})]
    assert ask(s, "tight").queues == [QueueLeft("capped", {GPU: "3"}), QueueLeft("q", {GPU: "3"})]


def test_queues_that_take_nothing_of_it_there_are_left_out() -> None:
    """Closed, of other namespaces, of other members, with queues below, asked for by another name."""
    selector = {"matchLabels": {"team": "red"}}
    s = scene(
        NamespaceSet(NamespaceView("red", labels={"team": "red"})),
        make_queue("closed", is_open=False),
        make_queue("of-red", view={"namespaces": selector}),
        make_queue("elsewhere", view={"members": {"n": Ceiling()}}),
        make_queue("above"),
        make_queue("below", view={"parent": "above"}),
        room=(make_cluster("m"), make_cluster("n"), RACKS),
    )
    assert [each.queue for each in ask(s).queues] == ["below", "q"]
    assert [each.queue for each in ask(s, "red").queues] == ["of-red", "below", "q"]
    assert [each.queue for each in ask(s, "red", "below").queues] == ["below"]
    assert ask(s, "red", "nowhere").queues == []


def test_an_answer_is_bounded() -> None:
    wide = with_amounts(make_capacity("m", [1]), **{f"example.com/r{number}": 1 << 20 for number in range(20)})
    s = scene(*(make_queue(f"q{number:02}") for number in range(30)), room=(make_cluster("m"), wide))
    found = ask(s)
    assert (len(found.queues), found.more) == (available.MOST_QUEUES, 21)
    assert len(found.stocks) == available.MOST_STOCKS
    assert max(len(each.gangs) for each in found.stocks) == available.MOST_GANGS


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        pytest.param(make_cluster("m"), "", id="all is taken"),
        pytest.param(make_cluster("m", ready=False), "is not ready: it takes nothing", id="not ready"),
        pytest.param(
            make_cluster("m", taints=[no_execute()]),
            "takes only workloads of policies that tolerate broken",
            id="taint",
        ),
    ],
)
def test_a_member_that_does_not_take_everything_says_so(cluster: Any, message: str) -> None:
    assert ask(scene(make_queue("q"), room=(cluster, RACKS))).message == message
