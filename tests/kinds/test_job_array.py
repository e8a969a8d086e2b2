"""JobArrays: the gang of what is left, the manifest of a member, reports, and what survives a dispatch."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from atoll.admission.rules import Change
from atoll.kinds import Outcome, Report
from atoll.kinds.job_array import KIND, share_in, states_in
from atoll.model import array_states, keys
from atoll.model.array_states import FAILED, PENDING, RUNNING, SUCCEEDED, byte, encode
from atoll.model.placer import MadeFor, Placer
from atoll.model.reports import BadReport
from tests.kinds.samples import NOW, Json, part_of, pod_of_image, taken

STATES = bytes([byte(SUCCEEDED)] * 6 + [byte(FAILED, 1), byte(RUNNING), byte(RUNNING, 1), byte(PENDING)])


def array(**spec: Any) -> Json:
    obj = taken("JobArray")
    obj["spec"] |= spec
    return obj


def job(**spec: Any) -> Json:
    return {"spec": {"tasks": [{"name": "worker", "replicas": 3, "template": pod_of_image()}], **spec}}


def refused(obj: Json, old: Json | None = None) -> list[str]:
    return [each.field for each in KIND.admission().problems(Change(new=obj, old=old, namespace={}))]


def test_a_gang_grows_by_whole_indices_from_one() -> None:
    tasks = [{"name": n, "replicas": r, "template": pod_of_image()} for n, r in (("master", 1), ("worker", 4))]
    gang = KIND.gang(array(indices=100, atOnce=8, template=job(tasks=tasks)), priority=0)
    assert ([task.replicas for task in gang.tasks], gang.min_available) == ([8, 32], 5)
    assert [task.min_available for task in gang.tasks] == [1, 4]
    assert gang.units() == [[(0, 1), (1, 4)]]


def test_a_wish_for_nearness_is_of_each_index() -> None:
    gang = KIND.gang(array(template=job(networkTopology={"mode": "hard", "highestTierAllowed": 1})), priority=0)
    assert gang.network_topology is None
    [part] = [task.partition for task in gang.tasks]
    assert part is not None
    assert (part.size, part.wish and part.wish.highest_tier_allowed) == (3, 1)


def test_a_later_dispatch_needs_no_more_than_what_is_left() -> None:
    carried = KIND.carried({"succeeded": 8, "failed": 1})
    assert KIND.gang(array(), priority=0, carried=carried).replicas == 3
    estimate = array(template=job(runningEstimate="1m"))
    assert KIND.gang(estimate, priority=0).running_estimate == 300


def test_a_member_goes_on_where_the_last_report_ended() -> None:
    obj = {**array(), "status": {"states": encode(STATES)}}
    made = KIND.rewrite(obj, part_of("JobArray"))
    carried = states_in(made, {"states": made["metadata"]["annotations"][keys.ARRAY_STATES]})
    assert list(carried) == [*STATES[:7], byte(PENDING), byte(PENDING, 1), byte(PENDING)]
    assert made["spec"]["atOnce"] == 2
    assert [task["replicas"] for task in made["spec"]["template"]["spec"]["tasks"]] == [3]
    fewer = KIND.rewrite(obj, replace(part_of("JobArray"), counts={"worker": 3}))
    assert fewer["spec"]["atOnce"] == 1


def test_a_member_of_volcano_gets_the_job_for_volcano() -> None:
    made = KIND.placed(KIND.rewrite(array(), part_of("JobArray")), MadeFor(Placer.VOLCANO, queue="there"))
    inner = made["spec"]["template"]["spec"]
    assert inner["queue"] == "there"
    assert inner["tasks"][0]["template"]["spec"]["schedulerName"] == "volcano"


def test_counts_follow_from_reported_states() -> None:
    said = KIND.reported(array(), {"phase": "Running", "states": encode(STATES), "succeeded": 999})
    status = KIND.aggregate(array(), [Report("east", said)], waiting=("", ""), now=NOW)
    found = {name: status[name] for name in ("pending", "running", "succeeded", "failed", "retried", "failedIndices")}
    assert found == {"pending": 1, "running": 2, "succeeded": 6, "failed": 1, "retried": 1, "failedIndices": "6"}
    assert KIND.released(array(), said) == {}
    assert KIND.released(array(), {"succeeded": 8, "failed": 1}) == {"worker": 3}


@pytest.mark.parametrize("states", [encode(STATES[:9]), "x", "", 7, encode(bytes(10**6))])
def test_states_of_other_indices_are_refused(states: object) -> None:
    with pytest.raises(BadReport, match="states"):
        KIND.reported(array(), {"states": states})


def test_ended_indices_outlast_a_dispatch() -> None:
    said = KIND.reported(array(), {"phase": "Running", "states": encode(STATES), "startTime": NOW})
    before = KIND.aggregate(array(), [Report("east", said)], waiting=("", ""), now=NOW)
    obj = {**array(), "status": before}
    waits = KIND.aggregate(obj, [], waiting=("QuotaExceeded", "no"), now=NOW)
    assert (waits["phase"], waits["succeeded"], waits["failed"], waits["running"]) == ("Pending", 6, 1, 0)
    assert KIND.carried(waits) == {"ended": 7}
    # The next member has not said anything of its indices yet.
    anew = KIND.aggregate({**obj, "status": waits}, [Report("west", {})], waiting=("", ""), now=NOW)
    assert (anew["succeeded"], anew["states"]) == (6, waits["states"])
    assert array_states.counts(states_in(obj, anew)).running == 0


def test_reasons_of_failures_outlast_a_dispatch() -> None:
    why = [{"reason": "exit code 1", "count": 1, "indices": "6", "last": "index 6: exit code 1", "unknown": "x"}]
    said = KIND.reported(array(), {"phase": "Running", "states": encode(STATES), "failures": why})
    assert [each["reason"] for each in said["failures"]] == ["exit code 1"]
    assert "unknown" not in said["failures"][0]
    before = KIND.aggregate(array(), [Report("east", said)], waiting=("", ""), now=NOW)
    waits = KIND.aggregate({**array(), "status": before}, [], waiting=("QuotaExceeded", "no"), now=NOW)
    assert waits["failures"] == said["failures"]
    made = KIND.rewrite({**array(), "status": waits}, part_of("JobArray"))
    assert json.loads(made["metadata"]["annotations"][keys.ARRAY_FAILURES]) == said["failures"]


def test_an_array_with_failed_indices_has_failed() -> None:
    status = {"phase": "Failed", "states": encode(bytes([byte(FAILED, 1)] + [byte(SUCCEEDED)] * 9))}
    assert KIND.finished(KIND.reported(array(), status)) is Outcome.FAILED


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"indices": 100_001}, "spec.indices", id="too many indices"),
        pytest.param({"indices": "5-3"}, "spec.indices", id="no ranges"),
        pytest.param({"atOnce": 1001}, "spec.atOnce", id="too many at once"),
        pytest.param({"retries": 11}, "spec.retries", id="too many retries"),
        pytest.param({"arguments": ["a"]}, "spec.arguments", id="an argument for one of ten indices"),
        pytest.param({"arguments": ["x" * 20_000] * 10}, "spec.arguments", id="large arguments"),
        pytest.param({"template": job(queue="q")}, "spec.template.spec.queue", id="a queue of the Job"),
        pytest.param({"template": job(tasks=[])}, "spec", id="no tasks"),
        pytest.param({"template": job(extra="x" * 70_000)}, "spec.template", id="a large template"),
        pytest.param(
            {"template": job(volumes=[{"mountPath": "/d", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}])},
            "spec.template.spec.volumes[0].volumeClaim",
            id="claims of each index",
        ),
    ],
)
def test_refused(spec: Json, field: str) -> None:
    assert field in refused(array(**spec))


def test_names_of_pods_are_checked_with_the_largest_index() -> None:
    obj = array(indices="0-99999")
    obj["metadata"]["name"] = "a" * 49
    assert refused(obj) == ["spec.template.spec.tasks[0].name"]
    obj["metadata"]["name"] = "a" * 48
    assert refused(obj) == []


def test_size_and_retries_change_while_it_runs_and_its_indices_do_not() -> None:
    assert refused(array(atOnce=1, retries=3), array()) == []
    assert refused(array(indices="0-9,12"), array()) == ["spec.indices"]
    assert refused(array(template=job(maxRetry=1)), array()) == ["spec.template"]


def divided(obj: Json, *reports: Report) -> Json:
    return dict(KIND.joined(obj, reports, scattered=True, now=NOW))


def there(work: str, states: bytes, slots: int) -> Report:
    status = KIND.reported(array(), {"phase": "Running", "states": encode(states)})
    return Report(f"m-{work}", status, pods={"worker": 3 * slots}, work=work)


def test_each_member_is_sent_its_own_indices() -> None:
    obj = divided(
        array(), Report("m-a", {}, pods={"worker": 6}, work="a"), Report("m-b", {}, pods={"worker": 3}, work="b")
    )
    assert [each["indices"] for each in obj["status"]["members"]] == [4, 2]
    made = {work: KIND.rewrite(obj, replace(part_of("JobArray"), scattered=True, work=work)) for work in ("a", "b", "")}
    assert {work: share_in(manifest) for work, manifest in made.items()} == {
        "a": bytes([1] * 4 + [0] * 6),
        "b": bytes([0] * 4 + [1] * 2 + [0] * 4),
        "": bytes(10),
    }
    assert keys.ARRAY_LAST not in made["a"]["metadata"]["annotations"]


def test_the_owner_of_an_index_knows_its_state_and_the_end_is_told_to_all() -> None:
    obj = divided(array(), there("a", bytes(10), 2), there("b", bytes(10), 2))
    ended, others = byte(SUCCEEDED), byte(FAILED, 1)
    obj = divided(obj, there("a", bytes([ended] * 10), 2), there("b", bytes([others] * 10), 2))
    status = KIND.aggregate(obj, [there("a", bytes(10), 2)], waiting=("", ""), now=NOW)
    assert (status["succeeded"], status["failed"], status["failedIndices"]) == (4, 4, "4-7")
    obj = divided({**obj, "status": status}, there("a", bytes([ended] * 10), 2), there("b", bytes([others] * 10), 2))
    obj = divided(obj, there("a", bytes([ended] * 10), 2), there("b", bytes([others] * 10), 2))
    assert KIND.finished(obj["status"]) is Outcome.FAILED
    made = KIND.rewrite(obj, replace(part_of("JobArray"), scattered=True, work="b"))
    told = states_in(made, {"states": made["metadata"]["annotations"][keys.ARRAY_STATES]})
    assert array_states.counts(told).ended == 10


def test_slots_of_a_member_are_released_once_no_member_gets_more_indices() -> None:
    obj = divided(array(), there("a", bytes(10), 2))
    made = KIND.rewrite(obj, replace(part_of("JobArray"), scattered=True, work="a"))
    own = KIND.reported(made, {"states": encode(bytes([byte(SUCCEEDED)] * 3 + [byte(RUNNING)] + [0] * 6))})
    assert KIND.released(made, own) == {}
    made["metadata"]["annotations"][keys.ARRAY_LAST] = "true"
    assert KIND.released(made, own) == {"worker": 3}


def test_indices_of_a_work_that_is_gone_go_to_others() -> None:
    obj = divided(array(), there("a", bytes(10), 2))
    obj = divided(obj, there("a", bytes([byte(SUCCEEDED)] + [byte(RUNNING)] * 2 + [0] * 7), 2))
    obj = divided(obj, there("b", bytes(10), 2))
    assert [each["work"] for each in obj["status"]["members"]] == ["b"]
    made = KIND.rewrite(obj, replace(part_of("JobArray"), scattered=True, work="b"))
    assert share_in(made) == bytes([0] + [1] * 4 + [0] * 5)
    assert (obj["status"]["succeeded"], obj["status"]["running"]) == (1, 0)
