"""Reclaimed capacity: the formula, what is unknown, changes too small to write, other agents that publish."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from atoll.agent.colocation.reclaim import Memory
from atoll.agent.descheduler.world import Figures
from atoll.model.colocation import BATCH_CPU, BATCH_MEMORY
from tests.agent.colocation.builders import GI, RULES, STALE, UNKNOWN, figures, look, node, offline, published
from tests.agent.descheduler.builders import make_subject

# 8 cores less 10 %, 16 GiB less 15 %.
FREE_CPU, FREE_MEMORY = 7200, int(16 * GI * 0.85) // 2**20 * 2**20


@pytest.mark.parametrize(
    ("pods", "use", "cpu"),
    [
        ([make_subject("web", "n1", cpu="6")], figures({"n1": (2000, 4)}, {"web": (1500, 2)}), 7200 - 2000),
        (
            [make_subject("web", "n1", cpu="6"), offline("sort", "n1")],
            figures({"n1": (3000, 4)}, {"web": (1500, 2), "sort": (900, 1)}),
            7200 - 2100,
        ),
        ([make_subject("web", "n1", cpu="6")], figures({"n1": (500, 4)}), 7200 - 6500),
        ([offline("sort", "n1")], figures({"n1": (3000, 4)}), 7200 - 3000),
        ([make_subject("web", "n1", cpu="6")], figures({"n1": (9000, 4)}, {"web": (8900, 2)}), 0),
    ],
    ids=[
        "online use is the use of the node",
        "use of offline pods is not online use",
        "an online pod without a figure counts its request",
        "an offline pod without a figure counts as online",
        "no node has less than nothing",
    ],
)
def test_capacity_is_what_online_use_and_the_reserve_leave(pods: Any, use: Figures, cpu: int) -> None:
    [share] = look([node()], pods, use)
    assert share.reclaimable is not None
    assert share.reclaimable[BATCH_CPU] == cpu


def test_memory_beyond_the_request_of_an_offline_pod_is_gone_and_cpu_is_not() -> None:
    [share] = look([node()], [offline("sort", "n1")], figures({"n1": (5000, 6)}, {"sort": (4000, 5)}))
    assert share.reclaimable == {BATCH_CPU: 7200 - 1000, BATCH_MEMORY: FREE_MEMORY - 5 * GI}


def test_a_percentile_of_the_window_counts_and_use_now_at_least() -> None:
    memory, rules = Memory(), replace(RULES, percentile=0.5, window=600.0)
    for at, cpu in enumerate((1000, 1000, 6000, 1000)):
        [share] = look([node()], of=figures({"n1": (cpu, 1)}), memory=memory, rules=rules, now=60.0 * at)
        assert share.reclaimable == {BATCH_CPU: 7200 - cpu, BATCH_MEMORY: FREE_MEMORY - GI}
    [share] = look([node()], of=figures({"n1": (500, 1)}), memory=memory, rules=replace(rules, percentile=1.0), now=240)
    assert share.reclaimable is not None
    assert share.reclaimable[BATCH_CPU] == 1200
    # Samples leave with the window.
    [share] = look([node()], of=figures({"n1": (500, 1)}), memory=memory, rules=rules, now=2000)
    assert share.reclaimable == {BATCH_CPU: 6700, BATCH_MEMORY: FREE_MEMORY - GI}
    assert len(memory.samples["n1"]) == 1


def test_a_node_without_figures_keeps_what_is_placed_and_comes_back() -> None:
    memory, had = Memory(), published(node(), {BATCH_CPU: 5000, BATCH_MEMORY: 8 * GI})
    pods = [offline("sort", "n1", cpu=2000, gib=3)]
    use = figures({"n1": (2000, 4)}, {"sort": (0, 0)})
    [share] = look([had], pods, use, memory=memory)
    assert (share.held, share.wanted) == ("", {BATCH_CPU: 5200, BATCH_MEMORY: FREE_MEMORY - 4 * GI})
    # One answer that does not come changes nothing.
    [share] = look([had], pods, memory=memory, now=1000 + STALE)
    assert (share.held, share.published and share.published[BATCH_CPU]) == ("", 5000)
    [share] = look([had], pods, memory=memory, now=1001 + STALE)
    assert (share.held, share.wanted) == ("its use is unknown", {BATCH_CPU: 2000, BATCH_MEMORY: 3 * GI})
    [share] = look([had], pods, use, memory=memory, now=1060 + STALE)
    assert share.held == ""
    # Nothing is published where nothing is known.
    [share] = look([node()], pods)
    assert (share.wanted, share.held) == (None, "its use is unknown")


def test_amounts_rise_after_enough_looks_alone_and_fall_at_once() -> None:
    rules, memory = replace(RULES, least=3), Memory()
    [share] = look([node()], of=figures({"n1": (1000, 1)}), rules=rules)
    assert (share.wanted, share.held) == (None, "1 of 3 looks")
    had = published(node(), {BATCH_CPU: 4000, BATCH_MEMORY: 8 * GI})
    for now, cpu, wanted in ((0.0, 1000, 4000), (60.0, 6000, 1200), (120.0, 1000, 1200)):
        [share] = look([had], of=figures({"n1": (cpu, 1)}), rules=rules, memory=memory, now=now)
        assert share.wanted is not None
        assert share.wanted[BATCH_CPU] == wanted
    [share] = look([had], of=figures({"n1": (1000, 1)}), rules=replace(rules, percentile=0.5), memory=memory, now=180.0)
    assert share.wanted is not None
    assert share.wanted[BATCH_CPU] == 6200


def test_small_changes_are_not_written() -> None:
    had = published(node(), {BATCH_CPU: 5000, BATCH_MEMORY: FREE_MEMORY - GI})
    [share] = look([had], of=figures({"n1": (2000, 1)}))
    assert share.wanted == share.published
    [share] = look([had], of=figures({"n1": (1700, 1)}))
    assert share.wanted != share.published


@pytest.mark.parametrize(
    ("labels", "notes", "koordinated", "publisher"),
    [
        ({"volcano.sh/oversubscription": "true"}, {}, False, "Volcano's agent"),
        ({}, {"volcano.sh/oversubscription-cpu": "1000"}, False, "Volcano's agent"),
        ({}, {}, True, "koordlet"),
        ({}, {}, False, "another"),
    ],
    ids=["Volcano's label", "Volcano's annotation", "Koordinator's NodeMetric", "amounts of nobody known"],
)
def test_a_node_on_which_another_agent_publishes_is_left_alone(
    labels: dict[str, str], notes: dict[str, str], koordinated: bool, publisher: str
) -> None:
    found = node(labels=labels, **{BATCH_CPU: "3000"})
    found = replace(found, metadata=replace(found.metadata, annotations=notes))
    [share] = look([found], of=figures({"n1": (0, 0)}), koordinated=frozenset({"n1"} if koordinated else ()))
    assert share.publisher.startswith(publisher)
    assert (share.published, share.wanted) == (None, None)
    # Who changes amounts of ours has them.
    ours = published(node(), {BATCH_CPU: 3000, BATCH_MEMORY: GI})
    theirs = replace(ours, status=replace(ours.status, allocatable={**ours.status.allocatable, BATCH_CPU: "9"}))
    assert [share.publisher[:7] for share in look([ours, theirs])] == ["", "another"]


def test_withdrawn_amounts_go_with_their_pods() -> None:
    had, rules = published(node(), {BATCH_CPU: 5000, BATCH_MEMORY: GI}), replace(RULES, mode="withdraw")
    pods = [offline("sort", "n1")]
    [share] = look([had], pods, rules=rules)
    assert share.wanted == {BATCH_CPU: 1000, BATCH_MEMORY: GI}
    [share] = look([had], rules=rules)
    assert share.wanted == {}
    # A selector that leaves a node withdraws from it; nodes without amounts stay as they are.
    rules = replace(RULES, nodes="offline=yes")
    assert [share.wanted for share in look([had, node("n2")], rules=rules)] == [{}, None]


amounts = st.floats(0, 20_000, allow_nan=False)


@given(
    steps=st.lists(st.tuples(st.none() | amounts, amounts, st.integers(0, 9000), st.booleans()), max_size=8),
    least=st.integers(1, 3),
)
def test_amounts_are_never_below_what_runs_nor_above_it_without_figures(steps: Any, least: int) -> None:
    memory, at = Memory(), node()
    rules = replace(RULES, least=least)
    for number, (cpu, mine, placed, late) in enumerate(steps):
        pods = [offline("sort", "n1", cpu=placed)] if placed else []
        use = UNKNOWN if cpu is None else figures({"n1": (cpu, 1)}, {"sort": (mine, 0)})
        now = number * (400.0 if late else 60.0)
        [share] = look([at], pods, use, memory=memory, rules=rules, now=now)
        if share.wanted:
            assert share.wanted[BATCH_CPU] >= placed
            assert share.wanted[BATCH_CPU] <= max(7200, placed, (share.published or {}).get(BATCH_CPU, 0))
            if share.held:
                assert share.wanted[BATCH_CPU] == placed
            at = published(node(), share.wanted)
