"""Counts of pods by member, and of indices where a workload is an array."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model.apiresource import BATCH_JOBS, JOB_ARRAYS, ApiResource
from atoll.view import pods

Json = dict[str, Any]

ARRAY = {"indices": "0-3", "atOnce": 2, "template": {"spec": {"tasks": [{"name": "worker", "replicas": 1}]}}}


@pytest.mark.parametrize(
    ("resource", "spec", "status", "said"),
    [
        pytest.param(
            JOB_ARRAYS,
            ARRAY,
            {"phase": "Failed", "succeeded": 3, "failed": 1},
            "m1: 3 succeeded, 1 failed of 4 indices; 2 pods at once",
            id="indices of an array that ran two at once",
        ),
        pytest.param(
            JOB_ARRAYS,
            {**ARRAY, "indices": "7"},
            {"phase": "Running", "running": 1},
            "m1: 1 running of 1 index; 2 pods at once",
            id="an array of one index",
        ),
        pytest.param(
            BATCH_JOBS, {"parallelism": 2}, {"active": 1, "succeeded": 1}, "m1: 1 pending, 1 succeeded of 2", id="pods"
        ),
        pytest.param(
            BATCH_JOBS,
            {"parallelism": 2, "completions": 4},
            {"active": 0, "succeeded": 3, "failed": 1},
            "m1: 3 succeeded, 1 failed; 2 pods at once",
            id="pods that made room for others",
        ),
    ],
)
def test_counts_of_a_member(resource: ApiResource, spec: Json, status: Json, said: str) -> None:
    workload = {"metadata": {"name": "x", "namespace": "ns"}, "spec": spec, "status": status}
    binding = {
        "spec": {"clusters": [{"name": "m1", "replicas": 2}]},
        "status": {"aggregatedStatus": [{"clusterName": "m1", "status": status}]},
    }
    assert pods.text(pods.describe(resource, workload, binding)).strip() == said
