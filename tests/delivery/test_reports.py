"""What of a member's report on a Work is kept, and what it is refused for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from atoll.delivery import decode_reported, decode_work
from atoll.delivery.reports import MAX_STATUS
from atoll.kube import client_metrics
from atoll.model.reports import MAX_MESSAGE, readable
from tests.fuzz.reports import GOOD, work

Json = dict[str, Any]


def said(which: str, **fields: Any) -> Json:
    return {**GOOD[which], **fields}


@pytest.mark.parametrize("which", ["volcano", "batch"])
def test_a_good_report_is_kept_but_for_unknown_fields(which: str) -> None:
    raw, _ = work(which, said(which, surprise={"a": 1}))
    seen = decode_reported(raw)
    known = {key: value for key, value in GOOD[which].items() if key != "uncountedTerminatedPods"}
    # Two of four completions are left for its four pods.
    released = {"released": {"main": 2}} if which == "batch" else {}
    assert (seen.refused, seen.reported, seen.health) == ("", {**known, **released}, "Healthy")
    assert seen.manifest == decode_work(raw).manifest


@pytest.mark.parametrize(
    ("which", "fields", "kept"),
    [
        pytest.param("volcano", {"running": 9}, {"running": 4}, id="a count is cut to what was sent"),
        pytest.param(
            "volcano",
            {"taskStatusCount": {"worker": {"phase": {"Running": 10**9}}}},
            {"taskStatusCount": {"worker": {"phase": {"Running": 4}}}},
            id="a count per task too",
        ),
        pytest.param("batch", {"succeeded": 5, "active": 5}, {"succeeded": 4, "active": 4}, id="and those of a Job"),
        pytest.param("batch", {"failed": 17}, {"failed": 17}, id="failed pods may be more: they are retried"),
        pytest.param("volcano", {"running": None}, {}, id="null is as good as absent"),
        pytest.param(
            "volcano",
            {"state": {"phase": "Running", "message": "a\x1b[31m\nb\u202e" + "x" * 9999}},
            {"state": {"phase": "Running", "message": "a [31m b " + "x" * (MAX_MESSAGE - 10) + "…"}},
            id="a message is cut and cleaned",
        ),
    ],
)
def test_cut(which: str, fields: Json, kept: Mapping[str, Any]) -> None:
    seen = decode_reported(work(which, said(which, **fields))[0])
    assert seen.refused == ""
    assert {key: seen.reported.get(key) for key in kept} == kept
    assert "running" not in fields or fields["running"] is not None or "running" not in seen.reported


def test_nodes_are_kept_until_all_pods_that_were_sent_have_one() -> None:
    placement = {"generation": 7, "nodes": {f"n-{index}": 3 for index in range(50)}}
    seen = decode_reported(work("volcano", said("volcano", placement=placement))[0])
    assert seen.reported["placement"]["nodes"] == {"n-0": 3, "n-1": 1}


@pytest.mark.parametrize(
    ("which", "fields", "words"),
    [
        ("volcano", {"running": -1}, "status.running: -1 is below 0"),
        ("volcano", {"running": "1"}, "status.running: int is wanted, not str"),
        ("volcano", {"running": True}, "status.running: int is wanted, not bool"),
        ("volcano", {"running": 1.5}, "status.running: int is wanted, not float"),
        ("volcano", {"state": []}, "status.state: dict is wanted, not list"),
        ("volcano", {"state": {"lastTransitionTime": "soon"}}, "lastTransitionTime: 'soon' is no time"),
        ("volcano", {"state": {"lastTransitionTime": "2026-02-30T00:00:00Z"}}, "'2026-02-30T00:00:00Z' is no time"),
        ("volcano", {"state": {"lastTransitionTime": "0000-01-01T00:00:00Z"}}, "'0000-01-01T00:00:00Z' is no time"),
        ("batch", {"startTime": "2026-01-01T25:61:00Z"}, "'2026-01-01T25:61:00Z' is no time"),
        ("volcano", {"runningDuration": "1h" * 100}, "runningDuration"),
        ("volcano", {"placement": {"nodes": {"../etc": 1}}}, "nodes"),
        ("volcano", {"placement": {"nodes": {"n" * 300: 1}}}, "nodes"),
        ("volcano", {"placement": {"generation": -1}}, "placement.generation: -1 is below 0"),
        ("volcano", {"reservation": {"epoch": "1"}}, "reservation.epoch: int is wanted"),
        ("batch", {"completedIndexes": "0-999999999"}, "beyond the 4 indices"),
        ("batch", {"completedIndexes": "3,1"}, "out of order"),
        ("batch", {"failedIndexes": "a"}, "are no indices"),
        ("batch", {"conditions": [{"status": "True"}]}, "no type or no status"),
        ("batch", {"startTime": 5}, "startTime: str is wanted"),
    ],
)
def test_refused(which: str, fields: Json, words: str) -> None:
    before = client_metrics.refused["Work", "karmada-es-a"]
    seen = decode_reported(work(which, said(which, **fields))[0])
    assert words in seen.refused
    assert (seen.status, seen.reported, seen.health) == ({}, {}, "Unknown")
    assert client_metrics.refused["Work", "karmada-es-a"] == before + 1


def test_a_status_that_is_too_large_is_refused() -> None:
    raw, _ = work("volcano", said("volcano", surprise="x" * MAX_STATUS))
    assert "the most that is read" in decode_reported(raw).refused


def changed(raw: bytes, **item: Any) -> bytes:
    body = orjson.loads(raw)
    body["status"]["manifestStatuses"][0].update(item)
    return orjson.dumps(body)


def test_what_is_said_of_another_object_is_left_out() -> None:
    raw, _ = work("volcano", GOOD["volcano"])
    named = orjson.loads(raw)["status"]["manifestStatuses"][0]["identifier"]
    for other in ({"name": "another"}, {"namespace": "another"}, {"ordinal": 7}, {"kind": "Pod"}):
        seen = decode_reported(changed(raw, identifier={**named, **other}))
        assert (seen.refused, seen.reported) == ("", {})


def test_a_health_that_is_not_known_is_refused() -> None:
    assert "health" in decode_reported(changed(work("volcano", {})[0], health="Fine")).refused


def test_conditions_of_the_work_are_checked() -> None:
    body = orjson.loads(work("volcano", {})[0])
    body["status"]["conditions"] = [{"type": "Applied", "status": "False", "message": "no\n" * 2000}]
    seen = decode_reported(orjson.dumps(body))
    assert (seen.applied, len(seen.applied_message)) == (False, MAX_MESSAGE)
    body["status"]["conditions"] = [{"type": 7}]
    assert "conditions[0].type" in decode_reported(orjson.dumps(body)).refused


def test_a_work_that_sends_nothing_is_told_nothing() -> None:
    body = orjson.loads(work("volcano", {})[0])
    body["spec"]["workload"]["manifests"] = []
    assert "nothing was sent" in decode_reported(orjson.dumps(body)).refused


def test_readable() -> None:
    assert readable("a\tb\r\nc\u2028d\x00", 20) == "a b  c d "
    assert readable("x" * 30, 5) == "xxxx…"
    assert readable("Größe, 大小", 20) == "Größe, 大小"
