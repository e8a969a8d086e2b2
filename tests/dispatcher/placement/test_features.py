"""Workloads go only to members that have what they need, and whose agent goes with the host."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from atoll.dispatcher import objects
from atoll.dispatcher.core import BindingView, ClusterSet
from atoll.dispatcher.explain.verdicts import account
from atoll.model import skew
from atoll.model.apiresource import BATCH_JOBS, ApiResource
from atoll.model.features import of
from atoll.model.verdict import Blocker, Reason
from tests.dispatcher.builders import Scene, dispatched, make_binding, make_capacity, make_cluster, make_queue, names

NEW = "kubernetes/1.34"


def needing(name: str, *features: str) -> BindingView:
    view = make_binding(name).tasks(1).build()
    assert view.gang is not None
    return dataclasses.replace(view, gang=msgspec.structs.replace(view.gang, features=list(features)))


def cluster(name: str, *features: str, skew: str = "") -> ClusterSet:
    found = make_cluster(name).cluster
    return ClusterSet(dataclasses.replace(found, features=frozenset(features) or None, skew=skew))


def test_it_goes_where_the_feature_is_though_another_member_would_suit_it_better() -> None:
    s = Scene(make_queue("q"), cluster("m1"), make_capacity("m1", [1]), cluster("m2", NEW), make_capacity("m2", [8]))
    assert dispatched(s.submit(needing("a", NEW)).run()) == [("a", "m2")]


def test_where_no_member_has_it_it_waits_with_the_features_name_and_goes_after_an_upgrade() -> None:
    s = Scene(make_queue("q"), cluster("m", "batch/v1/Job"), make_capacity("m", [8]))
    s.submit(needing("a", "ray.io/v1/RayJob", NEW), make_binding("b").tasks(1))
    assert names(s.run()) == ["b"]
    found = account(s.core, s.view("a").uid)
    assert found is not None
    assert (found.reason, found.blocker) == (Reason.FEATURE_MISSING, Blocker("Feature", f"ray.io/v1/RayJob, {NEW}"))
    assert found.clusters[0].message == (
        "it has no ray.io/v1/RayJob: its CRD is not there, or the agent does not know it;"
        " it behaves as an older Kubernetes than 1.34"
    )
    s.tell(cluster("m", "ray.io/v1/RayJob", NEW))
    assert names(s.run()) == ["a"]


def test_a_member_whose_agent_says_nothing_has_only_what_every_member_has() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [8]))
    s.submit(needing("a", NEW), needing("b"))
    assert names(s.run()) == ["b"]


def test_nothing_new_goes_to_an_agent_of_another_version_and_what_runs_there_stays() -> None:
    s = Scene(make_queue("q"), cluster("m"), make_capacity("m", [8]))
    s.submit(needing("a"))
    assert names(s.run()) == ["a"]
    s.bound("a", generation=1)
    s.tell(cluster("m", skew="its agent is old"))
    assert s.run(after=100) == []
    s.submit(needing("b"))
    s.run()
    assert s.verdict("b") is Reason.AGENT_VERSION
    found = account(s.core, s.view("b").uid)
    assert found is not None
    assert found.blocker == Blocker("Cluster", "m", message="its agent is old")


def test_a_policy_that_allows_no_member_is_still_the_reason() -> None:
    s = Scene(make_queue("q"), cluster("m", skew="its agent is old"), make_capacity("m", [8]))
    s.submit(make_binding("a").tasks(1).affinity(clusterNames=["other"]))
    s.run()
    assert s.verdict("a") is Reason.NO_CLUSTER


@pytest.mark.parametrize(
    ("agent", "host", "reason"),
    [
        pytest.param("0.5.2", "0.5.0", None, id="of the same minor version"),
        pytest.param("0.4.9", "0.5.0", None, id="one minor version older"),
        pytest.param("0.3.0", "0.5.0", "AgentTooOld", id="two older"),
        pytest.param("0.6.0", "0.5.0", "AgentTooNew", id="newer"),
        pytest.param("1.0.0", "0.9.0", "AgentTooNew", id="of a newer major version"),
        pytest.param("0.9.0", "1.0.0", "AgentTooOld", id="of an older major version"),
        pytest.param("0.5.0.dev3+g12", "0.5.0", None, id="of a build between versions"),
        pytest.param("", "0.5.0", None, id="it says none"),
        pytest.param("0", "0.5.0", None, id="it says what is none"),
    ],
)
def test_versions_that_go_together(agent: str, host: str, reason: str | None) -> None:
    found = skew.wrong_with_agent(agent, host)
    assert (found[0] if found else None) == reason


def test_the_clusters_status_says_what_its_agent_has() -> None:
    def view(**status: Any) -> Any:
        cluster = {"metadata": {"name": "m"}, "status": status}
        return objects.cluster_view(msgspec.convert(cluster, objects.ClusterObject))

    assert (view().features, view().skew) == (None, "")
    # A member of which another's agent tells.
    assert NEW in view(kubernetesVersion="v1.35.2+k3s1").features
    assert NEW not in view(kubernetesVersion="v1.33.0").features
    assert view(kubernetesVersion="who knows").features is None
    found = view(agent={"version": "99.0.0", "features": [NEW]})
    assert found.features == {NEW}
    assert "upgrade the host first" in found.skew


@pytest.mark.parametrize(
    ("pod", "features"),
    [
        pytest.param({"containers": [{"resources": {"limits": {"cpu": 1}}}]}, [], id="nothing new"),
        pytest.param({"resources": {"requests": {"cpu": 1}}}, [NEW], id="resources of the pod"),
        pytest.param({"hostnameOverride": "x"}, ["kubernetes/1.35"], id="a hostname"),
        pytest.param({"containers": [{"restartPolicyRules": [{}]}]}, ["kubernetes/1.35"], id="rules of restarts"),
        pytest.param(
            {"initContainers": [{"env": [{"valueFrom": {"fileKeyRef": {"key": "k"}}}]}]}, ["kubernetes/1.35"],
            id="variables from files",
        ),
    ],
)  # fmt: skip
def test_fields_need_the_kubernetes_that_keeps_them(pod: dict[str, Any], features: list[str]) -> None:
    assert of(BATCH_JOBS, [pod]) == features


def test_a_kind_that_not_every_agent_knows_is_a_feature() -> None:
    assert of(ApiResource("ray.io", "v1", "rayjobs", "RayJob"), []) == ["ray.io/v1/RayJob"]
