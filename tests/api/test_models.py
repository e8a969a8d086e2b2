"""The models: raw objects pass through unharmed, and objects built in code are ready to be sent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from atoll.api import base
from atoll.api.atoll import ClusterCapacity, ClusterCapacitySpec, NodeClass
from atoll.api.batch import Job, JobSpec, TaskSpec
from atoll.api.models import KINDS, kind_of
from atoll.api.scheduling import Queue

SAMPLES: list[dict[str, Any]] = list(yaml.safe_load_all((Path(__file__).parent / "samples.yaml").read_text("utf-8")))
each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=[s["kind"] for s in SAMPLES])


def load(obj: dict[str, Any]) -> base.ApiObject:
    """Parse a raw object with the model of its kind."""
    model = kind_of(obj)
    assert model is not None
    return model.model_validate(obj)


def unknown_fields(value: Any, path: str = "") -> list[str]:
    """Paths at which a parsed model holds fields that it does not know."""
    if isinstance(value, base.ApiModel):
        found = [f"{path}.{name}" for name in value.model_extra or {}]
        for name in type(value).model_fields:
            found += unknown_fields(getattr(value, name), f"{path}.{name}")
        return found
    if isinstance(value, list):
        return [p for item in value for p in unknown_fields(item, f"{path}[]")]
    return []


def test_there_is_a_sample_of_every_kind() -> None:
    assert {(s["apiVersion"], s["kind"]) for s in SAMPLES} == set(KINDS)


@each_sample
def test_round_trip_loses_and_adds_nothing(sample: dict[str, Any]) -> None:
    assert load(sample).to_dict() == sample


@each_sample
def test_models_know_every_field_that_upstream_has(sample: dict[str, Any]) -> None:
    assert [p for p in unknown_fields(load(sample)) if not p.endswith(".futureField")] == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.from_regex(r"zz[A-Za-z_]{1,8}", fullmatch=True), json_values, max_size=3))
def test_any_unknown_field_survives_in_spec_and_below(extra: dict[str, Any]) -> None:
    raw = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j", **extra},
        "spec": {"tasks": [{"name": "t", "template": extra, **extra}], **extra},
    }
    assert load(raw).to_dict() == raw


def test_an_object_built_in_code_names_its_kind_and_holds_no_defaults() -> None:
    job = Job(metadata={"name": "j"}, spec=JobSpec(min_available=2, tasks=[TaskSpec(replicas=2)]))
    assert job.to_dict() == {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"minAvailable": 2, "tasks": [{"replicas": 2}]},
    }
    assert job.spec.policies == []


def test_capacity_for_nodes_outside_any_domain_has_an_empty_root() -> None:
    nodes = NodeClass(domain="", profile=0, nodes=2, free={"cpu": 1500, "pods": 110})
    spec = ClusterCapacitySpec(cluster="m1", generation=7, root="", objects=1, classes=[nodes])
    assert ClusterCapacity(metadata={"name": "m1"}, spec=spec).to_dict()["spec"] == {
        "cluster": "m1",
        "generation": 7,
        "root": "",
        "objects": 1,
        "classes": [{"domain": "", "profile": 0, "nodes": 2, "free": {"cpu": 1500, "pods": 110}}],
    }


@pytest.mark.parametrize(
    ("api_version", "kind", "known"),
    [
        pytest.param("batch.volcano.sh/v1alpha1", "Job", Job, id="Volcano Job"),
        pytest.param("batch/v1", "Job", None, id="a Job of another group is not ours"),
        pytest.param("scheduling.volcano.sh/v1beta1", "Queue", Queue, id="Queue"),
        pytest.param("scheduling.volcano.sh/v1", "Queue", None, id="another version is not ours"),
        pytest.param(None, None, None, id="an object without type"),
    ],
)
def test_kind_of(api_version: str | None, kind: str | None, known: Any) -> None:
    assert kind_of({"apiVersion": api_version, "kind": kind}) is known


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"weight": 0}, "weight"),
        ({"weight": 65536}, "weight"),
        ({"priority": -1}, "priority"),
        ({"dequeueStrategy": "lifo"}, "dequeueStrategy"),
    ],
)
def test_queue_refuses(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as error:
        Queue.model_validate({"spec": spec})
    assert [e["loc"] for e in error.value.errors()] == [("spec", field)]


@pytest.mark.parametrize("text", ["1", "0.5", ".5", "5.", "1e3", "1E-3", "500m", "64Gi", "+1", "-1", "3n"])
def test_pattern_accepts_quantity(text: str) -> None:
    assert re.search(base.QUANTITY_PATTERN, text)


@pytest.mark.parametrize("text", ["", "lots", "1 Gi", "1gi", "1K", "1e", "--1", ".", "1Gim"])
def test_pattern_refuses(text: str) -> None:
    assert not re.search(base.QUANTITY_PATTERN, text)
