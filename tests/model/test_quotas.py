"""Which pods a ResourceQuota with scopes is for; `tests/attacks/test_quotas.py` compares that with an API server."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model.gang import scopes_of
from atoll.model.quotas import Scope, scopes_in

ASKS = {"resources": {"requests": {"cpu": "1"}}}
CROSS = "CrossNamespacePodAffinity"
REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))


@pytest.mark.parametrize(
    ("spec", "default", "found"),
    [
        pytest.param({"containers": [ASKS]}, "", [], id="none"),
        pytest.param({"containers": [ASKS], "priorityClassName": "high"}, "low", ["PriorityClass=high"], id="a class"),
        pytest.param({"containers": [ASKS]}, "low", ["PriorityClass=low"], id="the class that pods get that name none"),
        pytest.param({"containers": [ASKS], "activeDeadlineSeconds": 0}, "", ["Terminating"], id="a deadline"),
        pytest.param({"containers": [{}]}, "", ["BestEffort"], id="asks for nothing"),
        pytest.param({"containers": [{"resources": {"limits": {"memory": "1"}}}]}, "", [], id="a limit alone"),
        pytest.param({"containers": [{"resources": {"requests": {"cpu": "0"}}}]}, "", ["BestEffort"], id="asks for 0"),
        pytest.param(
            {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}, "", ["BestEffort"], id="devices alone"
        ),
        pytest.param({"containers": [{}], "initContainers": [ASKS]}, "", [], id="an init container asks"),
        pytest.param({"containers": [{}], **ASKS}, "", [], id="the pod asks"),
        pytest.param(
            {"containers": [ASKS], "affinity": {"podAffinity": {REQUIRED: [{"namespaceSelector": {}}]}}},
            "",
            [CROSS],
            id="pods of all namespaces",
        ),
        pytest.param(
            {
                "containers": [ASKS],
                "affinity": {"podAntiAffinity": {PREFERRED: [{"podAffinityTerm": {"namespaces": ["b"]}}]}},
            },
            "",
            [CROSS],
            id="pods of a namespace",
        ),
        pytest.param(
            {"containers": [ASKS], "affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}},
            "",
            [],
            id="pods of its own namespace",
        ),
    ],
)
def test_the_scopes_of_a_pod(spec: dict[str, Any], default: str, found: list[str]) -> None:
    assert scopes_of(spec, default) == found


@pytest.mark.parametrize(
    ("scope", "counted"),
    [
        pytest.param(Scope("PriorityClass", "Exists"), ["PriorityClass=high"], id="any class"),
        pytest.param(Scope("PriorityClass", "DoesNotExist"), ["", "Terminating", "BestEffort"], id="no class"),
        pytest.param(Scope("PriorityClass", "In", ("high", "low")), ["PriorityClass=high"], id="a class of several"),
        pytest.param(Scope("PriorityClass", "NotIn", ("high",)), ["", "Terminating", "BestEffort"], id="another class"),
        pytest.param(Scope("Terminating"), ["Terminating"], id="terminating"),
        pytest.param(
            Scope("NotTerminating"), ["", "PriorityClass=high", "BestEffort"], id="not terminating"
        ),
        pytest.param(Scope("BestEffort"), ["BestEffort"], id="best effort"),
        pytest.param(Scope("NotBestEffort"), ["", "PriorityClass=high", "Terminating"], id="not best effort"),
        pytest.param(Scope("VolumeAttributesClass"), [], id="a scope that is not of pods"),
    ],
)  # fmt: skip
def test_which_pods_a_scope_is_for(scope: Scope, counted: list[str]) -> None:
    pods = ["", "PriorityClass=high", "Terminating", "BestEffort"]
    assert [pod for pod in pods if scope.matches([pod] if pod else [])] == counted


def test_a_quota_has_scopes_in_two_forms() -> None:
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "NotIn", "values": ["low"]}]}
    assert scopes_in(["Terminating"], selector) == (Scope("Terminating"), Scope("PriorityClass", "NotIn", ("low",)))
    assert scopes_in([], None) == ()
