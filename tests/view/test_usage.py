"""Reports from records: amounts of a time, by whom they are asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from atoll.model.timestamps import rfc3339
from atoll.view.usage import (
    HISTORY,
    USAGE,
    history_rows,
    of_bindings,
    plain,
    preempted,
    preemption_rows,
    record_types,
    usage,
    usage_records,
    usage_rows,
)
from tests.view.run_rows import GPU, NOON, row

OCTOBER = (datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC))


def test_usage_adds_up_resource_hours_waits_and_losses() -> None:
    lines = usage([row("a", 2), row("b", 1, outcome="Evicted"), row("c", 1, queue="other")], "queue", *OCTOBER)
    q = lines["q"]
    assert (q.runs, q.evicted, q.waited) == (2, 1, 7200.0)
    assert (q.amounts[GPU].held, q.amounts[GPU].lost, q.amounts["memory"].held) == (24.0, 8.0, 3.0)
    assert lines["other"].amounts[GPU].held == 8.0


@pytest.mark.parametrize(
    ("by", "expected"),
    [("namespace", {"team": 16.0}), ("user", {"ann": 16.0}), ("member", {"alpha": 4.0, "beta": 12.0})],
)
def test_usage_by_others(by: str, expected: dict[str, float]) -> None:
    lines = usage([row("a", 2)], by, *OCTOBER)
    assert {key: line.amounts[GPU].held for key, line in lines.items()} == expected


def test_a_run_that_reaches_beyond_the_time_counts_with_its_share() -> None:
    begin = NOON + timedelta(hours=1)
    lines = usage(
        [row("a", 4), row("before", 1, begin=-9), row("after", 1, begin=9)], "queue", begin, NOON + timedelta(hours=2)
    )
    assert lines["q"].amounts[GPU].held == pytest.approx(8.0)
    assert lines["q"].runs == 1


def test_a_price_sheet_gives_costs_in_table_and_records() -> None:
    lines = usage([row("a", 2)], "queue", *OCTOBER)
    table = usage_rows(lines, {GPU: 2.5})
    assert [[each[4], each[6], each[-1]] for each in table] == [["memory", "2.00", "-"], [GPU, "16.00", "40.00"]]
    assert len(table[0]) == len(USAGE) + 1
    found = {each["SkuId"]: each for each in usage_records(lines, "queue", *OCTOBER, {GPU: 2.5}, "EUR")}
    assert (found[GPU]["BilledCost"], found[GPU]["ConsumedUnit"], found[GPU]["BillingCurrency"]) == (
        40.0,
        "hours",
        "EUR",
    )
    assert (found["memory"]["BilledCost"], found["memory"]["ConsumedUnit"]) == (None, "GiB-hours")
    assert found[GPU]["x_Queue"] == "q"
    assert found[GPU].keys() == record_types("queue").keys()


def test_asked_and_busy_hours_are_known_where_the_record_has_them() -> None:
    [measured] = usage([row("a", 2, asked={"cpu": 4.0, GPU: 10.0}, busy={"memory": 2**29})], "queue", *OCTOBER).values()
    gpu, memory = measured.amounts[GPU], measured.amounts["memory"]
    assert (gpu.asked, gpu.measured, gpu.busy_part) == (20.0, 0.0, "unknown")
    assert (memory.asked, memory.measured, memory.busy, memory.busy_part) == (0.0, 2.0, 2.0, "100%")
    by_member = usage([row("a", 2, asked={GPU: 10.0})], "member", *OCTOBER)
    assert [each[5] for each in usage_rows(by_member, {})] == ["-", "-", "-"]


def test_each_hour_is_of_one_class() -> None:
    """Flavors and claims are classes; GPUs under any name repeat others, and CPUs are no devices."""
    held = {"cpu": 8.0, "nvidia.com/gpu": 4.0, "nvidia.com/gpu@h100": 3.0, "atoll.sh/any-gpu-milli": 4000.0,
            "gpu.example.com.deviceclass.resource.k8s.io/devices": 2.0, "kubernetes.io/batch-cpu": 500.0}  # fmt: skip
    flavored = {"nvidia.com/gpu": 2.0, "nvidia.com/gpu@h100": 2.0}
    found = usage([row("a", 1, held=held, asked=held), row("b", 1, held=flavored)], "class", *OCTOBER)
    amounts = {key: {name: each.held for name, each in line.amounts.items()} for key, line in found.items()}
    assert amounts == {
        "": {"cpu": 8.0, "kubernetes.io/batch-cpu": 500.0},
        "nvidia.com/gpu": {"nvidia.com/gpu": 1.0},
        "nvidia.com/gpu@h100": {"nvidia.com/gpu@h100": 5.0},
        "gpu.example.com": {"gpu.example.com.deviceclass.resource.k8s.io/devices": 2.0},
    }
    assert found["nvidia.com/gpu"].amounts["nvidia.com/gpu"].asked == 1.0
    assert {key: line.runs for key, line in found.items()} == {
        "": 1, "nvidia.com/gpu": 1, "nvidia.com/gpu@h100": 2, "gpu.example.com": 1,
    }  # fmt: skip


def test_history_has_one_row_for_each_run_in_their_order() -> None:
    rows = history_rows([row("late", 1, begin=5), row("early", 2, user="")])
    assert [(each[1], each[2], each[4], each[6], each[7], each[8]) for each in rows] == [
        ("early", "-", "alpha,beta", "60m", "120m", "Succeeded"),
        ("late", "ann", "alpha,beta", "60m", "60m", "Succeeded"),
    ]
    assert len(rows[0]) == len(HISTORY)


def test_preemptions_name_claimant_and_rule() -> None:
    more: Any = {"reason": "Reclaimed", "evicted_for": "prod/big", "for_queue": "prod"}
    rows = preemption_rows(preempted([row("a", 1), row("b", 1, outcome="Evicted", **more)]))
    assert [each[2:7] for each in rows] == [["b", "q", "prod/big", "prod", "Reclaimed"]]


def test_preemptions_are_in_the_order_of_their_evictions() -> None:
    more: Any = {"outcome": "Evicted", "for_queue": "prod"}
    rows = preemption_rows(preempted([row("late", 9, begin=1, **more), row("early", 1, begin=2, **more)]))
    assert [each[2] for each in rows] == ["early", "late"]


def test_bindings_give_their_runs_and_the_one_that_goes_on_as_it_is_now() -> None:
    begun = rfc3339((datetime.now(UTC) - timedelta(hours=1)).timestamp())
    run = {"epoch": 1, "dispatched": begun, "bound": begun, "counted": begun, "running": begun, "queue": "q",
           "parts": [{"member": "alpha", "granted": {GPU: 8.0}}]}  # fmt: skip
    binding = {
        "metadata": {"uid": "u", "namespace": "team", "name": "a-job"},
        "spec": {"resource": {"kind": "Job", "name": "a"}},
        "status": {"runs": [run]},
    }
    (found,) = of_bindings([binding, {"metadata": {"uid": "v", "namespace": "team", "name": "waits"}}])
    assert (found["name"], found["released"]) == ("a", None)
    now = datetime.now(UTC)
    lines = usage([found], "queue", now - timedelta(days=1), now)
    assert lines["q"].amounts[GPU].held == pytest.approx(8.0, abs=0.1)
    assert history_rows([found])[0][8] == "Running"
    assert plain(found)["parts"][0]["granted"] == {GPU: 8.0}
