"""Runs of a workload from looks at its binding: none is lost or doubled, whatever is not looked at."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.model.decision import Decision, Line, Phase
from atoll.model.runs import DELETED, EVICTED, Part, Record, Run, Seen, columns, follow, total
from atoll.model.timestamps import rfc3339, to_seconds
from atoll.model.verdict import Reason

START = 1_790_000_000.0


def at(second: float) -> str:
    return rfc3339(START + second)


def part(pods: int = 2, member: str = "alpha") -> Part:
    return Part(member, pods, granted={"nvidia.com/gpu": pods * 4.0})


def dispatched(epoch: int, second: float) -> Decision:
    line = Line(at(second), Phase.DISPATCHED, Reason.DISPATCHED, "to alpha")
    return Decision(epoch, Phase.DISPATCHED, Reason.DISPATCHED, story=[line], dispatched=line.at)


def evicted(before: Decision, second: float, **more: Any) -> Decision:
    line = Line(at(second), Phase.EVICTING, Reason.RECLAIMED, "evicted for b/big")
    return Decision(before.epoch + 1, Phase.EVICTING, Reason.RECLAIMED, story=before.told(line), **more)


def seen(second: float, decision: Decision, **more: Any) -> Seen:
    return Seen(START + second, decision, **{"queue": "q", "user": "ann", **more})


def test_a_workload_that_succeeds_is_one_run_with_all_its_times() -> None:
    sent = dispatched(1, 0)
    runs = follow([], seen(1, sent, parts=[part()]))
    runs = follow(runs, seen(2, sent, parts=[part()], bound=True))
    runs = follow(runs, seen(4, sent, parts=[part()], bound=True, running=True))
    runs = follow(runs, seen(12, sent, parts=[part()], bound=True, running=True, outcome="Succeeded"))
    (run,) = runs
    assert (run.dispatched, run.bound, run.running, run.ended, run.released) == (at(0), at(2), at(4), at(12), at(12))
    assert (run.outcome, run.queue, run.user) == ("Succeeded", "q", "ann")
    assert total(run.parts, "seconds") == {"nvidia.com/gpu": 80.0}
    assert follow(runs, seen(99, sent, outcome="Succeeded")) == runs


def test_an_evicted_run_counts_until_its_last_pod_is_gone_and_names_rule_and_claimant() -> None:
    sent = dispatched(1, 0)
    runs = follow([], seen(0, sent, parts=[part()], bound=True))
    going = evicted(sent, 10, room_for="uid-b")
    runs = follow(runs, seen(10.1, going, claimant=("b/big", "prod")))
    assert (runs[0].ended, runs[0].released) == (at(10), "")
    runs = follow(runs, seen(15, going, gone=True))
    (run,) = runs
    assert (run.outcome, run.reason, run.evicted_for, run.for_queue) == (EVICTED, "Reclaimed", "b/big", "prod")
    assert total(run.parts, "seconds") == {"nvidia.com/gpu": 120.0}


def test_a_run_that_ends_before_its_first_report_counts_from_its_dispatch() -> None:
    (run,) = follow([], seen(3, dispatched(1, 0), parts=[part()], bound=True, outcome="Succeeded"))
    assert (run.bound, total(run.parts, "seconds")) == (at(0), {"nvidia.com/gpu": 24.0})


def test_a_deleted_run_is_closed_with_its_last_work() -> None:
    sent = dispatched(1, 0)
    runs = follow([], seen(0, sent, parts=[part()], bound=True))
    (run,) = follow(runs, seen(9, sent, deleted=at(7), gone=True))
    assert (run.outcome, run.ended, run.released) == (DELETED, at(7), at(9))


def test_a_workload_that_grows_uses_what_it_had_at_each_time() -> None:
    sent = dispatched(1, 0)
    runs = follow([], seen(0, sent, parts=[part(1)], bound=True))
    runs = follow(runs, seen(10, sent, parts=[part(3), part(1, "beta")], bound=True))
    runs = follow(runs, seen(20, sent, parts=[part(2)], bound=True))
    (run,) = follow(runs, seen(30, sent, parts=[part(2)], outcome="Failed"))
    assert {each.member: each.seconds for each in run.parts} == {
        "alpha": {"nvidia.com/gpu": 40.0 + 120.0 + 80.0},
        "beta": {"nvidia.com/gpu": 40.0},
    }


def test_the_last_use_that_a_member_told_stays_through_sizes_and_the_end() -> None:
    """Use alone makes no new size."""
    d = dispatched(1, 0)
    busy = msgspec.structs.replace(part(), busy={"cpu": 1.5})
    runs = follow([], seen(0, d, parts=[part()], bound=True))
    runs = follow(runs, seen(5, d, parts=[busy], bound=True))
    assert (runs[0].parts[0].busy, runs[0].counted) == ({"cpu": 1.5}, at(0))
    runs = follow(runs, seen(10, d, parts=[part(4)], bound=True))
    assert (runs[0].parts[0].busy, runs[0].parts[0].pods) == ({"cpu": 1.5}, 4)
    [run] = follow(runs, seen(20, d, parts=[msgspec.structs.replace(part(4), busy={"cpu": 2.0})], outcome="Succeeded"))
    assert run.parts[0].busy == {"cpu": 2.0}


def test_the_use_of_a_run_is_known_once_that_of_all_its_parts_is() -> None:
    def row(*parts: Part) -> Any:
        run = Run(1, at(0), parts=list(parts))
        return columns(Record("u", "n", "w", "Job.batch", run))["busy"]

    alpha, beta = Part("alpha", busy={"cpu": 1.0}), Part("beta", busy={"cpu": 2.0, "memory": 5.0})
    assert row(alpha, beta) == [("cpu", 3.0), ("memory", 5.0)]
    assert row(alpha, Part("beta")) == []


def test_a_run_whose_eviction_nobody_saw_is_closed_by_the_next_one() -> None:
    first = dispatched(1, 0)
    runs = follow([], seen(0, first, parts=[part()], bound=True))
    going = evicted(first, 5)
    again = msgspec.structs.replace(dispatched(3, 8), story=[*going.story, dispatched(3, 8).story[0]])
    runs = follow(runs, seen(9, again, parts=[part()]))
    assert [(run.epoch, run.ended, run.released) for run in runs] == [(1, at(5), at(9)), (3, "", "")]
    assert runs[1].queued == at(5)


STEPS = st.lists(st.sampled_from(["dispatch", "bind", "run", "evict", "leave", "finish", "delete"]), max_size=40)


@settings(max_examples=300)
@given(STEPS, st.lists(st.booleans(), min_size=40, max_size=40), st.booleans())
def test_each_dispatch_with_a_look_at_it_is_one_run(steps: list[str], looks: list[bool], finally_deleted: bool) -> None:
    """A look may be missing after any step, as while no leader is there; each run that was seen is kept once."""
    decision, state, runs, history = Decision(), dict[str, Any](), list[Run](), dict[int, Run]()
    dispatches: dict[int, str] = {}
    looked_at: set[int] = set()
    over = False
    for second, (step, look) in enumerate(zip(steps, looks, strict=False)):
        charged = decision.phase is Phase.DISPATCHED
        if over:
            break
        match step:
            case "dispatch" if not charged and (decision.phase is Phase.SUSPENDED or state.get("gone")):
                decision = msgspec.structs.replace(
                    dispatched(decision.epoch + 1, second), story=decision.told(dispatched(0, second).story[0])
                )
                dispatches[decision.epoch], state = at(second), {"parts": [part()]}
            case "bind" if charged:
                state |= {"bound": True}
            case "run" if charged and state.get("bound"):
                state |= {"running": True}
            case "evict" if charged:
                decision, state = evicted(decision, second), {}
            case "leave" if decision.phase is Phase.EVICTING:
                state = {"gone": True}
            case "finish" if charged:
                state |= {"outcome": "Succeeded", "bound": True}
                over = True
        if look or over:
            runs = follow(runs, seen(second + 0.5, decision, **state))
            assert runs == follow(runs, seen(second + 0.5, decision, **state)), "a second look changes nothing"
            for run in runs:
                if run.epoch in history and history[run.epoch].released:
                    assert run == history[run.epoch], "a closed run never changes"
                history[run.epoch] = run
            if decision.epoch in dispatches:
                looked_at.add(decision.epoch)
    if finally_deleted:
        runs = follow(runs, seen(100, decision, deleted=at(99), gone=True))
        assert all(run.released for run in runs)
        history |= {run.epoch: run for run in runs}
    assert history.keys() == looked_at
    assert [run.epoch for run in runs] == sorted(history)[-16:]
    assert all(run.released for run in runs[:-1])
    for run in history.values():
        assert run.dispatched == dispatches[run.epoch]
        held = to_seconds(run.counted) - to_seconds(run.bound) if run.bound else 0.0
        assert abs(total(run.parts, "seconds").get("nvidia.com/gpu", 0.0) - 8 * held) < 1e-6
