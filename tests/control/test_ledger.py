"""The store of records: each record once, whichever leader writes, and wherever it is killed."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from atoll.control import ledger
from atoll.control.ledger import Ledger, read
from atoll.model.runs import Part, Record, Run
from atoll.model.timestamps import rfc3339

START = datetime(2026, 11, 28, 12, tzinfo=UTC)
ALWAYS = (START - timedelta(days=400), START + timedelta(days=400))


def record(number: int, released: datetime = START) -> Record:
    when = rfc3339(released.timestamp())
    part = Part("alpha", 2, "rack-1", {"cpu": 4.0}, {"cpu": 40.0})
    run = Run(1, when, when, "q", "ann", when, {"cpu": 4.0}, when, when, when, when, when, "Succeeded", parts=[part])
    return Record(f"uid-{number}", "team", f"job-{number}", "Job.batch", run)


def unsure(*records: Record) -> dict[str, str]:
    return {each.id: each.run.released for each in records}


def ids(url: str | Path) -> list[str]:
    return sorted(row["id"] for row in read(str(url), *ALWAYS))


def test_a_record_reads_back_as_it_was_written(tmp_path: Path) -> None:
    Ledger(str(tmp_path), now=lambda: START).append([record(1)], unsure(record(1)))
    (row,) = read(str(tmp_path), *ALWAYS)
    assert row["released"] == START
    assert (row["namespace"], row["name"], row["user"], row["members"]) == ("team", "job-1", "ann", ["alpha"])
    assert (dict(row["seconds"]), row["parts"][0]["domain"]) == ({"cpu": 40.0}, "rack-1")


def test_only_records_of_the_asked_time_are_read(tmp_path: Path) -> None:
    store = Ledger(str(tmp_path), now=lambda: START)
    both = [record(1), record(2, START - timedelta(hours=5))]
    store.append(both, unsure(*both))
    assert [row["id"] for row in read(str(tmp_path), START - timedelta(hours=1), START + timedelta(hours=1))] == [
        "uid-1/1"
    ]


def test_of_two_leaders_one_loses_and_writes_nothing_twice(tmp_path: Path) -> None:
    old, new = (Ledger(str(tmp_path), now=lambda: START) for _ in range(2))
    old.append([record(1)], unsure(record(1)))
    new.append([record(1), record(2)], unsure(record(1), record(2)))
    with pytest.raises(FileExistsError):
        old.append([record(2), record(3)], unsure(record(2), record(3)))
    old.append([record(2), record(3)], unsure(record(2), record(3)))
    assert ids(tmp_path) == ["uid-1/1", "uid-2/1", "uid-3/1"]


def test_a_leader_of_yesterday_that_goes_on_late_writes_nothing_twice(tmp_path: Path) -> None:
    day = START
    old, new = (Ledger(str(tmp_path), now=lambda: day) for _ in range(2))
    old.append([record(1)], unsure(record(1)))
    day = START + timedelta(days=1)
    new.append([record(2)], unsure(record(2)))
    day = START
    with pytest.raises(FileExistsError):
        old.append([record(2)], unsure(record(2)))
    old.append([record(2)], unsure(record(2)))
    assert ids(tmp_path) == ["uid-1/1", "uid-2/1"]


def test_days_beyond_the_time_to_keep_go(tmp_path: Path) -> None:
    day = START
    store = Ledger(str(tmp_path), now=lambda: day)
    for number in range(3):
        store.append([record(number)], unsure(record(number)))
        day += timedelta(days=1)
    day = START + timedelta(days=10)
    assert store.expire(9) == 1
    assert ids(tmp_path) == ["uid-1/1", "uid-2/1"]


def test_a_url_of_another_file_system_works_alike() -> None:
    url = "memory://records"
    Ledger(url, now=lambda: START).append([record(1)], unsure(record(1)))
    Ledger(url, now=lambda: START).append([record(1), record(2)], unsure(record(1), record(2)))
    assert ids(url) == ["uid-1/1", "uid-2/1"]


def test_ten_thousand_records_are_small(tmp_path: Path) -> None:
    many = [record(number) for number in range(10_000)]
    Ledger(str(tmp_path), now=lambda: START).append(many, unsure(*many))
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.parquet")) < 1_000_000


class Killed(BaseException):
    """The process ends here."""


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_kills_at_each_write_lose_and_double_nothing(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """A record stays pending until its write was answered; a kill comes before or after a file is there."""
    folder, clock = tmp_path_factory.mktemp("records"), [START]
    create, pending, made = ledger.create, dict[str, Record](), itertools.count()
    all_records: list[Record] = []

    def dying(fs: Any, path: str, content: bytes) -> None:
        how = data.draw(st.sampled_from(["well", "well", "before", "after", "fails after"]))
        if how == "before":
            raise Killed
        create(fs, path, content)
        if how == "after":
            raise Killed
        if how == "fails after":
            raise OSError("no answer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "create", dying)
        leaders = [Ledger(str(folder), now=lambda: clock[0]) for _ in range(2)]
        for _ in range(data.draw(st.integers(1, 15))):
            new = [record(next(made), clock[0]) for _ in range(data.draw(st.integers(0, 3)))]
            all_records += new
            pending |= {each.id: each for each in new}
            number = data.draw(st.sampled_from([0, 0, 1]))
            batch = list(pending.values())
            try:
                leaders[number].append(batch, unsure(*batch))
            except Killed:
                leaders[number] = Ledger(str(folder), now=lambda: clock[0])
            except OSError:
                pass
            else:
                pending.clear()
            clock[0] += timedelta(hours=data.draw(st.sampled_from([0, 0, 13])))
    batch = list(pending.values())
    if batch:
        Ledger(str(folder), now=lambda: clock[0]).append(batch, unsure(*batch))
    assert ids(folder) == sorted(each.id for each in all_records)
