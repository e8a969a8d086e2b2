"""What makes Jobs: a JobFlow whose steps wait for pods that answer, a CronJob on a real clock."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from atoll.model import keys
from atoll.model.apiresource import JOB_FLOWS, JOB_TEMPLATES, JOBS, VOLCANO_CRON_JOBS
from atoll.model.timestamps import to_seconds
from tests.e2e.jobs import PATIENCE, job, shell, task
from tests.integration.federation import Json, Site, until
from tests.integration.makers import make


async def test_a_diamond_of_steps_begins_once_the_pods_of_the_first_answer(site: Site) -> None:
    serve = "sleep 3; echo ready > /tmp/ready; httpd -f -p 8080 -h /tmp"
    # Each asks once: what it asks for is there, since the probes have asked before.
    ask = "test $(wget -q -O- http://web-serve-w-{}.web-serve:8080/ready) = ready"
    first = job("x", task("w", shell(serve), replicas=2), plugins={"svc": []})["spec"]
    await make(site, JOB_TEMPLATES, "serve", first)
    for name, script in (("left", ask.format(0)), ("right", ask.format(1)), ("join", "true")):
        await make(site, JOB_TEMPLATES, name, job("x", task("w", shell(script)), maxRetry=1)["spec"])
    probe = {
        "httpGetList": [{"taskName": "w", "path": "/ready", "port": 8080}],
        "tcpSocketList": [{"taskName": "w", "port": 8080}],
    }
    sides = [{"name": name, "dependsOn": {"targets": ["serve"], "probe": probe}} for name in ("left", "right")]
    join = {"name": "join", "dependsOn": {"targets": ["left", "right"]}}
    await make(site, JOB_FLOWS, "web", {"flows": [{"name": "serve"}, *sides, join]})
    last = await site.phase("web-join", "Completed", deadline=PATIENCE)
    for name in ("left", "right"):
        side = await site.phase(f"web-{name}", "Completed", deadline=PATIENCE)
        assert side["status"]["state"]["lastTransitionTime"] <= last["metadata"]["creationTimestamp"]
    served = await site.phase("web-serve", "Running", deadline=PATIENCE)
    assert served["status"]["probes"] == [{"answered": 2}, {"answered": 2}]


async def test_three_stages_of_one_job_run_one_after_the_other(site: Site) -> None:
    # Each finds the address of the stage before it, and asks it.
    serve = "echo {} > /tmp/said; exec httpd -f -p 8080 -h /tmp"
    ask = "test $(wget -q -O- http://$VC_{}_HOSTS:8080/said) = {} && " + serve
    last = "test $(wget -q -O- http://$VC_TRAIN_HOSTS:8080/said) = trained"
    up: dict[str, Any] = {"readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}
    stages = [
        task("load", shell(serve.format("loaded"), **up)),
        task("train", shell(ask.format("LOAD", "loaded", "trained"), **up), dependsOn={"name": ["load"]}),
        task("report", shell(last), dependsOn={"name": ["load", "train"]}),
    ]
    stages[2]["policies"] = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    await site.submit(job("stages", *stages, plugins={"svc": []}, maxRetry=1))
    done = await site.phase("stages", "Completed", deadline=PATIENCE)
    assert done["status"]["taskStatusCount"]["report"]["phase"] == {"Succeeded": 1}


@pytest.mark.long
@pytest.mark.timeout(420)
async def test_a_cron_job_runs_its_container_each_minute(site: Site) -> None:
    """For three minutes of a real clock; hours of a virtual one are in `tests/control/makers`."""
    made = job("x", task("w", shell("date")))
    await make(site, VOLCANO_CRON_JOBS, "tick", {"schedule": "* * * * *", "jobTemplate": {"spec": made["spec"]}})

    async def three() -> list[Json] | None:
        found = await site.host.list(JOBS, site.namespace)
        done = [each for each in found if (each.get("status") or {}).get("state", {}).get("phase") == "Completed"]
        return done if len(done) == 3 else None

    # Three whole minutes, what is left of the first one, and a container's start.
    done = await until(three, deadline=240 + PATIENCE / 2, what="three Jobs of it are Completed")
    times = sorted(to_seconds(each["metadata"]["annotations"][keys.SCHEDULED_FOR]) for each in done)
    assert [later - earlier for earlier, later in itertools.pairwise(times)] == [60, 60]
    for each in done:
        meta = each["metadata"]
        late = to_seconds(meta["creationTimestamp"]) - to_seconds(meta["annotations"][keys.SCHEDULED_FOR])
        assert 0 <= late < 10
