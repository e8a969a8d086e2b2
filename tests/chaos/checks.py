"""What must be true of every run, whatever failed on the way: pure functions over what was recorded.

They hold for the invariants of the design: each names what violates it, and says of which workload and when.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from atoll.model import vector
from atoll.model.decision import Phase
from atoll.model.vector import Vector
from atoll.model.verdict import Reason
from tests.chaos import plan
from tests.chaos.plan import SERVICES, Submission
from tests.chaos.record import HOST, Pod, Record, Seen, Span, by_binding, changes

COMMIT_TIMEOUT_S = 30.0
"""How long a gang may be bound in part, in time without faults."""
SETTLING_S = 10.0
"""What a fault still costs after it has ended: the lease of a dead leader, a restart on a busy machine."""
RETURNED_S = 30.0
"""How long pods of a part that was given up may live once their member is back, in time without faults there."""
HOLD_S = 2.0
"""How old a wish to hold must be on the binding for a decision against it to be wrong: one that was on its way when the
user held lands, and is taken back.
"""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that must not be."""

    check: str
    workload: str
    at: float
    """Seconds since the epoch; 0 where it is the state at the end."""
    text: str


Check = Callable[[Record], Iterable[Violation]]


def within_capability(record: Record) -> Iterator[Violation]:
    """No decision raises a queue above its capability: invariant 1.

    At each dispatch every dispatched gang is charged with what it can still come to use, every other with its pods:
    what has ended and is not made again gives its quota back. Pods of a part that was given up with its lost member
    are not charged, except of what is exclusive and must have been ended there.
    """
    dispatches = [
        (state.at, uid, state)
        for uid, states in record.bindings.items()
        for state in _raised(states)
        if state.parts and state.queue in record.capabilities
    ]
    pods = by_binding(record)
    for at, uid, state in sorted(dispatches, key=lambda each: each[:2]):
        used: Vector = {}
        for other, states in record.bindings.items():
            if states[0].workload in record.plan and _queue(states, at) == state.queue:
                wish = record.plan[states[0].workload]
                charged = [pod for pod in pods.get(other, ()) if wish.exclusive or not _lost(record, pod, at)]
                vector.add(used, _charge(wish, states, charged, at))
        short = _excess(used, record.capabilities[state.queue])
        if short:
            text = f"its dispatch with epoch {state.epoch} raises queue {state.queue} to {short}"
            yield Violation("within capability", state.workload, at, f"{text} (binding {uid})")


def _charge(wish: Submission, states: Sequence[Seen], pods: Sequence[Pod], at: float) -> Vector:
    state = _at(states, at)
    alive = sum(pod.live(at) for pod in pods)
    over = state is None or state.suspended or state.deleted or "Finished" in state.conditions
    if state is not None and state.parts and not over:
        mine = [pod for pod in pods if pod.epoch == state.epoch]
        ended = sum(pod.ended is not None and pod.ended <= at and (pod.succeeded or not wish.batch) for pod in mine)
        before = sum(pod.succeeded and pod.epoch < state.epoch for pod in pods) if wish.batch else 0
        at_once = sum(number for _, number in state.parts)
        count = min(at_once, wish.runs - before - ended)
        if at_once >= wish.pods:
            # Whatever shrank gives quota back before its pods are gone.
            count = max(count, alive)
    else:
        count = alive
    return vector.scaled(plan.resources(wish), count)


def _lost(record: Record, pod: Pod, at: float) -> bool:
    """Whether a pod's part had been given up with its lost member at this moment."""
    marks = record.given_up.get((pod.binding, pod.cluster), ())
    if any(mark.at <= at and pod.epoch <= mark.epoch for mark in marks):
        return True
    # The mark may be one of the lines that went with the host's API server.
    later = [state for state in record.bindings.get(pod.binding, ()) if pod.epoch < state.epoch and state.at <= at]
    return any(state.reason is Reason.MEMBER_LOST for state in later) and _unlogged(record, later[0].at, at, HOST)


