"""Override policies at admission: what Karmada refuses, what would change a decision, and what has no effect."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from atoll.kube.reflector import Reflector
from atoll.model.apiresource import BATCH_JOBS, CLUSTER_OVERRIDES, OVERRIDES
from atoll.model.overrides import MOST_POLICIES, decode_override
from atoll.webhook.overrides import Policies, override_problems, override_warnings
from tests.kube.servers import client
from tests.model.hostile import BOMB

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


def test_a_policy_larger_than_a_work_can_record_is_refused() -> None:
    [problem] = override_problems(policy(annotationsOverrider=[{"operator": "add", "value": {"a": "x" * 65536}}]), "n")
    assert str(problem).startswith("spec: takes 65")


def test_a_policy_of_too_many_selectors_is_refused() -> None:
    [problem] = override_problems(policy(*[{**JOB, "name": f"j{n}"} for n in range(101)], **IMAGE), "n")
    assert str(problem) == "spec.resourceSelectors: has 101; 100 are the most"


IMAGE: Json = {"imageOverrider": [{"component": "Tag", "operator": "remove"}]}


def met(*given: Json) -> Policies:
    found = Policies(
        Reflector(client(9), OVERRIDES, decode_override), Reflector(client(9), CLUSTER_OVERRIDES, decode_override)
    )
    for number, each in enumerate(given):
        raw = {"metadata": {"name": f"p{number}", "namespace": "team", "uid": str(number)}, **each}
        found.own.put(f"team/p{number}", decode_override(orjson.dumps(raw)))
    return found


def document(place: str = "/metadata/annotations/doc", form: str = "yaml", **selector: str) -> Json:
    patch = [{"subPath": "/a", "operator": "add", "value": 1}]
    return policy({**JOB, **selector}, fieldOverrider=[{"fieldPath": place, form: patch}])


@pytest.mark.parametrize(
    ("given", "text", "words"),
    [
        pytest.param(document(), BOMB, "aliases", id="700 bytes that stand for 16 million values"),
        pytest.param(document(), "[" * 60_000, "64 levels", id="60,000 brackets"),
        pytest.param(document(form="json"), "[" * 60_000, "64 levels", id="60,000 brackets of JSON"),
        pytest.param(document(), "x" * 70_000, "the most that is read", id="a long document"),
        pytest.param(document(), "a: 1", "", id="a document"),
        pytest.param(document(name="other"), BOMB, "", id="a policy for another object"),
        pytest.param(document(place="/spec/none"), BOMB, "", id="a policy for another field"),
        pytest.param(policy(JOB, **IMAGE), BOMB, "", id="a policy that reads no document"),
    ],
)
def test_a_document_that_no_override_can_read_is_refused_with_the_workload(given: Json, text: str, words: str) -> None:
    workload = {"metadata": {"name": "j", "annotations": {"doc": text}}}
    found = list(met(given).problems(BATCH_JOBS, workload, "team"))
    assert len(found) == bool(words)
    assert all(words in str(each) and "path /metadata/annotations/doc" in str(each) for each in found)
    assert not list(met(given).problems(BATCH_JOBS, workload, "another"))


def test_documents_of_more_than_256_kib_together_are_refused() -> None:
    notes = {f"doc{n}": "a: 1 #" + "x" * 60_000 for n in range(5)}
    policies = met(*(document(f"/metadata/annotations/{name}") for name in notes))
    workload = {"metadata": {"name": "j", "annotations": notes}}
    [problem] = policies.problems(BATCH_JOBS, workload, "team")
    assert "more than 262144 bytes together" in str(problem)


def test_a_workload_that_too_many_policies_may_select_is_refused() -> None:
    policies = met(*(document() for _ in range(MOST_POLICIES + 1)))
    [problem] = policies.problems(BATCH_JOBS, {"metadata": {"name": "j"}}, "team")
    assert f"{MOST_POLICIES} are followed at most" in str(problem)
