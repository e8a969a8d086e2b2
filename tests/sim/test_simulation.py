"""Small runs whose times can be worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll.agent.objects import Pod
from atoll.dispatcher.core import QueueView
from atoll.model.gang import TopologyWish
from atoll.model.lost import OnLost
from atoll.model.objects import Meta
from atoll.model.queues import Strategy
from atoll.model.verdict import Reason
from atoll.sim import metrics
from atoll.sim.inputs import InputError
from atoll.sim.jobs import GPU, Job
from atoll.sim.member import Delays, SimMember
from atoll.sim.presence import Outage
from atoll.sim.simulation import START, Options, Simulation
from atoll.sim.timeline import Timeline
from tests.sim.builders import DELAYS, START_UP, by_name, make_job, make_member, simulate, starts, with_members


class Seen:
    """Remembers what a member says of bound pods."""

    def __init__(self) -> None:
        self.pods: list[tuple[str, int]] = []

    def bound(self, member: str, uid: str, epoch: int, generation: int, nodes: Mapping[str, int]) -> None:
        self.pods.append((uid, sum(nodes.values())))

    def published(self, *args: Any) -> None: ...
    def answered(self, *args: Any) -> None: ...
    def released(self, *args: Any) -> None: ...
    def occupied(self, *args: Any) -> None: ...


def test_a_job_starts_after_the_delays_of_its_way_and_runs_its_duration() -> None:
    run = simulate([make_member()], [make_job("a", 5.0, 100.0)])
    record = by_name(run.journal)["a"]
    assert record.first_start == pytest.approx(5.0 + START_UP, abs=1e-6)
    assert record.finished == pytest.approx(105.0 + START_UP, abs=1e-6)
    assert run.host.writes == {"Dispatch": 1}
    assert not run.host.views, "what is over is forgotten"


def test_a_job_that_waits_starts_when_the_freed_room_is_published() -> None:
    run = simulate([make_member()], [make_job("a", 0.0, 100.0, gpu=8), make_job("b", 1.0, 10.0, gpu=8)])
    seen = START_UP + 100.0 + DELAYS.publish
    assert starts(run)["b"] == pytest.approx(seen + START_UP, abs=1e-6)


def test_a_gang_starts_when_all_of_its_pods_have_nodes() -> None:
    run = simulate(
        [make_member(nodes=2)],
        [make_job("small", 0.0, 50.0, gpu=8), make_job("gang", 1.0, 10.0, pods=2, gpu=8), make_job("other", 2.0, 5.0)],
    )
    times = starts(run)
    assert times["other"] == pytest.approx(2.0 + START_UP, abs=1e-6)
    assert times["gang"] is not None
    assert times["gang"] > 50.0
    assert by_name(run.journal)["gang"].evictions == []


def test_an_elastic_job_grows_and_shrinks() -> None:
    """1. It starts with 3 of 6 pods beside another. 2. That ends: it grows. 3. A third one takes what it needs."""
    run = simulate(
        [make_member()],
        [
            make_job("other", 0.0, 50.0, gpu=5),
            make_job("wide", 1.0, 100.0, pods=6, least=2),
            make_job("third", 60.0, 10.0, gpu=4),
        ],
    )
    assert starts(run)["wide"] == pytest.approx(1.0 + START_UP, abs=1e-6)
    assert starts(run)["third"] == pytest.approx(60.0, abs=1.0)
    # Grown by three, shrunk by two, grown by two.
    assert run.host.writes["Resize"] == 3
    assert by_name(run.journal)["wide"].evictions == []


def test_a_gang_with_a_hard_topology_stays_in_one_rack() -> None:
    wish = TopologyWish("hard", 1)
    run = simulate(
        [make_member("racks", nodes=4, tiers=(2, 2))],
        [
            make_job("first", 0.0, 100.0, gpu=8),
            make_job("gang", 1.0, 10.0, pods=2, gpu=8, topology=wish),
            make_job("too-large", 2.0, 10.0, pods=3, gpu=8, topology=wish),
        ],
    )
    assert starts(run)["gang"] == pytest.approx(1.0 + START_UP, abs=1e-6)
    assert starts(run)["too-large"] is None


def test_a_divided_gang_is_held_in_both_members_before_it_starts() -> None:
    run = simulate([make_member("a"), make_member("b")], [make_job("wide", 0.0, 10.0, pods=2, gpu=8, divided=True)])
    record = by_name(run.journal)["wide"]
    assert record.members == ("a", "b")
    assert run.host.writes == {"Dispatch": 1, "Commit": 1}
    answered = DELAYS.coalesce + DELAYS.write + DELAYS.delivery + DELAYS.report
    assert record.first_start == pytest.approx(answered + START_UP, abs=1e-6)
    assert record.finished == pytest.approx(answered + START_UP + 10.0, abs=1e-6)


def test_members_are_asked_before_work_is_evicted() -> None:
    """The question costs a way to the member and back; then the pods end within their grace."""
    run = simulate(
        [make_member()], [make_job("low", 0.0, 500.0, gpu=8), make_job("high", 100.0, 10.0, gpu=8, priority=1)]
    )
    assert run.host.writes["Ask"] == 1
    assert by_name(run.journal)["low"].evictions == [Reason.PREEMPTED]
    assert starts(run)["high"] == pytest.approx(100.0 + DELAYS.grace, abs=1.0)
    assert by_name(run.journal)["low"].finished is not None


def test_no_victim_is_evicted_where_the_member_knows_better() -> None:
    """Somebody else's pod is there that no figure tells of yet: without it one victim would be enough."""
    jobs = [make_job("low", 0.0, 500.0, gpu=4), make_job("high", 100.0, 10.0, gpu=8, priority=1)]
    run = Simulation([make_member()], [QueueView("q", {})], jobs, GPU, Options(verify=True))
    [node] = run.members["m"].room.fleet.ready()
    foreign = Pod(Meta("foreign", "default", "f"), requests={GPU: 1, "pods": 1}, node=node.metadata.name)
    run.timeline.at(START + 99.0, lambda: run.members["m"].room.pod_changed(None, foreign))
    run.run()
    record = by_name(run.journal)["low"]
    assert (record.evictions, run.host.writes["Ask"]) == ([], 1)
    assert record.finished == pytest.approx(500.0 + START_UP, abs=1e-6)
    assert starts(run)["high"] is None


