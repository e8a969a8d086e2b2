"""Pods that are to start together: which of them count, what members run, what the host's pods are told."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.admission import jsonpatch
from atoll.admission.rules import Change
from atoll.agent.jobs.pods import pod_group as pod_group_of
from atoll.kinds import Outcome, Part, Report, assembled, nearness, objects_of, pod_group, statuses
from atoll.kinds.pod_group import GATE, GROUP, INDEX, KIND, MOST, RETRIABLE, TOTAL, task_of
from atoll.kinds.pod_group.admission import ADMISSION, default_pod, validate_pod, validate_update
from atoll.model import keys
from atoll.model.gang import Partition, TopologyWish
from atoll.model.placer import MadeFor, Placer, Unplaceable
from tests.kinds.grouped import pod

Json = dict[str, Any]
NOW = "2026-01-01T00:01:00Z"


def group(*pods: Json) -> Json:
    [made] = assembled(KIND, pods)
    return made


def report(**phases: str) -> Report:
    """The Volcano Job in the member: pod of the host to phase."""
    counts = {task_of({"metadata": {"name": n, "uid": f"uid-{n}"}}): {"phase": {p: 1}} for n, p in phases.items()}
    return Report("m1", {"state": {"phase": "Running"}, "taskStatusCount": counts})


def told(of: Json, *reports: Report, waiting: tuple[str, str] = ("", "")) -> dict[str, Json]:
    status = KIND.aggregate(of, reports, waiting=waiting, now=NOW)
    return {each["metadata"]["name"]: wanted for each, wanted in statuses(KIND, of, status)}


# -- which pods count --------------------------------------------------------------------------------------------------


def test_groups_are_told_apart_by_namespace_and_name() -> None:
    other = {**pod("x"), "metadata": {**pod("x")["metadata"], "namespace": "other"}}
    assert [len(objects_of(KIND, each)) for each in assembled(KIND, [pod("a"), other, pod("b")])] == [2, 1]


def test_pods_that_came_before_their_namespace_opted_in_are_left_alone() -> None:
    early = pod("a")
    early["spec"]["schedulingGates"] = []
    assert assembled(KIND, [early]) == []


def test_a_group_is_taken_once_it_is_complete() -> None:
    assert not KIND.takes(group(pod("a")))
    assert KIND.standing(group(pod("a"))).state == "GroupIncomplete"
    assert KIND.takes(group(pod("a"), pod("b")))
    assert KIND.left_alone(group(pod("a"), pod("b"))) is None
    why = KIND.left_alone(group(pod("a")))
    assert why is not None
    assert (why.message, why.help) == ("not all of the 2 pods of group g are there", "create 1 more")


def test_what_a_pod_says_of_its_incomplete_group_does_not_change_with_each_that_comes() -> None:
    few, more = group(pod("a", total=9)), group(*[pod(name, total=9) for name in "abcdef"])
    assert KIND.assembly is not None
    assert KIND.assembly.waits(few) == KIND.assembly.waits(more)


def test_what_is_left_alone_is_not_taken() -> None:
    odd: Json = {"metadata": {}, "spec": {}}
    for each in (group(pod("a")), group(pod("a"), pod("b")), pod("a"), odd):
        assert KIND.takes(each) == (KIND.left_alone(each) is None)


def test_a_pod_of_no_group_is_no_workload() -> None:
    alone = pod("a")
    del alone["metadata"]["labels"][GROUP]
    assert KIND.left_alone(pod("a")) is None
    assert not KIND.takes(alone)
    why = KIND.left_alone(alone)
    assert why is not None
    assert "create it anew" in why.help


@pytest.mark.parametrize("total", ["0", "many", "-1"])
def test_a_group_that_does_not_say_how_many_pods_it_has_waits(total: str) -> None:
    made = group(pod("a", notes={TOTAL: total}))
    assert not KIND.takes(made)
    assert KIND.standing(made).state == "GroupInvalid"


def test_pods_that_ask_for_different_things_are_tasks_of_one_gang() -> None:
    """A leader and workers of two shapes; each keeps its template, and the names of tasks don't change with the pods."""
    pods = [pod("leader", total=4, cpu="1"), *(pod(f"w{at}", total=4, age=1 + at, cpu="3") for at in range(2))]
    made = group(*pods, pod("big", total=4, age=4, cpu="5"))
    assert KIND.takes(made)
    gang = KIND.gang(made, priority=0)
    assert sorted((task.requests["cpu"], task.replicas, task.min_available) for task in gang.tasks) == [
        (1000, 1, 1),
        (3000, 2, 2),
        (5000, 1, 1),
    ]
    assert (gang.replicas, gang.min_available, gang.whole) == (4, 4, True)
    sent = KIND.rewrite(made, Part("m", {task.name: task.replicas for task in gang.tasks}, 4))["spec"]["tasks"]
    cpus = [each["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] for each in sent]
    assert sorted(cpus) == ["1", "3", "3", "5"]
    # The leader failed, and another one takes its place.
    again = group(
        pod("leader", "Failed", total=4, cpu="1"),
        *pods[1:],
        pod("big", total=4, age=4, cpu="5"),
        pod("l2", total=4, age=9, cpu="1"),
    )
    assert KIND.gang(again, priority=0).tasks == gang.tasks


def test_pods_of_two_priorities_wait_with_that_reason() -> None:
    other = pod("b")
    other["spec"]["priorityClassName"] = "gold"
    made = group(pod("a"), other)
    assert not KIND.takes(made)
    assert KIND.standing(made).state == "GroupInvalid"


def test_a_group_that_is_admitted_with_its_first_pod_is_charged_as_a_whole() -> None:
    """The others are taken to be like the oldest one; the pods that are there start."""
    fast = {pod_group.FAST: "true"}
    made = group(pod("a", total=3, notes=fast))
    assert KIND.takes(made)
    gang = KIND.gang(made, priority=0)
    assert (gang.replicas, gang.min_available, gang.tasks[0].requests["cpu"]) == (3, 1, 1000)
    more = KIND.gang(group(pod("a", total=3, notes=fast), pod("b", total=3, age=1)), priority=0)
    assert (more.replicas, more.min_available, more.tasks[0].name) == (3, 2, gang.tasks[0].name)


def test_the_oldest_speaks_for_all_and_every_change_is_one_of_the_group() -> None:
    young, old = pod("a", age=5), pod("b", age=1, notes={keys.RUNNING_ESTIMATE: "1h"})
    made = group(young, old)
    assert made["metadata"]["uid"] == "uid-b"
    assert KIND.gang(made, priority=0).running_estimate == 3600
    assert (
        group(pod("a", age=5, notes={keys.HOLD: "true"}), old)["metadata"]["generation"]
        != made["metadata"]["generation"]
    )
    assert group(pod("a", "Running", age=5), old)["metadata"]["generation"] == made["metadata"]["generation"]


def test_its_gang_is_all_of_its_pods_in_one_member() -> None:
    gang = KIND.gang(group(pod("a"), pod("b")), priority=5)
    assert (gang.replicas, gang.min_available, gang.priority, gang.queue, gang.whole) == (2, 2, 5, "research", True)
    assert gang.tasks[0].requests == {"cpu": 1000, "pods": 1}


def test_one_that_is_held_holds_all() -> None:
    assert KIND.gang(group(pod("a"), pod("b", notes={keys.HOLD: "true"})), priority=0).hold


def test_a_younger_pod_takes_the_place_of_one_that_failed() -> None:
    made = group(pod("a", "Failed"), pod("b", age=1), pod("c", age=2))
    assert sorted(names(made)) == ["b", "c"]


def test_none_takes_the_place_of_one_that_runs() -> None:
    made = group(pod("a", "Running"), pod("b", age=1), pod("c", age=2))
    assert sorted(names(made)) == ["a", "b"]
    assert told(made)["c"]["reason"] == "NotOfGroup"


def test_none_takes_any_place_where_that_is_not_wanted() -> None:
    made = group(pod("a", "Failed", notes={RETRIABLE: "false"}), pod("b", age=1), pod("c", age=2))
    assert sorted(names(made)) == ["a", "b"]


def names(made: Json) -> list[str]:
    sent = KIND.rewrite(made, Part("m", {"main": 2}, 2))["spec"]["tasks"]
    return [each["template"]["spec"]["hostname"] for each in sent]


# -- what members run --------------------------------------------------------------------------------------------------


def test_a_member_gets_a_volcano_job_with_a_task_for_each_pod() -> None:
    part = Part("m", {"main": 2}, 2, identity={keys.BINDING_UID: "u"}, grace=30)
    sent = KIND.rewrite(group(pod("a"), pod("b")), part)
    assert (sent["apiVersion"], sent["kind"]) == ("batch.volcano.sh/v1alpha1", "Job")
    assert sent["metadata"]["name"].startswith("g-")
    assert sent["metadata"]["name"] == pod_group.name_in_member("ns", "g")
    assert sent["spec"]["minAvailable"] == 2
    first = sent["spec"]["tasks"][0]
    assert (first["replicas"], first["minAvailable"]) == (1, 1)
    notes = {keys.BINDING_UID: "u", keys.GANG_TASK: "main"}
    assert first["template"]["metadata"] == {"labels": {"app": "train"}, "annotations": notes}
    spec = first["template"]["spec"]
    assert spec["hostname"] == "a"
    assert spec["schedulingGates"] == [{"name": "their.own/gate"}]
    assert spec["schedulerName"] == keys.SCHEDULER_NAME
    assert spec["volumes"] == [{"name": "data"}]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "data", "mountPath": "/d"}]
    assert not spec.keys() & {"priority", "preemptionPolicy", "serviceAccount", "serviceAccountName", "nodeName"}


