"""Files and options become members, queues and jobs, or an error that says where."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from atoll.dispatcher.core.events import Strategy
from atoll.model.gang import TopologyWish
from atoll.sim import clusters, jobs, load, queues, traces
from atoll.sim.inputs import InputError
from atoll.sim.jobs import GPU, GPU_SHARE
from tests.sim.builders import make_job

PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-09-07 03:58:57,100.0,1,100.0,6214e9
2017-09-07 03:59:57,50.0,16,800.0,b436b2
2017-09-07 04:00:57,50.0,8,400.0,23dbec
"""
OPENB = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,4000,1024,1,500,V100|T4,LS,Running,10,110,20
p1,4000,1024,0,0,,BE,Pending,5,,
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_philly_jobs_above_eight_gpus_are_pods_of_eight(tmp_path: Path) -> None:
    packed = tmp_path / "philly.csv.xz"
    packed.write_bytes(lzma.compress(PHILLY.encode()))
    found, notes = traces.philly(packed)
    assert [(j.submit, j.queue, j.replicas, j.total()[GPU]) for j in found] == [
        (0.0, "6214e9", 1, 1),
        (60.0, "b436b2", 2, 16),
    ]
    assert notes == ["1 jobs of virtual cluster 23dbec dropped: its size is unknown"]


def test_the_virtual_clusters_have_their_known_sizes() -> None:
    assert sum(member.total()[GPU] for member in clusters.philly()) == 240 * 8
    assert [queue.deserved[GPU] for queue in queues.philly()] == [512, 512, 256, 256, 128, 128, 64, 64]


def test_openb_pods_ask_for_shares_of_allowed_models(tmp_path: Path) -> None:
    [job], notes = traces.openb(written(tmp_path / "pods.csv", OPENB))
    assert (job.submit, job.duration, job.queue, job.total()[GPU_SHARE]) == (10.0, 90.0, "ls", 500)
    [term] = job.tasks[0].node_terms
    assert term["matchExpressions"][0]["values"] == ["V100", "T4"]
    assert "1 pods without a deletion time dropped" in notes


def test_an_openb_node_list_is_a_member_per_model(tmp_path: Path) -> None:
    text = "sn,cpu_milli,memory_mib,gpu,model\na,8000,1024,0,\nb,96000,1024,8,T4\nc,96000,1024,8,T4\n"
    found = clusters.read(written(tmp_path / "nodes.csv", text))
    assert [(m.name, m.total().get(GPU_SHARE)) for m in found] == [("cpu", None), ("t4", 16000)]


def test_clusters_in_yaml_have_racks(tmp_path: Path) -> None:
    text = "clusters:\n- name: a\n  pools:\n  - {nodes: 5, resources: {nvidia.com/gpu: 8}, tiers: [2, 2]}\n"
    [member] = clusters.read(written(tmp_path / "c.yaml", text))
    nodes, domains = member.objects()
    assert len(nodes) == 5
    assert sorted((d.spec["tier"], len(d.spec["members"])) for d in domains) == [(1, 1), (1, 2), (1, 2), (2, 1), (2, 2)]


