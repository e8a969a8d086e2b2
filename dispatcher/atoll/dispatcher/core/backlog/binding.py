"""One binding: its last observation, the decisions since, and what follows from the two."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from atoll.dispatcher.core.backlog.backlog import Key
from atoll.dispatcher.core.backlog.order import submitted
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.core.quota.namespaces import Charges, by_scopes
from atoll.dispatcher.core.quota.queue import Queue, path
from atoll.model import vector
from atoll.model.decision import Phase
from atoll.model.flavors import Assigned, Variant, requesting
from atoll.model.gang import Gang, divide
from atoll.model.queues import EVICT_TIMEOUT
from atoll.model.timestamps import to_seconds
from atoll.model.vector import Vector
from atoll.model.verdict import Reason, Verdict

HELD, NO_PODS = Verdict(Reason.HELD), Verdict(Reason.NO_PODS)


@dataclass(slots=True)
class Binding:
    """One binding: its last observation and the decisions since."""

    view: BindingView
    #: newest observed or decided epoch; `epoch` above `view.epoch` means that a write is under way
    epoch: int
    phase: Phase
    #: member -> the gang of its part; empty unless it is dispatched
    parts: dict[str, Gang]
    #: its request, as last seen; None when unreadable
    wish: Gang | None
    #: None when it has no gang
    shape: Shape | None
    key: Key
    #: the queue in which it waits or is charged
    leaf: Queue
    #: its charge, or the amount to admit it with while it waits
    amount: Vector
    #: member -> the gang of its part without pods that were released: the charged part; `charge` keeps it
    charged: dict[str, Gang] = field(default_factory=dict)
    #: seconds since the epoch, while parts must still be reserved or pods bound
    deadline: float | None = None
    #: its minimum was bound once in this epoch
    bound: bool = False
    #: what the binding says about why it waits, or why not more of it runs
    told: Verdict | None = None
    #: metadata.generation on which another size was decided, while that is not seen on the binding; and the parts that
    #: it has if that is never written
    resized_at: int | None = None
    before: dict[str, Gang] = field(default_factory=dict)
    #: until when the pods by which it grew last are expected, in seconds since the epoch, if that was written late
    grows_until: float = 0.0
    #: where its flavor is open: while it waits all that it may get, that for which it waits first; while it is
    #: dispatched the one that it got
    variants: tuple[Variant, ...] = ()

    @property
    def flavors(self) -> list[Assigned]:
        """Flavors that it has, or waits for."""
        return [*self.variants[0].assigned] if self.variants else []

    @property
    def gang(self) -> Gang:
        assert self.wish is not None, f"binding {self.view.uid} has no gang and can't be decided on"
        return self.wish

    @property
    def scattered(self) -> bool:
        """Whether it may get parts in further members while it runs; not where its gang can't be read."""
        return self.wish is not None and self.wish.scattered

    @property
    def pods(self) -> int:
        """Pods that run or are about to."""
        return sum(part.replicas for part in self.parts.values())

    def expected_in(self, name: str) -> int:
        """Pods that are on nodes of a member once it has placed all: pods that ended for good left their nodes."""
        return self.charged.get(name, self.parts[name]).replicas

    @property
    def written(self) -> bool:
        """Whether its binding says all that was decided."""
        return self.epoch == self.view.epoch and self.resized_at is None

    def charge(self, parts: dict[str, Gang]) -> None:
        """Have it run with these parts: its amount is that of their pods that have not ended for good."""
        self.parts, self.charged = parts, unreleased(self.view, parts, self.wish)
        self.amount = vector.total(part.total() for part in self.charged.values())

    def charges(self) -> Charges:
        """Charge of its namespace for it."""
        return by_scopes(self.charged.values() or ([self.wish] if self.wish is not None else ()), self.amount)

    def where(self) -> dict[str, Vector]:
        """Member -> request of its part there."""
        if len(self.parts) == 1:
            return dict.fromkeys(self.parts, self.amount)
        return {name: part.total() for name, part in self.charged.items()}


def withheld(gang: Gang) -> Verdict:
    """Why a gang on hold waits."""
    return HELD if gang.replicas else NO_PODS


