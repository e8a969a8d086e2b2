"""What pods insist on that only some placers look at."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model import needs

REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))


@pytest.mark.parametrize(
    ("spec", "found", "fields"),
    [
        pytest.param({"containers": [{"name": "c"}]}, [], [], id="nothing"),
        pytest.param(
            {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "kubernetes.io/hostname"}]}}},
            ["pod-affinity"],
            [f"affinity.podAntiAffinity.{REQUIRED}"],
            id="pod anti-affinity",
        ),
        pytest.param(
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}, {"whenUnsatisfiable": "DoNotSchedule"}]},
            ["topology-spread"],
            ["topologySpreadConstraints[1]"],
            id="a hard spread",
        ),
        pytest.param(
            {"containers": [{"ports": [{"containerPort": 1}, {"containerPort": 2, "hostPort": 80}]}]},
            ["host-ports"],
            ["containers[0].ports[1].hostPort"],
            id="a host port",
        ),
        pytest.param(
            {"hostNetwork": True, "containers": [{"ports": [{"containerPort": 1}]}]},
            ["host-ports"],
            ["containers[0].ports[0].hostPort"],
            id="any port on the host network",
        ),
        pytest.param({"resourceClaims": [{"name": "gpu"}]}, ["resource-claims"], ["resourceClaims"], id="a claim"),
        pytest.param(
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            [],
            ["volumes[0].persistentVolumeClaim"],
            id="a volume, of which the member knows more",
        ),
        pytest.param({"affinity": "x", "containers": [1], "volumes": {}}, [], [], id="nonsense"),
    ],
)  # fmt: skip
def test_what_is_insisted_on(spec: dict[str, Any], found: list[str], fields: list[str]) -> None:
    assert needs.of([spec]) == found
    assert [each.field for each in needs.asked(spec)] == fields
