"""A federation in virtual time: the production core, an API server that may refuse writes, members that bind, answer,
let go and end on time, late or never. What is true is kept here; the core knows what it is told.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core import (
    Ask,
    BindingGone,
    BindingSet,
    BindingView,
    CapacitySet,
    CapacityView,
    ClusterSet,
    Command,
    Commit,
    Dispatch,
    Dispatcher,
    Event,
    Evict,
    MemberAnswer,
    Pass,
    QueueGone,
    QueueSet,
    Refused,
    Resize,
)
from atoll.dispatcher.core.backfill.reservation import Reservation
from atoll.dispatcher.core.backlog.binding import gang_of
from atoll.dispatcher.core.events import NodeClass
from atoll.dispatcher.core.settings import CoreSettings
from atoll.fit import Nodes, Placement, Profile, place
from atoll.fit.pods import first_pods
from atoll.model.gang import Gang, divide
from atoll.model.lost import lost_at
from atoll.model.timestamps import rfc3339_seconds
from atoll.model.topology import Domain, Tree
from atoll.model.vector import Vector
from atoll.model.verdict import Reason
from tests.dispatcher.builders import GPU, START, BindingBuilder, make_cluster, written

Pods = list[tuple[int, int, int]]
"""(task, node, pods), in order of the pods' indices."""


def gpus(*nodes: int) -> list[Vector]:
    """Nodes with so many GPUs each."""
    return [{GPU: each, "pods": 100} for each in nodes]


class Site:
    """The nodes of a member as they are."""

    def __init__(self, name: str, nodes: Sequence[Vector], racks: Sequence[str] = ()) -> None:
        self.name = name
        self.nodes = list(nodes)
        #: the rack of each node, below one spine; empty without a topology
        self.racks = list(racks)
        self.resources = tuple(sorted({each for node in nodes for each in node}))
        self.generation = 1
        self.ready = True
        #: since when it is away, and after how long what is exclusive has ended there
        self.lost_since: float | None = None
        self.fenced_after: float | None = None
        #: UIDs of what its binding was let go of without its word
        self.stale: list[str] = []
        #: binding UID -> (gang of its part, where its pods are)
        self.pods: dict[str, tuple[Gang, Pods]] = {}
        #: binding UID -> what of it is still to be bound
        self.waiting: dict[str, Gang] = {}
        #: UIDs of those of which the answer to a hold is due
        self.holding: dict[str, Gang] = {}

    def free(self, without: Sequence[str] = (), sizes: Mapping[str, Sequence[int]] | None = None) -> Nodes:
        """What is free, had these left, and others only so many pods per task."""
        free = np.array([[node.get(name, 0) for node in self.nodes] for name in self.resources], np.int64)
        nodes = Nodes.of_arrays(
            *self._topology(),
            [Profile({}, ())],
            np.zeros(len(self.nodes), np.int64),
            self.resources,
            free,
            [f"{self.name}-{number}" for number in range(len(self.nodes))],
        )
        for uid, (gang, pods) in self.pods.items():
            if uid not in without:
                left = first_pods(pods, sizes[uid]) if sizes is not None and uid in sizes else pods
                nodes.take(gang.requests(), Placement(left))
        return nodes

    def _topology(self) -> tuple[Tree, NDArray[np.int64]]:
        if not self.racks:
            return Tree(), np.full(len(self.nodes), -1, np.int64)
        names = sorted(set(self.racks))
        tree = Tree([Domain("spine", 2, tier_name="spine"), *(Domain(name, 1, 0, "rack") for name in names)])
        return tree, np.array([1 + names.index(rack) for rack in self.racks], np.int64)

    def capacity(self) -> CapacitySet:
        """As it is published."""
        nodes = self.free()
        classes = tuple(
            NodeClass(
                self.racks[node] if self.racks else "",
                {},
                (),
                1,
                {name: max(int(nodes.free[row, node]), 0) for row, name in enumerate(self.resources)},
                (f"{self.name}-{node}",),
            )
            for node in range(len(self.nodes))
        )
        total: Vector = {}
        for node in self.nodes:
            for name, amount in node.items():
                total[name] = total.get(name, 0) + amount
        domains = tuple((name, 1, "rack", "spine") for name in sorted(set(self.racks)))
        domains = (("spine", 2, "spine", ""), *domains) if domains else ()
        return CapacitySet(CapacityView(self.name, "", self.generation, domains, classes, total))


