"""The figures are only as good as the arithmetic: percentiles, ratios, the shape of a report, CPU clocks."""

from __future__ import annotations

import io
import os
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bench import endtoend, machine
from bench.__main__ import main
from bench.report import Report, median, number, percentile, rate, ratio

FINITE = st.floats(0, 1e9)


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        pytest.param([7.0], 50, 7.0, id="one value is every percentile"),
        pytest.param([7.0], 0, 7.0, id="percentile 0 is the smallest"),
        pytest.param(
            [4.0, 1.0, 3.0, 2.0], 50, 2.0, id="the median of an even number is the lower one, a value that was seen"
        ),
        pytest.param([float(n) for n in range(1, 101)], 99, 99.0, id="P99 of 100 is the 99th"),
        pytest.param([float(n) for n in range(1, 21)], 99, 20.0, id="P99 of few values is the largest"),
    ],
)
def test_percentile(values, percent, expected):
    assert percentile(values, percent) == expected


@pytest.mark.parametrize(("values", "percent"), [([], 50), ([1.0], 101), ([1.0], -1)])
def test_a_percentile_of_nothing_is_an_error(values, percent):
    with pytest.raises(ValueError, match="percentile"):
        percentile(values, percent)


@given(st.lists(FINITE, min_size=1), st.floats(0, 100))
def test_at_least_that_part_of_the_values_is_not_above_the_percentile(values, percent):
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) >= percent / 100 * len(values) - 1e-6


@pytest.mark.parametrize(
    ("value", "bound", "expected"),
    [
        pytest.param(50.0, 200.0, 0.25, id="a part of the bound"),
        pytest.param(50.0, None, None, id="no bound, no ratio"),
        pytest.param(50.0, 0.0, None, id="a bound of zero is no bound"),
    ],
)
def test_ratio(value, bound, expected):
    assert ratio(value, bound) == expected


def test_a_rate_is_never_infinite():
    assert rate(10, 2.0) == 5.0
    assert rate(10, 0.0) == rate(0, 2.0) == rate(10, -1.0) == 0.0


def test_the_median_of_repeats_is_between_the_middle_ones():
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0]) == 2.5
    with pytest.raises(ValueError, match="no values"):
        median([])


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.0"), (1.0, "1"), (0.12345, "0.123"), (44.44, "44.4"), (123456.7, "123,457")]
)
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_a_report_has_the_schema_and_its_ratios():
    report = Report("sample", {"jobs": 3, "bound": "words"})
    report.add("case", "jobs_per_s", 5.0, "1/s", 20.0)
    report.add("case", "writes", 3.0, "1/job")
    report.add_latency("waiting", [0.001, 0.003, 0.002])
    report.add_latency("nothing", [])
    body = orjson.loads(report.json())
    assert body["bench"] == "sample"
    assert body["params"] == {"jobs": 3, "bound": "words"}
    assert body["results"][0] == {
        "case": "case", "metric": "jobs_per_s", "value": 5.0, "unit": "1/s", "bound": 20.0, "ratio": 0.25,
    }  # fmt: skip
    assert body["results"][1]["bound"] is body["results"][1]["ratio"] is None
    assert [(each["metric"], each["value"]) for each in body["results"][2:]] == [
        ("latency_p50", 2.0),
        ("latency_p99", 3.0),
    ]
    assert report.value("case", "writes") == 3.0
    with pytest.raises(KeyError, match="no reads"):
        report.value("case", "reads")


def test_latencies_stand_next_to_those_of_the_bound():
    report = Report("dispatch", {})
    report.add_latency("opening", [0.004, 0.006], [0.002, 0.001])
    assert [(each.metric, each.bound, each.ratio) for each in report.results] == [
        ("latency_p50", 1.0, 4.0),
        ("latency_p99", 2.0, 3.0),
    ]


def test_a_table_shows_case_value_ratio_and_remarks():
    report = Report("sample", {"jobs": 3}, remarks=["target MISSED"])
    report.add("case", "jobs_per_s", 5.0, "1/s", 20.0)
    out = io.StringIO()
    report.show(Console(file=out, width=120))
    for text in ("sample: jobs 3", "case", "jobs_per_s", "0.250", "target MISSED"):
        assert text in out.getvalue()


def test_an_unknown_benchmark_is_refused_with_those_that_exist(capsys):
    with pytest.raises(SystemExit):
        main(["nothing"])
    said = capsys.readouterr().err
    assert "no benchmark nothing; there are place, " in said
    assert all(name in said for name in ("dispatch", "endtoend", "webhook", "restart"))


# -- the machine -------------------------------------------------------------------------------------------------------


def fake_proc(tmp_path: Path, busy: int, **processes: int) -> Path:
    """/proc with so many busy ticks, and pid -> ticks of its process."""
    (tmp_path / "stat").write_text(f"cpu  {busy} 0 0 99999 5 0 0 0 0 0\ncpu0 1 2 3\n")
    for pid, ticks in processes.items():
        (tmp_path / pid[1:]).mkdir(exist_ok=True)
        fields = f"S 1 1 1 0 -1 0 0 0 0 0 {ticks - 1} 1 50 50 20 0 1 0"
        (tmp_path / pid[1:] / "stat").write_text(f"{pid[1:]} (a (name) b) {fields}")
    return tmp_path


def test_cpu_time_is_user_and_system_whatever_the_name_holds(tmp_path):
    assert machine.cpu_seconds(7, fake_proc(tmp_path, 0, p7=250)) == 2.5


def test_cpu_time_of_this_process_is_real():
    before = machine.cpu_seconds(os.getpid())
    sum(range(10_000_000))
    assert machine.cpu_seconds(os.getpid()) > before


def test_what_neither_idles_nor_is_ours_is_others(tmp_path):
    me = f"p{os.getpid()}"
    before = machine.sample({"server": 7, "gone": 8, "never": None}, fake_proc(tmp_path, 1000, p7=100, **{me: 10}))
    after = machine.sample({"server": 7, "late": 9}, fake_proc(tmp_path, 1400, p7=200, p9=50, **{me: 60}))
    after = machine.Sample(before.at + 4.0, after.busy, after.used)
    assert machine.used(before, after) == pytest.approx({"server": 1.0, "late": 0.5, "bench": 0.5})
    assert machine.others(before, after, processors=2) == pytest.approx(2.0 / 8.0)


def test_cpu_that_is_used_without_workloads_is_no_cost_of_a_workload():
    report = Report("endtoend", {})
    used = {"host-apiserver": 6.0, "atoll-agent-east": 3.0, "etcd": 1.0, "bench": 9.0}
    endtoend.add_cpu(report, used, 100, {"host-apiserver": 0.1, "etcd": 0.05, "bench": 0.5}, elapsed=20.0)
    per_workload = {each.metric: each.value for each in report.results if each.case == "CPU per workload"}
    assert per_workload == pytest.approx(
        {
            "host_side": 60, "host_side_marginal": 40, "agents": 30, "agents_marginal": 30,
            "all_processes": 100, "all_processes_marginal": 70,
        }
    )  # fmt: skip
    assert report.value("CPU without workloads", "all_processes") == pytest.approx(150)
