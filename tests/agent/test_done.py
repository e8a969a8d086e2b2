"""What has succeeded is not run again, whoever removes its pods; a restart begins anew."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.agent.jobs import done
from atoll.agent.jobs.pods import group_change, pod_group, present, vanished
from atoll.agent.jobs.state import Census, act, doomed, next_phase
from atoll.agent.objects import Pod
from tests.agent.builders import make_job, make_pod, make_task

NOW = 1767225700.0


def job(**status: Any) -> dict[str, Any]:
    made = make_job({**make_task("m", 1)}, {**make_task("w", 6), "partitionPolicy": {"partitionSize": 2}})
    return {**made, "status": {"state": {"phase": "Running"}, **status}}


def pod(name: str, phase: str = "Running") -> Pod:
    return make_pod(f"train-{name}", task=name.partition("-")[0], phase=phase)


def test_a_status_says_which_have_succeeded_and_keeps_those_that_are_removed() -> None:
    there = [pod("m-0"), *(pod(f"w-{index}", "Succeeded") for index in (0, 2, 3, 4)), pod("w-1"), pod("w-5", "Failed")]
    said = done.recorded(job(), there)
    assert said == {"w": "0,2-4"}
    after = job(done=said)
    left = [each for each in there if each.metadata.name not in ("train-w-0", "train-w-3")]
    again = done.remembered(after, left)
    assert [each.metadata.name for each in again] == ["train-w-0", "train-w-3"]
    assert done.recorded(after, [*left, *again]) == said


def test_a_removed_pod_that_succeeded_is_not_made_again_and_counts() -> None:
    made = job(done={"w": "0-4"}, taskStatusCount={"w": {"phase": {"Succeeded": 5, "Running": 1}}})
    there = [pod("m-0"), pod("w-5")]
    pods = [*there, *done.remembered(made, there)]
    seen = {each.metadata.name for each in pods}
    assert not present(made, pods).keys() - seen
    assert vanished(made, pods) == []
    assert Census(pods).total["succeeded"] == 5
    over = [pod("m-0", "Succeeded"), pod("w-5", "Succeeded"), *done.remembered(made, there)]
    assert next_phase(made, Census(over))[0] == "Completed"


@pytest.mark.parametrize(
    ("action", "targets", "left"),
    [
        pytest.param("RestartJob", [], {}, id="of the whole Job"),
        pytest.param("RestartTask", ["w"], {"m": "0"}, id="of its task"),
        pytest.param("RestartTask", ["m"], {"w": "0-3"}, id="of another task"),
        pytest.param("RestartPartition", ["w/1"], {"m": "0", "w": "0-1"}, id="of its partition"),
        pytest.param("RestartPod", ["w:train-w-2"], {"m": "0", "w": "0-1,3"}, id="of itself"),
        pytest.param("AbortJob", [], {"m": "0", "w": "0-3"}, id="not by a stop"),
    ],
)
def test_a_restart_runs_again_what_it_restarts(action: str, targets: list[str], left: dict[str, str]) -> None:
    made = job(done={"m": "0", "w": "0-3"})
    assert done.after(made, action, targets) == left
    changes = act(made, action, targets, reason="x", message="", now=NOW)
    assert changes is not None
    after = {**made, "status": {**made["status"], **changes, "done": left}}
    assert doomed(after, done.remembered(after, [])) == []


def test_what_cannot_be_read_is_not_done() -> None:
    assert done.remembered(job(done={"w": "x,-2,9-99,2-x", "q": "0", "m": None}), []) == []


def test_what_a_status_keeps_of_a_task_is_bounded() -> None:
    made = make_job(make_task("w", 100_000))
    many = [make_pod(f"train-w-{index}", task="w", phase="Succeeded") for index in range(0, 20_000, 2)]
    assert len(done.recorded(made, many)["w"]) <= 16 * 1024


def test_a_gang_counts_on_no_pods_that_succeeded_and_were_removed() -> None:
    """Else the pod that takes a failed one's place would wait for them for ever."""
    made = make_job({**make_task("m", 1)}, {**make_task("w", 4, minimum=3)}, minAvailable=4)
    whole = pod_group(made)["spec"]
    assert (whole["minMember"], whole["minTaskMember"]) == (4, {"m": 1, "w": 3})
    change = group_change(whole, made, gone={"w": 2})
    expected = {"minMember": 2, "minTaskMember": {"m": 1, "w": 1}, "minResources": {"cpu": "2"}}
    assert change == {"spec": expected}
    assert pod_group(made, {0, 1}, {"m": 1, "w": 4})["spec"]["minMember"] == 1
    assert group_change(expected, made)["spec"] == {key: whole[key] for key in expected}