def test_one_that_takes_a_place_is_another_task_even_by_the_same_name() -> None:
    other = pod("a")
    other["metadata"]["uid"] = "another"
    assert task_of(pod("a")) != task_of(other)
    assert len(task_of(pod("x" * 200))) <= 63


def test_what_has_ended_is_not_run_again() -> None:
    made = group(pod("a", "Succeeded"), pod("b"))
    carried = KIND.carried(made["status"])
    assert KIND.gang(made, priority=0, carried=carried).replicas == 1
    tasks = KIND.rewrite(made, Part("m", {"main": 1}, 1, carried=carried))["spec"]["tasks"]
    assert [each["template"]["spec"]["hostname"] for each in tasks] == ["b"]


def test_kueue_in_a_member_does_not_take_it() -> None:
    with pytest.raises(Unplaceable):
        KIND.placed(
            KIND.rewrite(group(pod("a"), pod("b")), Part("m", {"main": 2}, 2)), MadeFor(Placer.KUEUE, queue="q")
        )


# -- what the host's pods are told -------------------------------------------------------------------------------------


def test_each_pod_has_the_phase_of_its_own() -> None:
    found = told(group(pod("a"), pod("b")), report(a="Running", b="Succeeded"))
    assert {name: each["phase"] for name, each in found.items()} == {"a": "Running", "b": "Succeeded"}
    assert found["a"] == {"phase": "Running", "qosClass": "Burstable", "message": "in m1"}


