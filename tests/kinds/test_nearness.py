"""How near pods are to be, by annotations of Volcano, Kueue and Koordinator; on the host and told to members."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from atoll.admission.rules import Change
from atoll.agent.objects import PodGroup, decode_pod
from atoll.agent.podgroups import Owner, group_of
from atoll.agent.scheduler.core.sub_groups import sub_group_of
from atoll.kinds import Part, apps, leader_worker_set, nearness
from atoll.kinds import job_set as job_set_kind
from atoll.kinds.batch_job import KIND as BATCH_JOB
from atoll.kinds.batch_job import admission as batch_jobs
from atoll.kinds.templated.admission import rules_of
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
    about = {"labels": {"batch.kubernetes.io/job-completion-index": "3"}} | made["spec"]["template"]["metadata"]
    about |= {"name": "p", "namespace": "n", "uid": "u"}
    pod = decode_pod(json.dumps({"metadata": about, "spec": {}, "status": {}}).encode())
    group = group_of(Owner("batch/v1", "Job", "j", "u"), pod)
    assert sub_group_of(msgspec.convert(group, PodGroup), pod) is not None
    spec = group["spec"]
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


# -- slices in slices --------------------------------------------------------------------------------------------------


def layers(*said: tuple[str, int]) -> dict[str, str]:
    return {nearness.SLICE_LAYERS: json.dumps([{"topology": level, "size": size} for level, size in said])}


def wish_for(level: str) -> TopologyWish:
    return TopologyWish("hard", None, level)


def test_slices_in_slices_reach_the_pod_group_as_policies_for_the_same_pods() -> None:
    notes = layers(("block", 8), ("rack", 4), ("kubernetes.io/hostname", 1))
    job = noted(make_batch_job(parallelism=16, completions=16, completionMode="Indexed"), **notes)
    gang = BATCH_JOB.gang(job, priority=0)
    # Slices of one pod need no domain.
    assert gang.tasks[0].partition == Partition(8, wish_for("block"), inside=Partition(4, RACK))
    made = BATCH_JOB.rewrite(job, Part("m", {"main": 16}, 16))
    told = json.loads(made["spec"]["template"]["metadata"]["annotations"][keys.TOPOLOGY])
    outer, inner = told["subGroupPolicy"]
    assert (outer["name"], outer["subGroupSize"], outer["networkTopology"]["highestTierName"]) == ("main", 8, "block")
    assert inner == {
        **outer,
        "name": "main/1",
        "subGroupSize": 4,
        "networkTopology": {"mode": "hard", "highestTierName": "rack"},
    }


def test_slices_of_a_job_set_go_on_from_one_of_its_jobs_to_the_next() -> None:
    obj = job_set(("worker", 4, layers(("block", 8), ("rack", 2))))
    obj["spec"]["replicatedJobs"][0]["replicas"] = 4
    part = job_set_kind.KIND.gang(obj, priority=0).tasks[0].partition
    assert part == Partition(8, wish_for("block"), inside=Partition(2, RACK))
    made = job_set_kind.KIND.rewrite(obj, Part("m", {"worker": 16}, 16))
    template = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template["metadata"]["annotations"][keys.RANKS] == "4"


@pytest.mark.parametrize(
    ("notes", "pods", "told"),
    [
        pytest.param({nearness.SLICE_LAYERS: "{"}, 0, "must be a JSON list such as", id="no JSON"),
        pytest.param({nearness.SLICE_LAYERS: '[{"topology":"rack","sizes":[2]}]'}, 0, "`sizes`", id="a field of others"),
        pytest.param({nearness.SLICE_LAYERS: '[{"topology":"rack","size":"2"}]'}, 0, "`int`", id="a size in quotes"),
        pytest.param({nearness.SLICE_LAYERS: "[]"}, 0, "0 layers", id="none"),
        pytest.param(layers(*((str(n), 2) for n in range(4))), 0, "4 layers: give 1 to 3", id="too many"),
        pytest.param(layers(("", 2)), 0, "[0].topology is empty", id="no level"),
        pytest.param(layers(("rack", 4), ("rack", 2)), 0, "[1].topology: 'rack' is a level of", id="a level twice"),
        pytest.param(layers(("rack", 0)), 0, "[0].size: 0 must be", id="no pods"),
        pytest.param(layers(("block", 6), ("rack", 4)), 0, "[1].size: slices of 4 pods do not fill", id="no divisor"),
        pytest.param(layers(("block", 4), ("rack", 8)), 0, "[1].size: slices of 8 pods do not fill", id="larger"),
        pytest.param(layers(("kubernetes.io/hostname", 4), ("rack", 2)), 0, "[0].topology: below", id="below nodes"),
        pytest.param(layers(("block", 8)), 12, "12 pods are no multiple of it (4 would be left)", id="pods left over"),
        pytest.param({**layers(("block", 8)), **SLICE}, 8, "can't be beside", id="beside one layer"),
    ],
)  # fmt: skip
def test_slices_in_slices_that_cannot_be_made_are_refused(notes: dict[str, str], pods: int, told: str) -> None:
    holder = {"metadata": {"annotations": notes}}
    (path, text), *_ = nearness.wrong(holder, "spec.template", pods)
    assert path == f"spec.template.metadata.annotations[{nearness.SLICE_LAYERS}]"
    assert told in text
    part = nearness.partition(notes, 24)
    assert part is None or pods, "what is wrong by itself makes no slices"
    assert list(nearness.wrong({"metadata": {"annotations": layers(("block", 8), ("rack", 4))}}, pods=16)) == []


def test_slices_of_pods_without_an_index_are_warned_of_and_no_groups() -> None:
    job = noted(make_batch_job(parallelism=4, completions=4), **SLICE)
    assert BATCH_JOB.gang(job, priority=0).tasks[0].partition is None
    job["spec"]["managedBy"] = keys.CONTROLLER
    assert "completionMode: Indexed" in " ".join(each.message for each in batch_jobs.warnings(job))
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"annotations": layers(("rack", 2))}, "spec": {"containers": [container]}}
    obj = {"metadata": {"name": "d", "namespace": "n"}, "spec": {"replicas": 4, "template": template}}
    assert apps.DEPLOYMENT.gang(obj, priority=0).tasks[0].partition is None
    told = rules_of(apps.DEPLOYMENT).warnings(Change(new=obj, namespace={}))
    assert "pods of a Deployment have none" in " ".join(each.message for each in told)


def test_each_kind_refuses_them_where_they_are_written() -> None:
    notes = layers(("block", 8), ("rack", 3))
    field = f"metadata.annotations[{nearness.SLICE_LAYERS}]"
    job = noted(make_batch_job(parallelism=8, completions=8), **notes)
    assert [each.field for each in batch_jobs.validate_job(job)] == [f"spec.template.{field}"]
    obj = job_set(("leader", 1, {}), ("worker", 8, notes))
    found = rules_of(job_set_kind.KIND).problems(Change(new=obj, namespace={}))
    assert [each.field for each in found] == [f"spec.replicatedJobs[1].template.spec.template.{field}"]
    obj["metadata"]["annotations"] = layers(("block", 4))
    obj["spec"]["replicatedJobs"] = obj["spec"]["replicatedJobs"][:1]
    found = rules_of(job_set_kind.KIND).problems(Change(new=obj, namespace={}))
    assert [(each.field, "1 pods are no multiple" in each.message) for each in found] == [(field, True)]
    for slices in (layers(("block", 4)), SLICE):
        sets = leader_workers({}, slices)
        found = rules_of(leader_worker_set.KIND).problems(Change(new=sets, namespace={}))
        assert "can't be on a LeaderWorkerSet" in " ".join(each.message for each in found)
