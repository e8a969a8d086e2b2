"""Which pods of a lower priority must go so that a gang fits inside the member; pure.

The rules for victims are here, the search is `atoll.fit.victims`:

- Pods that this scheduler placed, of gangs that came to the member without the host and whose priority is lower. What
  the host sent is evicted by the host alone; what others placed is theirs; `volcano.sh/preemptable: "false"` holds.
- What an elastic gang has beyond its minimum first; else the whole gang. Never so many that a PodDisruptionBudget is
  broken.
- Of the lowest priorities only, as far as that is enough; of one priority the youngest first.

Pods that leave anyway count as gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from atoll.agent.objects import Budget, Pod, PodGroup
from atoll.agent.scheduler.core.gangs import in_order
from atoll.agent.scheduler.core.room import Room
from atoll.agent.scheduler.core.settings import PreemptionSettings
from atoll.fit import Nodes, Placement, place
from atoll.fit.site import Pods, Site, without
from atoll.fit.victims import Bounds, Spot, Wanted, search, spots
from atoll.model import keys
from atoll.model.gang import Gang
from atoll.model.objects import Meta

_HERE = ""
"""The one member, as the search calls it."""


@dataclass(slots=True, eq=False)
class Bundle:
    """The smallest thing that can go: a gang, or a pod that an elastic gang can spare."""

    gang: str
    members: Sequence[Pod]
    pods: Mapping[str, Pods]
    budgets: Mapping[str, int]
    """PodDisruptionBudget -> pods of the bundle that it counts."""
    after: Bundle | None = field(default=None, repr=False)
    spare: bool = True
    """Whether the gang runs on without it."""
    position: int = 0
    spots: Collection[Spot] = field(init=False)

    def __post_init__(self) -> None:
        self.spots = spots(self.pods)


@dataclass(frozen=True)
class Victim:
    """A gang that may have to go, or the pods that it can spare."""

    gang: str
    group: PodGroup | None
    pods: Sequence[Pod]
    """On nodes, in order of task and index."""

    @property
    def priority(self) -> int:
        """The highest of its pods'."""
        return max(pod.priority for pod in self.pods)

    @property
    def rank(self) -> tuple[int, tuple[int, ...], int, str]:
        """Its place among victims: lower priority; most recently made; fewest pods; key."""
        made = max(pod.metadata.creation_timestamp for pod in self.pods)
        # Texts of one length, the latest first.
        return self.priority, tuple(-ord(letter) for letter in made), len(self.pods), self.gang

    def spare(self) -> list[Pod]:
        """Pods without which it runs on, in the order in which they go."""
        if self.group is None:
            return []
        floors = self.group.spec.min_task_member
        left, count = Counter(pod.task for pod in self.pods), len(self.pods)
        found = []
        for pod in reversed(self.pods):
            if count > self.group.spec.min_member > 0 and left[pod.task] > floors.get(pod.task, 0):
                found.append(pod)
                left[pod.task] -= 1
                count -= 1
        return found


def victim(key: str, group: PodGroup | None, pods: Iterable[Pod]) -> Victim | None:
    """A gang as a victim; None where none of its pods may be evicted for others.

    Args:
        key: of the gang.
        group: its declaration; None for a pod on its own.
        pods: its pods that this scheduler placed.
    """
    known = list(pods)
    if group is not None and (group.binding_uid or _stays(group.metadata)):
        return None
    if any(pod.binding_uid or _stays(pod.metadata) for pod in known):
        return None
    there = [pod for pod in known if pod.node and not pod.finished and not pod.terminating]
    return Victim(key, group, in_order(there)) if there else None


def _stays(meta: Meta) -> bool:
    said = meta.annotations.get(keys.PREEMPTABLE) or meta.labels.get(keys.PREEMPTABLE)
    return said == "false"


@dataclass(frozen=True)
class Way:
    """How a gang fits."""

    victims: Sequence[Pod]
    """Pods to evict; none where what leaves already is enough."""
    gangs: int
    """How many gangs these are of."""
    nodes: Nodes
    placement: Placement
    awaited: Sequence[str]
    """Keys of pods that leave already, from nodes of the placement."""


