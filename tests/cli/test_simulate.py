"""`atollctl simulate` as a person calls it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from atoll.cli import errors
from atoll.cli.app import tree
from atoll.cli.errors import CommandError
from atoll.model.timestamps import rfc3339
from atoll.sim import replay

CLUSTERS = "clusters:\n- {name: a, pools: [{nodes: 2, resources: {nvidia.com/gpu: 8}}]}\n"
QUEUES = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: default}\nspec: {}\n"
TRACE = "submit,duration,requests\n" + "".join(f"{n * 5},{20 + n},nvidia.com/gpu=4\n" for n in range(12))


@pytest.fixture(name="files")
def written(tmp_path: Path) -> list[str]:
    for name, text in (("c.yaml", CLUSTERS), ("q.yaml", QUEUES), ("t.csv", TRACE)):
        (tmp_path / name).write_text(text)
    options = zip(("--clusters", "--queues", "--trace"), ("c.yaml", "q.yaml", "t.csv"), strict=True)
    return [each for option, name in options for each in (option, str(tmp_path / name))]


def call(*arguments: str) -> str:
    done = CliRunner().invoke(tree(), ["simulate", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_equal_calls_print_equal_json(files: list[str]) -> None:
    options = [*files, "--load", "0.9", "--estimates", "error=0.5", "--gangs", "3", "--seed", "4", "--json"]
    first = call(*options)
    assert call(*options) == first
    found = json.loads(first)
    assert found["jobs"]["submitted"] == 15
    assert found["jobs"]["finished"] + found["jobs"]["never_started"] == 15
    assert found["trace"]["offered_load"] == pytest.approx(0.9)
    assert found["kinds"]["synthetic"]["jobs"] == 3
    assert found["writes"]["Dispatch"] >= found["jobs"]["finished"]


def test_tables_a_log_and_a_plot_come_out(files: list[str], tmp_path: Path) -> None:
    log, plot = tmp_path / "core.log", tmp_path / "use.html"
    shown = call(*files, "--strategy", "fifo", "--record", str(log), "--plot", str(plot), "--verify")
    assert "12 jobs over" in shown
    assert "QUEUE" in shown
    assert "Jain index" in shown
    assert replay.main([str(log)]) == 0
    assert "<svg" in plot.read_text()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param(["--trace", "none.csv", "--format", "philly"], "none.csv: no such file", id="a missing file"),
        pytest.param(["--trace", "none.csv"], "--clusters is missing", id="no clusters"),
        pytest.param(["--trace", "x", "--plot", "p.png"], "a plot is .svg or .html", id="a plot of another form"),
        pytest.param(["--trace", "x", "--outage", "a"], "expected MEMBER:FROM:TO", id="half an outage"),
        pytest.param(["--trace", "x", "--outage", "a:0:inf"], "expected MEMBER:FROM:TO", id="an endless outage"),
        pytest.param(["--trace", "x", "--plot", "none/p.svg"], "--plot none/p.svg: no such directory", id="no place"),
        pytest.param(["--trace", "x", "--record", "none/l"], "--record none/l: no such directory", id="nor for a log"),
        *(
            pytest.param(
                ["--trace", "x", option, "inf"], f"{option} inf: expected a number with an end", id=f"{option} inf"
            )
            for option in ("--load", "--weeks", "--until", "--checkpoint")
        ),
    ],
)
def test_what_can_not_be_done_is_said_in_one_line(options: list[str], says: str) -> None:
    done = CliRunner().invoke(tree(), ["simulate", *options])
    assert isinstance(done.exception, CommandError)
    text, code = errors.describe(done.exception)
    assert says in text
    assert code == errors.USAGE


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(tree(), ["simulate", *arguments])
    assert isinstance(done.exception, CommandError), done.output
    text, code = errors.describe(done.exception)
    assert code == errors.USAGE
    return text


def rewritten(files: list[str], option: str, text: str) -> None:
    Path(files[files.index(option) + 1]).write_text(text)


def test_a_queue_that_is_not_in_the_file_is_refused(files: list[str]) -> None:
    rewritten(files, "--trace", "submit,duration,queue\n0,1,default\n1,1,defualt\n2,1,defualt\n")
    text = refused(*files)
    assert "t.csv: queue defualt (of 2 jobs, the first is default/job-1) is not in " in text
    assert "q.yaml, which has default: correct the name" in text


def test_a_member_that_is_not_there_is_noted(files: list[str]) -> None:
    rewritten(files, "--trace", "submit,duration,clusters\n0,1,a\n1,1,a;mars\n2,1,mars\n")
    shown = call(*files)
    assert "note: member mars, which 2 jobs may use, is not among the clusters" in shown
    assert "NoClusterMatches" in shown


def test_jobs_that_never_started_are_listed_by_reason(files: list[str]) -> None:
    rewritten(
        files, "--trace", "submit,duration,requests\n0,30,nvidia.com/gpu=4\n1,1,amd.com/gpu=1\n2,1,amd.com/gpu=1\n"
    )
    shown = call(*files)
    assert re.search(r"^NEVER STARTED +JOBS +EXAMPLE +WHY$", shown, re.MULTILINE)
    assert re.search(
        r"^InsufficientResources +2 +default/job-1 +no member has room.*asks for 1 amd.com/gpu, and no node has any",
        shown,
        re.MULTILINE,
    )
    found = json.loads(call(*files, "--json"))
    assert found["never_started"]["InsufficientResources"]["jobs"] == 2
    rewritten(files, "--trace", TRACE)
    assert "NEVER STARTED" not in call(*files)
    assert json.loads(call(*files, "--json"))["never_started"] == {}


def test_one_is_not_many_and_seconds_are_no_hours(files: list[str]) -> None:
    rewritten(files, "--trace", "submit,duration\n0,30\n")
    shown = call(*files)
    assert shown.startswith("t.csv: 1 job over 0.00s on ")
    assert " in 1 member;" in shown
    rewritten(files, "--trace", "submit,duration\n0,30\n45,1\n")
    assert call(*files).startswith("t.csv: 2 jobs over 45.00s on ")


def test_cpu_is_counted_in_whole_ones(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CLUSTERS.replace("nvidia.com/gpu: 8", "cpu: 8"))
    (tmp_path / "t.csv").write_text(TRACE.replace("nvidia.com/gpu=4", "cpu=3500m"))
    plot = tmp_path / "use.svg"
    shown = call(*files, "--plot", str(plot))
    assert "12 jobs over 55.00s on 16 cpu in 1 member" in shown
    assert re.search(r"^2-4 +12 ", shown, re.M), "jobs of 4 CPUs, rounded up"
    assert "capacity 16;" in plot.read_text()
    assert max(json.loads(call(*files, "--json"))["series"]["used"]) <= 16


def test_what_runs_and_waits_when_it_is_cut_off_is_told(files: list[str]) -> None:
    shown = call(*files, "--until", "33")
    assert re.search(r"finished +3 of 7", shown)
    assert re.search(r"running at the end, 33.00s +4", shown)
    assert "waiting at the end" not in shown


def test_a_time_of_records_is_replayed_and_compared_with_other_queues(tmp_path: Path) -> None:
    """Two jobs of two queues ran one after the other on one node; a queue without any capacity lets the other start."""
    pytest.importorskip("pyarrow")
    from atoll.control.ledger import Ledger
    from atoll.model.runs import Part, Record, Run

    now = time.time() - 7200
    store, amounts = tmp_path / "records", {"pods": 1.0, "nvidia.com/gpu": 8.0}

    def ran(name: str, queue: str, submitted: float, begun: float, ended: float) -> Record:
        times = [rfc3339(now + each) for each in (begun, submitted, ended)]
        run = Run(
            1, times[0], times[1], queue, asked=amounts, bound=times[0], ended=times[2], released=times[2],
            outcome="Succeeded", parts=[Part("a", 1, granted=amounts)],
        )  # fmt: skip
        return Record(name, "default", name, "Job.batch", run)

    runs = [ran("first", "x", 0, 1, 1001), ran("second", "y", 10, 1002, 2002)]
    Ledger(str(store)).append(runs, {each.id: each.run.released for each in runs})
    files = {
        "clusters": "clusters: [{name: a, pools: [{nodes: 1, resources: {nvidia.com/gpu: 8}}]}]",
        "queues": "".join(f"---\nkind: Queue\nmetadata: {{name: {name}}}\n" for name in "xy"),
        "compare-queues": "kind: Queue\nmetadata: {name: x}\nspec: {capability: {nvidia.com/gpu: 0}}\n"
        "---\nkind: Queue\nmetadata: {name: y}\n",
    }
    options = []
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
        options += [f"--{name}", str(tmp_path / f"{name}.yaml")]
    arguments = ["--format", "records", "--trace", str(store), "--since", "1d", *options]
    done = CliRunner().invoke(tree(), ["simulate", *arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["reproduced"]["alike"], report["reproduced"]["jobs"]) == (2, 2)
    assert {name: (each["earlier"], each["later"]) for name, each in report["compared"]["queues"].items()} == {
        "x": (0, 1),
        "y": (1, 0),
    }
    shown = CliRunner().invoke(tree(), ["simulate", *arguments], catch_exceptions=False)
    assert "2 of 2 waits within a minute or a tenth" in shown.stdout
    assert "EARLIER" in shown.stdout
