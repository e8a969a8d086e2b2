"""What control makes of Karmada's objects: capacity, gangs and conditions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.control.karmada import adoption, gangs, progress, summaries
from atoll.model import keys
from atoll.model.gang import BadGang, Gang, Task, TopologyWish
from atoll.model.objects import Full, Meta

Json = dict[str, Any]


def binding(spec: Json, annotations: dict[str, str] | None = None, status: Json | None = None) -> Full:
    body = {"spec": {"schedulerName": "atoll", "replicas": 1, **spec}, "status": status or {}}
    return Full(Meta(name="b", namespace="n", generation=3, annotations=annotations or {}), body)


def of_job(**spec: Any) -> Json:
    return {"resource": {"apiVersion": "batch/v1", "kind": "Job"}, **spec}


IN_ONE = of_job(clusters=[{"name": "m1"}])
IN_TWO = of_job(clusters=[{"name": "m1"}, {"name": "m2"}])


def collected(cluster: str, status: Json | None = None, *, applied: bool = True, message: str = "") -> Json:
    return {"clusterName": cluster, "applied": applied, "appliedMessage": message, "status": status or {}}


def said(spec: Json, *items: Json, works: int = 1, epoch: str = "1") -> dict[str, tuple[bool, str, str]]:
    found = progress.said(binding(spec, {keys.EPOCH: epoch}, {"aggregatedStatus": [*items]}), works)
    return {name: (true, reason, message) for name, true, reason, message in found}


class TestConditions:
    def test_what_karmada_has_applied_everywhere_is_bound(self) -> None:
        assert said(IN_TWO, collected("m1"))["Bound"][0] is False
        assert said(IN_TWO, collected("m1"), collected("m2"))["Bound"][0] is True

    def test_why_a_member_did_not_take_it_is_told(self) -> None:
        found = said(IN_ONE, collected("m1", applied=False, message="denied"))
        assert found["Bound"] == (False, "NotApplied", "m1: denied")

    def test_a_job_runs_and_ends_by_its_own_status(self) -> None:
        assert said(IN_ONE, collected("m1", {"active": 1, "ready": 1}))["Running"][0] is True
        done = {"conditions": [{"type": "Complete", "status": "True"}]}
        assert said(IN_ONE, collected("m1", done))["Finished"][:2] == (True, "Succeeded")

    def test_a_workload_in_two_members_ends_when_both_have(self) -> None:
        done = {"conditions": [{"type": "Complete", "status": "True"}]}
        assert "Finished" not in said(IN_TWO, collected("m1", done), collected("m2", {"active": 1}))

    def test_what_is_left_over_of_an_earlier_member_counts_for_nothing(self) -> None:
        assert said(IN_ONE, collected("m9", {"active": 1}))["Bound"][0] is False

    def test_a_kind_that_only_karmada_knows_runs_while_it_is_healthy_and_never_ends(self) -> None:
        spec = {"resource": {"apiVersion": "example.org/v1", "kind": "Train"}, "clusters": [{"name": "m1"}]}
        found = said(spec, {**collected("m1"), "health": "Healthy"})
        assert found["Running"][0] is True
        assert "Finished" not in found

    def test_what_was_evicted_is_released_once_no_work_is_left(self) -> None:
        assert said(of_job(), works=1) == {}
        assert said(of_job(), works=0)["Released"][0] is True

    def test_what_was_never_dispatched_is_not_released(self) -> None:
        assert said(of_job(), works=0, epoch="0") == {}

    def test_what_a_member_says_that_can_not_be_read_ends_nothing(self) -> None:
        assert "Finished" not in said(IN_ONE, collected("m1", {"conditions": "all done"}))

    def test_karmadas_conditions_stay_and_ours_keep_their_times(self) -> None:
        theirs = {"type": "Scheduled", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "then"}
        first = progress.merged([theirs], [("Bound", True, "Applied", "")], 1, 0.0)
        second = progress.merged(first, [("Bound", True, "Applied", "")], 1, 99.0)
        assert second == first
        assert first[0] == theirs
        assert progress.merged(first, [], 1, 99.0) == [theirs]


class TestGangs:
    def test_of_components(self) -> None:
        wants = {"resourceRequest": {"cpu": "500m", "nvidia.com/gpu": "2"}}
        spec = {
            "components": [{"name": "ps", "replicas": 2, "replicaRequirements": wants}, {"name": "w", "replicas": 3}]
        }
        workload = {"metadata": {"labels": {keys.QUEUE_LABEL: "team"}}}
        found = gangs.of_binding({"spec": spec}, workload, default_queue="default", arrival=7)
        assert (found.queue, found.min_available, found.arrival, found.whole) == ("team", 5, 7, True)
        assert [(task.name, task.replicas, task.requests) for task in found.tasks] == [
            ("ps", 2, {"cpu": 500, "nvidia.com/gpu": 2, "pods": 1}),
            ("w", 3, {"pods": 1}),
        ]

    def test_what_only_a_member_knows_is_left_to_its_scheduler(self) -> None:
        task = Task("t", 2, 1, {"cpu": 1}, node_selector={"a": "b"}, tolerations=[{"key": "x"}], scopes=["BestEffort"])
        gang = Gang("q", [task], 1, network_topology=TopologyWish("soft", highest_tier_allowed=1), needs=["x"])
        found = gangs.for_karmada(gang)
        assert found.tasks == [Task("t", 2, 1, {"cpu": 1}, scopes=["BestEffort"])]
        assert (found.whole, found.network_topology, found.needs) == (True, None, [])

    def test_a_hard_topology_is_refused(self) -> None:
        gang = Gang("q", [Task("t", 2, 1, {})], 1, network_topology=TopologyWish(highest_tier_allowed=1))
        with pytest.raises(BadGang, match="networkTopology"):
            gangs.for_karmada(gang)


class TestCapacity:
    def test_what_is_used_or_about_to_be_is_not_free(self) -> None:
        status = {
            "nodeSummary": {"totalNum": 2, "readyNum": 2},
            "resourceSummary": {
                "allocatable": {"cpu": "8"}, "allocated": {"cpu": "1"}, "allocating": {"cpu": "500m"},
            },
        }  # fmt: skip
        found = summaries.capacity(status, {"cpu": 2500})
        assert found is not None
        assert [(each["nodes"], each["free"]) for each in found["classes"]] == [(1, {"cpu": 4000}), (1, {"cpu": 0})]

    @pytest.mark.parametrize(
        "status", [{}, {"nodeSummary": {"readyNum": 0}, "resourceSummary": {"allocatable": {"cpu": 1}}}]
    )
    def test_nothing_is_known_before_karmada_has_summarised(self, status: Json) -> None:
        assert summaries.capacity(status, {}) is None

    @given(
        st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.tuples(st.integers(0, 50), st.integers(0, 9))),
        st.integers(1, 9),
    )
    def test_all_that_is_free_is_on_nodes_none_of_which_is_larger_than_the_average(
        self, amounts: dict[str, tuple[int, int]], count: int
    ) -> None:
        size = {name: each for name, (_, each) in amounts.items()}
        free = {name: min(amount, size[name] * count) for name, (amount, _) in amounts.items()}
        classes = summaries.packed(free, size, count)
        assert sum(each["nodes"] for each in classes) == count
        for name, amount in free.items():
            assert sum(each["nodes"] * each["free"][name] for each in classes) == amount
            assert all(each["free"][name] <= size[name] for each in classes)


class TestAdoption:
    def test_who_is_served(self) -> None:
        assert adoption.unserved(binding({}, {keys.EPOCH: "0"})) is None
        assert "no pods" in (adoption.unserved(binding({"replicas": 0})) or "")
        assert "before" in (adoption.unserved(binding({"clusters": [{"name": "m1"}]})) or "")
