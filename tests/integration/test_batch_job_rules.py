"""The API server's rules for the status of a Job that somebody else manages: each refuses what it is about, and what
Atoll makes of the same reports is taken.
"""

from __future__ import annotations

from typing import Any

import pytest

from atoll.kinds import Report
from atoll.kinds.batch_job import KIND
from atoll.kube import errors
from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS
from tests.integration.federation import Json, Site, batch_job

pytestmark = pytest.mark.integration

START, LATER, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z", "2026-01-01T00:00:09Z"


def condition(type_: str, status: str = "True") -> Json:
    return {"type": type_, "status": status, "reason": "Because", "lastTransitionTime": NOW, "lastProbeTime": NOW}


def complete(**fields: Any) -> Json:
    """A status that is accepted, with some of it replaced; None leaves a field out."""
    status = {
        "startTime": START,
        "completionTime": LATER,
        "succeeded": 2,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
        **fields,
    }
    return {key: value for key, value in status.items() if value is not None}


RUNS: Json = {"startTime": START, "active": 1, "ready": 1}
DONE: Json = {"conditions": [condition("SuccessCriteriaMet"), condition("Complete")], "succeeded": 2}
BROKEN: Json = {"conditions": [condition("FailureTarget"), condition("Failed")], "failed": 1}
INDEXED: Json = {"completionMode": "Indexed", "backoffLimitPerIndex": 1}

RULES = [
    pytest.param(
        {},
        {**RUNS, "succeeded": 2},
        {**RUNS, "succeeded": 1},
        {**RUNS, "succeeded": 1},
        "succeeded",
        id="succeeded never falls",
    ),
    pytest.param(
        {}, {**RUNS, "failed": 2}, {**RUNS, "failed": 1}, {**RUNS, "failed": 1}, "failed", id="failed never falls"
    ),
    pytest.param(
        {},
        RUNS,
        complete(conditions=[condition("Complete")]),
        DONE,
        "SuccessCriteriaMet",
        id="Complete needs SuccessCriteriaMet",
    ),
    pytest.param({}, {}, complete(startTime=None), DONE, "startTime", id="Complete needs a start"),
    pytest.param(
        {}, RUNS, complete(completionTime=None), DONE, "completionTime", id="Complete needs a completion time"
    ),
    pytest.param(
        {},
        {"startTime": LATER},
        complete(startTime=LATER, completionTime=START),
        {**DONE, "completionTime": START},
        "completionTime",
        id="it completes after its start",
    ),
    pytest.param({}, RUNS, complete(active=1), {**DONE, "active": 1}, "active", id="Complete has no active pod"),
    pytest.param(
        {},
        RUNS,
        complete(terminating=1),
        {**DONE, "terminating": 1},
        "terminating",
        id="Complete has no terminating pod",
    ),
    pytest.param(
        {},
        RUNS,
        complete(uncountedTerminatedPods={"succeeded": ["u"]}),
        {**DONE, "uncountedTerminatedPods": {"succeeded": ["u"]}},
        "uncounted",
        id="Complete has no uncounted pod",
    ),
    pytest.param(
        {},
        RUNS,
        {"startTime": START, "conditions": [condition("Failed")]},
        {"conditions": [condition("Failed")]},
        "FailureTarget",
        id="Failed needs FailureTarget",
    ),
    pytest.param(
        {},
        RUNS,
        {**RUNS, "conditions": [condition("FailureTarget"), condition("Failed")]},
        {**BROKEN, "active": 1},
        "active",
        id="Failed has no active pod",
    ),
    pytest.param({}, RUNS, {**RUNS, "ready": 2}, {**RUNS, "ready": 2}, "ready", id="no more ready than active"),
    pytest.param(
        {},
        RUNS,
        {**RUNS, "startTime": LATER},
        {**RUNS, "startTime": LATER},
        "startTime",
        id="the start stays while it is not suspended",
    ),
    pytest.param(
        {}, RUNS, {"active": 1}, {"active": 1}, "startTime", id="the start is not removed while it is not suspended"
    ),
    pytest.param(
        {},
        complete(),
        complete(completionTime=NOW),
        {**DONE, "completionTime": NOW},
        "completionTime",
        id="the completion time stays for ever",
    ),
    pytest.param(
        {},
        complete(),
        {"startTime": START, "succeeded": 2},
        {"succeeded": 2},
        "Complete",
        id="an end is not taken back",
    ),
    pytest.param(
        {},
        RUNS,
        {**RUNS, "completionTime": LATER},
        {**RUNS, "completionTime": LATER},
        "completionTime",
        id="only Complete has a completion time",
    ),
    pytest.param(
        {},
        RUNS,
        complete(conditions=[*DONE["conditions"], *BROKEN["conditions"]]),
        BROKEN,
        "Failed|failed",
        id="not both Complete and Failed",
    ),
    pytest.param(
        {},
        RUNS,
        complete(conditions=[*DONE["conditions"], condition("FailureTarget")]),
        DONE,
        "FailureTarget",
        id="no Complete after FailureTarget",
    ),
    pytest.param(
        {},
        RUNS,
        {**RUNS, "completedIndexes": "0"},
        {**RUNS, "completedIndexes": "0"},
        "completedIndexes",
        id="only Indexed Jobs have indices",
    ),
    pytest.param(
        INDEXED,
        RUNS,
        {**RUNS, "succeeded": 1, "completedIndexes": "7"},
        {**RUNS, "completedIndexes": "7"},
        "completedIndexes",
        id="indices are below the completions",
    ),
    pytest.param(
        INDEXED,
        RUNS,
        {**RUNS, "succeeded": 1, "completedIndexes": "0", "failedIndexes": "0"},
        {**RUNS, "completedIndexes": "0", "failedIndexes": "0"},
        "failedIndexes",
        id="no index both completed and failed",
    ),
]


