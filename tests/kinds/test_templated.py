"""Kinds of replicated pod templates: what each needs, sends to a member, and makes of what the member says."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from atoll.admission import jsonpatch
from atoll.admission.rules import Change
from atoll.kinds import Outcome, Part, Report
from atoll.kinds.templated import set_at, value_at
from atoll.model import keys
from atoll.model.placer import MadeFor, Placer, Unplaceable
from tests.kinds.samples import BY_TITLE, NOW, SAMPLES, new, part_of, pod, taken, wrong

Json = dict[str, Any]

each_kind = pytest.mark.parametrize("title", BY_TITLE)


def test_every_kind_has_a_sample() -> None:
    assert SAMPLES.keys() == BY_TITLE.keys()


@each_kind
def test_a_new_one_is_taken_over_with_its_queue_written_on_it(title: str) -> None:
    kind, obj = BY_TITLE[title], taken(title)
    assert not kind.takes(new(title))
    assert kind.takes(obj)
    assert kind.queue_of(obj) == obj["metadata"]["labels"][keys.QUEUE_LABEL] == "team-a"
    assert not kind.switch or value_at(obj, kind.switch) is True
    assert not kind.manager or value_at(obj, kind.manager) == keys.CONTROLLER
    assert kind.admission().problems(Change(new=obj, namespace={}, referred=SAMPLES[title].referred)) == []
    # What was taken over once is not changed by it again, and is not held.
    assert kind.admission().defaults(Change(new=obj, old=obj, namespace={})) == []
    assert not kind.gang(obj, priority=0).hold


@each_kind
def test_one_that_comes_suspended_is_held_unless_it_is_queued_as_with_kueue(title: str) -> None:
    kind = BY_TITLE[title]
    if not kind.switch:
        return
    obj = new(title)
    set_at(obj, kind.switch, True)
    change = Change(new=obj, namespace={}, referred=SAMPLES[title].referred)
    rules = kind.admission()
    assert kind.gang(jsonpatch.applied(obj, rules.defaults(change)), priority=0).hold
    obj["metadata"]["labels"] = {keys.KUEUE_QUEUE_LABEL: "q"}
    queued = jsonpatch.applied(obj, rules.defaults(change))
    assert not kind.gang(queued, priority=0).hold
    assert kind.queue_of(queued) == "q"


@each_kind
def test_its_switch_is_not_lifted_by_hand(title: str) -> None:
    kind, old = BY_TITLE[title], taken(title)
    if not kind.switch:
        return
    changed = copy.deepcopy(old)
    set_at(changed, kind.switch, False)
    change, rules = Change(new=changed, old=old, namespace={}), kind.admission()
    assert value_at(jsonpatch.applied(changed, rules.defaults(change)), kind.switch) is True
    assert [each.field for each in rules.of_defaults(change)] == [".".join(map(str, kind.switch))]
    assert len(rules.problems(change)) == 1


@each_kind
def test_its_gang_is_all_pods_of_its_components(title: str) -> None:
    gang = BY_TITLE[title].gang(taken(title), priority=7)
    assert {task.name: task.replicas for task in gang.tasks} == SAMPLES[title].tasks
    # One index is a gang.
    minimum = gang.replicas // 2 if title == "JobArray" else gang.replicas
    assert (gang.min_available, gang.priority, gang.queue) == (minimum, 7, "team-a")
    assert all(task.requests.get("cpu") for task in gang.tasks)
    assert gang.whole is (title != "Deployment")
    # A member without the kind lacks this.
    assert f"{BY_TITLE[title].resource.api_version}/{BY_TITLE[title].resource.kind}" in gang.features


@each_kind
def test_a_member_gets_it_started_with_its_pods_marked_as_one_gang(title: str) -> None:
    kind, obj = BY_TITLE[title], taken(title)
    obj["metadata"]["annotations"] = {**(obj["metadata"].get("annotations") or {}), keys.HOLD: "false", "mine": "kept"}
    before = copy.deepcopy(obj)
    made = kind.rewrite(obj, part_of(title))
    assert obj == before
    told = {keys.GENERATION, *((kind.referred.annotation,) if kind.referred else ())}
    assert made["metadata"]["annotations"].get(keys.GENERATION) == ("4" if kind.observes else None)
    assert {k: v for k, v in made["metadata"]["annotations"].items() if k not in told} == {"mine": "kept"}
    assert keys.QUEUE_LABEL not in made["metadata"]["labels"]
    assert not kind.switch or value_at(made, kind.switch) is False
    assert not kind.manager or value_at(made, kind.manager) is None
    assert all(value_at(made, path) is None for path in kind.host_only)
    made = dict(kind.entire(made))
    # Pods of an array are marked by the controller of its Jobs.
    for each in kind.components(made) if title != "JobArray" else ():
        notes = value_at(made, each.annotations or (*each.template, "metadata", "annotations"))
        assert (notes[keys.BINDING_UID], notes[keys.EPOCH], notes[keys.TASK_SPEC]) == ("b", "1", each.name)
        minimum = kind.starts(kind.entire(obj)) if kind.starts else None
        assert notes[keys.GROUP_MIN_MEMBER] == str(minimum or sum(SAMPLES[title].tasks.values()))
        assert value_at(made, (*each.template, *(() if each.pod else ("spec",)), "schedulerName")) == "atoll"


@each_kind
def test_what_the_member_says_of_its_end_is_its_end_on_the_host_and_is_not_evicted(title: str) -> None:
    kind, obj, sample = BY_TITLE[title], taken(title), SAMPLES[title]
    manifest = kind.rewrite(obj, part_of(title))
    for said, outcome in ((sample.succeeded, Outcome.SUCCEEDED), (sample.failed, Outcome.FAILED)):
        assert (said is None) is kind.service
        if said is None:
            continue
        report = Report("east", kind.reported(manifest, said))
        status = kind.aggregate(obj, [report], waiting=("", ""), now=NOW)
        assert kind.finished(status) is outcome
        assert kind.ended_at(status) == NOW
        assert kind.healthy(report.status) is (outcome is Outcome.SUCCEEDED)
        assert kind.aggregate({**obj, "status": status}, [], waiting=("Waiting", "x"), now="later") == status


@each_kind
def test_while_it_runs_its_own_status_is_on_the_host_without_what_the_agent_adds(title: str) -> None:
    kind, obj, said = BY_TITLE[title], taken(title), SAMPLES[title].running
    placement = {"generation": 3, "nodes": {"n": 1}, "domain": "", "tier": 0}
    report = kind.reported(kind.rewrite(obj, part_of(title)), {**said, "placement": placement})
    assert report["placement"]["nodes"] == {"n": 1}
    status = kind.aggregate(obj, [Report("east", report)], waiting=("", ""), now=NOW)
    assert {name: status[name] for name in said if name != "conditions"} == {
        name: value for name, value in said.items() if name != "conditions"
    }
    assert "placement" not in status
    told = status["conditions"][-1]
    assert (told["type"], told["status"], told["message"]) == ("Dispatched", "True", "in east")
    assert kind.running(report)
    assert kind.finished(status) is None
    assert kind.standing({**obj, "status": status}).running > 0


@each_kind
def test_while_it_waits_its_status_says_why(title: str) -> None:
    kind, obj = BY_TITLE[title], taken(title)
    status = kind.aggregate(obj, [], waiting=("QuotaExceeded", "queue team-a is full"), now=NOW)
    told = next(each for each in status["conditions"] if each["type"] == "Dispatched")
    assert (told["status"], told["reason"], told["message"]) == ("False", "QuotaExceeded", "queue team-a is full")
    again = kind.aggregate({**obj, "status": status}, [], waiting=("QuotaExceeded", "still"), now="later")
    assert again["conditions"][0]["lastTransitionTime"] == NOW
    assert kind.finished(status) is None


@each_kind
def test_each_placer_takes_it_or_says_who_does(title: str) -> None:
    kind = BY_TITLE[title]
    manifest = kind.rewrite(taken(title), part_of(title))
    for placer in Placer:
        how = MadeFor(placer, queue="there")
        if placer not in kind.placers:
            with pytest.raises(Unplaceable, match=f"which does not take a {title} as one gang"):
                kind.placed(manifest, how)
            continue
        made = kind.placed(manifest, how)
        assert manifest["metadata"]["labels"].get(keys.KUEUE_QUEUE_LABEL) is None
        if placer is Placer.KUEUE:
            assert made["metadata"]["labels"][keys.KUEUE_QUEUE_LABEL] == "there"
            assert not kind.switch or value_at(made, kind.switch) is True


@pytest.mark.parametrize(
    ("title", "spec", "fields"),
    [
        pytest.param("JobSet", {"managedBy": "other/x"}, ["spec.managedBy"], id="another controller's"),
        pytest.param("JobSet", {"replicatedJobs": []}, ["spec"], id="no pods"),
        pytest.param("JobSet", {"replicatedJobs": 3}, ["spec"], id="of the wrong type"),
        pytest.param("Deployment", {"replicas": "3"}, ["spec"], id="a count that is none"),
        pytest.param(
            "Deployment", {"template": pod(nodeName="n")}, ["spec.template.spec.nodeName"], id="pods past the queue"
        ),
        pytest.param(
            "PyTorchJob", {"elasticPolicy": {"maxReplicas": 9}}, ["spec.elasticPolicy.maxReplicas"], id="beyond charge"
        ),
        pytest.param(
            "RayCluster", {"enableInTreeAutoscaling": True}, ["spec.enableInTreeAutoscaling"], id="an autoscaler"
        ),
        pytest.param("RayCluster", {"headGroupSpec": None}, ["spec"], id="no head"),
        pytest.param(
            "RayJob",
            {"shutdownAfterJobFinishes": False, "clusterSelector": {"a": "b"}},
            ["spec.clusterSelector", "spec.shutdownAfterJobFinishes"],
            id="a cluster that stays",
        ),
        pytest.param(
            "RayJob",
            {"clusterSelector": {"ray.io/cluster": "shared"}, "rayClusterSpec": None},
            ["spec.clusterSelector"],
            id="a cluster of others and so no head",
        ),
        pytest.param(
            "SparkApplication",
            {"dynamicAllocation": {"enabled": True}},
            ["spec.dynamicAllocation.maxExecutors"],
            id="executors without end",
        ),
        pytest.param("SparkApplication", {"driver": {"memory": "much"}}, ["spec"], id="memory that can't be read"),
        pytest.param(
            "AppWrapper",
            {"components": [{"template": {"kind": "Odd", "spec": {"template": pod()}}}, {"template": pod()}]},
            ["spec.components[0].podSets", "spec"],
            id="pods that nobody finds",
        ),
    ],
)
def test_what_would_run_past_its_queue_is_refused_with_the_field(title: str, spec: Json, fields: list[str]) -> None:
    assert wrong(title, **spec) == fields


def test_jobs_that_wait_for_others_do_not_keep_the_first_from_starting() -> None:
    kind, obj = BY_TITLE["JobSet"], taken("JobSet")
    assert kind.starts is not None
    assert kind.starts(obj) is None
    obj["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "driver", "status": "Ready"}]
    assert kind.starts(obj) == 1
    obj["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    assert kind.starts(obj) == 1
    placed = {"placement": {"nodes": {"n": 1}}}
    assert kind.started(placed) >= kind.gang(obj, priority=0).min_available
    assert kind.started({"placement": {"nodes": {"n": 1}, "waiting": "no room"}}) == 0


def test_what_an_app_wrapper_wraps_keeps_its_order() -> None:
    kind, obj = BY_TITLE["AppWrapper"], taken("AppWrapper")
    assert kind.starts is not None
    assert kind.starts(obj) is None
    ordered: Json = {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"replicas": 3, "template": pod()}}
    obj["spec"]["components"].append({"template": ordered})
    assert kind.gang(obj, priority=0).replicas == 8
    assert kind.starts(obj) == 6
    ordered["spec"]["podManagementPolicy"] = "Parallel"
    assert kind.starts(obj) is None


def test_the_page_of_kinds_says_what_the_code_does() -> None:
    for title, kind in BY_TITLE.items():
        gang = kind.gang(taken(title), priority=0)
        assert (kind.support.division == "one member") is (gang.whole and not gang.scattered), title
        ordered = kind.starts is not None or title == "JobArray"
        assert (kind.support.order == "all at once") is not ordered, title
        assert kind.support.end.startswith("never") is kind.service, title
        counted = any(each.count for each in kind.components(kind.entire(taken(title))))
        assert counted or kind.support.scaling == "-", title
        assert not kind.service or kind.support.scaling != "-", title


def test_a_deployment_of_an_elastic_gang_runs_with_what_it_got_in_each_member() -> None:
    kind, obj = BY_TITLE["Deployment"], taken("Deployment")
    obj["metadata"]["annotations"] = {keys.GROUP_MIN_MEMBER: "1"}
    gang = kind.gang(obj, priority=0)
    assert (gang.min_available, gang.replicas) == (1, 3)
    made = kind.rewrite(obj, Part("east", {"main": 2}, 1))
    assert made["spec"]["replicas"] == 2
    said = {"replicas": 2, "readyReplicas": 2, "observedGeneration": 1, "delivered": {"generation": 4, "own": 1}}
    parts = [Report(name, said) for name in ("east", "west")]
    status = kind.aggregate(obj, parts, waiting=("", ""), now=NOW)
    assert (status["readyReplicas"], status["observedGeneration"]) == (4, 4)


def test_a_spark_pod_requests_what_spark_adds_to_its_memory() -> None:
    tasks = {
        task.name: task.requests
        for task in BY_TITLE["SparkApplication"].gang(taken("SparkApplication"), priority=0).tasks
    }
    mib = 2**20
    assert tasks["driver"]["memory"] == (512 + 384) * mib
    assert tasks["executor"]["memory"] == -(-4096 * mib * 11 // 10)


@pytest.mark.parametrize(
    ("title", "counts", "path", "count"),
    [
        ("JobSet", {"driver": 1, "workers": 5}, ("spec", "replicatedJobs", 1, "replicas"), 1),
        ("LeaderWorkerSet", {"leader": 2, "worker": 3}, ("spec", "replicas"), 1),
        ("RayCluster", {"ray-head": 1, "small": 1, "none": 0}, ("spec", "workerGroupSpecs", 0, "replicas"), 1),
        ("PyTorchJob", {"master": 1, "worker": 1}, ("spec", "pytorchReplicaSpecs", "Worker", "replicas"), 1),
    ],
)
def test_a_part_makes_no_more_pods_than_it_was_charged_for(
    title: str, counts: dict[str, int], path: tuple[str | int, ...], count: int
) -> None:
    assert value_at(BY_TITLE[title].rewrite(taken(title), Part("east", counts, 1)), path) == count


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param({}, {"maxSurge": 0, "maxUnavailable": "25%"}, id="nothing"),
        pytest.param({"type": "RollingUpdate"}, {"maxSurge": 0, "maxUnavailable": "25%"}, id="no numbers"),
        pytest.param(
            {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            {"maxSurge": 0, "maxUnavailable": 1},
            id="surge alone",
        ),
        pytest.param(
            {"rollingUpdate": {"maxUnavailable": 2}}, {"maxSurge": 0, "maxUnavailable": 2}, id="a number of pods"
        ),
        pytest.param({"type": "Recreate"}, None, id="all at once"),
    ],
)
def test_an_update_of_a_deployment_makes_no_more_pods_than_are_charged(said: Json, expected: Json | None) -> None:
    made = taken("Deployment")
    made["spec"]["strategy"] = said
    sent = BY_TITLE["Deployment"].rewrite(made, part_of("Deployment"))["spec"]["strategy"]
    assert sent.get("rollingUpdate") == expected


def test_an_update_of_a_leader_worker_set_makes_no_more_groups_than_are_charged() -> None:
    made = taken("LeaderWorkerSet")
    rolling = {"maxUnavailable": 1, "maxSurge": 2}
    made["spec"]["rolloutStrategy"] = {"type": "RollingUpdate", "rollingUpdateConfiguration": rolling}
    sent = BY_TITLE["LeaderWorkerSet"].rewrite(made, part_of("LeaderWorkerSet"))["spec"]["rolloutStrategy"]
    assert sent["rollingUpdateConfiguration"] == {"maxUnavailable": 1, "maxSurge": 0}


@pytest.mark.parametrize(("cpu", "fields"), [("1", []), ("2", ["spec.submitterPodTemplate"])])
def test_the_pod_that_submits_a_ray_job_is_small(cpu: str, fields: list[str]) -> None:
    assert wrong("RayJob", submitterPodTemplate=pod(cpu)) == fields


@each_kind
def test_what_is_dispatched_says_so_before_an_operator_has_written_anything(title: str) -> None:
    kind, obj = BY_TITLE[title], taken(title)
    told = ("Dispatched", "in east, where nothing has reported on it yet")
    status = kind.aggregate(obj, [], waiting=told, now=NOW)
    [condition] = [each for each in status["conditions"] if each["type"] == "Dispatched"]
    assert (condition["status"], condition["reason"], condition["message"]) == ("True", *told)
    rest = {name: value for name, value in status.items() if name != "conditions"}
    assert not any(words in str(rest) for words in ("Suspended", "Dispatched")), "nothing else is known"


@pytest.mark.parametrize(
    ("waiting", "message"),
    [
        pytest.param(("", ""), "", id="nothing is known"),
        pytest.param(("QuotaExceeded", "no room"), "QuotaExceeded: no room", id="a reason is known"),
    ],
)
def test_an_application_of_spark_has_an_error_message_only_with_words(waiting: tuple[str, str], message: str) -> None:
    title = "SparkApplication"
    status = BY_TITLE[title].aggregate(taken(title), [], waiting=waiting, now=NOW)
    assert status["applicationState"]["errorMessage"] == message
