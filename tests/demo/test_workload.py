"""The slice of the trace, and what is made of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from demo import philly, workload
from demo.scales import FULL, GPU, GPUS_PER_NODE, SCALES, SMALL, Scale
from demo.workload import Origin
from tests.demo.log import trace_job

EACH_SCALE = pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES.keys())


def test_the_slice_is_the_part_of_the_trace_that_it_says() -> None:
    jobs = philly.read()
    window = [job for job in jobs if job.gpus < 16]
    assert [job.row for job in window] == list(range(8380, 8480))
    assert Counter(job.gpus for job in window) == {1: 75, 2: 6, 4: 4, 8: 15}
    assert [job.submitted for job in window] == sorted(job.submitted for job in window)
    assert [job.gpus for job in jobs[100:]] == [16] * 4


def test_the_slice_can_be_cut_again_from_the_trace() -> None:
    header = ",".join(philly.COLUMNS)
    rows = [f"2017-10-04 00:00:00,{number}.0,1,1.0,6214e9" for number in range(9000)]
    rows[3] = f"{philly.MOVED[0][0]},9.0,16,9.0,{philly.MOVED[0][1]}"
    rows[4] = "2017-09-22 22:03:23,9.0,16,9.0,b436b2"
    found = philly.cut([header, *rows])
    assert [row["row"] for row in found] == [*map(str, range(8380, 8480)), "3"]
    assert found[0]["duration"] == "8380.0"


def test_a_line_that_is_no_job_is_reported_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("row,timestamp,duration,num_gpus,gpu_time,cluster\n1,2017-10-04 04:04:20,x,1,1,a\n")
    with pytest.raises(ValueError, match="line 2"):
        philly.read(path)


@EACH_SCALE
def test_one_seed_gives_one_workload_and_another_gives_another(scale: Scale) -> None:
    trace = philly.read()
    first, again, other = (workload.generate(trace, scale, seed).submissions for seed in (7, 7, 8))
    assert first == again
    assert first != other
    assert [job for job in first if job.origin is Origin.TRACE] == [job for job in other if job.origin is Origin.TRACE]


@EACH_SCALE
def test_jobs_come_in_order_and_every_one_can_run_somewhere(scale: Scale) -> None:
    jobs = workload.generate(philly.read(), scale, 1).submissions
    largest = max(len(member.node_names()) for member in scale.config.members)
    assert [job.offset for job in jobs] == sorted(job.offset for job in jobs)
    assert len({job.name for job in jobs}) == len(jobs)
    for job in jobs:
        assert job.queue in scale.queues
        assert job.gpus <= scale.queues[job.queue]
        assert job.pods <= largest
        assert job.run_time > 0


@pytest.mark.parametrize("seed", range(20))
def test_synthetic_gangs_are_of_32_to_64_gpus_and_mostly_hard(seed: int) -> None:
    jobs = workload.generate(philly.read(), FULL, seed).submissions
    gangs = [job for job in jobs if job.origin is Origin.SYNTHETIC]
    assert len(gangs) == 12
    assert all(32 <= job.gpus <= 64 and job.gpus % 8 == 0 for job in gangs)
    assert all(job.gpus <= 32 for job in gangs if job.highest_tier == 1), "a rack holds four nodes of 8 GPUs"
    assert sum(job.highest_tier is not None for job in gangs) > len(gangs) / 2


def test_the_full_scale_has_what_is_promised() -> None:
    work = workload.generate(philly.read(), FULL, 1)
    assert Counter(job.origin for job in work.submissions) == {Origin.TRACE: 100, Origin.MOVED: 4, Origin.SYNTHETIC: 12}
    assert work.capped == 13
    assert len({len(member.node_names()) for member in FULL.config.members}) == 3
    assert len(FULL.queues) == 3
    assert 10 <= len(workload.generate(philly.read(), SMALL, 1).submissions) <= 25


def test_times_are_compressed_and_long_runs_capped_and_counted() -> None:
    scale = replace(FULL, factor=100.0, synthetic=0)
    trace = [trace_job(1, 0, seconds=50), trace_job(2, 300, seconds=20_000), trace_job(3, 500, gpus=16, seconds=10_800)]
    work = workload.generate(trace, scale, 1)
    times = {job.name: (job.offset, job.run_time) for job in work.submissions if job.origin is Origin.TRACE}
    assert times == {"trace-1": (0.0, 0.5), "trace-2": (3.0, 108.0)}
    assert work.capped == 1
    (moved,) = [job for job in work.submissions if job.origin is Origin.MOVED]
    assert 0 <= moved.offset <= 3.0


@pytest.mark.parametrize(
    ("gpus", "pods", "each"),
    [
        pytest.param(1, 1, "1", id="one GPU is one pod"),
        pytest.param(8, 1, "8", id="a whole node is one pod"),
        pytest.param(16, 2, "8", id="more are pods of a node each"),
        pytest.param(64, 8, "8", id="the largest gang"),
    ],
)
def test_gpus_become_pods(gpus: int, pods: int, each: str) -> None:
    job = workload.Submission("j", "q", 0, 0.0225, gpus, Origin.TRACE, highest_tier=2)
    spec = workload.job_object(job)["spec"]
    (task,) = spec["tasks"]
    assert (task["replicas"], spec["minAvailable"]) == (pods, pods)
    assert task["template"]["spec"]["containers"][0]["resources"]["requests"] == {GPU: each}
    assert task["template"]["metadata"]["annotations"] == {"atoll.sh/run-time": "22ms"}
    assert spec["networkTopology"] == {"mode": "hard", "highestTierAllowed": 2}
    assert pods * GPUS_PER_NODE >= gpus
