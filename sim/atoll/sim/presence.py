"""Members as the host sees them: ready, lost, cordoned, tainted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from atoll.dispatcher.core import ClusterSet, ClusterView
from atoll.model import keys, timestamps
from atoll.sim.clusters import MemberSpec
from atoll.sim.inputs import MOST_SECONDS, InputError
from atoll.sim.member import Line
from atoll.sim.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Outage:
    """A member is not ready from one time to another (seconds since the start of the trace)."""

    member: str
    begin: float
    end: float

    @classmethod
    def parse(cls, text: str, option: str = "outage") -> Outage:
        """Read `member:from:to`.

        Raises:
            InputError: not of that form.
        """
        name, _, times = text.rpartition(":")[0].partition(":")
        try:
            outage = cls(name, float(times), float(text.rpartition(":")[2]))
        except ValueError:
            outage = cls("", 0, 0)
        if not outage.member or not 0 <= outage.begin < outage.end <= MOST_SECONDS:
            raise InputError(
                f"--{option} {text}: expected MEMBER:FROM:TO in seconds since the start, such as east:600:1200"
            )
        return outage


class Presence:
    """Tells the host of each change."""

    def __init__(
        self,
        timeline: Timeline,
        tell: Callable[[ClusterSet], None],
        specs: Mapping[str, MemberSpec],
        fence: float,
        lines: Mapping[str, Line],
    ) -> None:
        """No member is ready at first.

        Args:
            timeline: of the run.
            tell: gives the host an event.
            specs: of all members by name.
            fence: seconds without the host after which a member ends exclusive work.
            lines: between the host and each member.
        """
        self._timeline, self._tell, self._specs, self._fence, self._lines = timeline, tell, specs, fence, lines
        #: since when members are away
        self.lost_since: dict[str, float | None] = dict.fromkeys(specs)
        #: what administrators set, by the option that says so
        self._taints: dict[str, dict[str, dict[str, str]]] = {name: {} for name in specs}
        #: member -> bindings of which it has pods that the host has given up: it is not ready before these are gone
        self.stale: dict[str, set[str]] = {name: set() for name in specs}

    def set_ready(self, name: str, *, ready: bool) -> None:
        """Tell the host that a member is ready, or lost from now on."""
        self.lost_since[name] = None if ready else self._timeline.now
        self._tell_cluster(name)

    def _tell_cluster(self, name: str) -> None:
        spec, since, taints = self._specs[name], self.lost_since[name], self._taints[name]
        drained = any(taint["key"] == keys.DRAINED for taint in taints.values())
        view = ClusterView(name, since is None and not drained, spec.labels, (*spec.taints, *taints.values()))
        fence = None if since is None else self._fence
        self._tell(ClusterSet(replace(view, lost_since=since, fenced_after=fence)))

    def check(self, option: str, during: Outage) -> None:
        """Refuse a member that there is not.

        Args:
            option: of the command line, for the message.
            during: what the option says.

        Raises:
            InputError: there is no such member.
        """
        if during.member not in self._specs:
            raise InputError(f"--{option} {during.member}: no such member; there are {', '.join(self._specs)}")

    def plan_taint(self, start: float, option: str, during: Outage, taint: dict[str, str]) -> None:
        """Give a member a taint for some time.

        Args:
            start: of the trace, to which the times are relative.
            option: of the command line; each may give a member one.
            during: the member and its times.
            taint: its key, effect and perhaps value.
        """
        name = during.member

        def begin() -> None:
            self._taints[name][option] = {**taint, "timeAdded": timestamps.rfc3339(self._timeline.now)}
            self._tell_cluster(name)

        def end() -> None:
            self._taints[name].pop(option, None)
            self._tell_cluster(name)

        self._timeline.at(start + during.begin, begin)
        self._timeline.at(start + during.end, end)

    def gone_there(self, name: str, uid: str) -> None:
        """A member has no pods of a binding any more."""
        self.stale[name].discard(uid)
        self.ready_without_stale(name)

    def ready_without_stale(self, name: str) -> None:
        """Make a member ready that is back and has nothing left that the host has given up."""
        if self.lost_since[name] is not None and not self._lines[name].cut and not self.stale[name]:
            self.set_ready(name, ready=True)
