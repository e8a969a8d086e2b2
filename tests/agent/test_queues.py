"""Queues of the member: turns, limits and waiting times of gangs that entered there."""

from __future__ import annotations

from typing import Any

import orjson

from atoll.agent.queues import decode_queue
from atoll.agent.scheduler.core import Bind, Command, MemberCore, Pass
from atoll.agent.scheduler.core.events import Configured, PodGone, PodGroupSet, PodSet, QueueGone, QueueSet, Whose
from atoll.model import keys
from tests.agent.builders import make_group, make_node, make_pod
from tests.agent.telling import core_of, of, settle

START = 1_767_225_600.0
"""2026-01-01T00:00:00Z, when every gang of these tests is made."""


def queue(core: MemberCore, name: str, waiting: str = "", **spec: Any) -> None:
    notes = {keys.SLA_WAITING_TIME: waiting} if waiting else {}
    body = {"metadata": {"name": name, "annotations": notes}, "spec": spec}
    core.handle(QueueSet(decode_queue(orjson.dumps(body))))


def submit(
    core: MemberCore, name: str, to: str, pods: int = 1, cpu: str = "1", *, priority: int = 0, waiting: str = "",
    binding: str = "", minimum: int | None = None,
) -> None:  # fmt: skip
    """A gang that asks for a queue."""
    group = make_group(name, pods if minimum is None else minimum, queue=to)
    if waiting:
        group.metadata.annotations["volcano.sh/sla-waiting-time"] = waiting
    core.handle(PodGroupSet(group))
    for number in range(pods):
        pod = make_pod(f"{name}-{number}", group=name, cpu=cpu, priority=priority, index=number, binding=binding)
        core.handle(PodSet(pod, Whose.OURS))


def bound(commands: list[Command]) -> list[str]:
    """Names of the gangs, in the order in which they were bound."""
    return [each.gang.removeprefix("default/") for each in of(Bind, commands)]


def passes(core: MemberCore, now: float, clock: float = 0.0) -> list[Command]:
    commands = core.handle(Pass(now, clock))
    while core.due:
        commands += core.handle(Pass(now, clock))
    return commands


def end(core: MemberCore, *pods: str) -> None:
    for pod in pods:
        core.handle(PodGone(f"default/{pod}"))


def test_queues_take_turns_by_their_weight_whatever_is_older() -> None:
    core = core_of(make_node("n", cpu="6"))
    queue(core, "a", weight=2)
    queue(core, "b", weight=1)
    for number in range(5):
        submit(core, f"a{number}", "a")
    for number in range(5):
        submit(core, f"b{number}", "b")
    found = bound(settle(core))
    assert found == ["a0", "b0", "a1", "a2", "b1", "a3"]


def test_a_queue_is_measured_by_what_it_deserves_of_the_resource_that_it_has_most_of() -> None:
    offers: Any = {"cpu": "8", "nvidia.com/gpu": "8"}
    core = core_of(make_node("n", **offers))
    queue(core, "a", deserved={"cpu": "8", "nvidia.com/gpu": "2"})
    queue(core, "b", deserved={"cpu": "2", "nvidia.com/gpu": "6"})
    for name in ("a", "b"):
        for number in range(4):
            submit(core, f"{name}{number}", name, cpu="1")
    found = bound(settle(core))
    assert found.count("a0") == 1
    # One CPU is an eighth of what a deserves and half of what b does.
    assert found[:6] == ["a0", "b0", "a1", "a2", "a3", "b1"]


def test_a_queue_of_a_higher_priority_is_served_first_and_those_below_another_share_its_part() -> None:
    core = core_of(make_node("n", cpu="4"))
    queue(core, "root", deserved={"cpu": "4"})
    queue(core, "team", weight=1, parent="root")
    queue(core, "x", parent="team")
    queue(core, "y", parent="team")
    queue(core, "other", weight=1)
    queue(core, "first", priority=5)
    for name in ("x", "y", "other"):
        submit(core, f"{name}0", name)
        submit(core, f"{name}1", name)
    submit(core, "late", "first")
    assert bound(settle(core)) == ["late", "other0", "x0", "other1"]


def test_what_ended_is_no_longer_a_part_of_its_queues_share() -> None:
    core = core_of(make_node("n", cpu="2"))
    queue(core, "a")
    queue(core, "b")
    submit(core, "a0", "a", pods=2)
    assert bound(settle(core)) == ["a0"]
    submit(core, "a1", "a")
    submit(core, "b0", "b")
    end(core, "a0-0")
    assert bound(settle(core)) == ["b0"]
    end(core, "a0-1", "b0-0")
    assert bound(settle(core)) == ["a1"]