def within_nodes(record: Record) -> Iterator[Violation]:
    """No node ever holds more than it has: invariant 1."""
    used: defaultdict[tuple[str, str], Vector] = defaultdict(dict)
    told = set()
    for at, sign, pod in changes(record.pods.values()):
        if pod.workload not in record.plan:
            continue
        node = pod.cluster, pod.node
        vector.add(used[node], plan.resources(record.plan[pod.workload]), sign)
        short = _excess(used[node], record.allocatable.get(node, {}))
        if sign > 0 and short and node not in told:
            told.add(node)
            text = f"its pod {pod.name} raises node {pod.node} of {pod.cluster} to {short}"
            yield Violation("within nodes", pod.workload, at, text)


def gangs_whole(record: Record) -> Iterator[Violation]:
    """A gang is bound whole or not at all, outside commitTimeout: invariant 2. Faults stop the clock."""
    troubles = [(span.began, span.ended + SETTLING_S * record.pace) for span in record.faults]
    for uid, pods in by_binding(record).items():
        wish = record.plan.get(pods[0].workload)
        if wish is None:
            continue
        for began, ended in _partial(pods, wish, record.end):
            lasted = (ended - began) - _covered(began, ended, troubles)
            if lasted > COMMIT_TIMEOUT_S * record.pace:
                text = f"fewer than {wish.needed} of its pods were bound for {lasted:.1f} s without faults"
                yield Violation("gangs whole", wish.name, began, f"{text} (binding {uid})")


def _partial(pods: Sequence[Pod], wish: Submission, end: float) -> Iterator[tuple[float, float]]:
    """Stretches in which some, but not enough, of the pods were bound, one epoch after the other."""
    for epoch in sorted({pod.epoch for pod in pods}):
        mine = [pod for pod in pods if pod.epoch == epoch and pod.bound is not None]
        # (time, pods on nodes, pods that have done their part)
        steps = [(pod.bound, 1, 0) for pod in mine if pod.bound is not None]
        steps += [(pod.ended, -1, 1) for pod in mine if pod.ended is not None]
        steps += [(pod.gone, -1, 0) for pod in mine if pod.gone is not None and pod.ended is None]
        before = sum(pod.succeeded for pod in pods if pod.epoch < epoch) if wish.batch else 0
        needed = min(wish.needed, wish.runs - before)
        bound, done, since = 0, 0, None
        for at, on, ended in [*sorted(steps), (end, 0, 0)]:
            if since is not None:
                yield since, at
            bound, done = bound + on, done + ended
            since = at if bound > 0 and bound + done < needed else None


def one_epoch_at_a_time(record: Record) -> Iterator[Violation]:
    """Pods of two epochs of one binding never exist together: invariant 3. In another member they may where their part
    was given up with a lost member, except of what is exclusive; and those of services, which leave a drained member
    once they run elsewhere.
    """
    for uid, pods in by_binding(record).items():
        wish = record.plan.get(pods[0].workload)
        # Pods of a Deployment are of its ReplicaSet.
        service = pods[0].workload.rpartition("-")[0] in SERVICES
        for pod in sorted(pods, key=lambda each: each.created):
            left = [
                each
                for each in pods
                if each.epoch < pod.epoch and each.over > pod.created
                if each.cluster == pod.cluster
                or not (service or (wish is not None and wish.moves and _lost(record, each, pod.created)))
            ]
            if left:
                beside = ", ".join(f"{each.name} in {each.cluster} of epoch {each.epoch}" for each in left)
                text = f"pod {pod.name} of epoch {pod.epoch} was made in {pod.cluster} beside {beside}"
                yield Violation("one epoch at a time", pod.workload, pod.created, f"{text} (binding {uid})")
                break


def lost_pods_go(record: Record) -> Iterator[Violation]:
    """Pods of a part that was given up are gone soon after their member is back. Faults there stop the clock."""
    for (uid, cluster), marks in record.given_up.items():
        pods = [pod for pod in record.pods.values() if (pod.binding, pod.cluster) == (uid, cluster)]
        troubles = [
            (span.began, span.ended + SETTLING_S * record.pace) for span in record.faults if _reaches(span, cluster)
        ]
        for mark in marks:
            heard = (at for at, _ in record.writes.get((HOST, f"agent-{cluster}"), ()) if at > mark.at)
            back = next(heard, record.end)
            for pod in pods:
                ended = min(pod.over, record.end)
                lasted = (ended - back) - _covered(back, ended, troubles)
                if pod.epoch <= mark.epoch and pod.created < mark.at and lasted > RETURNED_S * record.pace:
                    text = (
                        f"pod {pod.name} of epoch {pod.epoch} lived for {lasted:.1f} s without faults after {cluster}"
                    )
                    yield Violation("lost pods go", pod.workload, back, f"{text} was back (binding {uid})")


