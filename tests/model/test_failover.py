"""Failover as policies say it: how a workload leaves a member, until when its copy stays, and what it leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model.failover import EvictionTask, Failover, Purge, of_application, of_cluster, path_of, preserved
from atoll.model.timestamps import rfc3339

RULES = {"statePreservation": {"rules": [{"aliasLabelName": "job-id", "jsonPath": "{.jobStatus.jobID}"}]}}


def application(**said: Any) -> dict[str, Any]:
    return {"application": {"decisionConditions": {"tolerationSeconds": 20}, **said}}


@pytest.mark.parametrize(
    ("said", "service", "means"),
    [
        pytest.param(None, True, None, id="nothing is said"),
        pytest.param({"cluster": {}}, True, None, id="of clusters alone"),
        pytest.param(application(), True, Failover(Purge.GRACEFULLY, None, 20.0), id="a service leaves gracefully"),
        pytest.param(application(), False, Failover(Purge.DIRECTLY, None, 20.0), id="a job never runs twice"),
        pytest.param({"application": {}}, False, Failover(after=300.0), id="after five minutes where nobody says"),
        pytest.param(
            application(purgeMode="Immediately"), True, Failover(Purge.DIRECTLY, None, 20.0), id="as Karmada said once"
        ),
        pytest.param(
            application(purgeMode="Graciously", gracePeriodSeconds=7),
            True,
            Failover(Purge.GRACEFULLY, 7.0, 20.0),
            id="with a time",
        ),
        pytest.param(application(purgeMode="Never"), True, None, id="what never goes is not moved"),
        pytest.param(
            application(**RULES), False, Failover(after=20.0, state={"job-id": "{.jobStatus.jobID}"}), id="state"
        ),
    ],
)
def test_what_becomes_of_an_unhealthy_workload(said: Any, *, service: bool, means: Failover | None) -> None:
    assert of_application(said, service=service) == means


@pytest.mark.parametrize(
    ("said", "service", "means"),
    [
        pytest.param(None, True, Failover(Purge.GRACEFULLY), id="services leave gracefully"),
        pytest.param(None, False, None, id="everything else directly"),
        pytest.param({"cluster": {"purgeMode": "Directly"}}, True, None, id="unless their policy says so"),
        pytest.param({"cluster": {"purgeMode": "Gracefully"}}, False, None, id="no job runs twice"),
        pytest.param({"cluster": RULES}, False, Failover(state={"job-id": "{.jobStatus.jobID}"}), id="state"),
    ],
)
def test_how_a_workload_leaves_a_member(said: Any, *, service: bool, means: Failover | None) -> None:
    assert of_cluster(said, service=service) == means


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("{.jobStatus.jobID}", ("jobStatus", "jobID")),
        (".a[0].b-c", ("a", 0, "b-c")),
        ("{ $.a['x/y'] }", ("a", "x/y")),
        ("{.items[*].id}", None),
        ("{.a..b}", None),
        ("a.b", None),
        ("", None),
    ],
)
def test_paths(text: str, path: tuple[str | int, ...] | None) -> None:
    if path is None:
        with pytest.raises(ValueError, match="no path"):
            path_of(text)
    else:
        assert path_of(text) == path


def test_only_what_can_be_a_label_is_preserved() -> None:
    rules = {"a": "{.a}", "b": "{.b[1]}", "c": "{.c}", "d": "{.d}", "e": "{.e}", "f": "{.f"}
    status = {"a": "x1", "b": [1, 2], "c": {"no": "text"}, "d": "not a label!", "f": 1}
    assert preserved(rules, status) == {"a": "x1", "b": "2"}
    assert preserved(rules, None) == {}


def task(**more: Any) -> EvictionTask:
    return EvictionTask("m", grace_period_seconds=60, creation_timestamp=rfc3339(1000.0), **more)


@pytest.mark.parametrize(
    ("made", "now", "runs", "over"),
    [
        pytest.param(task(), 1059.0, False, False, id="it has time left"),
        pytest.param(task(), 1060.0, False, True, id="its time is over"),
        pytest.param(task(), 1001.0, True, True, id="it runs elsewhere"),
        pytest.param(task(suppress_deletion=True), 9999.0, True, False, id="nobody has confirmed"),
        pytest.param(task(suppress_deletion=False), 1001.0, False, True, id="somebody has confirmed"),
        pytest.param(EvictionTask("m"), 1.0, False, True, id="without a time"),
    ],
)
def test_when_a_task_is_over(made: EvictionTask, now: float, *, runs: bool, over: bool) -> None:
    assert made.over(now, runs=runs) is over


@pytest.mark.parametrize(
    ("mode", "stays"),
    [("Directly", False), ("Immediately", False), ("Gracefully", True), ("Never", True), (None, True)],
)
def test_whose_copy_stays(mode: str | None, *, stays: bool) -> None:
    assert task(purge_mode=mode).stays is stays
