"""How near pods are to be, by annotations of Volcano, Kueue and Koordinator; on the host and told to members."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atoll.agent.objects import decode_pod
from atoll.agent.podgroups import Owner, group_of
from atoll.kinds import Part, leader_worker_set, nearness
from atoll.kinds import job_set as job_set_kind
from atoll.kinds.batch_job import KIND as BATCH_JOB
from atoll.kinds.volcano_job import KIND as VOLCANO_JOB
from atoll.kinds.volcano_job.admission import warnings
from atoll.model import keys
from atoll.model.gang import Partition, TopologyWish
from tests.kinds.builders import make_batch_job, make_job, make_task

REQUIRED, PREFERRED = "kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-preferred-topology"
SLICE = {"kueue.x-k8s.io/podset-slice-required-topology": "rack", "kueue.x-k8s.io/podset-slice-size": "2"}
GATHER = "gang.scheduling.koordinator.sh/network-topology-spec"
MUST = '{"gatherStrategy":[{"layer":"block","strategy":"MustGather"},{"layer":"rack","strategy":"PreferGather"}]}'
RACK = TopologyWish("hard", None, "rack")


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        pytest.param({REQUIRED: "block"}, TopologyWish("hard", None, "block"), id="a level that Kueue requires"),
        pytest.param({PREFERRED: "rack"}, TopologyWish("soft"), id="a level that Kueue prefers is no ceiling"),
        pytest.param({nearness.UNCONSTRAINED: "true"}, None, id="none that Kueue asks for"),
        pytest.param({keys.HIGHEST_TIER: "2", REQUIRED: "x"}, TopologyWish("hard", 2), id="Volcano's come first"),
        pytest.param({keys.HIGHEST_TIER: "9" * 12}, TopologyWish("hard", 2**31 - 1), id="a tier beyond all measure"),
        pytest.param({GATHER: MUST}, TopologyWish("hard", None, "block"), id="the layer that Koordinator must gather in"),
        pytest.param({GATHER: MUST.replace("Must", "Prefer")}, TopologyWish("soft"), id="layers that it prefers"),
        pytest.param({GATHER: "["}, None, id="what can't be read"),
    ],
)  # fmt: skip
def test_the_wish_of_annotations(notes: dict[str, str], expected: TopologyWish | None) -> None:
    assert nearness.wish(notes) == expected


def noted(job: dict[str, Any], **notes: str) -> dict[str, Any]:
    job["spec"]["template"]["metadata"]["annotations"] = notes
    return job


def test_slices_of_a_job_reach_its_pod_group_in_the_member() -> None:
    job = noted(make_batch_job(parallelism=4, completions=4, completionMode="Indexed"), **SLICE, **{REQUIRED: "block"})
    gang = BATCH_JOB.gang(job, priority=0)
    assert (gang.network_topology, gang.tasks[0].partition) == (TopologyWish("hard", None, "block"), Partition(2, RACK))
    made = BATCH_JOB.rewrite(job, Part("m", {"main": 4}, 4))
    notes = {**made["spec"]["template"]["metadata"]["annotations"], keys.TASK_SPEC: "main"}
    pod = {"metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": notes}, "spec": {}, "status": {}}
    spec = group_of(Owner("batch/v1", "Job", "j", "u"), decode_pod(json.dumps(pod).encode()))["spec"]
    assert spec["networkTopology"] == {"mode": "hard", "highestTierName": "block"}
    [policy] = spec["subGroupPolicy"]
    assert (policy["subGroupSize"], policy["networkTopology"]["highestTierName"]) == (2, "rack")


def leader_workers(leader: dict[str, str], worker: dict[str, str]) -> dict[str, Any]:
    def template(notes: dict[str, str]) -> dict[str, Any]:
        container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
        return {"metadata": {"annotations": notes}, "spec": {"containers": [container]}}

    each = {"size": 4, "leaderTemplate": template(leader), "workerTemplate": template(worker)}
    return {
        "metadata": {"name": "l", "namespace": "n", "labels": {keys.QUEUE_LABEL: "q"}},
        "spec": {"replicas": 2, "leaderWorkerTemplate": each},
    }


def test_each_group_of_a_leader_and_its_workers_is_near_by_itself() -> None:
    obj = leader_workers({REQUIRED: "rack"}, {REQUIRED: "rack"})
    gang = leader_worker_set.KIND.gang(obj, priority=0)
    assert [(task.name, task.replicas) for task in gang.tasks] == [("leader", 2), ("worker", 6)]
    assert [task.partition for task in gang.tasks] == [Partition(1, RACK, "set"), Partition(3, RACK, "set")]
    made = leader_worker_set.KIND.rewrite(obj, Part("m", {"leader": 2, "worker": 6}, 8))
    notes = made["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["annotations"]
    [policy] = json.loads(notes[keys.TOPOLOGY])["subGroupPolicy"]
    assert (policy["subGroupSize"], policy["matchLabelKeys"]) == (4, ["leaderworkerset.sigs.k8s.io/group-index"])


def job_set(*jobs: tuple[str, int, dict[str, str]]) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    made = [
        {
            "name": name,
            "replicas": 1,
            "template": {
                "spec": {
                    "parallelism": pods,
                    "completions": pods,
                    "template": {"metadata": {"annotations": notes}, "spec": {"containers": [container]}},
                }
            },
        }
        for name, pods, notes in jobs
    ]
    about = {"name": "s", "namespace": "n", "labels": {keys.QUEUE_LABEL: "q"}}
    return {"metadata": about, "spec": {"replicatedJobs": made}}


def test_pods_of_templates_that_name_one_group_are_in_one_domain() -> None:
    notes = {REQUIRED: "rack", nearness.GROUP: "near"}
    obj = job_set(("leader", 1, notes), ("worker", 3, notes), ("logger", 1, {}))
    gang = job_set_kind.KIND.gang(obj, priority=0)
    near = [Partition(1, RACK, "group-near"), Partition(3, RACK, "group-near"), None]
    assert ([task.partition for task in gang.tasks], gang.network_topology) == (near, None)
    made = job_set_kind.KIND.rewrite(obj, Part("m", {"leader": 1, "worker": 3, "logger": 1}, 5))
    template = made["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]
    [policy] = json.loads(template["metadata"]["annotations"][keys.TOPOLOGY])["subGroupPolicy"]
    assert (policy["subGroupSize"], policy["matchLabelKeys"]) == (4, [])


def test_a_group_of_all_templates_is_the_gang_and_leaves_slices_to_its_workers() -> None:
    notes = {REQUIRED: "block", nearness.GROUP: "near"}
    gang = job_set_kind.KIND.gang(job_set(("leader", 1, notes), ("worker", 4, {**notes, **SLICE})), priority=0)
    assert gang.network_topology == TopologyWish("hard", None, "block")
    assert [task.partition for task in gang.tasks] == [None, Partition(2, RACK)]


TWO_TASKS = make_job(make_task("a", 2), make_task("b", 1), annotations={keys.APART: "rack", keys.BALANCED: "2"})


def test_a_workload_says_that_its_groups_are_apart_and_its_pods_balanced() -> None:
    gang = VOLCANO_JOB.gang(TWO_TASKS, priority=0)
    assert gang.apart == TopologyWish("hard", None, "rack")
    assert gang.balanced == TopologyWish("soft", 2)
    assert nearness.spread_out(gang) == {keys.APART: "rack", keys.APART_MODE: "hard", keys.BALANCED: "2"}
    assert list(warnings(TWO_TASKS)) == []


def test_what_is_apart_without_groups_and_annotations_for_other_kinds_are_warned_of() -> None:
    job = make_job(make_task("a", 2), annotations={keys.APART: "rack"})
    job["spec"]["tasks"][0]["template"]["metadata"] = {"annotations": {REQUIRED: "rack"}}
    assert VOLCANO_JOB.gang(job, priority=0).apart is None
    told = {each.field: each.message for each in warnings(job)}
    assert "has one task, whose pods are in no groups" in told[f"metadata.annotations[{keys.APART}]"]
    field = f"spec.tasks[0].template.metadata.annotations[{REQUIRED}]"
    assert "has no effect on a Volcano Job: use networkTopology" in told[field]


@pytest.mark.parametrize(
    ("notes", "told"),
    [
        pytest.param({REQUIRED: "a", PREFERRED: "b"}, "has no effect beside", id="both"),
        pytest.param({"kueue.x-k8s.io/podset-slice-size": "2"}, "has no effect without", id="a size alone"),
        pytest.param({nearness.SLICE_LEVEL: "rack", nearness.SLICE_SIZE: "x"}, "no whole number", id="no number"),
        pytest.param({nearness.SLICE_LAYERS: "[]"}, "slices have one layer", id="slices in slices"),
        pytest.param({GATHER: "{}"}, "has no effect", id="no layers"),
        pytest.param({keys.APART_MODE: "soft"}, "has no effect without", id="a mode alone"),
        pytest.param({keys.APART: "rack", keys.APART_MODE: "x"}, "neither hard nor soft", id="no mode"),
        pytest.param({nearness.GROUP: "near"}, "has no effect without", id="a group without a level"),
    ],
)
def test_what_has_no_effect_is_said(notes: dict[str, str], told: str) -> None:
    [(path, text)] = nearness.without_effect({"metadata": {"annotations": notes}}, "spec.template")
    assert path.startswith("spec.template.metadata.annotations[")
    assert told in text
    assert list(nearness.without_effect({"metadata": {"annotations": {REQUIRED: "rack", **SLICE}}})) == []
