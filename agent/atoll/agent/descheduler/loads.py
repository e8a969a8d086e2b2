"""Use of nodes and pods, as far as figures and this look's moves tell it; shares of what nodes offer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from atoll.agent.descheduler.policy import PODS, Balance, Requests
from atoll.agent.descheduler.rules import Rules
from atoll.agent.descheduler.world import Figures, Subject, sane
from atoll.agent.objects import Node
from atoll.agent.scheduler.core.room import Room
from atoll.model import vector

Shares = dict[str, float]
"""Resource -> share of a node's allocatable amount."""


class Loads:
    def __init__(
        self,
        nodes: Mapping[str, Node],
        on: Mapping[str, Sequence[Subject]],
        room: Room,
        rules: Rules,
        now: float,
        skip: Callable[[str, str], None],
    ) -> None:
        """Read use in one look.

        Args:
            nodes: that the policy selects, by name.
            on: node -> its pods that are not finished.
            room: amounts that nodes offer.
            rules: how old figures may be.
            now: seconds, by the clock of the figures.
            skip: hears of what stays, and why.
        """
        self._nodes, self._on, self._room, self._rules = nodes, on, room, rules
        self._now, self._skip = now, skip

    def measured(self, strategy: Balance, figures: Figures | None) -> dict[str, dict[str, float]] | None:
        """Node -> use in units; only nodes of which all is known; None where nothing may be decided."""
        wanted = strategy.low.keys()
        if isinstance(strategy.source, Requests):
            asked = {
                name: vector.total(each.pod.requests for each in self._on.get(name, ()))
                for name in self._nodes
                if self._offered(name, wanted)
            }
            return {name: {key: float(total.get(key, 0)) for key in wanted} for name, total in asked.items()}
        if figures is None or figures.problem:
            self._skip(strategy.plugin, f"no figures: {figures.problem if figures else 'none were taken'}")
            return None
        if figures.older_than(self._rules.stale, self._now):
            age = self._now - figures.taken
            self._skip(strategy.plugin, f"figures are {age:.0f} s old, more than {self._rules.stale:g}")
            return None
        uses = {}
        for name in sorted(self._nodes):
            use = dict(figures.nodes.get(name, {}))
            use[PODS] = float(len(self._on.get(name, ())))
            missing = sorted(key for key in wanted if key not in use or not sane(use[key]))
            if missing:
                self._skip(f"node {name}", f"its use of {', '.join(missing)} is unknown: neither source nor target")
            elif self._offered(name, wanted):
                uses[name] = {key: use[key] for key in wanted}
        return uses

    def _offered(self, name: str, wanted: Iterable[str]) -> bool:
        """Whether the node has shares: it is ready and offers all of these."""
        if not self._nodes[name].ready:
            self._skip(f"node {name}", "it is not ready: neither source nor target")
            return False
        offers = self._room.amounts.offered(name)
        lacking = sorted(key for key in wanted if offers.get(key, 0) <= 0)
        if lacking:
            self._skip(f"node {name}", f"it offers no {', '.join(lacking)}: neither source nor target")
        return not lacking

    def shares(self, name: str, use: Mapping[str, float]) -> Shares:
        """Shares of a node that these units are."""
        return {key: self.share(name, key, use) for key in use}

    def share(self, name: str, key: str, use: Mapping[str, float]) -> float:
        """The same of one resource."""
        return use.get(key, 0) / self._room.amounts.offered(name)[key]


def bounds(strategy: Balance, shares: Mapping[str, Shares]) -> tuple[Shares, Shares]:
    """Shares below which a node may take pods, and above which it gives some; around the mean for deviations."""
    if not strategy.deviation or not shares:
        return dict(strategy.low), dict(strategy.high)
    mean = {key: sum(has[key] for has in shares.values()) / len(shares) for key in strategy.low}
    low = {key: max(0.0, mean[key] - each) for key, each in strategy.low.items()}
    return low, {key: min(1.0, mean[key] + each) for key, each in strategy.high.items()}


def use_of(strategy: Balance, subject: Subject, figures: Figures | None) -> dict[str, float] | None:
    """Of one pod in units; None where it is unknown."""
    if isinstance(strategy.source, Requests) or figures is None:
        return {key: float(subject.pod.requests.get(key, 0)) for key in strategy.low}
    use = dict(figures.pods.get(subject.metadata.key, {}))
    use[PODS] = 1.0
    known = all(key in use and sane(use[key]) for key in strategy.low)
    return {key: use[key] for key in strategy.low} if known else None
