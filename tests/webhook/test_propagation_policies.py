"""Propagation policies at admission: what Karmada refuses of them."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.webhook.placements import policy_problems, policy_warnings

Json = dict[str, Any]
JOB: Json = {"apiVersion": "batch/v1", "kind": "Job"}
BY_ROOM: Json = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}


def policy(**spec: Any) -> Json:
    return {"spec": {"resourceSelectors": [JOB], **spec}}


def placed(**placement: Any) -> Json:
    return policy(placement=placement)


def group(name: str = "a", *tiers: str, **affinity: Any) -> Json:
    return {"affinityName": name, **affinity, "overflowAffinities": [{"affinityName": each} for each in tiers]}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(policy(), id="nothing"),
        pytest.param(placed(clusterAffinities=[group("a"), group("b")]), id="two groups"),
        pytest.param(
            placed(replicaScheduling=BY_ROOM, clusterAffinities=[group("a", "b", clusterNames=["m"])]), id="tiers"
        ),
        pytest.param(
            placed(spreadConstraints=[{"spreadByField": "region", "minGroups": 2}, {"spreadByField": "cluster"}]),
            id="regions and clusters",
        ),
        pytest.param(placed(spreadConstraints=[{"maxGroups": 2}]), id="clusters, where nothing is said"),
        pytest.param(policy(suspension={"dispatching": True}), id="suspended"),
        pytest.param({"spec": {"resourceSelectors": [{**JOB, "name": "a"}], "preemption": "Always"}}, id="preempting"),
        pytest.param(
            policy(
                failover={
                    "application": {
                        "decisionConditions": {"tolerationSeconds": 5},
                        "purgeMode": "Graciously",
                        "gracePeriodSeconds": 9,
                        "statePreservation": {"rules": [{"aliasLabelName": "a.b/c", "jsonPath": "{.x[0].y}"}]},
                    }
                }
            ),
            id="failing over",
        ),
        pytest.param({"spec": "x"}, id="what the schema refuses"),
    ],
)
def test_what_is_taken(given: Json) -> None:
    assert policy_problems(given, "team") == []


@pytest.mark.parametrize(
    ("given", "field", "text"),
    [
        pytest.param(
            placed(clusterAffinity={}, clusterAffinities=[group()]), "spec.placement", "not both", id="both affinities"
        ),
        pytest.param(placed(clusterAffinities=[group("a"), group("a")]), "[1].affinityName", "taken", id="one name twice"),
        pytest.param(placed(clusterAffinities=[group("a", "b")]), "overflowAffinities", "by room", id="tiers by weight"),
        pytest.param(
            placed(replicaScheduling=BY_ROOM, clusterAffinities=[group("a", "b")]),
            "overflowAffinities",
            "first tier",
            id="tiers behind all clusters",
        ),
        pytest.param(
            placed(replicaScheduling=BY_ROOM, clusterAffinities=[group("a", "a", clusterNames=["m"])]),
            "overflowAffinities[0].affinityName",
            "own",
            id="a tier with the name of its group",
        ),
        pytest.param(
            placed(clusterAffinity={"fieldSelector": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}),
            "matchExpressions[0].operator",
            "In or NotIn",
            id="another operator",
        ),
        pytest.param(
            placed(spreadConstraints=[{"spreadByField": "cluster", "spreadByLabel": "a"}]),
            "spreadConstraints[0]",
            "not both",
            id="by field and label",
        ),
        pytest.param(
            placed(spreadConstraints=[{"spreadByField": "cluster", "minGroups": 3, "maxGroups": 2}]),
            "spreadConstraints[0].maxGroups",
            "less than",
            id="most below least",
        ),
        pytest.param(placed(spreadConstraints=[{"minGroups": -1}]), "minGroups", "0 or more", id="below zero"),
        pytest.param(
            placed(spreadConstraints=[{"spreadByField": "cluster"}] * 2), "spreadConstraints[1]", "already", id="twice"
        ),
        pytest.param(
            placed(spreadConstraints=[{"spreadByField": "region"}]), "spreadConstraints", "by cluster", id="region alone"
        ),
        pytest.param(placed(clusterTolerations=[{"operator": "Gt"}]), "operator", "Exists or Equal", id="a comparison"),
        pytest.param(
            placed(workloadAffinity={each: {"groupByLabelKey": "a"} for each in ("affinity", "antiAffinity")}),
            "workloadAffinity",
            "same label",
            id="beside and apart",
        ),
        pytest.param(policy(preemption="Always"), "resourceSelectors[0].name", "take over", id="preempting all"),
        pytest.param(
            policy(suspension={"dispatching": True, "dispatchingOnClusters": {"clusterNames": ["a"]}}),
            "suspension",
            "not both",
            id="both suspensions",
        ),
        pytest.param(
            policy(failover={"application": {"purgeMode": "Never", "gracePeriodSeconds": 5}}),
            "application.gracePeriodSeconds",
            "Gracefully only",
            id="a time for what never goes",
        ),
        pytest.param(
            policy(failover={"application": {"gracePeriodSeconds": 0}}),
            "application.gracePeriodSeconds",
            "at least a second",
            id="no time",
        ),
        pytest.param(
            policy(failover={"cluster": {"statePreservation": {"rules": [{"aliasLabelName": "-", "jsonPath": "{.a}"}]}}}),
            "rules[0].aliasLabelName",
            "-",
            id="state under no label",
        ),
        pytest.param(
            policy(failover={"cluster": {"statePreservation": {"rules": [{"aliasLabelName": "a", "jsonPath": "{.a[*]}"}]}}}),
            "rules[0].jsonPath",
            "no path",
            id="state at no path",
        ),
        pytest.param(
            {"spec": {"resourceSelectors": [{**JOB, "namespace": "x"}]}}, "namespace", "that namespace", id="elsewhere"
        ),
    ],
)  # fmt: skip
def test_what_is_refused(given: Json, field: str, text: str) -> None:
    problems = policy_problems(given, "team")
    assert any(each.field.endswith(field) and text in each.message for each in problems), problems


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        pytest.param([("apps/v1", "Deployment"), ("v1", "ConfigMap")], "", id="services"),
        pytest.param([("apps/v1", "Deployment"), ("batch/v1", "Job")], "no effect on Job:", id="a job among them"),
    ],
)
def test_copies_of_jobs_are_warned_of(kinds: list[tuple[str, str]], told: str) -> None:
    policy = placed(replicaScheduling={"replicaSchedulingType": "Duplicated"})
    policy["spec"]["resourceSelectors"] = [{"apiVersion": version, "kind": kind} for version, kind in kinds]
    found = [each.message for each in policy_warnings(policy)]
    assert [told in text for text in found] == [True] * bool(told)