def test_jobs_in_csv_and_yaml_are_the_same(tmp_path: Path) -> None:
    csv = (
        "submit,duration,name,queue,priority,replicas,min,requests,estimate,topology,divided,clusters\n"
        "5,60,b,q,2,4,2,cpu=500m;nvidia.com/gpu=2,90,hard:1,true,m1;m2\n1,2,a,,,,,,,,,\n"
    )
    yaml = (
        "jobs:\n- {submit: 1, duration: 2, name: a}\n- {submit: 5, duration: 60, name: b, queue: q, priority: 2, "
        "replicas: 4, min: 2, requests: {cpu: 500m, nvidia.com/gpu: 2}, estimate: 90, topology: 'hard:1', "
        "divided: true, clusters: [m1, m2]}\n"
    )
    found = jobs.read(written(tmp_path / "t.csv", csv))
    assert found == jobs.read(written(tmp_path / "t.yaml", yaml))
    assert found == jobs.read(written(tmp_path / "list.yaml", yaml.removeprefix("jobs:\n")))
    assert [job.name for job in found] == ["a", "b"]
    assert found[1].tasks[0].requests == {"cpu": 500, GPU: 2, "pods": 1}
    assert (found[1].topology, found[1].minimum) == (TopologyWish("hard", 1), 2)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        pytest.param("t.csv", "submit,when\n", r"line 1: no column duration", id="a missing column is named"),
        pytest.param("t.csv", "submit,duration\nx,1\n", r"line 2, field submit: 'x'", id="a bad number has its line"),
        pytest.param("t.csv", "submit,duration\n1,-5\n", r"field duration: '-5'", id="time does not run backwards"),
        pytest.param(
            "t.csv", "submit,duration,gpus\n1,1,8\n", r"unknown field gpus; known are", id="a typo is refused"
        ),
        pytest.param("t.yaml", "- 1\n", r"expected a mapping", id="a list of numbers is no trace"),
        pytest.param(
            "t.yaml", "jobs: [{submit: 1}]", r"job 1: field duration is missing", id="a missing field is named"
        ),
        pytest.param("t.yaml", "a: [", r"not YAML", id="what is not YAML is said so"),
        pytest.param(
            "t.csv", "submit,duration,name\n1,1,a\n2,1,a\n", r"default/a is in the trace twice", id="names are unique"
        ),
        pytest.param("t.csv", "submit,duration,replicas,min\n1,1,2,3\n", r"min is 3 of 2 pods", id="min is within"),
    ],
)
def test_a_bad_trace_says_where(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        jobs.read(written(tmp_path / name, text))


def test_queues_are_volcano_objects(tmp_path: Path) -> None:
    text = (
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\nspec: {priority: 3, parent: root, "
        "capability: {cpu: '4'}, deserved: {nvidia.com/gpu: 8}, guarantee: {resource: {nvidia.com/gpu: 2}}, "
        "dequeueStrategy: backfill}\n"
    )
    [view] = queues.read(written(tmp_path / "q.yaml", text))
    assert (view.name, view.priority, view.parent, view.strategy) == ("q", 3, "", Strategy.BACKFILL)
    assert (view.capability, view.deserved, view.guarantee) == ({"cpu": 4000}, {GPU: 8}, {GPU: 2})
    with pytest.raises(InputError, match="document 1: kind is 'Pod'"):
        queues.read(written(tmp_path / "p.yaml", "kind: Pod\n"))


def test_time_is_compressed_to_the_load() -> None:
    trace = [make_job("a", 100.0, 50.0, gpu=8), make_job("b", 300.0, 50.0, gpu=8)]
    before = load.offered(trace, {GPU: 16}, GPU)
    assert before == pytest.approx(800 / (16 * 200))
    faster = load.compressed(trace, 0.5 / before)
    assert [job.submit for job in faster] == [0.0, 100.0]
    assert load.offered(faster, {GPU: 16}, GPU) == pytest.approx(0.5)


def test_estimates_are_seeded_and_within_their_error() -> None:
    trace = [make_job(f"j{n}", float(n), 100.0) for n in range(50)]
    found = [job.estimate for job in load.estimated(trace, load.Estimates.parse("error=0.5"), 1)]
    assert found == [job.estimate for job in load.estimated(trace, load.Estimates.parse("error=0.5"), 1)]
    assert all(value is not None and 50 <= value <= 150 for value in found)
    assert len(set(found)) > 40
    assert {job.estimate for job in load.estimated(trace, load.Estimates("exact"), 1)} == {100.0}
    assert {job.estimate for job in load.estimated(trace, load.Estimates("none"), 1)} == {None}


@pytest.mark.parametrize("text", ["often", "error=2", "error=x", "exact=1"])
def test_estimates_that_can_not_be_read_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--estimates"):
        load.Estimates.parse(text)


def test_synthetic_gangs_are_seeded_marked_and_sized_as_seen() -> None:
    trace = [make_job(f"j{n}", float(n), 100.0) for n in range(10)]
    found = [job for job in load.with_gangs(trace, 300, 7) if job.kind == load.SYNTHETIC]
    assert found == [job for job in load.with_gangs(trace, 300, 7) if job.kind == load.SYNTHETIC]
    assert len(found) == 300
    assert {job.replicas for job in found} <= set(load.GANG_SIZES)
    assert sum(job.replicas == 2 for job in found) > 120
    assert load.with_gangs(trace, 300, 8) != load.with_gangs(trace, 300, 7)