def test_how_a_pod_ended_is_never_taken_back() -> None:
    assert told(group(pod("a", "Succeeded"), pod("b", "Failed")), report(a="Running")) == {}


def test_what_was_evicted_is_pending_again() -> None:
    found = told(group(pod("a", "Running"), pod("b", "Running")), waiting=("QuotaExceeded", "no room"))
    assert found["a"] == {"phase": "Pending", "qosClass": "Burstable", "reason": "QuotaExceeded", "message": "no room"}


def test_while_nothing_says_anything_all_stays_as_it_was() -> None:
    assert told(group(pod("a", "Running"), pod("b"))) == {}


def test_what_a_member_says_of_a_task_that_is_gone_leaves_the_others_theirs() -> None:
    sent = KIND.rewrite(group(pod("b"), pod("c")), Part("m", {"main": 2}, 2))
    before = report(a="Running", b="Running", c="Pending").status
    del sent["spec"]["tasks"][1]
    assert KIND.reported(sent, before)["taskStatusCount"] == report(b="Running").status["taskStatusCount"]


def test_nothing_is_written_twice() -> None:
    a, b = pod("a"), pod("b")
    found = told(group(a, b), report(a="Running"))
    assert told(group({**a, "status": found["a"]}, {**b, "status": found["b"]}), report(a="Running")) == {}