def test_an_elastic_job_is_asked_about_by_what_it_keeps() -> None:
    jobs = [make_job("wide", 0.0, 100.0, pods=8, least=2), make_job("third", 60.0, 10.0, gpu=4)]
    run = simulate([make_member()], jobs)
    assert (run.host.writes["Ask"], run.host.writes["Resize"] >= 1) == (1, True)
    assert starts(run)["third"] == pytest.approx(60.0, abs=1.0)


def test_an_elastic_part_starts_with_what_there_is_and_grows() -> None:
    timeline, seen = Timeline(), Seen()
    member = SimMember(make_member(), timeline, DELAYS, seen)
    for day, uid, pods, least, gpu in ((1, "full", 1, 1, 6), (2, "elastic", 8, 2, 1)):
        gang = make_job(uid, 0.0, 1.0, pods=pods, least=least, gpu=gpu).gang(0.0)
        member.start(uid, 1, gang, "default", uid, f"2026-01-0{day}T00:00:00Z")

    def ends() -> None:
        member.finish("full")

    timeline.after(10.0, ends)
    timeline.run()
    assert seen.pods == [("full", 1), ("elastic", 2), ("elastic", 8)]
    member.verify()


def test_work_in_a_lost_member_is_evicted_and_starts_over_elsewhere() -> None:
    jobs = [make_job("a", 0.0, 100.0, clusters=("east", "west"))]
    outage = Outage("east", 50.0, 500.0)
    run = simulate(
        [make_member("east"), make_member("west")], jobs, outages=(outage,), lost=OnLost.REQUEUE, toleration=30.0
    )
    record = by_name(run.journal)["a"]
    assert record.evictions == ["MemberLost"]
    assert record.members == ("west",)
    assert record.started == pytest.approx(80.0 + START_UP, abs=0.5)
    assert record.finished == pytest.approx(180.0 + START_UP, abs=0.5)