def _reaches(span: Span, cluster: str) -> bool:
    """Whether a fault keeps the host from being rid of pods of this member."""
    words = f"{span.target} {span.detail} {span.harms}"
    return any(name in words for name in (cluster, HOST, "control", "etcd"))


def decided_once(record: Record) -> Iterator[Violation]:
    """An epoch of a binding is decided at most once, and epochs rise one by one."""
    counts = Counter((each.binding, each.epoch) for each in record.written)
    for each in record.written:
        if counts.pop((each.binding, each.epoch), 1) > 1:
            text = f"epoch {each.epoch} of binding {each.binding} was decided more than once"
            yield Violation("decided once", each.workload, each.at, text)
    for uid, states in record.bindings.items():
        for before, after in itertools.pairwise(states):
            if after.epoch not in (before.epoch, before.epoch + 1) and not _unlogged(record, before.at, after.at):
                text = f"binding {uid} went from epoch {before.epoch} to {after.epoch}"
                yield Violation("decided once", after.workload, after.at, text)


def decisions_kept(record: Record) -> Iterator[Violation]:
    """What was decided for an epoch stays, whoever leads, but for the size of what is elastic; what was bound is taken
    back for its user only, for its member, one that is drained, or lost to what does not wait, or moved: invariant 9.
    """
    for uid, states in record.bindings.items():
        for before, after in itertools.pairwise(states):
            if after.epoch == before.epoch and not _same_parts(before, after, record.plan.get(after.workload)):
                text = f"epoch {after.epoch} of binding {uid} was changed from {before.parts} to {after.parts}"
                yield Violation("decisions kept", after.workload, after.at, text)
            taken = after.epoch > before.epoch and after.phase is Phase.EVICTING and after.reason is not Reason.HELD
            wish = record.plan.get(after.workload)
            moved = after.reason is Reason.MEMBER_LOST and wish is not None and (wish.exclusive or wish.moves)
            others = after.reason in (Reason.MEMBER_DRAINED, Reason.MOVED)
            if taken and "Bound" in before.conditions and not moved and not others:
                text = f"binding {uid} was bound and taken back with epoch {after.epoch} because of {after.reason}"
                yield Violation("decisions kept", after.workload, after.at, text)


def moves(states: Sequence[Seen]) -> Iterator[Seen]:
    """The states with which a binding was taken back so that another one has its rack."""
    for before, after in itertools.pairwise(states):
        if after.epoch > before.epoch and after.reason is Reason.MOVED:
            yield after


def moved_have_places(record: Record) -> Iterator[Violation]:
    """A gang moves once at most, and is dispatched again at once, unless its user or another fate comes first. Faults
    stop the clock; a dispatcher that takes over does not know the places of those that leave.
    """
    troubles = [(span.began, span.ended + SETTLING_S * record.pace) for span in record.faults]
    led = [span for span in record.faults if _reaches(span, "dispatcher")]
    for uid, states in record.bindings.items():
        moved = list(moves(states))
        for each in moved[1:]:
            yield Violation("moved have places", each.workload, each.at, f"binding {uid} was moved again")
        for each in moved:
            later = (s for s in states if s.at > each.at and (s.deleted or s.epoch > each.epoch or _holds(s)))
            back = next((s.at for s in later), record.end)
            if any(span.began <= back and span.ended + SETTLING_S * record.pace >= each.at for span in led):
                continue
            lasted = (back - each.at) - _covered(each.at, back, troubles)
            if lasted > COMMIT_TIMEOUT_S * record.pace:
                text = f"binding {uid} was moved, and not dispatched again for {lasted:.1f} s without faults"
                yield Violation("moved have places", each.workload, each.at, text)


def _holds(seen: Seen) -> bool:
    return seen.gang is not None and seen.gang.hold


