"""One run: jobs are submitted to the host, dispatched by the core, placed by members, run, and end.

What the host's controllers and the delivery do between core and members is played here, with fixed delays. Everything
happens in virtual time in one total order, so that equal inputs give equal runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec import structs

from atoll.agent.scheduler.core.settings import MemberCoreSettings
from atoll.dispatcher.core import (
    Ask,
    BindingView,
    CapacitySet,
    CapacityView,
    Command,
    Commit,
    Dispatch,
    Dispatcher,
    Event,
    Evict,
    MemberAnswer,
    QueueSet,
    QueueView,
    Resize,
)
from atoll.dispatcher.core.backfill.reservation import Reservation
from atoll.dispatcher.core.log import Begin
from atoll.dispatcher.core.settings import CoreSettings
from atoll.dispatcher.explain import verdicts
from atoll.kube.recording import LogWriter
from atoll.model import drains, keys, timestamps
from atoll.model.decision import Decision, Phase
from atoll.model.decision import Line as StoryLine
from atoll.model.flavors import NONE, kept_to_nodes
from atoll.model.gang import Gang, divide
from atoll.model.lost import OnLost
from atoll.model.scoring import Scoring
from atoll.model.vector import Vector
from atoll.model.verdict import Reason, Verdict
from atoll.sim.clusters import MemberSpec
from atoll.sim.host import Host
from atoll.sim.jobs import Job
from atoll.sim.journal import Journal, Obstacle
from atoll.sim.member import Delays, Line, SimMember
from atoll.sim.presence import Outage, Presence
from atoll.sim.timeline import Timeline

START = 1_767_225_600.0
"""Where a trace begins, 2026-01-01T00:00:00Z."""
_SETTLE = 10.0
"""Seconds before the first job in which members publish their capacity."""


_TAINT = "simulated"
_TAINTS = {
    "drain": {"key": keys.DRAINED, "value": drains.ONE_BY_ONE, "effect": "NoExecute"},
    "taint": {"key": _TAINT, "effect": "NoExecute"},
    "cordon": {"key": keys.CORDONED, "effect": "NoSchedule"},
}
"""By the option that sets them."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a run is played."""

    delays: Delays = field(default_factory=Delays)
    outages: tuple[Outage, ...] = ()
    drains: tuple[Outage, ...] = ()
    """Members that are drained, one workload after the other, from one time to another."""
    cordons: tuple[Outage, ...] = ()
    """Members that get nothing new from one time to another."""
    taints: tuple[Outage, ...] = ()
    """Members that have a NoExecute taint from one time to another."""
    tolerated: float = 0.0
    """Seconds for which workloads tolerate such a taint (`tolerationSeconds` of their policies)."""
    lost: OnLost = OnLost.WAIT
    """What becomes of work in a lost member. `wait`: it goes on there. `requeue`: it returns to its queue after the
    toleration, and what runs on in the member ends there, or is stopped when the member returns. `exclusive`: its pods
    run until the fence, then it returns to its queue.
    """
    fence: float = 60.0
    """Seconds without the host after which a member's agent ends exclusive work."""
    toleration: float = 60.0
    """Seconds that a member may be away before its workloads return to their queues."""
    checkpoint: float | None = None
    """Seconds of work between two checkpoints; None: evicted work begins again."""
    core: CoreSettings = CoreSettings()
    """Of the dispatcher's core."""
    member: MemberCoreSettings = MemberCoreSettings()
    """Of the members' cores."""
    scoring: Scoring | None = None
    """By which members prefer nodes; None for the tightest gap."""
    until: float = math.inf
    """Seconds since the start of the trace after which the run is cut off."""
    verify: bool = False
    """Check nodes and the core's invariants at every step; slow."""


@dataclass(slots=True)
class _Run:
    """One epoch of a binding that was dispatched."""

    epoch: int
    #: members that still have to start their part
    missing: set[str]
    members: tuple[str, ...]
    #: of the whole job
    started: float | None = None
    #: once it is being taken back: members that still have something of it
    leaving: set[str] = field(default_factory=set)
    #: epoch of the decision that takes it back
    left_by: int = 0


