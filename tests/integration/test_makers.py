"""JobFlows, CronJobs and HyperJobs on the host: each of their Jobs goes through its queue to a member."""

from __future__ import annotations

import time
from typing import Any

import pytest

from atoll.kube import errors
from atoll.model import keys
from atoll.model.apiresource import (
    BATCH_JOBS,
    BINDINGS,
    HYPER_JOBS,
    JOB_FLOWS,
    JOB_TEMPLATES,
    JOBS,
    NAMESPACES,
    PODS,
    QUEUES,
    VOLCANO_CRON_JOBS,
    ApiResource,
)
from atoll.model.timestamps import rfc3339_seconds
from tests.integration.federation import Json, Site, batch_job, job, until
from tests.integration.makers import make

pytestmark = pytest.mark.integration

BATCH_CRON_JOBS = ApiResource("batch", "v1", "cronjobs", "CronJob")


async def flow_phase(site: Site, name: str, phase: str) -> Json:
    async def look() -> Json | None:
        found = await site.find(JOB_FLOWS, name) or {}
        return found if ((found.get("status") or {}).get("state") or {}).get("phase") == phase else None

    return await until(look, what=f"flow {name} is {phase}")


def template(**fields: Any) -> Json:
    spec: Json = job("x", **fields)["spec"]
    return spec


async def test_a_diamond_with_a_probe_and_a_patch_runs_in_its_order(site: Site) -> None:
    queue = await site.queue()
    for name, seconds in (("load", None), ("left", 0.3), ("right", 0.3), ("join", 0.3)):
        await make(site, JOB_TEMPLATES, name, template(seconds=seconds, queue=queue))
    runs = {"taskStatusList": [{"taskName": "worker", "phase": "Running"}]}
    policy = {"policies": [{"event": "PodEvicted", "action": "CompleteJob"}]}
    steps = [
        {"name": "load", "patch": {"jobSpec": policy}},
        {"name": "left", "dependsOn": {"targets": ["load"], "probe": runs}},
        {"name": "right", "dependsOn": {"targets": ["load"], "probe": runs}},
        {"name": "join", "dependsOn": {"targets": ["left", "right"]}, "patch": {"jobSpec": {"minSuccess": 1}}},
    ]
    await make(site, JOB_FLOWS, "pipe", {"flows": steps})

    async def three() -> bool:
        status = (await flow_phase(site, "pipe", "Running"))["status"]
        return bool(status.get("completedJobs") == ["pipe-left", "pipe-right", "pipe-join"])

    await until(three, what="all are completed that end")
    jobs = {each["metadata"]["name"]: each for each in await site.host.list(JOBS, site.namespace)}
    assert jobs["pipe-join"]["spec"]["minSuccess"] == 1
    assert {each["spec"]["queue"] for each in jobs.values()} == {queue}
    assert jobs["pipe-load"]["spec"]["schedulerName"] == "atoll", "it went through admission"
    assert len(await site.host.list(BINDINGS, site.namespace)) == 4
    made = {name: each["metadata"]["creationTimestamp"] for name, each in jobs.items()}
    assert made["pipe-load"] <= min(made["pipe-left"], made["pipe-right"])
    assert max(made["pipe-left"], made["pipe-right"]) <= made["pipe-join"]
    # The load ends, and with it the flow.
    member = await site.where("pipe-load")
    await site.members[member].delete(PODS, "pipe-load-worker-0", site.namespace)
    done = await flow_phase(site, "pipe", "Succeed")
    assert "message" not in done["status"]["state"]


