"""Rows of `atollctl available`."""

from __future__ import annotations

from atoll.view import available

ITEM = {
    "metadata": {"name": "east"},
    "status": {
        "message": "is cordoned: it takes nothing new",
        "stocks": [
            {
                "resource": "nvidia.com/gpu",
                "free": "29",
                "total": "40",
                "node": "8",
                "gangs": [{"each": "4", "pods": 6, "near": 4}, {"each": "8", "pods": 3, "near": 0}],
            },
            {"resource": "rdma/hca", "free": "0", "total": "4", "node": "0"},
        ],
        "queues": [{"queue": "research", "resources": {"nvidia.com/gpu": "16"}}, {"queue": "default"}],
        "more": 2,
    },
}


def test_a_row_for_each_resource_with_gangs_and_queues() -> None:
    first, second = available.rows([ITEM])
    assert first == ["east", "nvidia.com/gpu", "29", "40", "8", "6x4 3x8", "4x4", "research (16), default, +2"]
    assert second == ["east", "rdma/hca", "0", "4", "0", "", "", "research, default, +2"]
    assert available.rows([ITEM], "rdma/hca") == [second]
    assert available.notes([ITEM, {"metadata": {"name": "west"}, "status": {}}]) == [
        "member east is cordoned: it takes nothing new"
    ]


def test_a_member_that_no_queue_of_the_namespace_uses() -> None:
    item = {
        "metadata": {"name": "east"},
        "status": {"stocks": [{"resource": "cpu", "free": "1", "total": "2", "node": "1"}]},
    }
    assert available.rows([item]) == [["east", "cpu", "1", "2", "1", "", "", "none"]]
