"""Bindings are born suspended, and nothing else of them changes."""

from __future__ import annotations

import pytest

from atoll.admission import jsonpatch
from atoll.model import keys
from atoll.model.keys import CONTROL_ACCOUNT as CONTROL
from atoll.webhook import bindings
from tests.webhook.builders import Json

OTHER = {"dispatching": True, "dispatchingOnClusters": {"clusterNames": ["m1"]}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, {"scheduling": True}, id="an empty suspension"),
        pytest.param(None, {"scheduling": True}, id="no suspension"),
        pytest.param(OTHER, {**OTHER, "scheduling": True}, id="other suspensions are kept"),
        pytest.param({"scheduling": False}, {"scheduling": True}, id="not suspended on purpose"),
    ],
)
def test_a_binding_is_suspended(before: Json | None, after: Json) -> None:
    binding: Json = {"spec": {"replicas": 2, "suspension": before}}
    suspended = jsonpatch.applied(binding, bindings.suspend_binding(binding))
    assert suspended == {"spec": {"replicas": 2, "suspension": after}}
    assert bindings.suspend_binding(suspended) == []


def test_a_suspended_binding_is_left_alone() -> None:
    assert bindings.suspend_binding({"spec": {"suspension": {**OTHER, "scheduling": True}}}) == []


@pytest.mark.parametrize("spec", [3, [], "x", {"suspension": 3}, {"suspension": []}])
def test_what_is_no_object_is_left_to_the_schema(spec: object) -> None:
    assert bindings.suspend_binding({"spec": spec}) == []


@pytest.mark.parametrize(
    ("metadata", "username", "ours"),
    [
        pytest.param({}, CONTROL, True, id="made by our detector"),
        pytest.param({"annotations": {keys.GANG: "{}"}}, "somebody", True, id="with a gang"),
        pytest.param({"annotations": {"a": "b"}}, "karmada", False, id="of another system"),
        pytest.param({}, "somebody", False, id="without annotations"),
        pytest.param({"annotations": []}, "somebody", False, id="with annotations that are none"),
        pytest.param(None, "somebody", False, id="without metadata"),
    ],
)
def test_whose_binding_it_is(metadata: Json | None, username: str, ours: bool) -> None:
    assert bindings.is_ours({"metadata": metadata}, username) is ours
