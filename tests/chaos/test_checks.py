"""Every check of the chaos suite passes what is right, and sees a log that was doctored."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from atoll.model.decision import Phase
from atoll.model.verdict import Reason
from tests.chaos import checks, drive, plan
from tests.chaos.faults import Kind, deal, deck
from tests.chaos.history import EPOCH_S, History
from tests.chaos.plan import Act, Submission
from tests.chaos.player import recoveries
from tests.chaos.record import Facts, Span
from tests.chaos.run import Outcome
from tests.faults.play import Fault
from tests.kube.servers import client

GANG = Submission("gang-1", "q", pods=2, gpus=4, seconds=1)
OTHER = Submission("gang-2", "q", pods=2, gpus=4, seconds=1)
HELD = Submission("gang-3", "q", pods=2, gpus=4, seconds=1, acts=((0.1, Act.HOLD),))
DONE = {"state": {"phase": "Completed"}, "succeeded": 2}


def honest() -> History:
    """Two gangs, one after the other in a queue that holds one, and one that is held."""
    history = History(GANG, OTHER, HELD)
    history.binding(1, "gang-1", 1, ("alpha", 2))
    for index in range(2):
        history.pod("gang-1", index, created=1.1, bound=1.2, ended=2)
    history.binding(2.1, "gang-1", 1, ("alpha", 2), conditions=["Bound", "Finished"], raises=False)
    history.status(2.2, "gang-1", "Completed")
    history.binding(3, "gang-2", 1, ("alpha", 2))
    for index in range(2):
        history.pod("gang-2", index, created=3.1, bound=3.2, ended=4)
    history.binding(4.1, "gang-2", 1, ("alpha", 2), conditions=["Bound", "Finished"], raises=False)
    history.binding(3, "gang-3", 0, phase=Phase.SUSPENDED, reason=Reason.HELD, hold=True, raises=False)
    history.final = {"gang-1": DONE, "gang-2": DONE, "gang-3": {"state": {"phase": "Pending", "reason": "Held"}}}
    return history


def test_an_elastic_gang_may_have_another_size() -> None:
    wide = Submission("gang-1", "q", pods=4, gpus=1, seconds=1, minimum=2)
    history = History(wide)
    for at, pods in ((1, 2), (2, 4), (3, 2)):
        history.binding(at, "gang-1", 1, ("alpha", pods), raises=at == 1)
    assert list(checks.decisions_kept(history.record())) == []
    history.binding(4, "gang-1", 1, ("alpha", 1), raises=False)
    assert len(list(checks.decisions_kept(history.record()))) == 1


@pytest.mark.parametrize(
    ("back", "again", "led", "violations"),
    [
        pytest.param(3, False, False, 0, id="back at once"),
        pytest.param(60, False, False, 1, id="back late"),
        pytest.param(60, False, True, 0, id="another dispatcher led"),
        pytest.param(3, True, False, 1, id="moved twice"),
    ],
)
def test_a_moved_gang_is_back_at_once_and_moves_once(back: float, again: bool, led: bool, violations: int) -> None:
    history = History(GANG)
    history.binding(1, "gang-1", 1, ("alpha", 2), conditions=["Bound"])
    history.binding(2, "gang-1", 2, phase=Phase.EVICTING, reason=Reason.MOVED)
    history.binding(back, "gang-1", 3, ("beta", 2))
    if again:
        history.binding(70, "gang-1", 4, phase=Phase.EVICTING, reason=Reason.MOVED)
        history.binding(71, "gang-1", 5, ("beta", 2))
    if led:
        history.faults.append(Span("killed (dispatcher)", "dispatcher", EPOCH_S + 2, EPOCH_S + 2))
    assert len(list(checks.moved_have_places(history.record()))) == violations
    assert list(checks.decisions_kept(history.record())) == []


@pytest.mark.parametrize(("least", "violations"), [(1, 0), (2, 1)], ids=["shrunk", "never smaller"])
def test_a_pod_is_made_again_only_where_its_gang_had_shrunk(least: int, violations: int) -> None:
    history = History(Submission("gang-1", "q", pods=2, gpus=1, seconds=1, minimum=1))
    for at, pods in ((1, 2), (2, least), (4, 2)):
        history.binding(at, "gang-1", 1, ("alpha", pods), raises=at == 1)
    history.pod("gang-1", 0, created=1.1, bound=1.2, ended=5)
    history.pod("gang-1", 1, created=1.1, bound=1.2, gone=2.1)
    history.pod("gang-1", 1, created=4.1, bound=4.2, ended=5, uid="again")
    history.final = {"gang-1": DONE}
    assert len(list(checks.ran_once(history.record()))) == violations


@pytest.mark.parametrize(("answered", "violations"), [(False, 0), (True, 1)], ids=["released", "still held"])
def test_a_release_whose_answer_was_lost_lets_a_held_gang_go(answered: bool, violations: int) -> None:
    history = History(GANG)
    history.binding(1, "gang-1", 0, phase=Phase.SUSPENDED, reason=Reason.HELD, hold=True, raises=False)
    if not answered:
        history.unanswered(2, "gang-1")
    history.binding(40, "gang-1", 1, ("alpha", 2), hold=answered)
    assert len(list(checks.held_stays_held(history.record()))) == violations


def test_a_hold_begins_with_the_write_that_brought_it() -> None:
    history = History(GANG)
    history.binding(1, "gang-1", 0, phase=Phase.SUSPENDED, raises=False)
    history.unanswered(2, "gang-1")
    history.binding(40, "gang-1", 1, ("alpha", 2), hold=True)
    assert list(checks.held_stays_held(history.record())) == []


@pytest.mark.parametrize(("written", "violations"), [(2.5, 0), (3.5, 1)], ids=["before the next one", "after it"])
def test_an_end_whose_answer_was_lost_gives_quota_back(written: float, violations: int) -> None:
    history = History(dataclasses.replace(GANG, batch=True), OTHER)
    history.binding(1, "gang-1", 1, ("alpha", 2))
    history.unanswered(written, "gang-1")
    history.binding(3, "gang-2", 1, ("beta", 2))
    history.binding(9, "gang-1", 1, ("alpha", 2), conditions=["Finished"], deleted=True, raises=False)
    assert len(list(checks.within_capability(history.record()))) == violations


@pytest.mark.parametrize(("written", "violations"), [(2, 0), (4, 1)], ids=["in between", "after it"])
def test_a_dispatch_whose_answer_was_lost_has_an_epoch(written: float, violations: int) -> None:
    history = History(GANG)
    history.binding(1, "gang-1", 0, phase=Phase.SUSPENDED, raises=False)
    history.unanswered(written, "gang-1")
    history.binding(3, "gang-1", 2, phase=Phase.EVICTING, reason=Reason.DEADLINE_EXCEEDED)
    history.binding(9, "gang-1", 2, phase=Phase.SUSPENDED, raises=False)
    assert len(list(checks.decided_once(history.record()))) == violations


def moved_on(*, exclusive: bool = False, moves: bool = False) -> History:
    """1. gang-1 runs in alpha; 2. alpha is lost, and gang-1 goes back to its queue; 3. alpha still runs its pods."""
    history = History(dataclasses.replace(GANG, exclusive=exclusive, moves=moves), OTHER)
    history.binding(1, "gang-1", 1, ("alpha", 2))
    for index in range(2):
        history.pod("gang-1", index, created=1.1, bound=1.2, gone=9)
    history.binding(2, "gang-1", 2, phase=Phase.EVICTING, reason=Reason.MEMBER_LOST)
    history.gives_up(2.5, "gang-1")
    history.binding(2.6, "gang-1", 2, phase=Phase.SUSPENDED, reason=Reason.MEMBER_LOST, raises=False)
    return history


def dispatched_beside(history: History) -> list[str]:
    history.binding(3, "gang-2", 1, ("beta", 2))
    return [each.workload for each in checks.within_capability(history.record())]


def test_pods_that_a_lost_member_still_runs_are_not_charged() -> None:
    assert dispatched_beside(moved_on()) == []


def test_pods_of_what_is_exclusive_are_charged_for_as_long_as_they_live() -> None:
    assert dispatched_beside(moved_on(exclusive=True)) == ["gang-2"]


def test_pods_of_an_older_epoch_are_charged_in_a_member_that_was_not_given_up() -> None:
    history = moved_on()
    history.pod("gang-1", 0, cluster="beta", created=1.1, bound=1.2, gone=9)
    assert dispatched_beside(history) == ["gang-2"]


def test_a_workload_that_runs_again_elsewhere_is_charged_once() -> None:
    history = moved_on(moves=True)
    history.binding(3, "gang-1", 3, ("beta", 2))
    for index in range(2):
        history.pod("gang-1", index, epoch=3, cluster="beta", created=3.1, bound=3.2, ended=4)
    assert list(checks.within_capability(history.record())) == []


@pytest.mark.parametrize(("at", "violations"), [(2.55, 0), (2.45, 1)], ids=["after the outage", "before"])
def test_a_mark_that_went_with_the_hosts_log_is_told_by_the_eviction(at: float, violations: int) -> None:
    history = History(GANG, OTHER)
    history.binding(1, "gang-1", 1, ("alpha", 2))
    history.pod("gang-1", 0, created=1.1, bound=1.2, gone=9)
    history.binding(2, "gang-1", 2, phase=Phase.EVICTING, reason=Reason.MEMBER_LOST)
    history.fault("outage (host)", 2.5, 2.55)
    history.binding(at, "gang-2", 1, ("beta", 2))
    assert len(list(checks.within_capability(history.record()))) == violations


@pytest.mark.parametrize(
    ("batch", "failed", "violations"),
    [(False, True, 0), (True, True, 1), (True, False, 0)],
    ids=["an ended pod of a gang", "a failed pod that is made again", "an ended pod of a Job"],
)
def test_ended_pods_give_their_quota_back_unless_they_are_made_again(
    *, batch: bool, failed: bool, violations: int
) -> None:
    small = dataclasses.replace(OTHER, pods=1)
    history = History(dataclasses.replace(GANG, batch=batch), small)
    history.binding(1, "gang-1", 1, ("alpha", 2))
    history.pod("gang-1", 0, created=1.1, bound=1.2, ended=2, failed=failed)
    history.pod("gang-1", 1, created=1.1, bound=1.2, ended=9)
    history.binding(3, "gang-2", 1, ("beta", 1))
    assert len(list(checks.within_capability(history.record()))) == violations


@pytest.mark.parametrize(
    ("gone", "fault", "violations"),
    [(39, (0, 0), 0), (41, (0, 0), 1), (41, (15, 20), 0), (None, (0, 0), 1)],
    ids=["in time", "too late", "a fault meanwhile", "never"],
)
def test_pods_of_what_was_given_up_go_once_their_member_is_back(
    gone: float | None, fault: tuple[float, float], violations: int
) -> None:
    history = History(GANG)
    history.pod("gang-1", 0, created=1, bound=1.2, gone=gone)
    history.gives_up(2, "gang-1")
    for at in (1.5, 10, 100):
        history.heard(at)
    if fault[1]:
        history.fault("killed (agent-alpha)", *fault)
    assert len(list(checks.lost_pods_go(history.record()))) == violations


def early(history: History) -> None:
    """The second gang is decided while the first one's pods run."""
    history.binding(1.5, "gang-2", 1, ("beta", 2))


