"""Each benchmark runs in its quick mode, as a person starts it, and prints the schema; counts gate, speeds do not."""

from __future__ import annotations

import asyncio
import math
import os
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.place import gangs, make_nodes, naive
from bench.webhook import job_object, quantile

FIELDS = {"case", "metric", "value", "unit", "bound", "ratio"}
THROUGHPUTS = {
    "arrays": set(),
    "place": {"placements_per_s"},
    "dispatch": {"decisions_per_s"},
    "kueue-shapes": {"admitted_per_s"},
    "member": {"bound_per_s"},
    "preempt": set(),
    "reclaim": set(),
    "openb": {"allocated"},
    "quality": set(),
    "split": set(),
    "subtrees": set(),
    "devices": set(),
    "endtoend": {"created_per_s", "in_member_per_s", "bound_per_s", "completed_per_s"},
    "webhook": {"creates_per_s"},
    "interception": set(),
    "reflector": {"decoded_events_per_s", "synced"},
    "restart": {"lease_to_first_decision"},
    "neighbours": {"latency_p50", "latency_p99", "dispatched"},
}


async def run(name: str, results: Path) -> dict[tuple[str, str], float]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"bench.{name.replace('-', '_')}", "--quick", "--json", f"--results={results}",
        env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(120):
            out, err = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode == 0, err.decode()[-3000:]
    assert out == (results / f"{name}.json").read_bytes()
    body = orjson.loads(out)
    check_schema(body, name)
    return {(each["case"], each["metric"]): each["value"] for each in body["results"]}


def check_schema(body: dict[str, Any], name: str) -> None:
    assert set(body) == {"bench", "params", "results"}
    assert body["bench"] == name
    assert body["params"]["bound"], "the bound has a description"
    seen = set()
    for result in body["results"]:
        assert set(result) == FIELDS
        assert isinstance(result["value"], float | int)
        key = (result["case"], result["metric"])
        assert key not in seen, f"{key} twice"
        seen.add(key)
        if result["bound"] is not None:
            assert result["ratio"] == pytest.approx(result["value"] / result["bound"])
        if result["metric"] in THROUGHPUTS[name]:
            assert result["value"] > 0
            assert result["bound"] > 0
    assert {metric for _, metric in seen} >= THROUGHPUTS[name]


def metric(found: dict[tuple[str, str], float], name: str) -> float:
    (value,) = [value for (_, each), value in found.items() if each == name]
    return value


@pytest.mark.integration
async def test_place_has_the_schema(tmp_path):
    await run("place", tmp_path)


async def test_shared_gpus_are_filled_by_each_scoring(tmp_path):
    found = await run("openb", tmp_path)
    assert all(95 < found[case, "allocated"] <= 100 for case in ("fragmentation", "tightest gap"))


async def test_gangs_of_one_task_get_the_best_tier_and_others_are_nearer_than_by_the_rules_of_others(tmp_path):
    found = await run("quality", tmp_path)
    for case in ("hard, tier 2, 1 task", "soft, 1 task"):
        assert found[f"{case}: atoll", "not_placed"] == found[f"{case}: atoll", "tiers_too_high"] == 0
    for case in ("hard, tier 2, 2 tasks", "soft, 2 tasks"):
        for rule in ("best fit", "gradient"):
            assert found[f"{case}: atoll", "tiers_too_high"] < found[f"{case}: {rule}", "tiers_too_high"]


async def test_dispatchers_by_top_queue_have_all_jobs_and_no_larger_gang_than_their_share(tmp_path):
    found = await run("subtrees", tmp_path)
    for load in ("steady", "bursts"):
        one, many = f"{load}, one dispatcher", f"{load}, by top queue"
        assert found[many, "decisions"] + found[many, "never_started"] >= 200
        assert found[many, "largest_gang"] == found[one, "largest_gang"] / 4


async def test_a_gang_of_joint_devices_is_placed_or_refused(tmp_path):
    found = await run("devices", tmp_path)
    assert [each for _, each in found].count("warm") == 5


@pytest.mark.integration
@pytest.mark.long
async def test_a_dispatch_is_one_write_and_every_binding_that_fits_is_dispatched(tmp_path):
    found = await run("dispatch", tmp_path)
    alone, whole = "100 one-pod bindings to 2 members", "20 waiting jobs, control and agents at work"
    for case, count in ((alone, 100), (whole, 20)):
        assert found[case, "bindings_dispatched"] == count
        assert found[case, "writes_per_dispatch"] == 1
        assert found[case, "refused_writes"] == 0