class _Trial:
    """The member's nodes as they would be if some bundles went."""

    def __init__(
        self, room: Room, gang: Gang, within: int | None, leaving: Sequence[str], budgets: Mapping[str, Budget]
    ) -> None:
        self._room, self._gang, self._within, self._leaving = room, gang, within, leaving
        self._left = {key: budget.status.disruptions_allowed for key, budget in budgets.items()}
        nodes = room.arrays.nodes().copy()
        for key in leaving:
            node, requests = room.requests_of(key)
            if (column := room.arrays.column_of(node)) is not None:
                nodes.free[:, column] += nodes.column(requests)
        inside = np.ones(len(nodes), np.bool_)
        if within is not None:
            inside[:] = False
            inside[nodes.layout.inside(within)] = True
        #: whether pods say more of their nodes than amounts of resources
        self.by_rules = nodes.in_turn(gang) or any(task.ports or task.attach or task.claims for task in gang.tasks)
        accepting = [nodes.accepting(task) & inside for task in gang.tasks]
        held = [np.where(ok, nodes.room(task.requests), 0) for ok, task in zip(accepting, gang.tasks, strict=True)]
        site = Site(nodes, gang, held, gang.floor())
        site.accepts = accepting
        self.sites: Mapping[str, Site] = {_HERE: site}
        self.wanted = Wanted(gang.tasks, gang.floor(), None)
        self.taken: dict[Bundle, None] = {}
        self.refused = 0
        self._alone = len(gang.tasks) == 1 and not self.by_rules and not gang.grouped

    @property
    def site(self) -> Site:
        return self.sites[_HERE]

    def take(self, bundle: Bundle) -> bool:
        if bundle.after is not None and bundle.after not in self.taken:
            return False
        if any(self._left[key] < count for key, count in bundle.budgets.items()):
            return False
        self.taken[bundle] = None
        self._count(bundle, 1)
        return True

    def put(self, bundle: Bundle) -> None:
        del self.taken[bundle]
        self._count(bundle, -1)

    def stands(self) -> bool:
        return True

    def put_all(self) -> None:
        for bundle in list(self.taken):
            self.put(bundle)

    def _count(self, bundle: Bundle, times: int) -> None:
        for key, count in bundle.budgets.items():
            self._left[key] -= count * times
        for node, requests, count in bundle.pods[_HERE]:
            self.site.change(node, requests, count * times)

    def make_up(self, pool: Sequence[Bundle], member: str) -> bool:
        """There is no quota here."""
        return True

    def may_fit(self) -> bool:
        """A necessary condition: each task by itself, by amounts."""
        return bool(self.site.enough)

    def fits(self) -> bool:
        return self.may_fit() and (self._alone or self.placement() is not None)

    def placement(self) -> Placement | None:
        nodes = self.site.nodes
        if self.by_rules:
            away = [pod.metadata.key for bundle in self.taken for pod in bundle.members]
            nodes = self._room.nodes_but([*self._leaving, *away])
        found = place(nodes, self._gang, within=self._within)
        return found if isinstance(found, Placement) else None


def find(
    room: Room,
    gang: Gang,
    within: int | None,
    victims: Iterable[Victim],
    budgets: Mapping[str, Budget],
    leaving: Collection[str],
    settings: PreemptionSettings,
) -> Way | None:
    """The victims without which a gang fits; None where none were found.

    Args:
        room: not changed.
        gang: what does not fit.
        within: index of the domain to stay inside.
        victims: of lower priorities, in any order.
        budgets: PodDisruptionBudgets of the member.
        leaving: keys of pods that were deleted and are still on nodes.
        settings: bounds.
    """
    trial = _Trial(room, gang, within, list(leaving), budgets)
    most = settings.exhaustive_by_rules if trial.by_rules else settings.exhaustive
    bounds = Bounds(settings.places, most, 1)
    ranked = sorted(victims, key=lambda each: each.rank)
    for pool in _pools(room, ranked, budgets):
        for position, bundle in enumerate(pool):
            bundle.position = position
        with without(trial.sites, (bundle.pods for bundle in pool)):
            if not trial.may_fit():
                continue
        chosen = search(trial, pool, bounds)
        if chosen is not None:
            return _way(room, trial, chosen, leaving)
    return None


def _pools(room: Room, ranked: Sequence[Victim], budgets: Mapping[str, Budget]) -> Iterator[list[Bundle]]:
    """Permitted victims in order: none; then from the lowest priority up, and of each the surplus of gangs
    before whole gangs.
    """
    yield []
    for priority in dict.fromkeys(each.priority for each in ranked):
        bundles = [bundle for each in ranked if each.priority <= priority for bundle in _bundles(room, each, budgets)]
        spare = [bundle for bundle in bundles if bundle.spare]
        if spare and len(spare) < len(bundles):
            yield spare
        yield [*spare, *(bundle for bundle in bundles if not bundle.spare)]


def _bundles(room: Room, each: Victim, budgets: Mapping[str, Budget]) -> Iterator[Bundle]:
    last: Bundle | None = None
    spare = each.spare()
    rest = [pod for pod in each.pods if pod not in spare]
    for members, may in (*(([pod], True) for pod in spare), (rest, False)):
        pods = [(column, pod.requests, 1) for pod in members if (column := room.arrays.column_of(pod.node)) is not None]
        counted = Counter(key for pod in members for key, budget in budgets.items() if budget.covers(pod))
        twice = any(sum(budget.covers(pod) for budget in budgets.values()) > 1 for pod in members)
        if not members or twice:
            # The API server evicts no pod that several budgets count.
            return
        last = Bundle(each.gang, members, {_HERE: pods}, counted, last, may)
        yield last


def _way(room: Room, trial: _Trial, chosen: Sequence[Bundle], leaving: Collection[str]) -> Way | None:
    for bundle in sorted(chosen, key=lambda each: each.position):
        taken = trial.take(bundle)
        assert taken, "what was found together may go together"
    placement = trial.placement()
    if placement is None:
        return None
    nodes = room.arrays.nodes()
    names = {nodes.names[node] for _, node, _ in placement.pods}
    members = [pod for bundle in trial.taken for pod in bundle.members]
    awaited = [key for key in leaving if room.requests_of(key)[0] in names]
    return Way(members, len({bundle.gang for bundle in chosen}), nodes, placement, awaited)
