"""What `queue describe` says, from objects to data to text."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.dispatcher import objects
from atoll.model import keys
from atoll.model.decision import Phase
from atoll.model.verdict import Blocker, Reason
from atoll.view import bindings, queue_description
from tests.view.made import NOW, binding, described, queue


def test_an_empty_queue_without_limits() -> None:
    data = described(queue("idle"), [], [], NOW)
    text = queue_description.text(data)
    assert data["resources"] == data["running"] == data["pending"] == []
    assert "nothing is used, nothing is limited" in text
    assert "namespaces  all" in text


def test_limits_are_shown_with_what_is_deserved_and_kept() -> None:
    item = queue("q", capability={"cpu": "8"}, deserved={"cpu": "4"}, guarantee={"resource": {"cpu": "1"}})
    item["metadata"]["annotations"] = {
        keys.NAMESPACE_SELECTOR: '{"matchExpressions":[{"key":"x","operator":"Exists"}]}'
    }
    text = queue_description.text(described(item, [queue("child", parent="q")], [], NOW))
    assert "[........................] 0 of 8 (0%)  (deserves 4, keeps 1)" in text
    assert "x exists" in text
    assert "divided into child" in text


def test_waiting_workloads_are_in_order_and_say_why() -> None:
    waiting = binding(reason=Reason.QUOTA_EXCEEDED, blocker=Blocker("Queue", "research", "cpu", "4", "1"))
    data = described(queue("research"), [], [waiting], NOW)
    assert [each["position"] for each in data["pending"]] == [1]
    assert "has 1 cpu free for it, 4 needed" in queue_description.text(data)


def test_what_was_deleted_and_is_not_gone_is_charged_under_its_own_line() -> None:
    """Another workload of that name may wait until it is."""
    old = binding("old", phase=Phase.EVICTING, reason=Reason.EVICTED, clusters=("east",))
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    other = binding("other", phase=Phase.DISPATCHED, reason=Reason.DISPATCHED, clusters=("east",))
    data = described(queue("research"), [], [old, other], NOW)
    assert [(each["binding"], each.get("removing")) for each in data["running"]] == [
        ("old-job", True),
        ("other-job", None),
    ]
    [line] = [line for line in queue_description.text(data).splitlines() if "old-job" in line]
    assert "old-job (deleted)" in line
    assert "nvidia.com/gpu" in line


def test_memory_reads_only_bindings_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    read, before = [], objects.binding_view

    def counting(item: Any) -> Any:
        read.append(item.metadata.uid)
        return before(item)

    monkeypatch.setattr(bindings, "binding_view", counting)
    memory: bindings.Memory = {}
    first, second = binding("a"), binding("b")
    whole = bindings.views([first, second], memory=memory)
    assert read == ["binding-a", "binding-b"]
    changed = binding("b", priority=7)
    again = bindings.views([first, changed], memory=memory)
    assert read == ["binding-a", "binding-b", "binding-b"]
    assert again[0] is whole[0]
    assert again[1].gang is not None
    assert again[1].gang.priority == 7
    assert bindings.views([changed], memory=memory) == again[1:]
    assert memory.keys() == {"binding-b"}