@pytest.mark.parametrize(
    ("begin", "end", "evictions", "finished"),
    [
        # The fence ends it at 110; 30 s for its pods and 10 s later it may run elsewhere.
        pytest.param(50.0, 500.0, ["MemberLost"], 150.0 + 100.0 + START_UP, id="elsewhere after the fence"),
        pytest.param(50.0, 100.0, [], 100.0 + START_UP, id="back before the fence"),
        # It ended there while the host could not see it, and says so at the return.
        pytest.param(50.0, 120.0, [], 120.0, id="back after the fence, which found nothing to end"),
        pytest.param(20.0, 90.0, ["Evicted"], 90.0 + 100.0 + START_UP, id="back after the fence that ended it"),
    ],
)
def test_exclusive_work_in_a_lost_member_is_never_elsewhere_before_the_fence(
    begin: float, end: float, evictions: list[str], finished: float
) -> None:
    run = simulate(
        [make_member("east"), make_member("west")],
        [make_job("a", 0.0, 100.0 if end != 120.0 else 55.0, clusters=("east", "west"))],
        outages=(Outage("east", begin, end),),
        lost=OnLost.EXCLUSIVE,
    )
    record = by_name(run.journal)["a"]
    assert record.evictions == evictions
    assert record.finished == pytest.approx(finished, abs=1.0)


def test_each_job_of_a_lost_member_follows_its_own_rule() -> None:
    rules: dict[str, dict[str, Any]] = {
        "waits": {"on_lost": OnLost.WAIT},
        "soon": {"on_lost": OnLost.REQUEUE, "toleration": 10.0},
        "late": {"on_lost": OnLost.EXCLUSIVE},
        "usual": {},
    }
    jobs = [make_job(name, 0.0, 100.0, clusters=("east", "west"), **rule) for name, rule in rules.items()]
    run = simulate(
        [make_member("east"), make_member("west")], jobs, outages=(Outage("east", 50.0, 500.0),), lost=OnLost.REQUEUE
    )
    found = by_name(run.journal)
    assert found["waits"].evictions == []
    for name, begun in {"soon": 60.0, "usual": 110.0, "late": 150.0}.items():
        assert found[name].evictions == ["MemberLost"]
        assert found[name].finished == pytest.approx(begun + 100.0 + START_UP, abs=1.0)


def test_an_elastic_job_goes_on_without_its_part_in_a_lost_member() -> None:
    wide = make_job("a", 0.0, 100.0, pods=12, gpu=1, least=4, divided=True)
    run = simulate(
        [make_member("east"), make_member("west")], [wide], outages=(Outage("east", 50.0, 500.0),), lost=OnLost.REQUEUE
    )
    record = by_name(run.journal)["a"]
    assert record.evictions == []
    assert record.finished == pytest.approx(110.0 + START_UP, abs=1.0)


def test_a_drain_moves_one_job_after_the_other_and_a_cordon_none() -> None:
    jobs = [make_job(name, 0.0, 100.0, clusters=("east",)) for name in ("a", "b")]
    jobs = [*jobs, make_job("late", 60.0, 10.0, clusters=("east",))]
    members = [make_member("east"), make_member("west")]
    cordoned = simulate(members, jobs, cordons=(Outage("east", 50.0, 200.0),))
    assert [by_name(cordoned.journal)[name].evictions for name in ("a", "b")] == [[], []]
    assert starts(cordoned)["late"] == pytest.approx(200.0 + START_UP, abs=1.0)
    drained = simulate(members, jobs, drains=(Outage("east", 50.0, 200.0),))
    assert [by_name(drained.journal)[name].evictions for name in ("a", "b")] == [["MemberDrained"]] * 2
    assert starts(drained)["late"] == pytest.approx(200.0 + START_UP, abs=1.0)


@pytest.mark.parametrize(
    ("end", "evictions", "finished"),
    [
        pytest.param(60.0, [], 70.0 + START_UP, id="returns while it runs, before it is given up"),
        pytest.param(75.0, [], 75.0, id="returns after it has ended, before it is given up"),
        # Nothing else may take it meanwhile, and it starts over once its old pods are gone.
        pytest.param(90.0, ["MemberLost"], 90.0 + START_UP + 70.0, id="returns after it was given up"),
    ],
)
def test_work_in_a_lost_member_runs_on_until_that_returns(end: float, evictions: list[str], finished: float) -> None:
    run = simulate(
        [make_member()],
        [make_job("a", 0.0, 70.0)],
        outages=(Outage("m", 50.0, end),),
        lost=OnLost.REQUEUE,
        toleration=30.0,
    )
    record = by_name(run.journal)["a"]
    assert record.evictions == evictions
    assert record.finished == pytest.approx(finished, abs=0.5)


