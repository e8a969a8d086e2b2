"""Which pods an agent reads for whoever asks on the host."""

from __future__ import annotations

from atoll.agent.sessions import chosen
from atoll.model.tunnel import Wanted
from tests.agent.builders import make_pod

PODS = [make_pod(f"j-{task}-{index}", task=task, node="n1") for task in ("w", "a") for index in (10, 2)]


def names(wanted: Wanted) -> list[str]:
    waiting = make_pod("j-w-4", task="w")
    return [pod.metadata.name for pod in chosen(wanted, [*PODS, waiting])]


def test_pods_with_a_node_are_read_in_the_order_of_task_and_index() -> None:
    assert names(Wanted("default", "b")) == ["j-a-2", "j-a-10", "j-w-2", "j-w-10"]


def test_a_task_an_index_or_both_may_be_asked_for() -> None:
    assert names(Wanted("default", "b", task="w")) == ["j-w-2", "j-w-10"]
    assert names(Wanted("default", "b", index=10)) == ["j-a-10", "j-w-10"]
    assert names(Wanted("default", "b", task="a", index=2)) == ["j-a-2"]


def test_pods_of_another_namespace_are_never_read() -> None:
    assert names(Wanted("other", "b")) == []