async def test_a_flow_waits_for_pods_that_do_not_answer_and_says_so(site: Site) -> None:
    """Its pods do not start; what answers is in `tests/e2e`, as simulated pods have no network."""
    serve = template(seconds=None)
    serve["tasks"][0]["template"]["metadata"]["annotations"][keys.FAIL] = "image"
    await make(site, JOB_TEMPLATES, "serve", serve)
    await make(site, JOB_TEMPLATES, "use", template(seconds=0.3))
    probe = {"tcpSocketList": [{"taskName": "worker", "port": 8080}]}
    steps = [{"name": "serve"}, {"name": "use", "dependsOn": {"targets": ["serve"], "probe": probe}}]
    await make(site, JOB_FLOWS, "web", {"flows": steps})

    async def said() -> bool:
        found = await site.find(JOB_FLOWS, "web") or {}
        message = ((found.get("status") or {}).get("state") or {}).get("message")
        return bool(message == "use: 0 of 1 pods answer on port 8080 of task worker of serve")

    await until(said, what="it was tried, and the flow says why it waits")
    assert [each["metadata"]["name"] for each in await site.host.list(JOBS, site.namespace)] == ["web-serve"]
    await site.host.delete(JOB_FLOWS, "web", site.namespace)


async def test_a_flow_waits_for_its_template_and_goes_with_its_jobs(site: Site) -> None:
    await make(site, JOB_FLOWS, "late", {"flows": [{"name": "a"}], "jobRetainPolicy": "delete"})
    waiting = await flow_phase(site, "late", "Pending")
    assert waiting["status"]["state"]["message"] == "a: there is no JobTemplate a"
    await make(site, JOB_TEMPLATES, "a", template(seconds=0.3))
    await flow_phase(site, "late", "Succeed")

    async def gone() -> bool:
        return not await site.host.list(JOBS, site.namespace)

    await until(gone, what="its Jobs go with its success")


async def test_what_admission_refuses_of_a_flow_is_said(site: Site) -> None:
    steps = [{"name": "a", "dependsOn": {"targets": ["b"]}}, {"name": "b", "dependsOn": {"targets": ["a"]}}]
    with pytest.raises(errors.Forbidden, match="circle"):
        await make(site, JOB_FLOWS, "round", {"flows": steps})
    await make(site, JOB_TEMPLATES, "a", template(queue="root"))
    await make(site, JOB_FLOWS, "stuck", {"flows": [{"name": "a"}]})

    async def said() -> str | None:
        found = await site.find(JOB_FLOWS, "stuck") or {}
        message = str(((found.get("status") or {}).get("state") or {}).get("message") or "")
        return message if "root" in message else None

    assert (await until(said, what="the refusal is its reason")).startswith("a: ")


async def test_namespaces_that_have_not_opted_in_are_left_alone(site: Site) -> None:
    other = f"{site.namespace}-out"
    await site.host.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    try:
        await make(site, JOB_TEMPLATES, "a", template(seconds=0.3), other)
        await make(site, JOB_FLOWS, "f", {"flows": [{"name": "a"}]}, other)
        await make(site, JOB_TEMPLATES, "a", template(seconds=0.3))
        await make(site, JOB_FLOWS, "f", {"flows": [{"name": "a"}]})
        await flow_phase(site, "f", "Succeed")
        assert await site.host.list(JOBS, other) == []
        assert "status" not in await site.host.get(JOB_FLOWS, "f", other)
    finally:
        await site.host.delete(NAMESPACES, other)