def crowded(history: History) -> None:
    history.pod("gang-3", 0, created=1.2, bound=1.3, gone=1.9)


def half(history: History) -> None:
    history.binding(10, "gang-3", 1, ("beta", 2))
    history.pod("gang-3", 0, cluster="beta", created=10, bound=11)
    history.pod("gang-3", 1, cluster="beta", created=10, bound=50)


def beside(history: History) -> None:
    history.pod("gang-1", 0, epoch=2, cluster="beta", created=1.9, gone=1.95)


def lingering(history: History) -> None:
    history.pod("gang-3", 0, cluster="beta", created=1, bound=1, gone=60)
    history.gives_up(2, "gang-3", cluster="beta")
    history.heard(5, "beta")


def twice(history: History) -> None:
    history.binding(1.01, "gang-1", 1, ("alpha", 2))


def leapt(history: History) -> None:
    history.binding(5, "gang-1", 3, ("alpha", 2))


def moved(history: History) -> None:
    history.binding(1.3, "gang-1", 1, ("beta", 2), raises=False)


def taken(history: History) -> None:
    history.binding(2.15, "gang-1", 2, phase=Phase.EVICTING, reason=Reason.DEADLINE_EXCEEDED)


def homeless(history: History) -> None:
    history.binding(1.5, "gang-1", 2, phase=Phase.EVICTING, reason=Reason.MOVED)
    history.binding(60, "gang-1", 3, ("alpha", 2))


