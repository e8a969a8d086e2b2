"""`atollctl cluster` and `atollctl top`: from objects to tables, and taints from words."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.cli import clusters
from atoll.cli.errors import CommandError
from atoll.view import clusters as shown
from atoll.view import top
from tests.view.made import NOW, T0, queue, told

Json = dict[str, Any]

GPU = "nvidia.com/gpu"


def member(name: str = "east", *, taints: list[Json] | None = None) -> Json:
    conditions = [
        {"type": "Ready", "status": "True", "lastTransitionTime": T0},
        {"type": "Placer", "status": "True", "reason": "Atoll"},
    ]
    return {
        "metadata": {"name": name, "creationTimestamp": T0, "labels": {"size": "large"}},
        "spec": {"taints": taints or []},
        "status": {"conditions": conditions, "kubernetesVersion": "v1.34.0"},
    }


def capacity(name: str = "east") -> Json:
    classes = [{"nodes": 3, "free": {"cpu": 16000, GPU: 8}}, {"nodes": 1, "free": {"cpu": 4000, GPU: 0}}]
    return {
        "metadata": {"name": "nodes", "namespace": f"karmada-es-{name}"},
        "spec": {"cluster": name, "total": {"cpu": 64000, GPU: 32}, "classes": classes},
    }


def work(applied: bool) -> Json:
    conditions = [{"type": "Applied", "status": "True"}] if applied else []
    return {"metadata": {"name": "w", "namespace": "karmada-es-east"}, "status": {"conditions": conditions}}


LEASE = {
    "metadata": {"name": "atoll-agent", "namespace": "karmada-es-east"},
    "spec": {"renewTime": "2027-01-15T07:59:58Z"},
}


def test_a_member_is_listed_with_what_is_free_of_all() -> None:
    found = shown.summary(member(), [capacity(), capacity("west")], [work(True), work(False)], [LEASE])
    [row] = shown.rows([found], NOW, wide=False)
    assert row == ["east", "True", "v1.34.0", "Atoll", 4, "24/32", "52/64", "1/2", "2s ago", "60s"]
    lines = shown.text(found, NOW).splitlines()
    assert "  nvidia.com/gpu           24 of 32 (25% used)" in lines
    assert "  works       2, of which 1 are not applied yet" in lines


def test_a_member_of_which_nothing_is_known_is_listed() -> None:
    bare: Json = {"metadata": {"name": "new"}}
    [row] = shown.rows([shown.summary(bare, [], [], [])], NOW, wide=True)
    assert row[:4] == ["new", "Unknown", "", ""]


@pytest.mark.parametrize(
    ("words", "taints"),
    [
        pytest.param(["a=b:NoSchedule"], [{"key": "a", "value": "b", "effect": "NoSchedule"}], id="one more"),
        pytest.param(["old:NoExecute"], [{"key": "old", "effect": "NoExecute"}], id="the same again"),
        pytest.param(["old:NoExecute-"], [], id="one less"),
        pytest.param(["old-"], [], id="by its key"),
        pytest.param(["old:NoSchedule-"], [{"key": "old", "effect": "NoExecute"}], id="none of that effect"),
    ],
)
def test_taints_change_as_kubectl_has_it(words: list[str], taints: list[Json]) -> None:
    before = member(taints=[] if words == ["a=b:NoSchedule"] else [{"key": "old", "effect": "NoExecute"}])
    assert clusters.tainted(before, [clusters.parse_taint(each) for each in words]) == taints


def test_a_taint_that_evicts_says_since_when_and_keeps_that() -> None:
    wanted = [clusters.parse_taint("a=b:NoExecute"), clusters.parse_taint("c:NoSchedule")]
    first = clusters.dated(member(taints=[]), wanted)
    assert [each["key"] for each in first if "timeAdded" in each] == ["a"]
    first[0]["timeAdded"] = "2026-01-01T00:00:00Z"
    assert clusters.dated(member(taints=first), wanted) == first


@pytest.mark.parametrize("word", ["a", "a=b", "a:Sometimes", ":NoSchedule"])
def test_what_is_no_taint_is_refused(word: str) -> None:
    with pytest.raises(CommandError, match=r"write key|is none of"):
        clusters.parse_taint(word)


def test_the_fullest_come_first() -> None:
    queues = [
        told(queue("a", capability={"cpu": "8"}), allocated={"cpu": "2"}, running=1),
        told(queue("b", capability={"cpu": "8"}), allocated={"cpu": "7500m", "memory": "1Gi"}),
    ]
    assert top.queue_rows(queues) == [
        ["b", 0, 0, "cpu", "7500m", "8", "94%"],
        ["a", 1, 0, "cpu", "2", "8", "25%"],
        ["b", 0, 0, "memory", "1Gi", "", ""],
    ]
    found = shown.summary(member(), [capacity()], [], [])
    assert top.member_rows([found]) == [
        ["east", "Atoll", 4, GPU, "8", "32", "25%"],
        ["east", "Atoll", 4, "cpu", "12", "64", "19%"],
    ]