@pytest.mark.integration
@pytest.mark.long
async def test_all_of_a_load_of_many_queues_is_admitted_and_ends(tmp_path):
    found = await run("kueue-shapes", tmp_path)
    case = "60 workloads in 4 queues"
    assert found[case, "finished"] == 60
    assert 0 < found[case, "mean_quota_use"] <= 6
    assert all(found[case, f"mean_time_to_admission_{size}"] > 0 for size in ("small", "medium", "large"))


@pytest.mark.integration
@pytest.mark.long
async def test_a_workload_costs_the_host_no_more_writes_than_its_targets(tmp_path):
    found = await run("endtoend", tmp_path)
    assert 0 < metric(found, "until_bound") <= 10
    # The target is 16 on an idle machine; a busy one passes on more reports that are not final.
    assert 0 < metric(found, "until_completed") <= 20
    assert sum(value for (_, each), value in found.items() if each.startswith("jobs in ")) == 30


@pytest.mark.integration
@pytest.mark.long
async def test_an_array_is_one_object_with_one_binding_and_one_work_on_the_host(tmp_path):
    found = await run("arrays", tmp_path)
    jobs, array = ("5 Kubernetes Jobs", "a JobArray of 20")
    assert found[array, "member1 objects"] >= 2 * 20
    assert found[array, "host objects"] < found[jobs, "host objects"]


@pytest.mark.integration
@pytest.mark.long
async def test_every_create_of_a_job_is_reviewed_twice_while_the_webhook_is_on_and_never_while_it_is_off(tmp_path):
    found = await run("webhook", tmp_path)
    for kilobytes in (2, 50):
        assert found[f"handler, {kilobytes} kB", "reviews"] % 2 == 0
        assert found[f"handler, {kilobytes} kB", "reviews"] >= 2 * 10
        assert found[f"handler, {kilobytes} kB", "p50"] > 0


def test_a_quantile_of_a_histogram_is_the_end_of_its_bucket():
    histogram = {0.001: 98.0, 0.002: 1.0, math.inf: 1.0}
    assert quantile(histogram, 50) == 0.001
    assert quantile(histogram, 99) == 0.002
    assert quantile(histogram, 100) == 60.0
    assert quantile({}, 99) == 0.0


def test_jobs_have_the_size_that_is_asked_for():
    for kilobytes in (2, 50):
        assert len(orjson.dumps(job_object("job-0000001", kilobytes))) == pytest.approx(kilobytes * 1000, rel=0.1)


@pytest.mark.integration
@pytest.mark.long
async def test_a_member_s_scheduler_binds_all_and_evicts_no_more_than_it_must(tmp_path):
    found = await run("member", tmp_path)
    assert len([case for case, each in found if each == "until_bound"]) == 5
    assert found["reclaim 16 of 128 GPUs", "victims"] == 16


@pytest.mark.integration
@pytest.mark.long
async def test_a_cache_of_real_pods_is_complete_by_list_and_by_watch_list(tmp_path):
    found = await run("reflector", tmp_path)
    held = [value for (case, each), value in found.items() if each == "rss" and "slim" in case]
    assert len(held) == 2
    assert all(value > 0 for value in held)


@pytest.mark.integration
@pytest.mark.long
async def test_a_dispatcher_that_takes_over_decides_once_all_is_read(tmp_path):
    found = await run("restart", tmp_path)
    read, decided = metric(found, "lease_to_all_read"), found["500 bindings, 3 members", "lease_to_first_decision"]
    assert 0 < read < decided


@pytest.mark.integration
@pytest.mark.long
async def test_creates_that_are_no_workloads_are_measured_with_each_of_the_rules(tmp_path):
    found = await run("interception", tmp_path)
    assert [case for case, each in found if each == "cpu"] == [
        f"{kind}, rules: {rules}" for kind in ("ConfigMap", "Lease") for rules in ("all", "named")
    ]


@pytest.mark.integration
@pytest.mark.long
async def test_the_leader_stays_and_a_tenant_is_served_whatever_its_neighbours_do(tmp_path):
    found = await run("neighbours", tmp_path)
    assert metric(found, "leader_changes") == 0
    assert metric(found, "dispatched") == 30


async def test_plans_of_reclaim_are_irreducible(tmp_path):
    found = await run("reclaim", tmp_path)
    plans = {case: value for (case, each), value in found.items() if each == "reducible"}
    assert len(plans) == 2
    assert set(plans.values()) == {0}
    assert all(found[case, "victims"] == 32 for case in plans)


async def test_victims_for_a_gang_with_a_hard_topology_are_as_many_as_its_nodes(tmp_path):
    found = await run("preempt", tmp_path)
    assert found["a rack", "victims"] == 16


def test_the_bound_of_placing_finds_room_where_there_is_some():
    nodes = make_nodes(64)
    assert naive(nodes, gangs()["1-pod job"]) >= 0
    nodes.free[:] = 0
    assert naive(nodes, gangs()["1-pod job"]) == -1