def unheld(history: History) -> None:
    history.binding(9, "gang-3", 1, ("beta", 2), hold=True)


def runs_on(history: History) -> None:
    history.pod("gang-3", 0, cluster="beta", created=9, bound=9)


def vanished(history: History) -> None:
    history.final["gang-2"] = None


def unexplained(history: History) -> None:
    history.final["gang-3"] = {"state": {"phase": "Pending"}}


def unfinished(history: History) -> None:
    history.final["gang-2"] = {"state": {"phase": "Running"}}


def miscounted(history: History) -> None:
    history.final["gang-2"] = {"state": {"phase": "Completed"}, "succeeded": 3}


def again(history: History) -> None:
    history.pod("gang-2", 0, created=4.2, bound=4.3, ended=4.4, uid="another")


def fewer(history: History) -> None:
    history.binding(5, "gang-3", 1, ("beta", 2))
    history.pod("gang-3", 0, cluster="beta", created=5, bound=5, ended=6)
    history.final["gang-3"] = DONE


def undone(history: History) -> None:
    history.status(5, "gang-1", "Running")


def kept_quota(history: History) -> None:
    history.unreturned.append("probe-queue-q: not completed within 60 s")


def astray(history: History) -> None:
    history.astray.append("service-1: 2 pods in one member expected: {'alpha': 2, 'beta': 2}")