@dataclass
class Job:
    """A workload as it really is."""

    runs: float
    """Seconds that it runs; infinite for ever."""
    grace: float | None = None
    """Seconds in which its pods go when told; None as the federation says, infinite for never."""
    submitted: float = 0.0
    starts: list[float] = field(default_factory=list)
    """Seconds since the beginning, of each epoch in which all of its first pods were bound."""
    dispatches: list[float] = field(default_factory=list)
    ended: float | None = None
    evictions: list[tuple[float, str, str]] = field(default_factory=list)
    """(when, reason, UID of the one that it made room for)."""
    promised: float | None = None
    """Seconds since the beginning: the first time that it was promised."""
    overtaken: bool = False
    """That binds no more: a better right took from it."""


class Town:
    """See the module. `run` plays on; jobs are submitted by the builders of bindings."""

    def __init__(
        self,
        *queues: QueueSet,
        grace: float = 2.0,
        delay: float = 0.05,
        bind: float = 0.5,
        refuses: Callable[[Command], bool] = lambda _: False,
        answers: Callable[[str, str], bool] = lambda _member, _uid: True,
        check: bool = False,
        settings: CoreSettings = CoreSettings(),
        racks: Mapping[str, Sequence[str]] | None = None,
        **members: Sequence[Vector],
    ) -> None:
        """`racks`: member -> the rack of each node, for those with a topology."""
        self.core = Dispatcher(settings)
        #: another dispatcher's, which follows
        self.standby: Dispatcher | None = None
        #: has read everything as one took over that had followed, and must decide the same
        self._twin: Dispatcher | None = None
        self.now = START
        self.grace, self.delay, self.bind = grace, delay, bind
        self.refuses, self.answers, self.check = refuses, answers, check
        self.views: dict[str, BindingView] = {}
        self.jobs: dict[str, Job] = {}
        self.commands: list[tuple[float, Command]] = []
        self.sites = {name: Site(name, nodes, (racks or {}).get(name, ())) for name, nodes in members.items()}
        self.passes = 0
        #: reservations as of the last pass
        self._reserved: list[Reservation] = []
        #: something was told since the last pass
        self._dirty = False
        #: what another leader is told of: all but the bindings
        self._facts: dict[object, Event] = {}
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._touched: dict[str, None] = {}
        for event in queues:
            self.tell(event)
        for name in members:
            self.ready(name)
            self._publish(name)

    # -- time --------------------------------------------------------------------------------------------------------

    @property
    def time(self) -> float:
        """Seconds since the beginning."""
        return self.now - START

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something then."""
        if seconds < math.inf:
            self._serial += 1
            heapq.heappush(self._heap, (self.now + seconds, self._serial, action))

    def at(self, second: float, action: Callable[[], None]) -> None:
        """Do something so many seconds after the beginning."""
        self.after(second - self.time, action)

    def run(self, seconds: float = math.inf) -> None:
        """Play on for so long, or until nothing happens any more."""
        end = self.now + seconds
        while True:
            due = self._heap[0][0] if self._heap else math.inf
            deadline = self.core.next_deadline
            due = min(due, math.inf if deadline is None else max(deadline, self.now + 0.001))
            due = min(due, self.now + 0.001) if self._dirty or self._touched else due
            if due > end or due == math.inf:
                if end < math.inf:
                    self.now = end
                return
            self.now = max(due, self.now)
            while self._heap and self._heap[0][0] <= self.now:
                heapq.heappop(self._heap)[2]()
            self._pass()

    def _pass(self) -> None:
        for name in list(self._touched):
            self._publish(name)
        self._touched.clear()
        self.passes += 1
        commands = self.handle(Pass(self.now))
        made = list(self.core.reservations.made.values())
        # Those of the last pass as well: they may have been given up since.
        for reservation in (*self._reserved, *made):
            job = self.jobs.get(reservation.uid)
            if job is not None:
                job.overtaken |= reservation.overtaken
                if job.promised is None and reservation.first < math.inf:
                    job.promised = reservation.first - START
        self._reserved = made
        for command in commands:
            self.commands.append((self.time, command))
            self.after(self.delay, lambda command=command: self._write(command))  # type: ignore[misc]

    def handle(self, event: Event) -> list[Command]:
        self._dirty = not isinstance(event, Pass)
        commands = self.core.handle(event)
        if self.standby is not None and not isinstance(event, Pass | Refused):
            self.standby.follow(event)
        if self._twin is not None:
            assert self._twin.handle(event) == commands
            if isinstance(event, Pass):
                self._twin = None
        if self.check:
            self.core.check()
        return commands

    # -- telling -----------------------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """The core is told; another leader will be told as well."""
        match event:
            case QueueSet(view):
                self._facts["queue", view.name] = event
            case QueueGone(name):
                self._facts.pop(("queue", name), None)
            case CapacitySet(capacity):
                self._facts["capacity", capacity.cluster] = event
            case _:
                self._facts["other", repr(event)[:60]] = event
        assert self.handle(event) == []

    def see(self, view: BindingView) -> None:
        self.views[view.uid] = view
        assert self.handle(BindingSet(view)) == []

    def ready(self, name: str, *, ready: bool = True) -> None:
        self.sites[name].ready = ready
        event = make_cluster(name, ready=ready)
        self._facts["cluster", name] = event
        assert self.handle(event) == []

    def lose(self, name: str, *, fenced_after: float | None = None) -> None:
        """A member is away from now on; what runs there runs on."""
        site = self.sites[name]
        site.ready, site.lost_since, site.fenced_after = False, self.now, fenced_after
        self._tell_cluster(name)

    def find(self, name: str) -> None:
        """It is back, and has removed what is stale before it is ready."""
        site = self.sites[name]
        for uid in site.stale:
            self._forget(site, uid)
        site.stale.clear()
        site.ready, site.lost_since, site.fenced_after = True, None, None
        self._publish(name)
        self._tell_cluster(name)

    def taint(self, name: str, *taints: Mapping[str, str], ready: bool = True) -> None:
        """An administrator sets taints; one by which a member is drained makes it not ready."""
        self._tell_cluster(name, *taints, ready=ready)

    def _tell_cluster(self, name: str, *taints: Mapping[str, str], ready: bool = True) -> None:
        site = self.sites[name]
        event = make_cluster(name, ready=site.ready and ready, taints=taints)
        away = {"lost_since": site.lost_since, "fenced_after": site.fenced_after}
        event = ClusterSet(dataclasses.replace(event.cluster, **away))  # type: ignore[arg-type]
        self._facts["cluster", name] = event
        assert self.handle(event) == []

    def lead_anew(self) -> None:
        """Another dispatcher takes over, the one that follows if there is one; what was not written is lost."""
        follower = self.standby
        begun = self.begun(self.now - 1 if follower is None else None)
        if follower is not None:
            for event in self._facts.values():
                if isinstance(event, ClusterSet):
                    follower.follow(ClusterSet(event.cluster, self.core.breakers.circuit(event.cluster.name)))
            self.stand_by()
            self._twin = begun
        self.core, self._dirty = follower or begun, True

    def stand_by(self) -> None:
        """From now on another dispatcher follows, and takes over next."""
        self.standby = self.begun()

    def begun(self, when: float | None = None) -> Dispatcher:
        """What a dispatcher knows that has read everything, and whose first pass was then."""
        core = Dispatcher(self.core.settings)
        if when is not None:
            core.handle(Pass(when))
        for event in self._facts.values():
            if isinstance(event, ClusterSet):
                event = ClusterSet(event.cluster, self.core.breakers.circuit(event.cluster.name))
            core.handle(event)
        for view in self.views.values():
            core.handle(BindingSet(view))
        return core

    def _publish(self, name: str) -> None:
        site = self.sites[name]
        site.generation += 1
        self.tell(site.capacity())

    # -- what users do -----------------------------------------------------------------------------------------------

    def submit(
        self, builder: BindingBuilder, runs: float = math.inf, *, grace: float | None = None, estimate: bool = True
    ) -> str:
        """A user submits; `estimate`: the core is told how long it runs, if it ends at all."""
        if runs < math.inf and estimate:
            builder = builder.runs(runs)
        view = builder.submitted(rfc3339_seconds(self.now)).build()
        self.jobs[view.uid] = Job(runs, grace, self.time)
        self.see(dataclasses.replace(view, created=rfc3339_seconds(self.now)))
        return view.uid

    def edit(self, uid: str, builder: BindingBuilder) -> None:
        """Its user wants something else by now."""
        view = self.views[uid]
        gang = builder.build().gang
        assert gang is not None
        assert view.gang is not None
        gang = msgspec.structs.replace(gang, submitted=view.gang.submitted)
        self.see(dataclasses.replace(view, gang=gang, generation=view.generation + 1))
        self._follow_size(uid)

    def delete(self, uid: str) -> None:
        """Its user deletes it: its pods go at once."""
        if uid in self.views:
            for site in self.sites.values():
                self._forget(site, uid)
            del self.views[uid]
            assert self.handle(BindingGone(uid)) == []

    # -- what is written ---------------------------------------------------------------------------------------------

    def _write(self, command: Command) -> None:
        view = self.views.get(command.uid)
        guarded = not (command.only_tells or isinstance(command, Ask))
        stale = view is None or command.epoch != view.epoch or (guarded and command.generation != view.generation)
        if isinstance(command, Ask) and view is not None:
            stale = stale or command.generation != view.generation
        if stale or self.refuses(command):
            self.handle(Refused(command.uid, command.decision.epoch, command.generation))
            return
        assert view is not None
        job = self.jobs[command.uid]
        before = view
        view = written(view, command)
        self.see(view)
        match command:
            case Dispatch():
                job.dispatches.append(self.time)
                for name, part in self._parts(view).items():
                    if command.decision.phase == "Reserving":
                        self.after(self.bind, partial(self._hold, name, view.uid, view.epoch, part))
                    else:
                        self._begin(name, view, part)
            case Commit():
                for name in self._parts(view):
                    self._begin(name, view, self._parts(view)[name])
            case Resize():
                for name in dict(before.parts).keys() - dict(view.parts).keys():
                    # It goes on without what it has there.
                    if self.sites[name].ready:
                        self.after(self.grace, partial(self._left, name, view.uid))
                    else:
                        self.sites[name].stale.append(view.uid)
                self._follow_size(view.uid)
            case Evict():
                job.evictions.append((self.time, command.decision.reason, command.decision.room_for))
                names = [name for name, _ in before.parts]
                self._evict(view.uid, view.epoch, names)
            case Ask():
                assert command.decision.question is not None
                self.after(self.bind, lambda: self._answer(view.uid, view.epoch))

    def _parts(self, view: BindingView) -> dict[str, Gang]:
        whole = gang_of(view)
        assert whole is not None
        shares = [counts for _, counts in view.parts]
        gangs = divide(whole, shares) if len(shares) > 1 else [whole.sized(shares[0])]
        return {name: gang for (name, _), gang in zip(view.parts, gangs, strict=True)}

    def _answer(self, uid: str, epoch: int) -> None:
        view = self.views.get(uid)
        if view is None or view.epoch != epoch or view.decision.question is None or view.gang is None:
            return
        question, said = view.decision.question, {}
        for name, counts in question.parts.items():
            site = self.sites[name]
            whole = gang_of(view)
            assert whole is not None
            gang = whole.sized([counts[task.name] for task in whole.tasks])
            sizes = {
                each: [stays[task.name] for task in site.pods[each][0].tasks]
                for each, stays in question.sizes.items()
                if each in site.pods
            }
            nodes = site.free(question.victims, sizes)
            for waiting in site.waiting.values():
                placed = place(nodes, waiting)
                if isinstance(placed, Placement):
                    nodes.take(waiting.requests(), placed)
            fits = isinstance(place(nodes, gang), Placement) and self.answers(name, uid)
            said[name] = MemberAnswer(fits, requested=gang.replicas, available=0)
        self.see(dataclasses.replace(view, reserved=said))

    def _hold(self, name: str, uid: str, epoch: int, part: Gang) -> None:
        view, site = self.views.get(uid), self.sites[name]
        if view is None or view.epoch != epoch or view.decision.phase != "Reserving":
            return
        placed = place(site.free(), part)
        fits = isinstance(placed, Placement) and sum(placed.counts) >= part.replicas and self.answers(name, uid)
        if isinstance(placed, Placement) and fits:
            site.pods[uid] = (part, sorted(placed.pods))
            self._publish(name)
        answer = MemberAnswer(fits, site.generation, part.replicas, 0)
        self.see(dataclasses.replace(view, reserved={**view.reserved, name: answer}))

    def _begin(self, name: str, view: BindingView, part: Gang) -> None:
        self.sites[name].waiting[view.uid] = part
        self.after(self.bind, lambda: self.bind_pods(name))

    def bind_pods(self, name: str) -> None:
        """Bind what waits in a member, the eldest first, where it is expected if that is possible."""
        site = self.sites[name]
        if not site.ready:
            return
        for uid, part in list(site.waiting.items()):
            view = self.views[uid]
            if uid in site.pods:
                # Reserved before.
                del site.waiting[uid]
                self._report(site, uid, part)
                continue
            nodes = site.free()
            spots = view.decision.expected.get(name)
            pods: Pods = []
            if spots:
                index = {task.name: number for number, task in enumerate(part.tasks)}
                pods = [(index[task], nodes.names.index(node), count) for task, node, count in spots]
                trial = nodes.copy()
                trial.take(part.requests(), Placement(pods))
                if (trial.free < 0).any():
                    pods = []
            if not pods:
                placed = place(nodes, part)
                if not isinstance(placed, Placement):
                    continue
                pods = placed.pods
            site.pods[uid] = (part, sorted(pods))
            del site.waiting[uid]
            self._report(site, uid, part)

    def _report(self, site: Site, uid: str, part: Gang) -> None:
        self._touched[site.name] = None
        view, job = self.views[uid], self.jobs[uid]
        nodes: Counter[str] = Counter()
        for _, node, count in site.pods[uid][1]:
            nodes[f"{site.name}-{node}"] += count
        placed = {**view.placed, site.name: (site.generation + 1, nodes.total())}
        self.see(dataclasses.replace(view, placed=placed, nodes={**view.nodes, site.name: dict(nodes)}))
        epoch = view.epoch
        begins = not job.starts or job.starts[-1] < job.dispatches[-1]
        there = (uid in self.sites[name].pods and uid not in self.sites[name].waiting for name, _ in view.parts)
        if begins and all(there):
            job.starts.append(self.time)
            self.after(job.runs, lambda: self._end(uid, epoch))

    def _follow_size(self, uid: str) -> None:
        """Members make the pods that a part has more, and remove those that it has no more."""
        view = self.views[uid]
        if view.suspended or view.finished or view.decision.phase != "Dispatched":
            return
        assert view.gang is not None
        if len(view.parts) != 1 and not view.gang.scattered:
            return
        for name, part in self._parts(view).items():
            site, counts = self.sites[name], part.full()
            if uid in site.waiting:
                site.waiting[uid] = part
            elif uid in site.pods:
                self.after(self.bind, partial(self._resize, name, uid, view.epoch, counts))
            else:
                self._begin(name, view, part)

    def _resize(self, name: str, uid: str, epoch: int, counts: Sequence[int]) -> None:
        view, site = self.views.get(uid), self.sites[name]
        if view is None or view.epoch != epoch or uid not in site.pods or view.gang is None or not view.parts:
            return
        pods = first_pods(site.pods[uid][1], counts)
        have = Counter[int]()
        for task, _, count in pods:
            have[task] += count
        missing = [n - have[task] for task, n in enumerate(counts)]
        part = view.gang.sized(counts)
        site.pods[uid] = (part, pods)
        if any(missing):
            more = view.gang.sized(missing)
            placed = place(site.free(), more)
            if isinstance(placed, Placement) and sum(placed.counts) == sum(missing):
                site.pods[uid] = (part, [*pods, *placed.pods])
            else:
                self.after(self.bind, lambda: self._resize(name, uid, epoch, counts))
        self._report(site, uid, part)

    def _forget(self, site: Site, uid: str) -> None:
        known = site.pods.pop(uid, None), site.waiting.pop(uid, None)
        if known != (None, None):
            self._touched[site.name] = None
            self.bind_pods(site.name)

    def _left(self, name: str, uid: str) -> None:
        """A part has left its member, unless that has another one by now."""
        if uid in self.views and name not in dict(self.views[uid].parts):
            self._forget(self.sites[name], uid)

    def _end(self, uid: str, epoch: int) -> None:
        view = self.views.get(uid)
        if view is None or view.epoch != epoch or view.suspended:
            return
        for name, _ in view.parts:
            self._forget(self.sites[name], uid)
        self.jobs[uid].ended = self.time
        placed = {name: (self.sites[name].generation + 1, 0) for name, _ in view.parts}
        self.see(dataclasses.replace(view, finished=True, placed=placed))

    def _evict(self, uid: str, epoch: int, names: Sequence[str]) -> None:
        job = self.jobs[uid]
        grace = self.grace if job.grace is None else job.grace
        for name in names:
            self.sites[name].waiting.pop(uid, None)
        held = any(uid in self.sites[name].pods for name in names)
        self.after(grace if held else self.bind, lambda: self._gone(uid, epoch, names))

    def _gone(self, uid: str, epoch: int, names: Sequence[str]) -> None:
        view = self.views.get(uid)
        if view is None or view.epoch != epoch:
            return
        away = [site for name in names if not (site := self.sites[name]).ready]
        if any(site.lost_since is None or self.now < self._lost_at(view, site) for site in away):
            self.after(1.0, lambda: self._gone(uid, epoch, names))
            return
        for name in names:
            if self.sites[name] in away:
                self.sites[name].stale.append(uid)
            else:
                self._forget(self.sites[name], uid)
        self.see(dataclasses.replace(view, released=view.generation, placed={}, nodes={}))

    def _lost_at(self, view: BindingView, site: Site) -> float:
        assert view.gang is not None
        assert site.lost_since is not None
        gang = view.gang
        return lost_at(gang.on_lost, gang.lost_toleration, site.lost_since, site.fenced_after, gang.grace)

    # -- what is seen ------------------------------------------------------------------------------------------------

    def evicted(self, *reasons: Reason) -> list[tuple[float, str]]:
        """(when, name) of what was told to go for others, or for these reasons."""
        wanted = reasons or (Reason.PREEMPTED, Reason.RECLAIMED)
        return [(t, c.name) for t, c in self.commands if isinstance(c, Evict) and c.decision.reason in wanted]

    def started(self, name: str) -> float | None:
        """When it was bound last; None while it is not."""
        job = self.jobs[f"uid-{name}"]
        return job.starts[-1] if job.starts else None

    def running(self) -> list[str]:
        """Names of what holds pods."""
        return sorted({self.views[uid].name for site in self.sites.values() for uid in site.pods})

    def used(self, queue: str, resource: str = GPU) -> int:
        return self.core.tree.queue(queue).used.get(resource, 0)

    def late(self) -> list[tuple[str, float]]:
        """(name, by how many seconds) of what started after its first promised time, which bound all the same."""
        found = []
        for uid, job in self.jobs.items():
            if job.promised is None or job.overtaken:
                continue
            start = job.dispatches[0] if job.dispatches else self.time
            if start > job.promised + 5.0:
                found.append((uid, round(start - job.promised, 1)))
        return found