def _same_parts(before: Seen, after: Seen, wish: Submission | None) -> bool:
    """Whether the parts are the same, or the only one has another size that it may have."""
    if before.parts == after.parts:
        return True
    if wish is None or [name for name, _ in before.parts] != [name for name, _ in after.parts]:
        return False
    return len(after.parts) == 1 and wish.needed <= after.parts[0][1] <= wish.pods


def held_stays_held(record: Record) -> Iterator[Violation]:
    """What its user holds is not dispatched, and what is never released does not run at the end: invariant 10."""
    for uid, states in record.bindings.items():
        since = None
        for before, after in zip([None, *states], states, strict=False):
            dispatched = before is not None and after.epoch > before.epoch and bool(after.parts)
            if since is not None and dispatched and after.at - since > HOLD_S * record.pace:
                text = f"binding {uid} was dispatched with epoch {after.epoch}, held for {after.at - since:.1f} s"
                yield Violation("held stays held", after.workload, after.at, text)
            held = after.gang is not None and after.gang.hold
            since = (since or after.at) if held else None
    for wish in record.plan.values():
        running = [pod.name for pod in record.of(wish.name) if pod.bound is not None and pod.over == float("inf")]
        if wish.stays_held and not wish.deleted and running and not record.left:
            yield Violation("held stays held", wish.name, 0.0, f"it is held, but {', '.join(running)} runs at the end")


def nothing_lost(record: Record) -> Iterator[Violation]:
    """Every workload is Completed with exactly its pods, was deleted by its user, or is held by them and says so."""
    for wish in record.plan.values():
        if wish.name not in record.final:
            continue
        status = record.final[wish.name]
        if wish.deleted and status is None:
            continue
        if status is None:
            yield Violation("nothing lost", wish.name, 0.0, "it is not on the host at the end")
        elif wish.stays_held and not _completed(wish, status):
            if not _explained(wish, status):
                yield Violation("nothing lost", wish.name, 0.0, f"it is held, but its status does not say so: {status}")
        elif not wish.deleted and not _completed(wish, status):
            yield Violation("nothing lost", wish.name, 0.0, f"it did not complete: {_brief(status)}")
        elif not wish.deleted and status.get("succeeded") != wish.runs:
            count = status.get("succeeded")
            yield Violation("nothing lost", wish.name, 0.0, f"{count} of {wish.runs} pods are counted as succeeded")


def ran_once(record: Record) -> Iterator[Violation]:
    """The pods of a workload's last epoch succeed exactly once each, and each is made once: again only where the gang had
    shrunk, and none of the earlier ones had succeeded; or where it is exclusive and was ended by its agent.
    """
    for uid, pods in by_binding(record).items():
        wish = record.plan.get(pods[0].workload)
        if wish is None or wish.exclusive or wish.moves or not _completed(wish, record.final.get(wish.name) or {}):
            continue
        last = max(pod.epoch for pod in pods)
        mine = [pod for pod in pods if pod.epoch == last]
        sizes = {sum(pods for _, pods in seen.parts) for seen in record.bindings.get(uid, ()) if seen.epoch == last}
        made = Counter((pod.cluster, pod.name) for pod in mine if pod.succeeded or len(sizes - {0}) < 2)
        if again := sorted(f"{name} in {cluster}" for (cluster, name), count in made.items() if count > 1):
            text = f"{', '.join(again)} of epoch {last} was made more than once (binding {uid})"
            yield Violation("ran once", wish.name, mine[0].created, text)
        done = sum(pod.succeeded for pod in mine)
        before = sum(pod.succeeded for pod in pods if pod.epoch < last)
        least = wish.runs - before if wish.batch else wish.runs
        if not least <= done <= wish.runs or (done != wish.runs and not before):
            text = f"{done} of its pods of epoch {last} succeeded, {wish.runs} were to, {before} had in earlier epochs"
            yield Violation("ran once", wish.name, mine[0].created, f"{text} (binding {uid})")


def final_stays_final(record: Record) -> Iterator[Violation]:
    """A workload that was reported as completed on the host is never reported as anything else again."""
    for name, statuses in record.statuses.items():
        wish = record.plan.get(name)
        if wish is None:
            continue
        over = [_completed(wish, status) for _, status in statuses]
        if True in over and False in over[over.index(True) :]:
            at, status = statuses[over.index(False, over.index(True))]
            yield Violation("final stays final", name, at, f"it was Completed and became {_brief(status)}")