def test_a_member_that_returns_gets_nothing_before_what_is_stale_there_is_gone() -> None:
    jobs = [
        make_job("a", 0.0, 300.0, gpu=8, clusters=("east", "west")),
        make_job("b", 90.0, 10.0, gpu=8, clusters=("east",)),
    ]
    run = simulate(
        [make_member("east"), make_member("west")],
        jobs,
        outages=(Outage("east", 50.0, 100.0),),
        lost=OnLost.REQUEUE,
        toleration=20.0,
        delays=Delays(grace=15.0),
    )
    found = by_name(run.journal)
    assert found["a"].members == ("west",)
    assert found["a"].started == pytest.approx(70.0 + START_UP, abs=0.5)
    assert starts(run)["b"] == pytest.approx(115.0 + START_UP, abs=0.5)


@pytest.mark.parametrize(
    ("tolerated", "times"),
    [
        pytest.param(0.0, 1, id="not tolerated: elsewhere at once"),
        # As pods of Kubernetes do, it goes there again while it tolerates that.
        pytest.param(40.0, 2, id="tolerated for a while, each time"),
        pytest.param(200.0, 0, id="tolerated for longer than it runs"),
    ],
)
def test_a_taint_evicts_what_does_not_tolerate_it_any_longer(tolerated: float, times: int) -> None:
    run = simulate(
        [make_member("east"), make_member("west")],
        [make_job("a", 0.0, 100.0, clusters=("east", "west"))],
        taints=(Outage("east", 50.0, 150.0),),
        tolerated=tolerated,
    )
    assert by_name(run.journal)["a"].evictions == ["MemberTainted"] * times


def test_a_checkpoint_saves_work_from_a_lost_member() -> None:
    outage = Outage("east", 50.0, 500.0)
    members = [make_member("east"), make_member("west")]
    run = simulate(
        members, [make_job("a", 0.0, 100.0)], outages=(outage,), lost=OnLost.REQUEUE, toleration=0.0, checkpoint=20.0
    )
    assert by_name(run.journal)["a"].finished == pytest.approx(50.0 + START_UP + 60.0, abs=0.1)


def test_work_that_goes_on_in_a_lost_member_is_seen_when_it_is_back() -> None:
    run = simulate([make_member()], [make_job("a", 0.0, 100.0)], outages=(Outage("m", 50.0, 500.0),))
    record = by_name(run.journal)["a"]
    assert record.evictions == []
    assert record.finished == pytest.approx(100.0 + START_UP, abs=1e-6)
    assert not run.host.views


def test_an_outage_of_an_unknown_member_is_refused() -> None:
    with pytest.raises(InputError, match="no such member; there are m"):
        Simulation([make_member()], [], [], "pods", Options(outages=(Outage("x", 0, 1),)))


@pytest.mark.parametrize("text", ["east", "east:5", "east:9:5", ":1:2", "east:a:b"])
def test_an_outage_that_can_not_be_read_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="MEMBER:FROM:TO"):
        Outage.parse(text)


def test_an_outage_is_read() -> None:
    assert Outage.parse("east:600:1200.5") == Outage("east", 600.0, 1200.5)


def test_a_job_that_fits_nowhere_does_not_keep_the_run_going() -> None:
    run = simulate([make_member()], [make_job("huge", 0.0, 10.0, pods=9, gpu=8), make_job("a", 1.0, 10.0)])
    assert starts(run)["huge"] is None
    assert run.journal.end < 3600


def test_the_end_is_that_of_the_work_though_others_wait_for_ever() -> None:
    jobs = [make_job("a", 0.0, 100.0, gpu=8), make_job("huge", 50.0, 10.0, pods=9, gpu=8)]
    for queue in (QueueView("q", {}), QueueView("q", {}, strategy=Strategy.BACKFILL)):
        run = simulate([make_member()], jobs, queues=[queue])
        over = by_name(run.journal)["a"].finished
        assert over == pytest.approx(100.0 + START_UP, abs=1e-6)
        assert run.journal.end == over
        whole = metrics.report(run.journal, [queue])["utilisation"]["whole"]
        assert whole == pytest.approx(100.0 / over, abs=1e-6)