@pytest.mark.parametrize(("spec", "before", "wrong", "report", "about"), RULES)
async def test_the_rule(site: Site, spec: Json, before: Json, wrong: Json, report: Json, about: str) -> None:
    # Nobody but the test writes this Job's status.
    site.kubectl("label", "namespace", site.namespace, f"{keys.ENABLED}-")
    job = batch_job("ruled", parallelism=1, **{"completions": 2, "managedBy": keys.CONTROLLER, **spec})
    await site.submit(job)

    async def put(status: Json) -> Json:
        operation = {"op": "add", "path": "/status", "value": status}
        return await site.host.json_patch(BATCH_JOBS, "ruled", [operation], site.namespace, subresource="status")

    made = await put(before)
    with pytest.raises(errors.Invalid, match=about):
        await put(wrong)
    ours = KIND.aggregate(made, [Report("m", report)], waiting=("", ""), now=NOW)
    taken = await put(ours)
    assert taken["status"] == ours, "and nothing is left to be written again"


async def test_while_suspended_the_start_may_go_and_a_resumed_job_starts_anew(site: Site) -> None:
    site.kubectl("label", "namespace", site.namespace, f"{keys.ENABLED}-")
    await site.submit(batch_job("ruled", managedBy=keys.CONTROLLER))

    async def put(made: Json, now: str, *reports: Json) -> Json:
        status = KIND.aggregate(made, [Report("m", each) for each in reports], waiting=("", ""), now=now)
        operation = {"op": "add", "path": "/status", "value": status}
        return await site.host.json_patch(BATCH_JOBS, "ruled", [operation], site.namespace, subresource="status")

    async def suspend(value: bool) -> Json:
        return await site.host.merge_patch(BATCH_JOBS, "ruled", {"spec": {"suspend": value}}, site.namespace)

    first = await put(await suspend(False), START, {"active": 1, "ready": 1})
    assert first["status"]["startTime"] == START
    paused = await put(await suspend(True), LATER)
    assert "startTime" not in paused["status"]
    again = await put(await suspend(False), NOW, {"active": 1})
    assert again["status"]["startTime"] == NOW
    done = await put(again, NOW, {**DONE, "succeeded": 1})
    assert KIND.finished(done["status"]) is not None