def test_what_the_host_sent_takes_no_turn_and_is_charged_to_no_queue_of_the_member() -> None:
    core = core_of(make_node("n", cpu="4"))
    queue(core, "a", capability={"cpu": "1"})
    queue(core, "b")
    submit(core, "sent", "a", pods=2, binding="binding")
    submit(core, "a0", "a")
    submit(core, "a1", "a")
    assert sorted(bound(settle(core))) == ["a0", "sent"]
    assert "queue a may use 0 more of cpu" in core.waits["default/a1"].message


def test_a_queue_never_gets_more_than_its_capability_and_goes_on_when_something_ends() -> None:
    core = core_of(make_node("n", cpu="8"))
    queue(core, "team", capability={"cpu": "3"})
    queue(core, "a", parent="team")
    submit(core, "elastic", "a", pods=5, minimum=1)
    settle(core)
    assert len(core.queues.own) == 3
    submit(core, "more", "a")
    assert bound(settle(core)) == []
    end(core, "elastic-0")
    settle(core)
    assert len(core.queues.own) == 3
    queue(core, "team")
    settle(core)
    assert len(core.queues.own) == 5
    assert not core.waits


def test_a_queue_that_does_not_exist_is_the_default_one() -> None:
    core = core_of(make_node("n", cpu="4"))
    queue(core, "default", capability={"cpu": "1"})
    submit(core, "a", "nothing-like-it")
    submit(core, "b", "")
    assert bound(settle(core)) == ["a"]
    core.handle(QueueGone("default"))
    assert bound(settle(core)) == ["b"]


def test_in_a_queue_the_gang_whose_waiting_time_ends_first_is_first_after_priority() -> None:
    core = core_of(make_node("n", cpu="8"))
    queue(core, "default", waiting="3h")
    submit(core, "a", "")
    submit(core, "b", "", waiting="1h")
    submit(core, "c", "", waiting="30m")
    submit(core, "d", "", priority=1)
    assert bound(passes(core, 0.0, START)) == ["d", "c", "b", "a"]


def test_a_gang_that_has_waited_too_long_is_next_and_smaller_ones_wait_behind_it() -> None:
    """1. Four pods run, a gang of four waits with a waiting time of a minute. 2. One pod ends before that: a younger
    pod takes its place. 3. The minute is over: what ends is kept until the gang fits, what the host sent goes on.
    """
    core = core_of(make_node("n", cpu="4"))
    for number in range(4):
        submit(core, f"old{number}", "")
    passes(core, 0.0, START)
    submit(core, "large", "", pods=4, waiting="1m")
    passes(core, 1.0, START + 1)
    assert core.deadline == 60.0
    end(core, "old0-0")
    submit(core, "small0", "")
    assert bound(passes(core, 2.0, START + 2)) == ["small0"]
    passes(core, 60.0, START + 60)
    submit(core, "small1", "")
    end(core, "old1-0")
    assert bound(passes(core, 61.0, START + 61)) == []
    assert "default/large is first" in core.waits["default/small1"].message
    submit(core, "sent", "", binding="binding")
    assert bound(passes(core, 62.0, START + 62)) == ["sent"]
    end(core, "old2-0", "old3-0", "small0-0", "sent-0")
    assert bound(passes(core, 63.0, START + 63)) == ["large"]
    end(core, "large-0")
    assert bound(passes(core, 64.0, START + 64)) == ["small1"]
    assert core.deadline is None


def test_a_gang_that_would_not_fit_without_the_others_keeps_none_of_them_waiting() -> None:
    core = core_of(make_node("n", cpu="4"))
    core.handle(Configured(waiting_time=10.0))
    submit(core, "huge", "", pods=5)
    submit(core, "small", "")
    assert bound(passes(core, 0.0, START)) == ["small"]
    submit(core, "next", "")
    assert bound(passes(core, 20.0, START + 20)) == ["next"]
    assert core.deadline is None


def test_a_gang_that_goes_lets_those_behind_it_start() -> None:
    core = core_of(make_node("n", cpu="2"))
    submit(core, "old", "")
    passes(core, 0.0, START)
    submit(core, "large", "", pods=2, waiting="5s")
    submit(core, "small", "", priority=-1)
    assert bound(passes(core, 10.0, START + 10)) == []
    end(core, "large-0", "large-1")
    assert bound(passes(core, 11.0, START + 11)) == ["small"]