def paused(view: BindingView) -> Verdict:
    """Why it waits while it is not tried again."""
    decision = view.decision
    return Verdict(Reason.NOT_READY_IN_TIME, decision.blocker if decision.reason is Reason.NOT_READY_IN_TIME else None)


def ready_by(binding: Binding, regain: float) -> float | None:
    """When its minimum must run, or be bound again of which pods were lost; None where that may take any time, or it
    has. `regain`: seconds for the latter.
    """
    if binding.phase is Phase.DISPATCHED and binding.view.lost_at:
        return to_seconds(binding.view.lost_at) + regain
    own, view = binding.gang.ready_timeout, binding.view
    patience = binding.leaf.said.ready_timeout if own is None else own
    if patience is None or binding.phase is not Phase.DISPATCHED or view.started or not (view.bound and view.bound_at):
        return None
    return to_seconds(view.bound_at) + patience


def replaced_at(view: BindingView) -> float | None:
    """Time of a requested new placement of a dispatched workload; None without such a request."""
    at, dispatched = view.rescheduled, view.decision.dispatched
    if not at or not dispatched or to_seconds(dispatched) >= to_seconds(at):
        return None
    return to_seconds(at)


def evicted_at(binding: Binding, now: float) -> float:
    """When it was decided that it goes."""
    lines = [line for line in binding.view.decision.story[-1:] if line.phase is Phase.EVICTING]
    # Until that is written it was a moment ago.
    return to_seconds(lines[0].at) if lines and binding.view.epoch == binding.epoch else now


def evict_timeout(leaf: Queue) -> float:
    """Seconds that the pods of its workloads may take to go, as it or the nearest queue above it says."""
    said = (queue.said.evict_timeout for queue in path(leaf))
    return next((seconds for seconds in said if seconds is not None), EVICT_TIMEOUT)


def estimate(binding: Binding) -> float:
    """Seconds that it is expected to run; infinite where no estimate is given."""
    own = binding.gang.running_estimate
    seconds = binding.leaf.said.estimate if own is None else own
    return math.inf if seconds is None else seconds


def patient_until(binding: Binding) -> float:
    """Time at which a workload has waited long enough for a reservation; infinite for never.

    The queue grants it: a workload may have more patience than its queue, never less.
    """
    patience = binding.leaf.said.patience
    if patience is None:
        return math.inf
    return to_seconds(submitted(binding.view)) + max(patience, binding.gang.patience or 0.0)


def phase_of(view: BindingView) -> Phase:
    """The phase that an observed binding is in."""
    if view.finished:
        return Phase.FINISHED
    if not view.suspended:
        return Phase.RESERVING if view.decision.phase is Phase.RESERVING else Phase.DISPATCHED
    if view.decision.phase.going and view.released < view.generation:
        return view.decision.phase
    return Phase.SUSPENDED


def behind(view: BindingView, binding: Binding) -> bool:
    """Whether an observed binding is older than the decisions since."""
    if view.epoch != binding.epoch:
        return view.epoch < binding.epoch
    if view.finished:
        return False
    if binding.resized_at is not None:
        return view.generation <= binding.resized_at
    return binding.phase is Phase.DISPATCHED and view.decision.phase is Phase.RESERVING


def overtakes(view: BindingView, binding: Binding) -> bool:
    """Whether a view that is behind counts all the same: the write under way is a question, which decides nothing, and
    about a workload that has changed by now. The API server refuses that write.
    """
    waits = binding.phase is Phase.SUSPENDED
    return waits and (phase_of(view) is not Phase.SUSPENDED or not alike(view, binding.view))


def alike(view: BindingView, other: BindingView) -> bool:
    """Whether two views of a binding that waits ask for the same, whatever else changed."""
    return (
        view.gang == other.gang
        and view.variants == other.variants
        and view.affinities == other.affinities
        and view.tolerations == other.tolerations
        and (view.divided, view.least_clusters, view.most_clusters)
        == (other.divided, other.least_clusters, other.most_clusters)
        and view.sharing == other.sharing
        and view.created == other.created
    )


