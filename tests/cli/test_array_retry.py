"""Failed indices of a JobArray: what explain says of them, and the array that runs them again."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.admission.rules import Change
from atoll.cli.array_retry import again
from atoll.cli.submission import BadSubmission, Submission, manifest
from atoll.kinds.job_array import KIND
from atoll.model import array_failures, keys
from atoll.model.array_states import FAILED, RUNNING, SUCCEEDED, byte, encode
from atoll.view.explanation import Facts, explain, text

Json = dict[str, Any]


def array(failed: set[int], count: int = 60) -> Json:
    made = manifest(Submission(command=["./sim"], image="sim:2", array=f"0-{count - 1}%5", name="sweep", queue="q"))
    states = bytearray([byte(SUCCEEDED)] * (count - 1) + [byte(RUNNING)])
    for index in failed:
        states[index] = byte(FAILED, 1)
    why = array_failures.added([], {index: f"pod sweep-{index}-worker-0, exit code 1" for index in sorted(failed)})
    made["metadata"] |= {
        "uid": "u",
        "annotations": {
            keys.SUBMITTED_BY: "ann", keys.HOLD: "true", "argocd.argoproj.io/tracking-id": "x", "mine": "stays",
        },
    }  # fmt: skip
    made["status"] = {"phase": "Running", "states": encode(bytes(states)), "failed": len(failed), "failures": why}
    return made


def test_explain_names_failed_indices_with_their_last_reason() -> None:
    found = explain(Facts(array({3, 17, *range(40, 45)}), namespace_labels={}), now=0.0)
    assert found["indices"]["failedIndices"] == "3,17,40-44"
    said = text(found)
    assert "Indices: 0 pending, 1 running, 52 succeeded, 7 failed" in said
    assert "failed    3,17,40-44\n" in said
    assert "reason    exit code 1: 7 (3,17,40-44)" in said
    assert "last    index 44: pod sweep-44-worker-0, exit code 1" in said
    assert "again     atollctl job retry jobarray/sweep" in said


def test_explain_of_many_failed_ranges_stays_short() -> None:
    found = explain(Facts(array(set(range(0, 50, 2))), namespace_labels={}), now=0.0)
    assert found["indices"]["failedIndices"] == "0,2,4,6,8,10,12,14,16,18 (+15 more)"


@pytest.mark.parametrize(("wanted", "indices"), [("", "3,17,40-44"), ("17,41-42", "17,41-42")])
def test_failed_indices_run_again_in_a_new_array(wanted: str, indices: str) -> None:
    made = again(array({3, 17, *range(40, 45)}), wanted)
    assert KIND.admission().problems(Change(new=made, namespace={})) == []
    assert made["spec"]["indices"] == indices
    assert (made["spec"]["atOnce"], KIND.queue_of(made)) == (5, "q")
    assert made["metadata"]["annotations"] == {"mine": "stays", keys.ARRAY_RETRY_OF: "sweep"}
    assert made["metadata"]["name"].startswith("sweep-")
    assert "status" not in made


def test_indices_keep_their_arguments() -> None:
    first = array({3, 40})
    first["spec"]["arguments"] = [f"seed {index}" for index in range(60)]
    made = again(first)
    assert made["spec"]["arguments"] == ["seed 3", "seed 40"]
    assert KIND.admission().problems(Change(new=made, namespace={})) == []


@pytest.mark.parametrize(
    ("failed", "wanted", "text"),
    [
        pytest.param({3}, "3-5", "4-5 did not fail; 3 did", id="an index that succeeded"),
        pytest.param({3}, "3-", "indices 3-: ", id="no indices"),
        pytest.param(set(), "", "has no failed index", id="none failed"),
        pytest.param(set(range(0, 2100, 2)), "", "indices: .*more than 1000 ranges", id="too many ranges"),
    ],
)
def test_refused(failed: set[int], wanted: str, text: str) -> None:
    with pytest.raises(BadSubmission, match=text):
        again(array(failed, 2200), wanted)
