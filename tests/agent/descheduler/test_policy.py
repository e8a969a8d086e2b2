"""DeschedulerPolicy as users write it: the article's verbatim, old fields, refusals that name the field."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from atoll.agent.descheduler.policy import Balance, MetricsApi, Misfits, PolicyError, Prometheus, Requests, parse
from tests.agent.descheduler.builders import MEASURED, THRESHOLDS, evictor, load_aware, policy

ARTICLE = Path(__file__).parents[2] / "documents" / "003-descheduler.yaml"


def article() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(yaml.safe_load(ARTICLE.read_text("utf-8"))["data"]["policy.yaml"])
    return found


def test_the_policy_of_the_article_is_read_as_its_author_meant_it() -> None:
    found = parse(yaml.safe_load(ARTICLE.read_text("utf-8"))["data"]["policy.yaml"])
    [profile] = found.profiles
    [balance] = profile.strategies
    assert isinstance(balance, Balance)
    assert (balance.low, balance.high) == ({"cpu": 0.3, "memory": 0.3}, {"cpu": 0.8, "memory": 0.85})
    assert balance.source == Prometheus("http://prometheus-server.kube-system.svc.cluster.local:80", 120)
    assert not balance.namespaces.hold("default")
    assert balance.namespaces.hold("research")
    assert profile.evictor.priority_threshold.value == 10000
    assert found.without_effect == ()


@pytest.mark.parametrize("written", ["Prometheus", "prometheus", "PROMETHEUS"])
def test_the_type_of_the_source_is_read_in_any_case(written: str) -> None:
    args = {**THRESHOLDS, "metrics": {"type": written, "address": "http://p:9090/"}}
    [balance] = parse(policy(("LoadAware", args), balance=["LoadAware"])).balances
    assert balance.source == Prometheus("http://p:9090", 120)


def test_a_metrics_server_is_named_in_either_spelling() -> None:
    for written in ("metrics-server", "metrics_server", "KubernetesMetrics"):
        args = {**THRESHOLDS, "metrics": {"type": written}}
        assert parse(policy(("LoadAware", args), balance=["LoadAware"])).balances[0].source == MetricsApi()


def test_low_node_utilization_looks_at_requests_unless_it_measures() -> None:
    args: dict[str, Any] = {"thresholds": {"nvidia.com/gpu": 20}, "targetThresholds": {"nvidia.com/gpu": 50}}
    [plain] = parse(policy(("LowNodeUtilization", args), balance=["LowNodeUtilization"])).balances
    assert plain.source == Requests()
    use = {**THRESHOLDS, "metricsUtilization": {"source": "KubernetesMetrics"}, "evictionLimits": {"node": 2}}
    [measured] = parse(policy(("LowNodeUtilization", use), balance=["LowNodeUtilization"])).balances
    assert (measured.source, measured.per_node) == (MetricsApi(), 2)


def test_pods_that_violate_taints_and_affinity_of_their_node_have_a_counterpart() -> None:
    affinity = {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]}
    found = parse(
        policy(
            ("RemovePodsViolatingNodeAffinity", affinity),
            deschedule=["RemovePodsViolatingNodeTaints", "RemovePodsViolatingNodeAffinity"],
        )
    )
    assert [type(each) for each in found.profiles[0].strategies] == [Misfits, Misfits]


def test_a_configured_plug_in_that_nothing_enables_is_named() -> None:
    text = policy(("LoadAware", MEASURED), ("LowNodeUtilization", THRESHOLDS), balance=["LoadAware"])
    assert parse(text).without_effect == ("profile 'p': LowNodeUtilization is configured and not enabled",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (load_aware(treshold=1), "unknown field `treshold`"),
        (load_aware(thresholds={"cpu": 90}), "targetThresholds.cpu is below thresholds.cpu"),
        (load_aware(thresholds={"cpu": -1}), "percentages from 0 to 100"),
        (load_aware(thresholds={"cpu": float("nan")}), "percentages from 0 to 100"),
        (load_aware(thresholds={"memory": 10}), "must name the same resources"),
        (load_aware(duration="soon"), "is not a duration"),
        (load_aware(metrics={"type": "influx"}), "write Prometheus or metrics-server"),
        (load_aware(metrics={"type": "Prometheus", "address": "file:///etc"}), "write http://HOST:PORT"),
        (load_aware(evictableNamespaces={"include": ["a"], "exclude": ["b"]}), "exclude each other"),
        (load_aware(evictLocalStoragePods=True), "unknown field `evictLocalStoragePods`"),
        (evictor(priorityThreshold={"name": "a", "value": 1}), "both name and value"),
        (evictor(evictDaemonSetPods=True), "DaemonSet makes its pod again"),
        (
            evictor(ignorePvcPods=True, podProtections={"extraEnabled": ["PodsWithPVC"]}),
            "exclude each other",
        ),
        (evictor(labelSelector={"matchLables": {}}), "label selector"),
        (policy(balance=["HighNodeUtilization"]), "HighNodeUtilization is not served: emptied nodes fill up"),
        (policy(balance=["RemoveDuplicates"]), "RemoveDuplicates is not served"),
        (policy(balance=["LoadAwareness"]), "there is no plug-in 'LoadAwareness'"),
        (policy(balance=["LoadAware"]), "missing required field"),
        (policy(("LoadAware", MEASURED)), "enables no plug-in"),
        (policy(("LoadAware", MEASURED), deschedule=["LoadAware"]), "plugins.deschedule can't enable LoadAware"),
        (policy(("LoadAware", MEASURED), balance=["LoadAware"], maxEvictions=3), "unknown field `maxEvictions`"),
        (
            policy(("LoadAware", MEASURED), balance=["LoadAware"], maxNoOfPodsToEvictTotal=-1),
            "maxNoOfPodsToEvictTotal is -1",
        ),
        ("apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy\nprofiles: []\n", "Invalid enum value"),
        ("a: &a [1]\nb: *a\n", "can't be read"),
        ("x" * 70_000, "can't be read"),
        ("[1, 2]", "the policy"),
    ],
)
def test_what_can_not_act_is_refused_with_its_field_and_a_sentence(text: str, said: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(said)):
        parse(text)
