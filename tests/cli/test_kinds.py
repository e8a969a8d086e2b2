"""`atollctl kinds`: what is served where, and why not elsewhere."""

from __future__ import annotations

from typing import Any

from atoll.cli.kinds import described, reasons
from atoll.kinds import KINDS, declared
from atoll.model.member import kind_feature
from atoll.model.release import VERSION
from tests.kinds.builders import workload_kind


def test_a_kind_is_served_where_its_crd_is_and_else_the_crd_is_named() -> None:
    there = [kind.resource for kind in KINDS if kind.words.title != "RayJob"]
    job_set = next(kind.resource for kind in KINDS if kind.words.title == "JobSet")
    agents = {
        "east": {"features": [kind_feature(job_set)], "version": VERSION},
        "new": {},
        "west": {"features": [], "version": VERSION},
        "past": {"features": [], "version": "0.1"},
    }
    found = {each["kind"]: each for each in described(KINDS, there, agents)}
    assert found["RayJob"]["host"] == {
        "served": False,
        "reason": "CRD rayjobs.ray.io with version v1 is not there",
    }
    assert found["JobSet"]["host"] == {"served": True, "reason": ""}
    assert found["JobSet"]["members"] == {
        "east": "",
        "new": "its agent has not said what it serves",
        "past": "CRD jobsets.jobset.x-k8s.io with version v1alpha2 is not there, or its agent (0.1) does not know it",
        "west": "CRD jobsets.jobset.x-k8s.io with version v1alpha2 is not there",
    }
    # What every API server has, and what Atoll brings, is everywhere.
    assert set(found["Deployment"]["members"].values()) == set(found["Volcano Job"]["members"].values()) == {""}


def test_a_reason_that_the_host_and_members_share_is_said_once() -> None:
    agents = {name: {"features": [], "version": VERSION} for name in ("east", "west")}
    row = next(each for each in described(KINDS, [], agents) if each["kind"] == "RayJob")
    assert reasons(row) == "host, east, west: CRD rayjobs.ray.io with version v1 is not there"


def test_a_declared_kind_says_what_its_workload_kind_and_the_agents_say() -> None:
    kind = declared.kind_of(workload_kind())
    condition = {"type": "Served", "status": "False", "message": "Atoll may not patch trainings"}
    obj = {**workload_kind(), "status": {"conditions": [condition]}}
    feature = kind_feature(kind.resource)
    agents: dict[str, dict[str, Any]] = {
        "east": {"features": [], "unserved": {feature: "list trainings"}},
        "west": {"features": [feature]},
    }
    (row,) = described([kind], [kind.resource], agents, {obj["metadata"]["name"]: obj})
    assert row["host"] == {"served": False, "reason": "Atoll may not patch trainings"}
    assert row["members"]["west"] == ""
    assert row["members"]["east"].startswith("its agent may not list trainings")
