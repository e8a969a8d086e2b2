"""`atollctl kinds`: what is served where, and why not elsewhere."""

from __future__ import annotations

from atoll.cli.kinds import described
from atoll.kinds import KINDS
from atoll.model.member import kind_feature


def test_a_kind_is_served_where_its_crd_is_and_else_the_crd_is_named() -> None:
    there = [kind.resource for kind in KINDS if kind.words.title != "RayJob"]
    job_set = next(kind.resource for kind in KINDS if kind.words.title == "JobSet")
    features = {"east": [kind_feature(job_set)], "new": None, "west": []}
    found = {each["kind"]: each for each in described(KINDS, there, features)}
    assert found["RayJob"]["host"] == {
        "served": False,
        "reason": "CRD rayjobs.ray.io with version v1 is not there",
    }
    assert found["JobSet"]["host"] == {"served": True, "reason": ""}
    assert found["JobSet"]["members"] == {
        "east": "",
        "new": "its agent has not said what it serves",
        "west": "CRD jobsets.jobset.x-k8s.io with version v1alpha2 is not there, or its agent is older",
    }
    # What every API server has, and what Atoll brings, is everywhere.
    assert set(found["Deployment"]["members"].values()) == set(found["Volcano Job"]["members"].values()) == {""}