async def test_a_cron_job_makes_its_missed_run_up_and_keeps_its_history(site: Site) -> None:
    queue = await site.queue()
    spec = {
        "schedule": "@every 2s",
        "successfulJobsHistoryLimit": 1,
        "jobTemplate": {"metadata": {"labels": {"team": "a"}}, "spec": template(seconds=0.2, queue=queue)},
    }
    await make(site, VOLCANO_CRON_JOBS, "tick", spec)

    async def ran() -> Json | None:
        found = await site.find(VOLCANO_CRON_JOBS, "tick") or {}
        return found if (found.get("status") or {}).get("lastSuccessfulTime") else None

    first = await until(ran, what="a Job of it is Completed")
    [made] = [each for each in await site.host.list(JOBS, site.namespace) if each["metadata"]["labels"].get("team")][:1]
    assert made["metadata"]["ownerReferences"][0]["uid"] == first["metadata"]["uid"]
    assert made["spec"]["queue"] == queue
    assert keys.SCHEDULED_FOR in made["metadata"]["annotations"]
    suspended = {"spec": {"suspend": True}}
    await site.host.merge_patch(VOLCANO_CRON_JOBS, "tick", suspended, site.namespace)
    # As if control had been away for ten minutes.
    behind = {"status": {"lastScheduleTime": rfc3339_seconds(time.time() - 600)}}
    await site.host.merge_patch(VOLCANO_CRON_JOBS, "tick", behind, site.namespace, subresource="status")
    await site.host.merge_patch(VOLCANO_CRON_JOBS, "tick", {"spec": {"suspend": None}}, site.namespace)

    async def caught_up() -> bool:
        found = await site.host.get(VOLCANO_CRON_JOBS, "tick", site.namespace)
        return str(found["status"]["lastScheduleTime"]) > rfc3339_seconds(time.time() - 60)

    await until(caught_up, what="the last missed run is made up")

    async def tidied() -> bool:
        jobs = await site.host.list(JOBS, site.namespace)
        done = [each for each in jobs if ((each.get("status") or {}).get("state") or {}).get("phase") == "Completed"]
        return len(done) <= 1

    await site.host.merge_patch(VOLCANO_CRON_JOBS, "tick", suspended, site.namespace)
    await until(tidied, what="one Job that is Completed stays")
    with pytest.raises(errors.Forbidden, match="schedule"):
        await make(site, VOLCANO_CRON_JOBS, "bad", {**spec, "schedule": "* * *"})


async def hyper_job_ended(site: Site, name: str) -> Json:
    async def look() -> Json | None:
        found = await site.find(HYPER_JOBS, name) or {}
        return found if (found.get("status") or {}).get("conditions") else None

    return await until(look, what=f"HyperJob {name} has ended")


async def test_a_hyper_job_runs_its_jobs_in_the_members_that_it_names_and_each_once(site: Site) -> None:
    queue = await site.queue()
    names = sorted(site.members)[:2]
    groups = [
        {"name": member, "clusterNames": [member], "templateSpec": template(seconds=0.3, queue=queue)}
        for member in names
    ]
    await make(site, HYPER_JOBS, "wide", {"replicatedJobs": groups})
    assert [await site.where(f"wide-{member}-0") for member in names] == names
    await site.phase(f"wide-{names[0]}-0", "Completed")

    async def remembered() -> bool:
        found = await site.find(HYPER_JOBS, "wide") or {}
        states = (found.get("status") or {}).get("replicatedJobsStatus") or [{}]
        return bool(states[0].get("completed"))

    await until(remembered, what="the first one's end is remembered")
    await site.host.delete(JOBS, f"wide-{names[0]}-0", site.namespace)
    done = await hyper_job_ended(site, "wide")
    assert [each["type"] for each in done["status"]["conditions"]] == ["Completed"]
    assert done["status"]["splitCount"] == 2
    jobs = [each["metadata"]["name"] for each in await site.host.list(JOBS, site.namespace)]
    assert jobs == [f"wide-{names[1]}-0"], "what ended and was removed did not run again"


async def test_a_hyper_job_with_auto_is_one_gang(site: Site) -> None:
    group = {"name": "t", "replicas": 2, "splitPolicy": {"mode": "auto"}, "templateSpec": template(seconds=0.3)}
    await make(site, HYPER_JOBS, "auto", {"replicatedJobs": [group], "minAvailable": 2, "maxDomains": 2})
    done = await hyper_job_ended(site, "auto")
    assert [each["type"] for each in done["status"]["conditions"]] == ["Completed"]
    [only] = await site.host.list(JOBS, site.namespace)
    assert (only["spec"]["minAvailable"], only["spec"]["tasks"][0]["replicas"]) == (2, 2)
    [bound] = await site.host.list(BINDINGS, site.namespace)
    assert bound["spec"]["placement"]["replicaScheduling"] == {"replicaSchedulingType": "Divided"}
    with pytest.raises(errors.Forbidden, match="2 replicas"):
        await make(site, HYPER_JOBS, "bad", {"replicatedJobs": [{**group, "splitPolicy": None}], "minAvailable": 3})


