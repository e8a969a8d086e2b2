"""Override policies at admission: what Karmada refuses, what would change a decision, and what has no effect."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.webhook.overrides import override_problems, override_warnings

Json = dict[str, Any]
JOB: Json = {"apiVersion": "batch/v1", "kind": "Job"}


def policy(*selectors: Json, target: Json | None = None, **overriders: Any) -> Json:
    rule = {"overriders": overriders, **({"targetCluster": target} if target else {})}
    return {"spec": {"resourceSelectors": list(selectors) or [JOB], "overrideRules": [rule]}}


def patched(path: str, value: Any = "x", operator: str = "replace") -> Json:
    operation = {"path": path, "operator": operator, **({"value": value} if value is not None else {})}
    return policy(plaintext=[operation])


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(patched("/spec/template/spec/containers/0/image"), id="an image"),
        pytest.param(patched("/metadata/labels/team", "a", "add"), id="a label"),
        pytest.param(patched("/data/replicas", "3"), id="a key of a ConfigMap, whatever its name"),
        pytest.param(
            patched("/spec/template/spec/containers/0/env/-", {"name": "limits", "value": "1"}, "add"),
            id="a variable, whatever its name",
        ),
        pytest.param(policy({**JOB, "namespace": "team"}, labelsOverrider=[{"operator": "add", "value": {"a": "b"}}]), id="its own namespace"),
        pytest.param({"spec": {"overriders": {"imageOverrider": [{"component": "Tag", "operator": "remove"}]}}}, id="the older form"),
        pytest.param({}, id="what the schema refuses"),
    ],
)  # fmt: skip
def test_what_is_taken(given: Json) -> None:
    assert override_problems(given, "team") == []


@pytest.mark.parametrize(
    ("given", "field", "text"),
    [
        pytest.param(patched("/spec/replicas", 3), "plaintext[0].path", "the size of the gang", id="replicas"),
        pytest.param(patched("/spec/tasks/0/minAvailable", 1), "plaintext[0].path", "the size of the gang", id="the minimum"),
        pytest.param(
            patched("/spec/template/spec/containers/0/resources/limits/cpu", "2"),
            "plaintext[0].path",
            "what its queue is charged",
            id="resources",
        ),
        pytest.param(
            patched("/spec/template/spec/containers/0", {"name": "a", "resources": {"requests": {"cpu": 1}}}),
            "plaintext[0].path",
            "charged",
            id="resources inside of what is written",
        ),
        pytest.param(patched("/spec/queue", "b"), "plaintext[0].path", "its place in the queues", id="the queue"),
        pytest.param(
            patched("/spec/template/spec/schedulingGates", [], "add"), "plaintext[0].path", "who places", id="gates"
        ),
        pytest.param(patched("/spec/template/spec/schedulerName"), "plaintext[0].path", "who places", id="the scheduler"),
        pytest.param(patched("/spec/template/spec/nodeSelector", {}), "plaintext[0].path", "nodes", id="the nodes"),
        pytest.param(patched("/spec/suspend", True), "plaintext[0].path", "when it runs", id="the switch"),
        pytest.param(patched("/metadata/name"), "plaintext[0].path", "labels and annotations", id="the name"),
        pytest.param(patched("/metadata/annotations/atoll.sh~1epoch"), "plaintext[0].path", "labels and annotations", id="the epoch"),
        pytest.param(patched("/kind"), "plaintext[0].path", "another object", id="the kind"),
        pytest.param(patched("", {}), "plaintext[0].path", "another object", id="the whole object"),
        pytest.param(patched("spec/x"), "plaintext[0].path", "JSON pointer", id="no pointer"),
        pytest.param(patched("/spec/x", None, "add"), "plaintext[0].value", "needed to add", id="nothing to add"),
        pytest.param(patched("/spec/x", 1, "remove"), "plaintext[0].value", "not used", id="a value to remove"),
        pytest.param(
            policy(annotationsOverrider=[{"operator": "add", "value": {"scheduling.volcano.sh/queue-name": "b"}}]),
            "annotationsOverrider[0].value[scheduling.volcano.sh/queue-name]",
            "can't be overridden",
            id="the queue's annotation",
        ),
        pytest.param(
            policy(imageOverrider=[{"component": "Tag", "operator": "add"}]),
            "imageOverrider[0].value",
            "needed to add",
            id="no tag",
        ),
        pytest.param(
            policy(fieldOverrider=[{"fieldPath": "/data/x"}]), "fieldOverrider[0]", "json or yaml", id="no document"
        ),
        pytest.param(
            policy({**JOB, "namespace": "other"}),
            "spec.resourceSelectors[0].namespace",
            "that namespace's objects",
            id="another namespace",
        ),
        pytest.param(
            policy(target={"fieldSelector": {"matchExpressions": [{"key": "rack", "operator": "In"}]}}),
            "targetCluster.fieldSelector.matchExpressions[0].key",
            "provider, region or zone",
            id="an unknown field of clusters",
        ),
        pytest.param(
            {"spec": {"targetCluster": {"clusterNames": ["a"]}, "overrideRules": [{"overriders": {}}]}},
            "spec.targetCluster",
            "older form",
            id="both forms",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(given: Json, field: str, text: str) -> None:
    problems = override_problems(given, "team")
    assert any(each.field.endswith(field) and text in each.message for each in problems), problems


def test_a_policy_of_the_cluster_selects_any_namespace() -> None:
    assert override_problems(policy({**JOB, "namespace": "other"}), "") == []


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        pytest.param(policy(labelsOverrider=[{"operator": "add", "value": {"a": "b"}}]), [], id="what acts"),
        pytest.param(policy(), ["spec.overrideRules"], id="no overrider"),
        pytest.param(
            policy({"apiVersion": "v1", "kind": "Service"}, plaintext=[{}]), ["spec.resourceSelectors[0]"], id="no such kind"
        ),
        pytest.param(
            policy({"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": {"matchLabels": {"a": "b"}}}, plaintext=[{}]),
            ["spec.resourceSelectors[0].labelSelector"],
            id="ConfigMaps by label",
        ),
    ],
)  # fmt: skip
def test_what_has_no_effect_is_told(given: Json, fields: list[str]) -> None:
    assert [each.field for each in override_warnings(given)] == fields