@pytest.mark.parametrize(
    ("phases", "outcome"),
    [
        pytest.param(("Succeeded", "Succeeded"), Outcome.SUCCEEDED, id="all succeeded"),
        pytest.param(("Succeeded", "Failed"), Outcome.FAILED, id="all ended, one badly"),
        pytest.param(("Running", "Failed"), None, id="one may take the place of what failed while others run"),
        pytest.param(("Pending", "Succeeded"), None, id="one has not begun"),
    ],
)
def test_how_a_group_ends(phases: tuple[str, str], outcome: Outcome | None) -> None:
    assert KIND.finished(group(pod("a", phases[0]), pod("b", phases[1]))["status"]) is outcome


# -- admission ---------------------------------------------------------------------------------------------------------


def fresh() -> Json:
    made = pod("a")
    made["spec"]["schedulingGates"] = [{"name": "their.own/gate"}]
    return made


def test_a_new_pod_is_gated_and_stamped_with_its_queue() -> None:
    gate, queue = default_pod(fresh(), {})
    assert gate["value"] == [{"name": "their.own/gate"}, {"name": GATE}]
    assert (queue["path"], queue["value"]) == ("/metadata/labels/volcano.sh~1queue-name", "research")
    assert ADMISSION.defaults(Change(new=fresh(), old=fresh(), namespace={})) == []


def test_a_new_pod_that_names_a_queue_and_no_group_is_one_of_its_own() -> None:
    alone = fresh()
    alone["metadata"] |= {"name": "a.b", "labels": {keys.KUEUE_QUEUE_LABEL: "research"}, "annotations": {"x": "y"}}
    made = jsonpatch.applied(alone, default_pod(alone, {}))
    assert (made["metadata"]["labels"][GROUP], made["metadata"]["annotations"]) == ("a-b", {"x": "y", TOTAL: "1"})
    assert validate_pod(made) == []
    assert KIND.takes(group(made))
    of_a_set = {**alone, "metadata": {**alone["metadata"], "ownerReferences": [{"kind": "ReplicaSet"}]}}
    assert GROUP not in jsonpatch.applied(of_a_set, default_pod(of_a_set, {}))["metadata"]["labels"]
    unnamed = {**alone, "metadata": {**alone["metadata"], "generateName": "a.", "name": None}}
    gated = jsonpatch.applied(unnamed, default_pod(unnamed, {}))
    assert gated["metadata"]["labels"][GROUP].startswith("a-")
    assert validate_pod(gated) == []


@pytest.mark.parametrize("name", ["stress", "a" * 253, "a." * 40 + "b", "1.2"])
def test_a_new_pod_of_no_queue_and_no_owner_is_a_group_of_its_own_in_its_namespaces_queue(name: str) -> None:
    bare: Json = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"containers": []}}
    made = jsonpatch.applied(bare, default_pod(bare, {"scheduling.volcano.sh/queue-name": "team"}))
    assert validate_pod(made) == []
    assert made["spec"]["schedulingGates"] == [{"name": GATE}]
    assert made["metadata"]["labels"][keys.QUEUE_LABEL] == "team"
    assert made["metadata"]["annotations"] == {TOTAL: "1"}


@pytest.mark.parametrize(
    "about",
    [
        {"metadata": {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "d"}]}},
        {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}},
        {"spec": {"nodeName": "n"}},
    ],
    ids=["of an owner", "a kubelet's mirror", "on a node already"],
)
def test_a_pod_that_is_another_s_business_gets_no_group(about: Json) -> None:
    bare: Json = {"metadata": {"name": "p", **about.get("metadata", {})}, "spec": {**about.get("spec", {})}}
    assert GROUP not in str(default_pod(bare, {}))


@pytest.mark.parametrize("total", ["0", "many", str(MOST + 1)])
def test_how_many_pods_a_group_has_must_be_said(total: str) -> None:
    [problem] = validate_pod(pod("a", notes={TOTAL: total}))
    assert TOTAL in problem.field


def test_a_pod_stays_in_its_group_and_behind_its_gate() -> None:
    other = pod("a")
    other["metadata"]["labels"] = {**other["metadata"]["labels"], GROUP: "other"}
    ungated, larger = pod("a"), pod("a", total=3)
    ungated["spec"]["schedulingGates"] = [{"name": "their.own/gate"}]
    assert [problem.field for problem in validate_update(pod("a"), other)] == [f"metadata.labels[{GROUP}]"]
    assert [problem.field for problem in validate_update(pod("a"), ungated)] == ["spec.schedulingGates"]
    assert [problem.field for problem in validate_update(pod("a"), larger)] == [f"metadata.annotations[{TOTAL}]"]
    assert validate_update(pod("a"), pod("a")) == []