async def test_the_jobs_of_a_hyper_job_start_together_or_not_at_all(site: Site) -> None:
    queue = await site.queue(capability={"cpu": "300m"})
    groups = [
        {"name": member, "clusterNames": [member], "templateSpec": template(seconds=None, queue=queue, replicas=2)}
        for member in sorted(site.members)[:2]
    ]
    await make(site, HYPER_JOBS, "both", {"replicatedJobs": groups, "minAvailable": 2})
    first, second = (f"both-{each['name']}-0" for each in groups)

    async def blocked() -> bool:
        blocker = (await site.reason(first, "GangGroupIncomplete"))["blocker"]
        return blocker["name"] == f"{second}-job" and "200m needed" in blocker["message"]

    await until(blocked, what="both are there, and the quota is too small for the two")
    assert not [each for member in site.members for each in await site.pods(member)]
    await site.host.merge_patch(QUEUES, queue, {"spec": {"capability": {"cpu": "400m"}}})
    for name in (first, second):
        await site.phase(name, "Running")
    # One that its user holds takes the other with it.
    await site.host.merge_patch(JOBS, first, {"metadata": {"annotations": {keys.HOLD: "true"}}}, site.namespace)
    await site.reason(second, "GangGroupIncomplete")

    async def gone() -> bool:
        return not [each for member in site.members for each in await site.pods(member)]

    await until(gone, what="neither has pods")
    await site.host.merge_patch(JOBS, first, {"metadata": {"annotations": {keys.HOLD: None}}}, site.namespace)
    for name in (first, second):
        await site.phase(name, "Running")


async def test_jobs_of_a_hyper_job_go_where_the_others_are_once_it_uses_all_members_that_it_may(site: Site) -> None:
    for member in sorted(site.members)[:2]:
        first = {"name": "first", "clusterNames": [member], "templateSpec": template(seconds=None)}
        rest = {"name": "rest", "replicas": 2, "templateSpec": template(seconds=None)}
        await make(
            site, HYPER_JOBS, f"in-{member}", {"replicatedJobs": [first, rest], "minAvailable": 3, "maxDomains": 1}
        )
        for name in (f"in-{member}-first-0", f"in-{member}-rest-0", f"in-{member}-rest-1"):
            await site.phase(name, "Running")
            assert await site.where(name) == member


async def test_jobs_of_kubernetes_own_cron_jobs_go_through_their_queue(site: Site) -> None:
    spec = batch_job("x", seconds=0.3)["spec"]
    made = await make(
        site,
        BATCH_CRON_JOBS,
        "k8s",
        {"schedule": "0 0 1 1 *", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": spec}},
    )
    # As if control manager had been away since the last year began.
    status = {"status": {"lastScheduleTime": "2024-01-02T00:00:00Z"}}
    await site.host.merge_patch(BATCH_CRON_JOBS, "k8s", status, site.namespace, subresource="status")

    async def done() -> Json | None:
        for each in await site.host.list(BATCH_JOBS, site.namespace):
            conditions = (each.get("status") or {}).get("conditions") or ()
            if any(c["type"] == "Complete" and c["status"] == "True" for c in conditions):
                return each
        return None

    found = await until(done, what="its Job is Complete")
    assert found["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    assert found["spec"]["managedBy"] == keys.CONTROLLER, "it went through admission"
    assert len(await site.host.list(BINDINGS, site.namespace)) == 1


async def test_who_may_edit_a_namespace_may_make_what_makes_jobs(site: Site) -> None:
    site.kubectl("create", "rolebinding", "write", "-n", site.namespace, "--clusterrole=edit", "--user=eve")
    asked = [f"{each.plural}.{each.group}" for each in (JOB_FLOWS, JOB_TEMPLATES, VOLCANO_CRON_JOBS)]

    async def allowed() -> bool:
        said = [site.both("auth", "can-i", "create", each, "-n", site.namespace, "--as", "eve") for each in asked]
        return all(each.startswith("yes") for each in said)

    await until(allowed, what="eve may create them")