class Simulation:
    """A federation in virtual time; `run` plays it to its end."""

    def __init__(
        self,
        members: Sequence[MemberSpec],
        queues: Sequence[QueueView],
        jobs: Sequence[Job],
        resource: str,
        options: Options = Options(),
        *,
        recorder: LogWriter[Begin, Event, Command] | None = None,
        progress: Callable[[float, int], None] | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            members: at least one.
            queues: that exist; jobs of others wait for ever.
            jobs: in order of submission.
            resource: what the journal measures.
            options: how it is played.
            recorder: of what the core is told.
            progress: called with the time and the jobs done, now and then.

        Raises:
            InputError: an outage of a member that there is not.
        """
        self.options = options
        self.timeline = Timeline(START - _SETTLE)
        core = Dispatcher(options.core)
        if recorder is not None:
            recorder.begin(Begin(options.core))
        self.host = Host(
            self.timeline,
            core,
            options.delays,
            written=self._written,
            decided=self._note_reservations,
            flavors=next((queue.flavors for queue in queues if queue.name == keys.ROOT_QUEUE), NONE),
            recorder=recorder,
            verify=options.verify,
        )
        self.members = {
            spec.name: SimMember(spec, self.timeline, options.delays, self, options.member, scoring=options.scoring)
            for spec in members
        }
        capacities = {spec.name: spec.total().get(resource, 0) for spec in members}
        self.journal = Journal(resource, sum(capacities.values()), capacities=capacities)
        self._lines = {name: Line(self.timeline) for name in self.members}
        self._presence = Presence(
            self.timeline, self.host.tell, {spec.name: spec for spec in members}, options.fence, self._lines
        )
        #: (lost member, binding) whose pods are gone
        self._gone: set[tuple[str, str]] = set()
        #: what ended in a member that the host can't see, and may yet be started elsewhere
        self._unseen: list[tuple[str, _Run]] = []
        tolerates = {"key": _TAINT, "operator": "Exists", "tolerationSeconds": options.tolerated}
        self._tolerations = (tolerates,) if options.taints and options.tolerated else ()
        self._jobs = list(jobs)
        self._next = 0
        self._done = 0
        self._progress = progress
        #: binding UID -> its live epoch
        self._runs: dict[str, _Run] = {}
        #: reservations as of the last pass
        self._reservations: list[Reservation] = []
        self._submit_queues_and_members(queues)
        for outage in options.outages:
            self._presence.check("outage", outage)
            self._plan_outage(outage)
        for option, periods in (("drain", options.drains), ("taint", options.taints), ("cordon", options.cordons)):
            for period in periods:
                self._presence.check(option, period)
                self._presence.plan_taint(START, option, period, _TAINTS[option])

    def run(self) -> Journal:
        """Play it to the end: until nothing happens any more or `until` is reached."""
        if self._jobs:
            self.timeline.at(START + self._jobs[0].submit, self._submit)
        if self.timeline.run(START + self.options.until):
            self.journal.end = self.options.until
        _ask_why(self.host, self.journal)
        return self.journal

    # -- what users and operators do ---------------------------------------------------------------------------------

    def _submit_queues_and_members(self, queues: Sequence[QueueView]) -> None:
        for queue in queues:
            self.host.tell(QueueSet(queue))
        for name, member in self.members.items():
            self._presence.set_ready(name, ready=True)
            member.wake()

    def _submit(self) -> None:
        job = self._jobs[self._next]
        self._next += 1
        uid = f"{self._next:07d}"
        self.journal.submitted(uid, job)
        on_lost, toleration = self._rules_of(uid)
        self.host.see(
            BindingView(
                uid,
                job.namespace,
                job.name,
                1,
                0,
                structs.replace(job.gang(START), on_lost=on_lost, lost_toleration=toleration),
                Decision(),
                timestamps.rfc3339_seconds(self.timeline.now),
                affinities=({"clusterNames": list(job.clusters)},) if job.clusters else ({},),
                tolerations=self._tolerations,
                divided=job.divided,
            )
        )
        if self._next < len(self._jobs):
            self.timeline.at(START + self._jobs[self._next].submit, self._submit)

    def _plan_outage(self, outage: Outage) -> None:
        name = outage.member

        def begin() -> None:
            self._lines[name].cut = True
            self._presence.set_ready(name, ready=False)
            for uid in known():
                on_lost, toleration = self._rules_of(uid)
                if on_lost is OnLost.REQUEUE:
                    self.timeline.after(toleration, partial(self._go_on_without, name, uid))
            if outage.end - outage.begin > self.options.fence:
                self.timeline.after(self.options.fence, lambda: lose(OnLost.EXCLUSIVE))

        def known() -> Iterable[str]:
            # Messages on their way there as well.
            sent = [uid for uid, run in self._runs.items() if name in run.members]
            return dict.fromkeys([*self.members[name].known, *sent])

        def lose(rule: OnLost) -> None:
            for uid in known():
                on_lost, toleration = self._rules_of(uid)
                if on_lost is rule:
                    self._gone.add((name, uid))
                    self.members[name].lose(uid)
                    over = max(START + outage.begin + toleration, self.timeline.now)
                    self.timeline.at(over, partial(self._go_on_without, name, uid))

        def end() -> None:
            # Back before they were given up: it says at once that their pods are gone.
            self._give_up(name)
            self._lines[name].mend()
            unseen, self._unseen = self._unseen, []
            for uid, run in unseen:
                self._finish(uid, run)
            self._presence.ready_without_stale(name)
            self.members[name].wake()

        self.timeline.at(START + outage.begin, begin)
        self.timeline.at(START + outage.end, end)

    def _rules_of(self, uid: str) -> tuple[OnLost, float]:
        """What becomes of a job in a lost member, and after how many seconds."""
        job = self._jobs[int(uid) - 1]
        on_lost = self.options.lost if job.on_lost is None else job.on_lost
        return on_lost, self.options.toleration if job.toleration is None else job.toleration

    def _go_on_without(self, name: str, uid: str) -> None:
        """The toleration is over: work on its way out of a lost member is gone for the host."""
        run = self._runs.get(uid)
        if run is not None and self._presence.lost_since[name] is not None and name in run.leaving:
            self._leave_stale(name, uid)
            self._released(name, uid, run.left_by)

    def _leave_stale(self, name: str, uid: str) -> None:
        """The host gives up what a lost member has of a binding; unless that is known to be gone, it runs on there."""
        if (name, uid) not in self._gone:
            self._presence.stale[name].add(uid)

    def _give_up(self, name: str) -> None:
        """A member is back without these pods before its absence was too long: what ran there starts over."""
        gone = {uid for member, uid in self._gone if member == name}
        self._gone -= {(name, uid) for uid in gone}
        for uid, run in list(self._runs.items()):
            view = self.host.views[uid]
            if uid not in gone or name not in run.members or (uid, run) in self._unseen:
                continue
            if run.leaving:
                self._released(name, uid, run.left_by)
                continue
            epoch = view.epoch + 1
            line = StoryLine(timestamps.rfc3339(self.timeline.now), Phase.EVICTING, Reason.EVICTED, f"{name} is lost")
            before = view.decision
            decision = Decision(
                epoch, Phase.EVICTING, Reason.EVICTED, story=before.told(line), evicted=before.evictions
            )
            fields = {"epoch": epoch, "decision": decision, "parts": (), "suspended": True}
            self.host.change(uid, generation=view.generation + 1, **fields)
            self._take_back(uid, run, Reason.EVICTED, epoch)
            self._released(name, uid, epoch)

    # -- what the core decided ---------------------------------------------------------------------------------------

    def _written(self, command: Command, before: BindingView) -> None:
        uid, epoch = command.uid, command.decision.epoch
        for name in before.decision.question.parts if before.decision.question is not None else ():
            self._send(name, partial(self.members[name].withdraw, uid, before.epoch))
        if isinstance(command, Ask):
            self._ask(uid, command)
        elif isinstance(command, Dispatch):
            names = tuple(part.cluster for part in command.parts)
            self._runs[uid] = _Run(epoch, set(names), names)
            record = self.journal.records[uid]
            record.dispatches += 1
            record.members = names
            if command.decision.phase is Phase.RESERVING:
                self._reserve(uid)
            else:
                self._start(uid)
        elif isinstance(command, Commit):
            self._start(uid)
        elif isinstance(command, Resize):
            self._resize(uid)
        elif isinstance(command, Evict) and (run := self._runs.get(uid)) is not None:
            record = self.journal.records[uid]
            if command.decision.reason is Reason.DEADLINE_EXCEEDED and before.decision.phase is Phase.DISPATCHED:
                record.stranded = True
            self._take_back(uid, run, command.decision.reason, epoch)
            for name in run.members if command.decision.reason is Reason.MEMBER_LOST else ():
                since = self._presence.lost_since[name]
                on_lost, toleration = self._rules_of(uid)
                over = since is not None and since + toleration <= self.timeline.now
                if over and (on_lost is OnLost.REQUEUE or (name, uid) in self._gone):
                    self._leave_stale(name, uid)
                    self._released(name, uid, epoch)

    def _note_reservations(self) -> None:
        made = list(self.host.core.reservations.made.values())
        # Those of the last pass as well: they may have been given up since.
        for reservation in (*self._reservations, *made):
            record = self.journal.records[reservation.uid]
            record.overtaken = record.overtaken or reservation.overtaken
            if record.expected_start is None and math.isfinite(reservation.first):
                record.expected_start = reservation.first - START
        self._reservations = made

    def _reserve(self, uid: str) -> None:
        view = self.host.views[uid]
        for name, part in _parts(view):
            member, epoch = self.members[name], view.epoch
            self._send(name, partial(member.hold, uid, epoch, part, view.namespace, view.name))

    def _ask(self, uid: str, command: Ask) -> None:
        view, question = self.host.views[uid], command.decision.question
        assert question is not None, "something is asked"
        for name, part in _parts(view, question.parts):
            asked = partial(self.members[name].hold, uid, view.epoch, part, view.namespace, view.name)
            self._send(name, partial(asked, gone=question.gone))

    def _start(self, uid: str) -> None:
        view, now = self.host.views[uid], timestamps.rfc3339(self.timeline.now)
        for name, part in _parts(view):
            member, epoch = self.members[name], view.epoch
            spots = view.decision.expected.get(name, ())
            self._send(name, partial(member.start, uid, epoch, part, view.namespace, view.name, now, spots))

    def _resize(self, uid: str) -> None:
        view, now = self.host.views[uid], timestamps.rfc3339(self.timeline.now)
        run, names = self._runs.get(uid), tuple(name for name, _ in view.parts)
        if run is not None and names != run.members:
            # It goes on without a part whose member is lost.
            for name in set(run.members) - set(names):
                self._leave_stale(name, uid)
                self._send(name, partial(self.members[name].stop, uid, view.epoch))
            run.members, run.missing = names, run.missing.intersection(names)
            if run.started is not None:
                record = self.journal.records[uid]
                left = run.started + record.job.duration - record.done - (self.timeline.now - START)
                self.timeline.after(max(left, 0.0), lambda: self._finish(uid, run))
        for name, part in _parts(view):
            member, epoch = self.members[name], view.epoch
            spots = view.decision.expected.get(name, ())
            self._send(name, partial(member.resize, uid, epoch, part, view.namespace, view.name, now, spots))

    def _take_back(self, uid: str, run: _Run, reason: Reason, epoch: int) -> None:
        now = self.timeline.now - START
        record = self.journal.records[uid]
        if run.started is not None and self.options.checkpoint:
            ran = record.done + now - run.started
            record.done = min(ran // self.options.checkpoint * self.options.checkpoint, record.job.duration)
        run.started, run.leaving, run.left_by = None, set(run.members), epoch
        self.journal.evicted(uid, now, reason)
        for name in run.members:
            self._send(name, partial(self.members[name].stop, uid, epoch))

    def _send(self, member: str, action: Callable[[], None]) -> None:
        self._lines[member].send(self.options.delays.delivery, action)

    def _report(self, member: str, action: Callable[[], None]) -> None:
        self._lines[member].send(self.options.delays.report, action)

    # -- what members say (`member.Observer`) ------------------------------------------------------------------------

    def published(self, member: str, views: list[CapacityView]) -> None:
        """Free amounts, all roots under one generation."""
        for view in views:
            self._lines[member].send(0.0, partial(self.host.tell, CapacitySet(view)))

    def answered(self, member: str, uid: str, epoch: int, answer: MemberAnswer) -> None:
        """A hold was granted or refused."""

        def arrive() -> None:
            view = self.host.views.get(uid)
            if view is not None and view.epoch == epoch:
                self.host.change(uid, reserved={**view.reserved, member: answer})

        self._report(member, arrive)

    def bound(self, member: str, uid: str, epoch: int, generation: int, nodes: Mapping[str, int]) -> None:
        """So many pods of the part are on nodes by now."""
        run = self._runs.get(uid)
        if run is None or run.epoch != epoch or run.leaving:
            return
        run.missing.discard(member)
        if not run.missing and run.started is None:
            self._began(uid, run)

        def arrive() -> None:
            view = self.host.views.get(uid)
            if view is not None and view.epoch == epoch:
                self.host.change(
                    uid,
                    placed={**view.placed, member: (generation, sum(nodes.values()))},
                    nodes={**view.nodes, member: nodes},
                    bound=view.bound or not run.missing,
                )

        self._report(member, arrive)

    def released(self, member: str, uid: str, epoch: int) -> None:
        """Nothing of the binding is left there."""
        self._presence.gone_there(member, uid)
        self._report(member, lambda: self._released(member, uid, epoch))

    def occupied(self, member: str, uid: str, amount: Vector, times: int) -> None:
        """Pods took or gave back this much."""
        self.journal.occupied(uid, member, self.timeline.now - START, amount.get(self.journal.resource, 0) * times)
        if self.options.verify:
            for each in self.members.values():
                each.verify()

    def _released(self, member: str, uid: str, epoch: int) -> None:
        run = self._runs.get(uid)
        if run is None or run.left_by != epoch:
            return
        run.leaving.discard(member)
        if run.leaving:
            return
        del self._runs[uid]
        view = self.host.views[uid]
        self.host.change(uid, released=view.generation, placed={}, nodes={}, reserved={}, bound=False)

    # -- running -----------------------------------------------------------------------------------------------------

    def _began(self, uid: str, run: _Run) -> None:
        now = self.timeline.now - START
        run.started = now
        record = self.journal.records[uid]
        self.journal.started(uid, now)
        self.timeline.after(record.job.duration - record.done, lambda: self._finish(uid, run))

    def _finish(self, uid: str, run: _Run) -> None:
        for name in run.members if run.leaving or self._runs.get(uid) is not run else ():
            if uid in self._presence.stale[name] and self._lines[name].cut:
                # What the host has given up there ends by itself.
                self.members[name].finish(uid)
                self._presence.stale[name].discard(uid)
        if self._runs.get(uid) is not run or run.started is None:
            return
        if any((name, uid) in self._gone for name in run.members):
            return
        if self._rules_of(uid)[0] is not OnLost.WAIT and any(self._lines[name].cut for name in run.members):
            # The host hears of it when that member returns, if it has not given it up by then.
            self._unseen.append((uid, run))
            for name in run.members if self._rules_of(uid)[0] is OnLost.REQUEUE else ():
                if self._lines[name].cut:
                    self.members[name].finish(uid)
            return
        del self._runs[uid]
        self._done += 1
        self.journal.finished(uid, self.timeline.now - START)
        if self._progress is not None and self._done % 100 == 0:
            self._progress(self.timeline.now - START, self._done)
        placed: dict[str, tuple[int, int]] = {}

        def arrive(name: str, generation: int) -> None:
            placed[name] = (generation, 0)
            if len(placed) == len(run.members):
                self.host.change(uid, finished=True, placed=placed, nodes={})
                self.host.forget(uid)

        for name in run.members:
            self._report(name, partial(arrive, name, self.members[name].finish(uid)))


def run(
    members: Sequence[MemberSpec],
    queues: Sequence[QueueView],
    jobs: Sequence[Job],
    resource: str,
    options: Options = Options(),
    *,
    recorder: LogWriter[Begin, Event, Command] | None = None,
    progress: Callable[[float, int], None] | None = None,
) -> tuple[Journal, Host]:
    """Play one run; see `Simulation`."""
    simulation = Simulation(members, queues, jobs, resource, options, recorder=recorder, progress=progress)
    return simulation.run(), simulation.host


def _ask_why(host: Host, journal: Journal) -> None:
    """Let the core say why jobs have not started."""
    core, obstacles = host.core, journal.obstacles
    for uid, record in journal.records.items():
        if record.first_start is not None:
            continue
        # Of a job that is dispatched, or that the core has not looked at yet, its decision tells.
        decided = host.views[uid].decision
        verdict = core.verdict(uid) or Verdict(decided.reason, decided.blocker)
        if verdict.reason not in obstacles:
            account = verdicts.account(core, uid)
            helps = [change.message for change in account.changes] if account is not None else []
            name, message = f"{record.job.namespace}/{record.job.name}", verdict.sentence()
            if account is not None and account.reason == verdict.reason:
                # With the numbers of now, not those of when it was told.
                message = account.message
            obstacles[verdict.reason] = Obstacle(name, message, helps)
        obstacles[verdict.reason].jobs += 1


def _parts(view: BindingView, asked: Mapping[str, Mapping[str, int]] | None = None) -> Iterator[tuple[str, Gang]]:
    """(member, gang of its part): those that it has, or those that are asked about."""
    assert view.gang is not None, "every job has a gang"
    gang = kept_to_nodes(view.gang, view.decision.flavors)
    parts = dict(view.parts)
    if asked is not None:
        parts = {name: tuple(tasks[task.name] for task in gang.tasks) for name, tasks in asked.items()}
    counts = list(parts.values())
    gangs = divide(gang, counts) if len(counts) > 1 else [gang.sized(counts[0])]
    return zip(parts, gangs, strict=True)