def left_over(history: History) -> None:
    history.left.append("alpha/pods/gang-1-worker-0")


DOCTORED: dict[str, tuple[Callable[[History], None], str]] = {
    "a queue above its capability": (early, "within capability"),
    "a node above its capacity": (crowded, "within nodes"),
    "a gang bound in part for too long": (half, "gangs whole"),
    "pods of two epochs together": (beside, "one epoch at a time"),
    "pods that a member keeps once it is back": (lingering, "lost pods go"),
    "an epoch decided twice": (twice, "decided once"),
    "an epoch left out": (leapt, "decided once"),
    "a decision changed": (moved, "decisions kept"),
    "a bound gang taken back": (taken, "decisions kept"),
    "a moved gang without a place": (homeless, "moved have places"),
    "a held gang dispatched": (unheld, "held stays held"),
    "a held gang that runs at the end": (runs_on, "held stays held"),
    "a workload that is gone": (vanished, "nothing lost"),
    "a held workload that does not say so": (unexplained, "nothing lost"),
    "a workload that never completed": (unfinished, "nothing lost"),
    "a count that is wrong": (miscounted, "nothing lost"),
    "a pod that ran twice": (again, "ran once"),
    "a pod that never ran": (fewer, "ran once"),
    "a final status that is left": (undone, "final stays final"),
    "a quota that is not returned": (kept_quota, "all returned"),
    "a service in two members": (astray, "services run"),
    "a pod that is left over": (left_over, "nothing left"),
}


def test_an_honest_log_has_no_violations() -> None:
    assert checks.judge(honest().record()) == []


@pytest.mark.parametrize("name", DOCTORED)
def test_a_doctored_log_is_seen(name: str) -> None:
    doctor, check = DOCTORED[name]
    history = honest()
    doctor(history)
    assert check in {violation.check for violation in checks.judge(history.record())}


def test_every_check_is_shown_to_fail() -> None:
    shown = {check for _, check in DOCTORED.values()}
    assert shown == {check.__name__.replace("_", " ") for check in checks.CHECKS}


@pytest.mark.parametrize(
    ("cluster", "given_up", "seen"),
    [("alpha", 1.5, True), ("beta", 1.5, False), ("beta", 2.5, True)],
    ids=["in the lost member", "elsewhere", "before it was given up"],
)
def test_what_moves_has_two_epochs_only_where_its_member_was_given_up(
    cluster: str, given_up: float, *, seen: bool
) -> None:
    history = History(dataclasses.replace(GANG, moves=True))
    history.pod("gang-1", 0, created=1, bound=1.2, gone=5)
    history.gives_up(given_up, "gang-1")
    history.pod("gang-1", 0, epoch=2, cluster=cluster, created=2, bound=2.2, gone=6)
    found = {violation.check for violation in checks.judge(history.record())}
    assert ("one epoch at a time" in found) is seen


@pytest.mark.parametrize(("cluster", "seen"), [("alpha", True), ("beta", False)])
def test_a_service_leaves_a_member_while_it_runs_in_another(cluster: str, *, seen: bool) -> None:
    history = History(GANG)
    history.pod("service-1-cd5947946", 0, created=1, bound=1.2, gone=5)
    history.pod("service-1-cd5947946", 0, epoch=2, cluster=cluster, created=2, bound=2.2, gone=6)
    found = {violation.check for violation in checks.judge(history.record())}
    assert ("one epoch at a time" in found) is seen


def test_a_fault_stops_the_clock_of_a_partial_gang() -> None:
    history = honest()
    half(history)
    history.fault("outage (beta)", 11, 30)
    assert "gangs whole" not in {violation.check for violation in checks.judge(history.record())}


