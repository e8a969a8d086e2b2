"""Files and options become members, queues and jobs, or an error that says where."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path

import pytest
import yaml

from atoll.model.gang import TopologyWish
from atoll.model.queues import Strategy
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
    assert notes == ["1 job of virtual cluster 23dbec dropped: its size is unknown"]


def test_the_virtual_clusters_have_their_known_sizes() -> None:
    assert sum(member.total()[GPU] for member in clusters.philly()) == 240 * 8
    assert [queue.deserved[GPU] for queue in queues.philly()] == [512, 512, 256, 256, 128, 128, 64, 64]


def test_openb_pods_ask_for_shares_of_allowed_models(tmp_path: Path) -> None:
    [job], notes = traces.openb(written(tmp_path / "pods.csv", OPENB))
    assert (job.submit, job.duration, job.queue, job.total()[GPU_SHARE]) == (10.0, 90.0, "ls", 500)
    [term] = job.tasks[0].node_terms
    assert term["matchExpressions"][0]["values"] == ["V100", "T4"]
    assert "1 pod without a deletion time dropped" in notes


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
        pytest.param("t.csv", "submit,duration,replicas\n1,1,0\n", r"line 2: .*at least 1", id="a job has pods"),
        pytest.param(
            "t.csv",
            "submit,duration,requests\n1,1,cpu=1\n1,1,cpu=4,nvidia.com/gpu=1\n",
            r"t.csv, line 3: 4 values for the 3 columns .*double quotes",
            id="a row with too many values loses none",
        ),
        pytest.param(
            "t.csv", "submit,duration,queue\n1,1\n", r"line 2: 2 values for the 3 columns", id="half a row is noticed"
        ),
        pytest.param(
            "t.csv", "submit,duration,submit\n1,1,2\n", r"line 1: column submit is there twice", id="columns are unique"
        ),
        pytest.param("t.csv", ",submit,duration\n0,1,1\n", r"line 1: column 1 has no name", id="columns have names"),
        pytest.param(
            "t.csv", 'submit,duration,name\n1,1,a\n1,1,"b\n1,1,c\n', r"line \d: .*quotes", id="a quotation must end"
        ),
        pytest.param("t.csv", "", r"t.csv: is empty", id="an empty file is said so"),
        pytest.param("t.yaml", "", r"t.yaml: is empty", id="an empty list is said so"),
        pytest.param("t.yaml", "# later\n", r"t.yaml: is empty", id="comments alone are nothing"),
        pytest.param("t.csv", "submit,duration\n", r"t.csv: no jobs", id="a header alone is no trace"),
        pytest.param("t.yaml", "jobs: {a: 1}", r"t.yaml, field jobs: .* expected a list", id="jobs are a list"),
        pytest.param("t.yaml", "jobs: []\nqueues: []", r"unknown field queues", id="nothing stands beside jobs"),
        pytest.param("t.yaml", "[" * 5000, r"t.yaml: it is nested more than 64 levels deep", id="depth has an end"),
        pytest.param("t.yaml", "- {submit: 2026-02-31, duration: 1}", r"t.yaml: not YAML", id="February is short"),
        pytest.param("t.yaml", "- {submit: !!timestamp x}", r"t.yaml: not YAML.*quotes", id="what is no date"),
        pytest.param("t.yaml", "- {{a: b}: 1}", r"t.yaml: not YAML", id="a mapping is no name of a field"),
        pytest.param(
            "t.yaml", "- {submit: 1, duration: 1, submit: 2}", r"submit is there twice", id="fields are unique"
        ),
        pytest.param("t.txt", "submit,duration\n1,2\n", r"\.csv", id="a CSV of another name is told how to be named"),
    ],
)
def test_a_bad_trace_says_where(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        jobs.read(written(tmp_path / name, text))


NOT_A_NUMBER = ("soon", "nan", "inf", "1e400", "1_0", "\u0663", [1], {"a": 1}, True)


def _bad_fields() -> list[object]:
    table: dict[str, tuple[str, tuple[object, ...]]] = {
        "submit": ("seconds", ("soon", "nan", "inf", "1e400", "-1", [1], {"a": 1}, True)),
        "duration": ("seconds", (*NOT_A_NUMBER, "-1", "1e300")),
        "estimate": ("seconds", (*NOT_A_NUMBER, "-1", "1e300")),
        "toleration": ("seconds", (*NOT_A_NUMBER, "-1", "1e300")),
        "priority": ("whole number", (*NOT_A_NUMBER, "1.5", "3000000000", "-3000000000", "9" * 5000)),
        "replicas": ("whole number", (*NOT_A_NUMBER, "1.5", "-1", "2000000")),
        "min": ("whole number", (*NOT_A_NUMBER, "1.5", "-1")),
        "requests": (
            "resources|quantity|between",
            (
                "4",
                "cpu",
                "=4",
                "cpu=x",
                "cpu=-1",
                "cpu=1;cpu=2",
                {"cpu": [1]},
                {"cpu": None},
                {"cpu": "1e30"},
                [1],
                " =1",
            ),
        ),
        "topology": ("hard:TIER", ("rack", "hard", "firm:1", {"mode": "hard"}, [1])),
        "divided": ("true or false", ("perhaps", [1], {"a": 1}, "2")),
        "clusters": ("names", ({"a": 1}, [[1]], [None], True)),
        "selector": ("labels|texts", ("model", "=a", {"a": [1]}, [1], "a=1;a=2")),
        "name": ("text", ([1], {"a": 1}, True, 1.5)),
        "queue": ("text", ([1], {"a": 1}, True)),
        "namespace": ("text", ([1], {"a": 1}, True)),
        "class": ("text", ([1], {"a": 1}, True)),
        "tasks": ("list", ("worker", {"a": 1}, 1)),
    }
    return [
        pytest.param(field, value, says, id=f"{field} {str(value)[:20]}")
        for field, (says, values) in table.items()
        for value in values
    ]


@pytest.mark.parametrize(("field", "value", "says"), _bad_fields())
def test_a_bad_value_is_refused_with_what_is_expected(tmp_path: Path, field: str, value: object, says: str) -> None:
    good = {"submit": 1, "duration": 1}
    where = written(tmp_path / "t.yaml", json.dumps([good, {**good, field: value}]))
    with pytest.raises(InputError, match=rf"t\.yaml, job 2, field {field}: .* expected .*({says})") as caught:
        jobs.read(where)
    assert len(str(caught.value)) < 500
    assert not re.search(
        r"could not convert|invalid literal|unhashable|has no attribute|not iterable", str(caught.value)
    )
    if isinstance(value, str) and field not in ("tasks",):
        row = {"submit": "1", "duration": "1", field: value}
        where = written(tmp_path / "t.csv", f"{','.join(row)}\n{','.join(row.values())}\n")
        with pytest.raises(InputError, match=rf"t\.csv, line 2, field {field}: .* expected .*({says})"):
            jobs.read(where)


def test_a_task_is_checked_like_a_job(tmp_path: Path) -> None:
    for tasks, says in (
        ("[{replicas: 2, min: 3}, {replicas: 9}]", r"job 1, task 1: min is 3 of 2 pods"),
        ("[{name: a}, {name: a}]", r"job 1: task a is there twice"),
        ("[{nmae: a}]", r"job 1, task 1: unknown field nmae"),
        ("[3]", r"job 1, task 1: expected a mapping"),
    ):
        with pytest.raises(InputError, match=says):
            jobs.read(written(tmp_path / "t.yaml", f"- {{submit: 1, duration: 1, tasks: {tasks}}}"))


def test_times_are_seconds_or_rfc_3339_and_not_both(tmp_path: Path) -> None:
    text = "submit,duration\n2026-01-01T00:00:30Z,1\n2026-01-01 00:00:00,1\n2026-01-01T02:00:40+02:00,1\n"
    found = jobs.read(written(tmp_path / "t.csv", text))
    assert [job.submit - found[0].submit for job in found] == [0, 30, 40]
    yaml = "- {submit: 2026-01-01T00:00:30Z, duration: 1}\n- {submit: 2026-01-01, duration: 1}\n"
    assert [job.submit for job in jobs.read(written(tmp_path / "t.yaml", yaml))] == [job.submit for job in found[:2]]
    with pytest.raises(InputError, match=r"line 3, field submit: .*one kind"):
        jobs.read(written(tmp_path / "mixed.csv", "submit,duration\n2026-01-01T00:00:30Z,1\n5,1\n"))


def test_whole_numbers_may_have_a_point_as_spreadsheets_write_them(tmp_path: Path) -> None:
    [job] = jobs.read(written(tmp_path / "t.csv", "submit,duration,priority,replicas\n1,1,-2.0,4.0\n"))
    assert (job.priority, job.replicas) == (-2, 4)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_csv_may_come_from_windows(tmp_path: Path, end: str) -> None:
    lines = ["submit, duration, name, requests", '1, 2, a, "cpu=4, nvidia.com/gpu=1"', "", "  ", "3,4,b,"]
    path = tmp_path / "T.CSV"
    path.write_bytes(("\ufeff" + end.join(lines) + end).encode())
    found = jobs.read(path)
    assert [job.name for job in found] == ["a", "b"]
    assert found[0].tasks[0].requests == {"cpu": 4000, GPU: 1, "pods": 1}


def test_line_numbers_are_those_of_the_file(tmp_path: Path) -> None:
    text = 'submit,duration,name\n1,1,a\n\n1,1,"b\nc"\nx,1,d\n'
    with pytest.raises(InputError, match=r"line 6, field submit"):
        jobs.read(written(tmp_path / "t.csv", text))


def test_an_xz_that_stands_for_more_than_a_trace_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atoll.sim.inputs.MAX_UNPACKED", 2**20)
    path = tmp_path / "t.csv.xz"
    path.write_bytes(lzma.compress(b"0" * (2**20 + 1)))
    with pytest.raises(InputError, match="more than 1 MiB"):
        jobs.read(path)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        pytest.param("t.csv", "submit,duration\n".encode("utf-16"), "not UTF-8", id="UTF-16"),
        pytest.param("t.yaml", b"a: \xe9", "not UTF-8", id="Latin-1"),
        pytest.param("t.yaml", b"a: \x00", "not YAML", id="a zero byte"),
        pytest.param("t.csv.xz", b"submit", "not .*xz", id="no xz"),
        pytest.param("t.csv.xz", lzma.compress(PHILLY.encode())[:-20], "cut off|not .*xz", id="half an xz"),
        pytest.param("t.csv", b"submit,duration\n1," + b"1" * 200_000 + b"\n", "line 2", id="an endless value"),
    ],
)
def test_what_can_not_be_read_is_said_so(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"{name}.*({says})"):
        jobs.read(tmp_path / name)


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"can't be read: Is a directory$"):
        jobs.read(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"name": [1]}, "cluster 1, field name: .* expected a text", id="name"),
        pytest.param({"name": None}, "cluster 1: field name is missing", id="no name"),
        pytest.param({"labels": [1]}, "cluster 1, field labels: .* expected labels", id="labels as a list"),
        pytest.param({"labels": {"a": [1]}}, "cluster 1, field labels: .* expected .*text", id="a label as a list"),
        pytest.param({"taints": "x"}, "cluster 1, field taints: .* expected a list", id="taints as text"),
        pytest.param({"taints": ["x"]}, "cluster 1, taint 1: expected a mapping", id="a taint as text"),
        pytest.param(
            {"taints": [{"effect": "NoExecute"}]}, "cluster 1, taint 1: field key is missing", id="a taint without key"
        ),
        pytest.param(
            {"taints": [{"key": "a", "effect": "x"}]}, "cluster 1, taint 1, field effect: 'x' .*NoSchedule", id="effect"
        ),
        pytest.param({"pools": {"a": 1}}, "cluster 1, field pools: .* expected a list", id="pools as a mapping"),
        pytest.param(
            {"pools": [{"nodes": 40_000, "resources": {"cpu": 1}}] * 2}, "cluster 1: 80000 nodes", id="too many nodes"
        ),
        pytest.param(
            {"pools": [{"nodes": 1, "resources": dict.fromkeys([f"r{n}" for n in range(200)], 1)}]},
            "cluster 1: 201 different resources",
            id="too many resources",
        ),
        pytest.param({"pools": [1]}, "cluster 1, pool 1: expected a mapping", id="a pool as a number"),
        pytest.param({"pool": []}, "cluster 1: unknown field pool; known are", id="a typo"),
    ],
)
def test_a_bad_cluster_says_where(tmp_path: Path, change: dict[str, object], says: str) -> None:
    member = {"name": "a", "pools": [{"nodes": 1, "resources": {"cpu": 1}}], **change}
    with pytest.raises(InputError, match=f"c.yaml, {says}" if "unknown" not in says else says):
        clusters.read(written(tmp_path / "c.yaml", json.dumps({"clusters": [member]})))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        *(
            pytest.param({"nodes": value}, "field nodes: .* expected a whole number", id=f"nodes {value}")
            for value in ("x", -1, 1.5, float("nan"), 10**12, [1], True)
        ),
        *(
            pytest.param({"resources": value}, "field resources: .* expected", id=f"resources {value}")
            for value in ("x", [1], {"cpu": -1}, {"cpu": [1]}, {"cpu": "x"}, {"cpu": "1e40"}, 3)
        ),
        *(
            pytest.param({"tiers": value}, "field tiers: .* expected", id=f"tiers {value}")
            for value in (2, "2,2", [0], ["x"], {"a": 1})
        ),
        pytest.param({"labels": 1}, "field labels: .* expected", id="labels"),
        pytest.param({"taints": [{}]}, "taint 1: field key is missing", id="taints"),
    ],
)
def test_a_bad_pool_says_where(tmp_path: Path, change: dict[str, object], says: str) -> None:
    pool = {"nodes": 1, "resources": {"cpu": 1}, **change}
    text = yaml.safe_dump({"clusters": [{"name": "a", "pools": [pool]}]})
    with pytest.raises(InputError, match=f"c.yaml, cluster 1, pool 1, {says}"):
        clusters.read(written(tmp_path / "c.yaml", text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("", "is empty", id="an empty file"),
        pytest.param("clusters: []", "no clusters", id="an empty list"),
        pytest.param("clusters:\n", "field clusters is missing", id="nothing below clusters"),
        pytest.param("clusters: [{name: a, pools: []}]\nx: 1", "unknown field x", id="something else"),
    ],
)
def test_a_file_without_clusters_says_so(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        clusters.read(written(tmp_path / "c.yaml", text))


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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("", "q.yaml: is empty", id="an empty file"),
        pytest.param("kind: List\nitems: []", "q.yaml: no queues", id="an empty list"),
        pytest.param("kind: List\nitems: 3", "field items: .* expected a list", id="items as a number"),
        pytest.param("kind: List\nitems: [3]", "expected a mapping", id="an item as a number"),
        pytest.param(
            "kind: Queue\nmetadata: {name: q}\n---\nkind: Queue\nmetadata: {name: q}",
            "queue q is there twice",
            id="twice",
        ),
        pytest.param("kind: Queue\nmetadata: {}", "document 1: field metadata.name is missing", id="no name"),
        pytest.param("kind: Queue", "document 1: field metadata.name is missing", id="no metadata"),
        pytest.param("kind: Queue\nmetadata: {name: [1]}", "document 1: .*metadata.name", id="name as a list"),
        *(
            pytest.param(
                f"kind: Queue\nmetadata: {{name: q}}\nspec: {{{field}: {value}}}",
                rf"document 1(, field|: ).*{field}",
                id=f"{field} {value}",
            )
            for field, values in {
                "weight": ("x", "-1", ".nan", "[1]", "1000000000000"),
                "priority": ("x", "-1", ".nan", "[1]"),
                "capability": ("3", "[1]", "{cpu: x}", "{cpu: -1}", "{cpu: [1]}", "{cpu: 1e999}"),
                "deserved": ("3", "{cpu: .nan}", "{cpu: {a: 1}}"),
                "guarantee": ("3", "{resource: 3}", "{resource: {cpu: x}}"),
                "parent": ("[1]", "{a: 1}"),
                "reclaimable": ("perhaps", "[1]"),
                "dequeueStrategy": ("lifo", "[1]", "3"),
                "extendClusters": ("3", "[3]", "[{weight: 1}]"),
                "wieght": ("1",),
            }.items()
            for value in values
        ),
    ],
)
def test_a_bad_queue_says_where(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        queues.read(written(tmp_path / "q.yaml", text))


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


def test_a_trace_of_centuries_is_refused() -> None:
    trace = [make_job("a", 0.0, 50.0), make_job("b", 1e9, 50.0)]
    with pytest.raises(InputError, match=r"the last job would be submitted after 634 years"):
        load.compressed(trace, 0.05)


@pytest.mark.parametrize("text", ["often", "error=2", "error=x", "exact=1", "error=nan"])
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