def echoes(view: BindingView, binding: Binding) -> bool:
    """Whether a view says nothing but that a dispatch was written as it was decided."""
    return (
        binding.phase.charged
        and view.epoch == binding.epoch != binding.view.epoch
        and phase_of(view) is binding.phase is view.decision.phase
        and view.decision.reason in (Reason.DISPATCHED, Reason.RESERVING)
        and not (view.bound or view.placed or view.nodes or view.reserved or view.refused or view.ended)
        and [(name, list(counts)) for name, counts in view.parts]
        == [(name, part.full()) for name, part in binding.parts.items()]
        and alike(view, binding.view)
        and gang_of(view) == binding.wish
    )


def newly_bound(binding: Binding, old: Binding) -> bool:
    """Whether its pods are seen bound that were not before; one that has ended had them all."""
    return (
        binding.bound
        and binding.phase in (Phase.DISPATCHED, Phase.FINISHED)
        and old.phase is Phase.DISPATCHED
        and not old.bound
    )


def charged_alike(binding: Binding, old: Binding) -> bool:
    """Whether two states of a binding cost its queue, its namespace and its members the same."""
    return (
        binding.phase.charged
        and old.phase.charged
        and binding.wish is not None
        and old.wish is not None
        and binding.leaf is old.leaf
        and binding.key == old.key
        and binding.amount == old.amount
        and binding.charges() == old.charges()
        and binding.parts.keys() == old.parts.keys()
        and (len(binding.parts) == 1 or binding.charged == old.charged)
    )


def variant_of(view: BindingView) -> tuple[Variant, ...]:
    """The flavors that it got, as its decision says; empty where it left none open, or got none that there is."""
    if not view.variants:
        return ()
    return tuple(each for each in view.variants if [*each.assigned] == view.decision.flavors)


def gang_of(view: BindingView) -> Gang | None:
    """Its request with its assigned flavors."""
    got = variant_of(view)
    return got[0].gang if got else view.gang


def parts_of(view: BindingView) -> dict[str, Gang]:
    """Member -> the gang of its part, as the binding says."""
    gang = gang_of(view)
    if gang is None or not view.parts:
        return {}
    shares = [counts for _, counts in view.parts]
    gangs = divide(gang, shares) if len(shares) > 1 else [gang.sized(shares[0])]
    return {
        name: as_it_runs(view, name, part)
        for (name, _), part in zip(view.parts, gangs, strict=True)
        if part.replicas or not gang.scattered
    }


def unreleased(view: BindingView, parts: dict[str, Gang], whole: Gang | None) -> dict[str, Gang]:
    """The parts without pods that have ended for good.

    A task of which fewer pods than all run at once goes on with the others: its pods are as many as before until fewer
    are left. `whole`: the gang of all, as the only part is sent it.
    """
    if not view.ended:
        return parts
    alone = len(parts) == 1 and whole is not None and not (whole.copies or whole.scattered)
    found = {}
    for name, part in parts.items():
        asked = whole if alone and whole is not None else part
        gone = view.ended.get(name, {})
        left = [max(task.replicas - gone.get(task.name, 0), 0) for task in asked.tasks]
        found[name] = part.sized(left) if gone else part
    return found


def as_it_runs(view: BindingView, member: str, gang: Gang) -> Gang:
    """The gang with requests of its pods in the member where that exceeds the request: overhead of a
    RuntimeClass, defaults of a LimitRange, injected containers, a resize in place.
    """
    more = view.requests.get(member)
    return requesting(gang, more) if more else gang


def bound_in(binding: Binding, name: str) -> bool:
    _, pods = binding.view.placed.get(name, (0, 0))
    return pods >= max(binding.parts[name].at_first(), 1)


def all_bound(binding: Binding) -> bool:
    return binding.view.bound or all(bound_in(binding, name) for name in binding.parts)


def contained(binding: Binding, member: Member) -> bool:
    """Whether the member's published figures contain the binding's pods or hold, or never will."""
    if member.name not in binding.parts or binding.phase is Phase.LEAVING:
        return True
    if binding.phase is Phase.EVICTING or not binding.written:
        return False
    generation, pods = binding.view.placed.get(member.name, (-1, 0))
    if binding.bound and binding.deadline is not None and pods != binding.expected_in(member.name):
        # The pods by which it grew are still to come.
        return False
    if binding.bound or bound_in(binding, member.name):
        return member.generation >= generation
    answer = binding.view.reserved.get(member.name)
    return answer is not None and answer.granted and member.generation >= answer.generation