def test_a_pod_whose_binding_is_not_logged_is_bound_when_its_node_is_seen() -> None:
    history = History(GANG)
    history.pod("gang-1", 0, created=1, bound=1.2, ended=2)
    binding = next(event for event in history._logs["alpha"] if event.object_ref.path == "pods/binding")
    history._logs["alpha"].remove(binding)
    (pod,) = history.record().pods.values()
    assert (pod.node, pod.bound, pod.ended) == ("n0", EPOCH_S + 2, EPOCH_S + 2)


def test_a_pod_that_a_checkpoint_lacks_was_gone_when_the_server_went() -> None:
    history = History(GANG)
    history.pod("gang-1", 0, created=1, bound=1.2)
    history.pod("gang-1", 1, created=1, bound=1.2)
    history.checkpoint("alpha", 5, 9, "gang-1-worker-1-1-alpha")
    assert sorted(pod.over for pod in history.record().pods.values()) == [EPOCH_S + 5, float("inf")]


def test_a_pod_whose_end_went_with_the_log_of_a_server_had_ended_when_the_server_went() -> None:
    history = History(GANG)
    history.pod("gang-1", 0, created=1, bound=1.2)
    uid = "gang-1-worker-0-1-alpha"
    history.checkpoint("alpha", 5, 9, uid, ended={uid: True})
    (pod,) = history.record().pods.values()
    assert (pod.over, pod.succeeded, pod.gone) == (EPOCH_S + 5, True, None)


def test_a_binding_that_goes_is_charged_with_its_pods_only() -> None:
    history = honest()
    history.binding(2.5, "gang-3", 1, ("beta", 2))
    history.binding(2.6, "gang-3", 1, ("beta", 2), deleted=True, raises=False)
    assert "within capability" not in {violation.check for violation in checks.judge(history.record())}


def test_recovery_is_counted_until_what_was_harmed_writes_again() -> None:
    span = Span("killed (control)", "control", 10, 10, "host control", "", 10, "atoll-control", 10.3)
    writes = {
        ("host", "control"): [(9.0, "atoll-control-2"), (10.1, "atoll-control"), (11.5, "atoll-control")],
        ("host", "dispatcher"): [(10.2, "atoll-dispatcher")],
    }
    assert [took for _, took in recoveries([span], writes)] == [1.5]


async def test_a_host_that_never_answers_leaves_a_status_that_says_so() -> None:
    async with client(9) as api:
        statuses = await drive.Drive(api, [GANG]).finish([GANG, HELD], 0.1)
    assert statuses == {"gang-1": drive.UNREAD, "gang-3": drive.UNREAD}
    history = honest()
    history.final = statuses
    assert {each.check for each in checks.nothing_lost(history.record())} == {"nothing lost"}


@pytest.mark.parametrize(
    ("played", "pods", "broken", "good"),
    [(True, True, "", True), (False, True, "", False), (True, False, "", False), (True, True, "KeyError()", False)],
    ids=["nothing violated", "no fault", "no pod", "broken off"],
)
def test_a_run_of_nothing_is_not_good(*, played: bool, pods: bool, broken: str, good: bool) -> None:
    history = honest() if pods else History(GANG)
    facts = Facts(1, 1.0, broken=broken, spans=[Span("killed", "control", 1, 2)] if played else [])
    assert Outcome(facts, history.record(), []).good is good


def test_a_slower_plan_has_the_same_workloads() -> None:
    wishes = plan.generate(7, 60)
    found = plan.slower(wishes, 2)
    assert [(wish.name, wish.offset, wish.seconds) for wish in found] == [
        (wish.name, wish.offset * 2, wish.seconds * 2) for wish in wishes
    ]


def test_the_same_seed_gives_the_same_plan_and_faults() -> None:
    assert plan.generate(7, 60) == plan.generate(7, 60) != plan.generate(8, 60)
    first, second = deal(7), deal(7)
    assert [next(first) for _ in range(200)] == [next(second) for _ in range(200)]


def test_a_round_of_faults_has_each_kind() -> None:
    cards = deck()
    assert {card.kind for card in cards} == set(Kind)
    assert {card.wire for card in cards} - {None} == set(Fault)


def test_no_workload_asks_for_more_than_its_queue_has() -> None:
    wishes = [wish for seed in range(30) for wish in plan.generate(seed, 60)]
    assert [wish for wish in wishes if wish.pods * wish.gpus > plan.QUEUES_GPUS[wish.queue]] == []
