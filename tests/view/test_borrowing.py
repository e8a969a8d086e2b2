"""Queues against their deserved amounts: shares, borrowed and lent hours over a time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.view.borrowing import HEADERS, TYPES, Deserved, Span, against, configured, records, spans, standings, table
from atoll.view.usage import USAGE, record_types, usage
from tests.view.made import queue
from tests.view.run_rows import GPU, NOON, row

HOUR = 3600.0
DAY = (NOON - timedelta(hours=12), NOON + timedelta(hours=12))


def made(name: str, deserved: int | None = None, parent: str | None = None) -> dict[str, Any]:
    spec = {"parent": parent, **({"deserved": {GPU: str(deserved)}} if deserved is not None else {})}
    return {"metadata": {"name": name}, "spec": spec}


def held(name: str, begin: float, end: float, amount: float) -> Span:
    return Span(name, begin * HOUR, end * HOUR, {GPU: amount})


def figures(
    queues: list[dict[str, Any]], *runs: Span, hours: float = 10.0, top: str = ""
) -> dict[str, tuple[Any, ...]]:
    """Queue -> (held, borrowed, lent) in hours."""
    found = standings(configured(queues, top), runs, 0.0, hours * HOUR, top)
    return {name: tuple(found[name][GPU][1:]) for name in found if GPU in found[name]}


def test_idle_amounts_lend_in_proportion_what_siblings_borrow() -> None:
    queues = [made("a", 4), made("b", 6), made("c", 2)]
    assert figures(queues, held("a", 0, 10, 8), held("b", 5, 10, 6)) == {
        # 4 GPUs for 10 h; b lends three quarters of them while it is idle, and c the rest, all of its 2 at most.
        "a": (80.0, 40.0, 0.0),
        "b": (30.0, 0.0, 15.0),
        "c": (0.0, 0.0, 15.0),
    }


def test_use_beyond_all_idle_amounts_is_lent_by_no_sibling() -> None:
    assert figures([made("a", 1), made("b", 2)], held("a", 0, 10, 9)) == {"a": (90.0, 80.0, 0.0), "b": (0.0, 0.0, 20.0)}


def test_a_parent_counts_with_the_queues_below_it_and_lends_to_its_own_siblings() -> None:
    queues = [made("lab", 8), made("x", 4, "lab"), made("y", 4, "lab"), made("other", 2)]
    found = figures(queues, held("x", 0, 10, 6), held("other", 0, 10, 3))
    assert found == {
        "lab": (60.0, 0.0, 10.0),
        "x": (60.0, 20.0, 0.0),
        "y": (0.0, 0.0, 20.0),
        "other": (30.0, 10.0, 0.0),
    }


def test_a_queue_without_a_deserved_amount_has_no_figures_and_takes_no_part() -> None:
    found = figures([made("free"), made("a", 4)], held("free", 0, 10, 4), held("gone", 0, 10, 4))
    assert found == {"a": (0.0, 0.0, 0.0)}


def test_lent_hours_are_not_known_where_runs_of_siblings_are_not() -> None:
    queues = [made("lab", 8), made("x", 4, "lab"), made("y", 4, "lab"), made("other", 2)]
    found = figures(queues, held("x", 0, 10, 6), top="lab")
    assert found == {"lab": (60.0, 0.0, None), "x": (60.0, 20.0, 0.0), "y": (0.0, 0.0, 20.0)}


_times = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted)
_runs = st.lists(st.tuples(st.sampled_from("abcd"), _times, st.integers(0, 9)), max_size=12)


@given(st.fixed_dictionaries(dict.fromkeys("abc", st.integers(0, 9))), _runs)
def test_hours_are_the_sums_over_each_hour(deserved: dict[str, int], runs: list[Any]) -> None:
    """d deserves nothing: its use is no borrowing."""
    queues = {**{name: Deserved((), {GPU: amount}) for name, amount in deserved.items()}, "d": Deserved((), {})}
    found = standings(queues, [held(name, begin, end, amount) for name, (begin, end), amount in runs], 0.0, 20 * HOUR)
    expected = {name: [20.0 * amount, 0.0, 0.0, 0.0] for name, amount in deserved.items()}
    enough = True
    for hour in range(20):
        now = {
            name: sum(amount for each, (begin, end), amount in runs if each == name and begin <= hour < end)
            for name in deserved
        }
        borrowed = {name: max(now[name] - deserved[name], 0) for name in deserved}
        idle = {name: max(deserved[name] - now[name], 0) for name in deserved}
        lent = min(sum(borrowed.values()), sum(idle.values()))
        enough &= lent == sum(borrowed.values())
        for name, total in expected.items():
            total[1] += now[name]
            total[2] += borrowed[name]
            total[3] += lent * idle[name] / sum(idle.values()) if lent else 0.0
    for name, total in expected.items():
        assert list(found[name][GPU]) == pytest.approx(total, abs=1e-6)
    if enough:
        assert sum(each[GPU].lent or 0.0 for each in found.values() if each) == pytest.approx(
            sum(each[GPU].borrowed for each in found.values() if each), abs=1e-6
        )


@given(_runs, st.integers(0, 9), st.integers(0, 9))
def test_a_parent_holds_what_the_queues_below_it_hold(runs: list[Any], one: int, other: int) -> None:
    above = Deserved((), {GPU: 5})
    queues = {"top": above, "a": Deserved(("top",), {GPU: one}), "b": Deserved(("top",), {GPU: other})}
    found = standings(queues, [held(name, begin, end, amount) for name, (begin, end), amount in runs], 0.0, 20 * HOUR)
    assert found["top"][GPU].held == pytest.approx(found["a"][GPU].held + found["b"][GPU].held)
    for each in found.values():
        standing = each[GPU]
        assert 0.0 <= (standing.lent or 0.0) <= standing.deserved + 1e-6
        assert standing.borrowed - standing.held <= 1e-6


def test_a_report_shows_queues_with_the_ones_below_and_its_records_add_up() -> None:
    queues = [made("lab", 8), made("q", 2, "lab"), made("idle", 2, "lab"), made("unused", 9)]
    seen: list[Span] = []
    lines = usage(spans([row("a", 2), row("b", 1, queue="gone")], *DAY, seen), "queue", *DAY)
    report = against(lines, configured(queues), seen, *DAY)
    shown = {(str(each[0]), each[4]): each for each in table(report, {GPU: 1.0})}
    assert [*dict.fromkeys(name for name, _ in shown)] == ["lab", "  idle", "  q", "gone"]
    assert shown["lab", GPU][-4:] == ["16.00", "8%", "0.00", "0.00"]
    assert shown["  q", GPU][-4:] == ["16.00", "33%", "12.00", "0.00"]
    assert shown["  idle", GPU][-4:] == ["0.00", "0%", "0.00", "4.00"]
    assert shown["gone", "memory"][-3:] == ["-", "-", "-"]
    assert {len(each) for each in shown.values()} == {1 + len(USAGE) + len(HEADERS)}
    found = records(report, *DAY, {}, "")
    assert sum(each["ConsumedQuantity"] for each in found if each["SkuId"] == GPU) == 24.0
    by_name = {each["x_Queue"]: each for each in found if each["SkuId"] == GPU}
    assert (by_name["lab"]["ConsumedQuantity"], by_name["lab"]["x_SubtreeQuantity"]) == (0.0, 16.0)
    assert (by_name["idle"]["x_MeanWaitSeconds"], by_name["gone"]["x_DeservedQuantity"]) == (None, None)
    assert found[0].keys() == record_types("queue").keys() | TYPES.keys()


def test_a_queue_older_than_the_checks_of_its_crd_deserves_nothing() -> None:
    broken = queue("odd")
    broken["spec"] = {"deserved": {GPU: "many"}}
    assert configured([broken, made("self", 1, "self")])["odd"] == Deserved((), {})