def test_what_runs_stays_in_its_queue() -> None:
    assert ADMISSION.kept(pod("a", "Running"), "research")
    assert not ADMISSION.kept(pod("a"), "research")


# -- slices ------------------------------------------------------------------------------------------------------------

SLICES = {nearness.SLICE_LEVEL: "rack", nearness.SLICE_SIZE: "2"}


def indexed(name: str, index: int, **notes: str) -> Json:
    made = pod(name, total=4, notes={**SLICES, **notes})
    made["metadata"]["labels"][INDEX] = str(index)
    return made


def test_slices_of_a_group_follow_the_indices_of_its_pods() -> None:
    whole = group(*(indexed(name, index) for name, index in (("a", 3), ("b", 0), ("c", 2), ("d", 1))))
    gang = KIND.gang(whole, priority=0)
    assert gang.tasks[0].partition == Partition(2, TopologyWish("hard", None, "rack"))
    made = KIND.rewrite(whole, Part("m", {"main": 4}, 4))
    slices = [task["template"]["metadata"]["labels"][keys.PARTITION] for task in made["spec"]["tasks"]]
    assert dict(zip([task["name"][0] for task in made["spec"]["tasks"]], slices, strict=True)) == {
        "a": "1",
        "b": "0",
        "c": "1",
        "d": "0",
    }
    made["metadata"]["uid"] = "u"
    [policy] = pod_group_of(made)["spec"]["subGroupPolicy"]
    assert (policy["subGroupSize"], policy["matchLabelKeys"]) == (2, [keys.PARTITION])
    assert policy["networkTopology"] == {"mode": "hard", "highestTierName": "rack"}
    with pytest.raises(Unplaceable, match="slices"):
        KIND.placed(made, MadeFor(Placer.VOLCANO))


def test_slices_in_slices_of_a_group_have_a_label_for_each_layer() -> None:
    said = '[{"topology": "block", "size": 4}, {"topology": "rack", "size": 2}, {"topology": "node", "size": 2}]'
    made = [pod(f"p{index}", total=4, notes={nearness.SLICE_LAYERS: said}) for index in range(4)]
    for index, each in enumerate(made):
        each["metadata"]["labels"][INDEX] = str(index)
    job = KIND.rewrite(group(*made), Part("m", {"main": 4}, 4))
    labels = [task["template"]["metadata"]["labels"] for task in job["spec"]["tasks"]]
    layers = [[each[key] for key in (keys.PARTITION, *keys.INNER_SLICES)] for each in labels]
    assert layers == [["0", "0", "0"], ["0", "0", "0"], ["0", "1", "1"], ["0", "1", "1"]]
    job["metadata"]["uid"] = "u"
    policies = pod_group_of(job)["spec"]["subGroupPolicy"]
    assert [each["subGroupSize"] for each in policies] == [4, 2, 2]
    assert [len(each["matchLabelKeys"]) for each in policies] == [1, 2, 3]
    bad = pod("a", total=6, notes={nearness.SLICE_LAYERS: said})
    assert "6 pods are no multiple" in ADMISSION.problems(Change(new=bad, namespace={}))[0].message
    without = pod("a", total=4, notes={nearness.SLICE_LAYERS: said})
    assert [each.field for each in ADMISSION.warnings(Change(new=without, namespace={}))] == [
        f"metadata.annotations[{nearness.SLICE_LAYERS}]"
    ]


def test_slices_of_pods_without_an_index_are_warned_of() -> None:
    without = pod("a", total=4, notes=SLICES)
    assert [each.message for each in ADMISSION.warnings(Change(new=without, namespace={}))] == [
        f"has no effect unless each pod of the group has its index, such as label {INDEX}: 0"
    ]
    whole = group(*(pod(name, total=2, notes=SLICES) for name in ("a", "b")))
    assert KIND.gang(whole, priority=0).tasks[0].partition is None
    assert ADMISSION.warnings(Change(new=indexed("a", 0), namespace={})) == []
