"""CronJobs, JobFlows, JobTemplates and HyperJobs: what is refused, and what is warned of."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from atoll.kinds import makers
from atoll.kube.config import Connection
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import NAMESPACES, QUEUES
from atoll.model.objects import decode_meta
from atoll.webhook import queues, reviews, server
from tests.webhook.builders import Json, make_job, make_queue, make_task
from tests.webhook.reviews import nobody, review


def make_cron_job(name: str = "tick", *, job: Json | None = None, **spec: Any) -> Json:
    template = {"spec": (job or make_job())["spec"]}
    metadata = {"name": name, "namespace": "ns"}
    return {"metadata": metadata, "spec": {"schedule": "@hourly", "jobTemplate": template, **spec}}


def make_flow(*steps: Json) -> Json:
    return {"metadata": {"name": "f", "namespace": "ns"}, "spec": {"flows": list(steps)}}


def warned(path: str, obj: Json, old: Json | None = None) -> list[str]:
    """Warnings of the real handler, where queues `default`, `research` and `shut` are there."""
    api = ApiServer(Connection("http://127.0.0.1:9", None, nobody))
    cache = Reflector(api, QUEUES, queues.decode)
    for each in (make_queue("default"), make_queue("research"), make_queue("shut") | {"status": {"state": "Closed"}}):
        cache.take_line(json.dumps({"type": "ADDED", "object": each}).encode())
    cache.synced.set()
    answers = reviews.Reviews(cache, Reflector(api, NAMESPACES, decode_meta))
    body = json.dumps(review(obj, old, "UPDATE" if old else "CREATE")).encode()
    outcome, answer = asyncio.run(server.answer(answers, f"/validate/{path}", body))
    assert outcome == "allowed", answer.text
    found: list[str] = json.loads(answer.text or "")["response"].get("warnings", [])
    return found


def step(name: str, *targets: str, **probe: Any) -> Json:
    depends = {"targets": list(targets), **({"probe": probe} if probe else {})}
    return {"name": name, "dependsOn": depends} if targets or probe else {"name": name}


BAD_CRON: dict[str, tuple[Json, str]] = {
    "a schedule": (make_cron_job(schedule="* * *"), "spec.schedule"),
    "a time zone in the schedule": (make_cron_job(schedule="TZ=UTC @hourly"), "spec.schedule"),
    "a time zone": (make_cron_job(timeZone="Mars"), "spec.timeZone"),
    "a negative deadline": (make_cron_job(startingDeadlineSeconds=-1), "spec.startingDeadlineSeconds"),
    "a negative history": (make_cron_job(failedJobsHistoryLimit=-1), "spec.failedJobsHistoryLimit"),
    "another negative history": (make_cron_job(successfulJobsHistoryLimit=-1), "spec.successfulJobsHistoryLimit"),
    "too long a name": (make_cron_job("x" * 53), "metadata.name"),
    "a Job without tasks": (make_cron_job(jobTemplate={"spec": {}}), "spec.jobTemplate.spec.tasks"),
    "no Job": (make_cron_job(jobTemplate={}), "spec.jobTemplate.spec"),
    "a gang larger than its tasks": (
        make_cron_job(job=make_job(minAvailable=9)),
        "spec.jobTemplate.spec.minAvailable",
    ),
}


@pytest.mark.parametrize(("obj", "field"), BAD_CRON.values(), ids=BAD_CRON.keys())
def test_cron_jobs_that_are_refused(obj: Json, field: str) -> None:
    assert field in [problem.field for problem in makers.validate_cron_job(obj)]


def test_a_cron_job_that_is_taken() -> None:
    obj = make_cron_job("x" * 40, timeZone="Asia/Tokyo", job=make_job(make_task("w")), startingDeadlineSeconds=0)
    assert makers.validate_cron_job(obj) == []


BAD_FLOW: dict[str, tuple[Json, str, str]] = {
    "no steps": (make_flow(), "spec.flows", "is empty"),
    "a step without a name": (make_flow({}), "spec.flows[0].name", "can't name"),
    "a step twice": (make_flow(step("a"), step("a")), "spec.flows[1].name", "twice"),
    "an unknown target": (make_flow(step("a", "x")), "spec.flows[0].dependsOn.targets", "no step 'x'"),
    "more targets than a flow has steps": (
        make_flow(step("a", *["x"] * 257)),
        "spec.flows[0].dependsOn.targets",
        "name each once",
    ),
    "a circle": (make_flow(step("a", "b"), step("b", "a")), "spec.flows", "a -> b -> a"),
    "a step after itself": (make_flow(step("a", "a")), "spec.flows", "a -> a"),
    "a probe of nothing": (
        make_flow(step("a", taskStatusList=[{"taskName": "w", "phase": "Running"}])),
        "spec.flows[0].dependsOn.probe",
        "no targets",
    ),
    "a phase that pods do not have": (
        make_flow(step("a"), step("b", "a", taskStatusList=[{"taskName": "w", "phase": "Completed"}])),
        "spec.flows[1].dependsOn.probe.taskStatusList[0].phase",
        "Succeeded",
    ),
    "a request without a port": (
        make_flow(step("a"), step("b", "a", httpGetList=[{"taskName": "w"}])),
        "spec.flows[1].dependsOn.probe.httpGetList[0].port",
        "no port",
    ),
    "too large a port": (
        make_flow(step("a"), step("b", "a", tcpSocketList=[{"taskName": "w", "port": 65536}])),
        "spec.flows[1].dependsOn.probe.tcpSocketList[0].port",
        "no port",
    ),
    "too many requests": (
        make_flow(step("a"), step("b", "a", tcpSocketList=[{"taskName": "w", "port": 80}] * 33)),
        "spec.flows[1].dependsOn.probe.tcpSocketList",
        "at most 32",
    ),
}


@pytest.mark.parametrize(("obj", "field", "words"), BAD_FLOW.values(), ids=BAD_FLOW.keys())
def test_flows_that_are_refused(obj: Json, field: str, words: str) -> None:
    assert [problem.field for problem in makers.validate_job_flow(obj) if words in problem.message] == [field]


def test_a_flow_that_is_taken() -> None:
    probe = {
        "taskStatusList": [{"taskName": "w", "phase": "Running"}],
        "httpGetList": [{"taskName": "w", "path": "/ready", "port": 80}],
        "tcpSocketList": [{"taskName": "w", "port": 80}],
    }
    assert makers.validate_job_flow(make_flow(step("a"), step("b", "a", **probe), step("c", "a", "b"))) == []


def test_templates_are_checked_as_jobs_are() -> None:
    good = {"metadata": {"name": "t", "namespace": "ns"}, "spec": make_job()["spec"]}
    assert makers.validate_job_template(good) == []
    bad = good | {"spec": make_job(make_task("a"), make_task("a"))["spec"]}
    assert [problem.field for problem in makers.validate_job_template(bad)] == ["spec.tasks[1].name"]


def test_what_of_the_jobs_has_no_effect_is_told() -> None:
    job = make_job(make_task("a", topologyPolicy="restricted", template=WHOLE))
    field = "spec.tasks[0].topologyPolicy"
    assert any(each.startswith(field) for each in warned("jobtemplates", {"spec": job["spec"]}))
    assert any(each.startswith(f"spec.jobTemplate.{field}") for each in warned("cronjobs", make_cron_job(job=job)))


WHOLE: Json = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}}]}}
"""A pod without limits."""


def group(name: str = "t", replicas: Any = 2, *, mode: str = "static", **more: Any) -> Json:
    split = {"mode": mode, **more.pop("split", {})}
    return {"name": name, "replicas": replicas, "splitPolicy": split, "templateSpec": make_job()["spec"], **more}


def make_hyper_job(*groups: Json, **spec: Any) -> Json:
    return {"metadata": {"name": "h", "namespace": "ns"}, "spec": {"replicatedJobs": list(groups), **spec}}


BAD_HYPER: dict[str, tuple[Json, str, str]] = {
    "no groups": (make_hyper_job(), "spec.replicatedJobs", "is empty"),
    "a group twice": (make_hyper_job(group(), group()), "spec.replicatedJobs[1].name", "twice"),
    "a name": (make_hyper_job(group("A_b")), "spec.replicatedJobs[0].name", "can't name"),
    "no replicas": (make_hyper_job(group(replicas=0)), "spec.replicatedJobs[0].replicas", "is 0"),
    "no template": (make_hyper_job(group(templateSpec=None)), "spec.replicatedJobs[0].templateSpec.", "is missing"),
    "a Job that is refused": (
        make_hyper_job(group(templateSpec=make_job(make_task("a"), make_task("a"))["spec"])),
        "spec.replicatedJobs[0].templateSpec.tasks[1].name",
        "",
    ),
    "accelerators": (
        make_hyper_job(group(split={"accelerators": 8})),
        "spec.replicatedJobs[0].splitPolicy.accelerators",
        "pods request",
    ),
    "plugins": (make_hyper_job(group(), plugins={"svc": []}), "spec.plugins", "templateSpec.plugins"),
    "a gang of more than all": (make_hyper_job(group(mode="auto"), minAvailable=3), "spec.minAvailable", "2 replicas"),
    "a gang of more than all groups": (
        make_hyper_job(group(), group("d"), minAvailable=5),
        "spec.minAvailable",
        "4 rep",
    ),
    "a gang of none": (make_hyper_job(group(mode="auto"), minAvailable=0), "spec.minAvailable", "1 or more"),
    "no members": (make_hyper_job(group(), maxDomains=0), "spec.maxDomains", "1 or more"),
}


@pytest.mark.parametrize(("obj", "field", "words"), BAD_HYPER.values(), ids=BAD_HYPER.keys())
def test_hyper_jobs_that_are_refused(obj: Json, field: str, words: str) -> None:
    found = [problem.field for problem in makers.validate_hyper_job(obj) if words in problem.message]
    assert [each for each in found if each.startswith(field)], makers.validate_hyper_job(obj)


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(make_hyper_job(group(), group("d")), id="Jobs one by one"),
        pytest.param(make_hyper_job(group(), minAvailable=1), id="a gang of one Job is a Job"),
        pytest.param(make_hyper_job(group(), group("d", mode="auto"), minAvailable=4), id="a gang of several Jobs"),
        pytest.param(make_hyper_job(group(mode="auto"), minAvailable=2, maxDomains=1), id="one gang that is divided"),
        pytest.param(make_hyper_job(group(), group("d", mode="auto"), maxDomains=1), id="all in one member"),
    ],
)
def test_hyper_jobs_that_are_taken(obj: Json) -> None:
    assert makers.validate_hyper_job(obj) == []


def test_what_of_the_jobs_of_a_hyper_job_has_no_effect_is_told() -> None:
    template = make_job(make_task("a", topologyPolicy="restricted", template=WHOLE))["spec"]
    [said] = warned("hyperjobs", make_hyper_job(group(templateSpec=template)))
    assert said.startswith("spec.replicatedJobs[0].templateSpec.tasks[0].topologyPolicy: ")


@pytest.mark.parametrize(
    ("path", "make", "field"),
    [
        pytest.param("cronjobs", lambda job: make_cron_job(job=job), "spec.jobTemplate.spec.queue", id="of a schedule"),
        pytest.param(
            "hyperjobs",
            lambda job: make_hyper_job(group(templateSpec=job["spec"])),
            "spec.replicatedJobs[0].templateSpec.queue",
            id="of a group",
        ),
        pytest.param("jobtemplates", lambda job: {"spec": job["spec"]}, "spec.queue", id="of a step"),
    ],
)
def test_a_queue_that_takes_none_of_the_jobs_is_warned_of(path: str, make: Any, field: str) -> None:
    good, missing, closed = (make(make_job(queue=queue)) for queue in ("research", "reserch", "shut"))
    assert warned(path, good) == []
    [said] = warned(path, missing)
    assert said.startswith(f"{field}: queue 'reserch' does not exist")
    assert "did you mean research?" in said
    [said] = warned(path, closed)
    assert said.startswith(f"{field}: queue 'shut' is Closed")
    assert warned(path, missing, missing) == [], "it was warned of before"


def test_an_object_that_names_many_missing_queues_is_warned_of_a_few() -> None:
    groups = [group(f"g{number}", templateSpec=make_job(queue=f"typo-{number}")["spec"]) for number in range(50)]
    twice = group("again", templateSpec=make_job(queue="typo-0")["spec"])
    found = warned("hyperjobs", make_hyper_job(groups[0], twice, *groups[1:]))
    assert [each.partition("'")[2].partition("'")[0] for each in found] == [f"typo-{number}" for number in range(5)]