def test_a_run_that_has_no_more_work_is_not_cut_off() -> None:
    run = simulate([make_member()], [make_job("a", 0.0, 10.0), make_job("huge", 1.0, 10.0, gpu=9)], until=1e6)
    assert run.journal.end == by_name(run.journal)["a"].finished


def test_the_end_is_not_before_the_last_submission() -> None:
    run = simulate([make_member()], [make_job("a", 0.0, 10.0), make_job("huge", 500.0, 10.0, gpu=9)])
    assert run.journal.end == 500.0


def test_jobs_that_never_started_are_counted_by_the_reason_of_the_core() -> None:
    trace = [
        make_job("runs", 0.0, 10.0),
        make_job("typo", 1.0, 10.0, queue="p"),
        make_job("closed", 2.0, 10.0, queue="shut"),
        make_job("parent", 3.0, 10.0, queue="top"),
        make_job("large", 4.0, 10.0, gpu=9),
        make_job("larger", 5.0, 10.0, gpu=10),
        with_members(make_job("elsewhere", 6.0, 10.0), "mars"),
        make_job("capped", 7.0, 10.0, gpu=2, queue="small"),
    ]
    queues = [
        QueueView("q", {}),
        QueueView("shut", {}, open=False),
        QueueView("top", {}),
        QueueView("small", {GPU: 1}, parent="top"),
    ]
    run = simulate([make_member()], trace, queues=queues)
    found = metrics.report(run.journal, queues)
    assert found["jobs"]["never_started"] == 7
    assert {reason: (each["jobs"], each["example"]) for reason, each in found["never_started"].items()} == {
        "InsufficientResources": (2, "default/large"),
        "NoClusterMatches": (1, "default/elsewhere"),
        "QueueClosed": (1, "default/closed"),
        "QueueNotFound": (1, "default/typo"),
        "QueueNotLeaf": (1, "default/parent"),
        "QuotaExceeded": (1, "default/capped"),
    }
    assert found["never_started"]["QueueNotFound"]["message"] == "its queue does not exist: queue p"
    assert next(iter(found["never_started"])) == "InsufficientResources", "the most frequent first"


def test_jobs_that_were_cut_off_say_what_stopped_them() -> None:
    jobs = [make_job("a", 0.0, 100.0, gpu=8), make_job("b", 1.0, 1.0), make_job("c", 49.9999, 1.0)]
    found = metrics.report(simulate([make_member()], jobs, until=50.0).journal, [])
    assert {reason: each["example"] for reason, each in found["never_started"].items()} == {
        "InsufficientResources": "default/b",
        "Submitted": "default/c",
    }


def test_a_run_is_cut_off_where_it_is_told_to() -> None:
    run = simulate([make_member()], [make_job("a", 0.0, 100.0), make_job("b", 200.0, 1.0)], until=50.0)
    assert run.journal.end == 50.0
    assert len(run.journal.records) == 1


JOBS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(1, 4), st.sampled_from([1, 2, 4, 8]), st.booleans()),
    min_size=1,
    max_size=12,
)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(jobs=JOBS, outage=st.none() | st.tuples(st.integers(0, 40), st.integers(1, 40)), lost=st.sampled_from(OnLost))
def test_nothing_is_lost_or_overbooked_whatever_comes(
    jobs: list[tuple[int, int, int, int, bool]], outage: tuple[int, int] | None, lost: OnLost
) -> None:
    made: list[Job] = [
        make_job(
            f"j{n}", float(submit), float(duration), pods=pods, gpu=gpu, divided=divided, on_lost=[None, *OnLost][n % 4]
        )
        for n, (submit, duration, pods, gpu, divided) in enumerate(sorted(jobs))
    ]
    outages = () if outage is None else (Outage("m1", float(outage[0]), float(sum(outage))),)
    members = [make_member("m1", nodes=2), make_member("m2", nodes=3)]
    run = simulate(members, made, outages=outages, lost=lost, fence=5.0, delays=Delays(grace=0.5))
    # Both members hold any of these gangs when they are empty, alone or together.
    for record in run.journal.records.values():
        if record.size <= 24:
            assert record.finished is not None, f"{record.job.name} is not over"
    assert all(used <= 40 for used in run.journal.whole.used)
    assert not run.journal.whole.used or run.journal.whole.used[-1] == 0
