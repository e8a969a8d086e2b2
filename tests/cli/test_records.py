"""`atollctl usage`, `history` and `preemptions` over a store in a folder."""

from __future__ import annotations

import csv
import io
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from atoll.cli.app import main
from atoll.control.ledger import Ledger
from atoll.model.runs import Part, Record, Run
from atoll.model.timestamps import rfc3339


@pytest.fixture
def store(tmp_path: Path) -> str:
    now = datetime.now(UTC)
    begin, end = (rfc3339((now - timedelta(hours=hours)).timestamp()) for hours in (3, 1))
    records = []
    for name, user, outcome, claimant in (("a", "ann", "Succeeded", ""), ("=b", "bob", "Evicted", "prod/big")):
        part = Part("alpha", 2, granted={"nvidia.com/gpu": 8.0}, seconds={"nvidia.com/gpu": 8 * 7200.0})
        run = Run(
            1, begin, begin, "q", user, begin, bound=begin, running=begin, ended=end, released=end, outcome=outcome,
            evicted_for=claimant, for_queue="prod" if claimant else "", parts=[part],
        )  # fmt: skip
        records.append(Record(f"uid-{name}", "team", name, "Job.batch", run))
    Ledger(str(tmp_path)).append(records, {each.id: each.run.released for each in records})
    return str(tmp_path)


def output(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["atollctl", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    return capsys.readouterr().out


def test_usage_of_a_store(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    text = output(capsys, monkeypatch, "usage", "--by", "user", "--records", store, "-o", "json")
    assert {each["x_User"]: each["ConsumedQuantity"] for each in json.loads(text)} == {"ann": 16.0, "bob": 16.0}
    assert "nvidia.com/gpu" in output(capsys, monkeypatch, "usage", "--records", store, "--since", "1d")


@pytest.mark.parametrize("command", ["usage", "efficiency", "history", "preemptions"])
def test_parquet_has_the_rows_of_json(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, store: str, command: str
) -> None:
    from pyarrow import parquet

    def printed(form: str) -> bytes:
        monkeypatch.setattr(sys, "argv", ["atollctl", command, "--records", store, "-o", form])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (0, None)
        return capfdbinary.readouterr().out

    table = parquet.read_table(io.BytesIO(printed("parquet")))
    found = json.loads(printed("json"))
    assert len(found) == table.num_rows > 0
    assert set(table.column_names) == found[0].keys()


def test_a_terminal_gets_no_parquet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["atollctl", "usage", "--records", store, "-o", "parquet"])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "> usage.parquet" in capsys.readouterr().err


def test_parquet_without_its_package_names_the_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["atollctl", "usage", "--records", store, "-o", "parquet"])
    monkeypatch.setattr("atoll.cli.run_sources.stored", lambda *_: iter(()))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "atoll[records]" in capsys.readouterr().err


def test_efficiency_of_a_store(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    text = output(capsys, monkeypatch, "efficiency", "--by", "workload", "--records", store, "-o", "json")
    found = {each["workload"]: (each["succeeded"], each["evicted"], each["held"]) for each in json.loads(text)}
    assert found == {"team/a": (16.0, 0.0, 16.0), "team/=b": (0.0, 16.0, 16.0)}
    assert "100%" in output(capsys, monkeypatch, "efficiency", "--records", store)


def test_history_and_preemptions_of_a_store(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setenv("ATOLL_RECORDS", store)
    rows = list(csv.DictReader(io.StringIO(output(capsys, monkeypatch, "history", "--user", "bob", "-o", "csv"))))
    assert [each["name"] for each in rows] == ["'=b"], "a name is no formula"
    assert "prod/big" in output(capsys, monkeypatch, "preemptions")
    assert "ann" not in output(capsys, monkeypatch, "history", "-n", "other")
    assert "ann" in output(capsys, monkeypatch, "history", "--queue", "q")
    assert "ann" not in output(capsys, monkeypatch, "efficiency", "--queue", "other")


@pytest.mark.parametrize("words", [("--since", "x"), ("--since", "nand"), ("--month", "October")])
def test_times_that_can_t_be_read_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, store: str, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "argv", ["atollctl", "history", "--records", store, *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert words[1] in capsys.readouterr().err
