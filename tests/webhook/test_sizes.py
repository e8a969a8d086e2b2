"""Workloads that a Work can't carry, or whose names a member can't record, are refused at admission."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest

from atoll.kinds import BY_GVK
from atoll.webhook.sizes import problems

TEXT = base64.b64encode(random.Random(7).randbytes(1_200_000)).decode()


def workload(annotations: dict[str, str] | None = None, **container: Any) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", **container}]}}
    about = {"name": "j", "namespace": "n", "annotations": annotations or {}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": {"template": template}}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param(workload(args=[TEXT[: 1 << 20]]), "", id="1 MiB of incompressible arguments"),
        pytest.param(workload({"data": TEXT[:140_000]}), "", id="an annotation of 140 kB"),
        pytest.param(
            workload({"kubectl.kubernetes.io/last-applied-configuration": TEXT[:250_000]}, args=[TEXT[:250_000]]),
            "",
            id="what kubectl keeps stays on the host",
        ),
        pytest.param(workload(args=[TEXT]), "on its way to a member, which holds 1310720", id="1.5 MB"),
        pytest.param(
            workload(env=[{"name": TEXT[n * 32 : n * 32 + 32], "value": ""} for n in range(12_000)]),
            "make names fewer and shorter",
            id="400 kB of incompressible names",
        ),
        pytest.param(workload({"data": TEXT[:250_000]}), "shorten annotations", id="annotations with no room left"),
        pytest.param({"metadata": {}, "spec": {}}, "", id="what others refuse"),
    ],
)
def test_a_workload_is_refused_that_no_member_could_get(given: dict[str, Any], words: str) -> None:
    found = list(problems(BY_GVK["batch/v1", "Job"], given))
    assert len(found) == bool(words)
    assert all(words in str(each) for each in found)