def all_returned(record: Record) -> Iterator[Violation]:
    """Queues and members are whole again at the end: invariant 4. Probes that need all of one say so."""
    for text in record.unreturned:
        yield Violation("all returned", text.split(":")[0], 0.0, text)


def services_run(record: Record) -> Iterator[Violation]:
    """Each Deployment runs in one member at the end, with exactly its pods."""
    for text in record.astray:
        yield Violation("services run", text.split(":")[0], 0.0, text)


def nothing_left(record: Record) -> Iterator[Violation]:
    """When all workloads are deleted nothing of them is left anywhere."""
    for text in record.left:
        name = text.rpartition("/")[2]
        owners = [each for each in record.plan if name == each or name.startswith((f"{each}-", f"{each}."))]
        yield Violation("nothing left", max(owners, key=len, default=name), 0.0, f"{text} is left over")


CHECKS: tuple[Check, ...] = (
    within_capability,
    within_nodes,
    gangs_whole,
    one_epoch_at_a_time,
    lost_pods_go,
    decided_once,
    decisions_kept,
    moved_have_places,
    held_stays_held,
    nothing_lost,
    ran_once,
    final_stays_final,
    all_returned,
    services_run,
    nothing_left,
)


def judge(record: Record) -> list[Violation]:
    """All that violates any check."""
    return [violation for check in CHECKS for violation in check(record)]


# -- reading states ------------------------------------------------------------------------------------------------------


def _raised(states: Sequence[Seen]) -> Iterator[Seen]:
    """The states with which an epoch was first seen."""
    for before, after in zip([None, *states], states, strict=False):
        if after.epoch > (before.epoch if before is not None else 0):
            yield after


def _at(states: Sequence[Seen], at: float) -> Seen | None:
    """The newest state that was answered at this moment."""
    found = [state for state in states if state.at <= at]
    return found[-1] if found else None


def _queue(states: Sequence[Seen], at: float) -> str:
    state = _at(states, at)
    return state.queue if state is not None else ""


def _excess(used: Mapping[str, int], limit: Mapping[str, int]) -> str:
    """`72 of 64 nvidia.com/gpu`: the first resource that is above its limit."""
    over = [
        f"{amount} of {limit[name]} {name}" for name, amount in used.items() if name in limit and amount > limit[name]
    ]
    return over[0] if over else ""


def _covered(began: float, ended: float, spans: Iterable[tuple[float, float]]) -> float:
    """How much of a stretch is covered by these spans."""
    total, reached = 0.0, began
    for start, stop in sorted(spans):
        start, stop = max(start, reached), min(stop, ended)
        if stop > start:
            total += stop - start
            reached = stop
    return total


def _unlogged(record: Record, began: float, ended: float, server: str = "") -> bool:
    """Whether an API server, or this one, died in this stretch, so that its log lacks lines."""
    dead = (span for span in record.faults if _lossy(span) and server in (span.target, ""))
    return any(span.began <= ended and span.ended >= began for span in dead)


def _lossy(span: Span) -> bool:
    return span.fault.startswith("outage")


def _completed(wish: Submission, status: Mapping[str, object]) -> bool:
    if wish.batch:
        return "Complete" in _conditions(status)
    state = status.get("state")
    return isinstance(state, dict) and state.get("phase") == "Completed"


def _explained(wish: Submission, status: Mapping[str, object]) -> bool:
    if wish.batch:
        return "Suspended" in _conditions(status)
    state = status.get("state")
    return isinstance(state, dict) and state.get("phase") == "Pending" and state.get("reason") == str(Reason.HELD)


def _conditions(status: Mapping[str, object]) -> set[str]:
    listed = status.get("conditions")
    found = listed if isinstance(listed, list) else []
    return {each["type"] for each in found if each["status"] == "True"}


def _brief(status: Mapping[str, object]) -> str:
    kept = {key: value for key, value in status.items() if key not in ("conditions", "taskStatusCount")}
    return f"{kept} {sorted(_conditions(status))}" if "conditions" in status else str(kept)
