"""Manifests from a few words, and from #SBATCH lines."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.admission.rules import Change
from atoll.cli.submission import BadSubmission, Submission, manifest, merged, script
from atoll.kinds import job_array, volcano_job

SCRIPT = """#!/bin/bash
#SBATCH --job-name=Train_A
#SBATCH -A research -N 4 --gres=gpu:8
#SBATCH -c 16 --mem=64G
#SBATCH --time=1-02:30
# a comment
python train.py
#SBATCH --after-the-first-command
"""


def made(**wish: Any) -> dict[str, Any]:
    return manifest(Submission(**{"command": ["python", "train.py"], "image": "train:7", **wish}))


def test_workers_are_one_gang_of_the_queue_with_their_devices() -> None:
    job = made(workers=4, gpus=8, cpu="16", memory="64Gi", queue="research", within="rack", time="2h")
    wish = volcano_job.KIND.gang(job, priority=0)
    assert (wish.queue, wish.min_available, wish.replicas, wish.running_estimate) == ("research", 4, 4, 7200.0)
    assert wish.tasks[0].requests["nvidia.com/gpu"] == 8
    assert wish.network_topology is not None
    assert (wish.network_topology.mode, wish.network_topology.highest_tier_name) == ("hard", "rack")
    assert job["spec"]["tasks"][0]["template"]["spec"]["activeDeadlineSeconds"] == 7200


def test_each_index_of_an_array_is_a_gang_of_the_queue() -> None:
    array = made(array="0-199%20", queue="q", workers=2, within="rack", time="1m", name="sweep")
    assert job_array.KIND.admission().problems(Change(new=array, namespace={})) == []
    wish = job_array.KIND.gang(array, priority=0)
    assert (wish.queue, wish.min_available, wish.replicas) == ("q", 2, 40)
    assert wish.running_estimate == 600
    [part] = [task.partition for task in wish.tasks]
    assert part is not None
    assert (part.size, part.wish and part.wish.highest_tier_name) == (2, "rack")


@pytest.mark.parametrize(("array", "at_once"), [("0-4", 5), ("1-9%20", 9), ("0-99999", 1000)])
def test_as_many_indices_run_at_once_as_the_array_has_or_may(array: str, at_once: int) -> None:
    assert made(array=array)["spec"]["atOnce"] == at_once


@pytest.mark.parametrize(
    ("wish", "named"),
    [
        ({"command": []}, "command: is missing"),
        ({"image": ""}, "image: is missing"),
        ({"workers": 0}, "workers 0 gpus 0: write numbers"),
        ({"array": "9-1"}, "array 9-1: "),
        ({"array": "0-9%x"}, "%x"),
        ({"array": "0-9%0"}, "%0"),
        ({"array": "0-9%1001"}, "1000"),
        ({"array": "0-999999"}, "100000"),
        ({"time": "soon"}, "time: "),
        ({"memory": "much"}, "memory much: "),
        ({"gpus": 1, "gpu_resource": "gpu="}, "gpu_resource gpu=: "),
    ],
)
def test_a_wish_that_can_t_be_made_is_refused_by_name(wish: dict[str, Any], named: str) -> None:
    with pytest.raises(BadSubmission, match=named) as raised:
        made(**wish)
    assert "--" not in str(raised.value), "programs have parameters, no options"


def test_at_the_command_line_options_are_named() -> None:
    given = {"command": "the command after --: ", "image": "--image: ", "gpu_resource": "--gpu-resource x: "}
    for name, said in given.items():
        error = BadSubmission("is wrong", **{name: "x" if name == "gpu_resource" else ""})
        assert error.as_options() == f"{said}is wrong"


def test_a_name_is_made_from_the_script() -> None:
    assert made()["metadata"]["name"].startswith("train-")
    assert made(command=["/opt/Run Me.sh"])["metadata"]["name"].startswith("run-me-")
    assert made(command=["./---"])["metadata"]["name"].startswith("job-")


def test_a_script_is_read_up_to_its_first_command() -> None:
    wish, command = script(SCRIPT)
    assert wish.pop("name").startswith("train-a-")
    assert wish == {
        "queue": "research", "workers": 4, "gpus": 8, "cpu": "16", "memory": "64Gi", "time": f"{26 * 3600 + 1800}s",
    }  # fmt: skip
    assert command == ["/bin/bash", "-c", SCRIPT]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-0", 86400), ("0-1:2:3", 3723)],
)
def test_times_as_slurm_has_them(text: str, seconds: int) -> None:
    assert script(f"#SBATCH -t {text}\n")[0] == {"time": f"{seconds}s"}


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("#SBATCH --exclusive", "line 2: --exclusive"),
        ("#SBATCH --ntasks-per-node=8", "line 2: --ntasks-per-node 8"),
        ("#SBATCH --gres=gpu:a100:4", "a type of GPU"),
        ("#SBATCH -N few", "line 2: -N few"),
        ("#SBATCH -G 8", "line 2: -G 8"),
        ("#SBATCH --mem=0", "line 2: --mem 0"),
        ("srun python train.py", "line 2: srun"),
    ],
)
def test_a_line_without_a_counterpart_is_refused_with_its_number(line: str, named: str) -> None:
    with pytest.raises(BadSubmission, match=named):
        script(f"#!/bin/sh\n{line}\n")


def test_the_command_line_wins_over_the_script() -> None:
    wish, command = script(SCRIPT)
    found = merged(wish, {"workers": 2, "image": "i", "command": command})
    assert (found.workers, found.gpus, found.image) == (2, 8, "i")


def test_a_large_script_belongs_into_the_image() -> None:
    with pytest.raises(BadSubmission, match="image"):
        script("#" * 70_000)
