"""What happened in a run, as plain figures: one record per job, and use and demand per queue as step functions."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from atoll.model.quantity import scale_of
from atoll.model.verdict import Reason
from atoll.sim.jobs import Job


@dataclass(slots=True)
class Record:
    """One job; times in seconds since the start of the trace, None for never."""

    job: Job
    size: int
    """Of the resource that is measured, in wholes, rounded up; or its pods where it asks for none."""
    amount: int
    """Of the resource that is measured."""
    first_start: float | None = None
    started: float | None = None
    """Of the run that is under way or was the last."""
    finished: float | None = None
    dispatches: int = 0
    evictions: list[str] = field(default_factory=list)
    """Reasons."""
    done: float = 0.0
    """Seconds of work that a restart need not repeat."""
    members: tuple[str, ...] = ()
    expected_start: float | None = None
    """The first time of its reservation."""
    overtaken: bool = False
    """A workload of a better rank took from its reservation, whose first time therefore no longer binds."""
    stranded: bool = False
    """It was in a member and did not start there in time."""


@dataclass(slots=True)
class Steps:
    """A step function of time: values hold from their time on."""

    times: array[float] = field(default_factory=lambda: array("d"))
    used: array[float] = field(default_factory=lambda: array("d"))
    """Held by pods."""
    wanted: array[float] = field(default_factory=lambda: array("d"))
    """Asked for by jobs that are not over and have not started."""
    waiting: array[float] = field(default_factory=lambda: array("d"))
    """How many jobs these are."""
    _now: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])

    def step(self, when: float, used: float = 0, wanted: float = 0, waiting: int = 0) -> None:
        """Add to the values from this time on."""
        now = self._now
        now[0] += used
        now[1] += wanted
        now[2] += waiting
        if self.times and self.times[-1] == when:
            self.used[-1], self.wanted[-1], self.waiting[-1] = now
            return
        self.times.append(when)
        for values, value in zip((self.used, self.wanted, self.waiting), now, strict=True):
            values.append(value)


@dataclass(slots=True)
class Obstacle:
    """Why jobs had not started when the run ended, as the dispatcher says."""

    example: str
    """Of the first of them: `namespace/name`, the whole verdict, and what would help."""
    message: str
    would_help: list[str]
    jobs: int = 0
    """How many they are."""


@dataclass(slots=True)
class Journal:
    """Everything that metrics are made of."""

    resource: str
    """The measured resource."""
    capacity: int
    """Of all members."""
    records: dict[str, Record] = field(default_factory=dict)
    """By binding UID, in order of submission."""
    queues: dict[str, Steps] = field(default_factory=dict)
    whole: Steps = field(default_factory=Steps)
    members: dict[str, Steps] = field(default_factory=dict)
    """Only use."""
    capacities: dict[str, int] = field(default_factory=dict)
    """Of each member."""
    end: float = 0.0
    """When the last job came, started, ended or was taken back, or the last pod went; or when the run was cut off."""

    obstacles: dict[Reason, Obstacle] = field(default_factory=dict)
    """Of the jobs that never started."""

    def submitted(self, uid: str, job: Job) -> None:
        """A job enters its queue."""
        amount = job.total().get(self.resource, 0)
        self.records[uid] = Record(job, -(-amount // scale_of(self.resource)) or job.replicas, amount)
        self.end = job.submit
        self._waits(uid, job.submit, 1)

    def started(self, uid: str, when: float) -> None:
        """All parts have their minimum."""
        record = self.records[uid]
        record.started = self.end = when
        if record.first_start is None:
            record.first_start = when
        self._waits(uid, when, -1)

    def evicted(self, uid: str, when: float, reason: str) -> None:
        """A decision takes it back."""
        record = self.records[uid]
        record.evictions.append(reason)
        self.end = when
        if record.started is not None:
            record.started = None
            self._waits(uid, when, 1)

    def finished(self, uid: str, when: float) -> None:
        """It is over."""
        self.records[uid].finished = self.end = when

    def occupied(self, uid: str, member: str, when: float, amount: int) -> None:
        """Its pods take so much more, or less, in a member."""
        queue = self.records[uid].job.queue
        self.end = when
        for steps in (self.queues.setdefault(queue, Steps()), self.whole, self.members.setdefault(member, Steps())):
            steps.step(when, used=amount)

    def _waits(self, uid: str, when: float, sign: int) -> None:
        record = self.records[uid]
        for steps in (self.queues.setdefault(record.job.queue, Steps()), self.whole):
            steps.step(when, wanted=sign * record.amount, waiting=sign)
