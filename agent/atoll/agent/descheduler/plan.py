"""Which pods move from which node to which: one pure step; the same input gives the same moves.

A node whose use is unknown is neither source nor target. A pod moves only where a node both fits it, by the arithmetic
that Atoll places with, and stays below the target with the pod's own use. Use that earlier moves changed is counted
until the window of the figures has passed, on both sides to the disadvantage of a move. A node acts only after several
looks above the target; a node that gave pods takes none, and one that took pods gives none, for a pause.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import numpy as np

from atoll.agent.descheduler.evictable import Evictable, kept_off
from atoll.agent.descheduler.loads import Loads, Shares, bounds, use_of
from atoll.agent.descheduler.policy import Balance, Misfits, Policy
from atoll.agent.descheduler.rules import Rules
from atoll.agent.descheduler.world import Figures, Subject, World
from atoll.agent.objects import Node
from atoll.agent.scheduler.core.gangs import rules_of, task_of
from atoll.agent.scheduler.core.kept import Kept, Place
from atoll.agent.scheduler.core.lifted import unpinned
from atoll.agent.scheduler.core.room import Room
from atoll.fit import Placement, place
from atoll.model import keys, placer, selectors
from atoll.model.gang import Gang, Task
from atoll.model.timestamps import rfc3339_seconds, to_seconds

_LEAST_NODES: Final = 2
_SKEW: Final = 5.0
"""Seconds by which creation times may be off."""


class Move(NamedTuple):
    """A pod that goes, and the place that it has."""

    key: str
    uid: str
    node: str
    target: str
    plugin: str
    reason: str
    use: Mapping[str, float]
    """Its use in units: thousandths of cores, bytes, pods."""
    workload: str
    """UID of its workload."""
    kept: tuple[tuple[str, Place], ...] = ()
    """(node, place) to keep before it leaves."""


class Ask(NamedTuple):
    """A gang that the host may move: whole, with its age."""

    binding: str
    """UID of its binding."""
    group: str
    """`namespace/name` of the PodGroup that carries the request."""
    node: str
    places: Mapping[str, str]
    """Pod -> the node that has a place for it."""
    reason: str
    kept: tuple[tuple[str, Place], ...] = ()
    """(node, place) to keep before it leaves."""


class Skip(NamedTuple):
    """What stays, and why."""

    about: str
    """`node NAME`, `pod NAMESPACE/NAME`, or a plug-in."""
    reason: str


@dataclass(slots=True)
class _Moved:
    """A move that was made, while figures don't show it."""

    node: str
    target: str
    use: Mapping[str, float]
    at: float


@dataclass
class Memory:
    """What of earlier looks the next one needs."""

    #: (profile and plug-in, node) -> looks in a row above the target
    above: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: node -> until when it takes no pods, because it gave some
    gave: dict[str, float] = field(default_factory=dict)
    #: node -> until when it gives no pods, because it took some
    took: dict[str, float] = field(default_factory=dict)
    moves: list[_Moved] = field(default_factory=list)
    #: UID of a workload -> when pods of it moved, the earliest first
    workloads: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    #: UID of a binding -> when the host was asked to move its gang
    asked: dict[str, float] = field(default_factory=dict)
    #: node -> until when a gang that leaves it may still wait for its next place
    leaving: dict[str, float] = field(default_factory=dict)

    def moved(self, move: Move, now: float, rules: Rules) -> None:
        """The pod was evicted."""
        self.gave[move.node] = self.took[move.target] = now + rules.pause
        self.moves.append(_Moved(move.node, move.target, move.use, now))
        self.workloads[move.workload].append(now)

    def ask(self, ask: Ask, now: float, rules: Rules) -> None:
        """The host was asked to move the gang."""
        self.asked[ask.binding] = now
        self.leaving[ask.node] = now + rules.settle

    def expire(self, now: float, rules: Rules) -> None:
        """Forget moves and pauses that ended."""
        self.moves = [each for each in self.moves if each.at + rules.settle > now]
        for pauses in (self.gave, self.took, self.leaving):
            for name in [name for name, until in pauses.items() if until <= now]:
                del pauses[name]
        for uid, times in list(self.workloads.items()):
            times[:] = [at for at in times if at + rules.rest > now]
            if not times:
                del self.workloads[uid]
        for uid in [uid for uid, at in self.asked.items() if at + rules.settle <= now]:
            del self.asked[uid]


@dataclass
class Plan:
    """One look: moves in their order, and why all else stays."""

    moves: list[Move] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    hot: set[str] = field(default_factory=set)
    """Nodes above the target of some strategy, acting or not."""
    lasting: set[str] = field(default_factory=set)
    """Hot ones that are so for as many looks as the rules ask."""
    below: int | None = None
    """Priority below which pods do not start on these; None where the taint is a preference for all."""
    cool: set[str] = field(default_factory=set)
    """Nodes whose use is known and clearly below every target."""
    shares: dict[str, Shares] = field(default_factory=dict)
    """Node -> use, of the last strategy by load."""
    measured: bool = False
    """Whether some strategy by load knew the use of nodes."""

    def skip(self, about: str, reason: str) -> None:
        """Note what stays."""
        self.skips.append(Skip(about, reason))


def plan(
    world: World,
    policy: Policy,
    figures: Mapping[str, Figures],
    memory: Memory,
    rules: Rules,
    *,
    now: float,
    wall: float,
) -> Plan:
    """Decide one look.

    Args:
        world: the cluster.
        policy: of its administrator.
        figures: `source_key` of each strategy that measures -> use.
        memory: of earlier looks; `above` is counted on here, moves are noted by who makes them.
        rules: bounds beside the policy.
        now: seconds of a clock that never goes back, the one of `figures`.
        wall: seconds since the epoch.
    """
    memory.expire(now, rules)
    found = Plan()
    nodes = [each for each in world.nodes if _selected(policy.node_selector, each)]
    if len([each for each in nodes if each.ready]) < _LEAST_NODES:
        found.skip("policy", "fewer than two ready nodes: a pod has nowhere else to go")
        return found
    look = _Look(world, policy, memory, rules, found, {each.metadata.name: each for each in nodes}, now, wall)
    for kind in (Misfits, Balance):
        for number, profile in enumerate(policy.profiles):
            try:
                evictable = Evictable(world, profile.evictor, wall=wall, youngest=rules.youngest, lost=rules.lost)
            except ValueError as error:
                found.skip(f"profile {profile.name}", str(error))
                continue
            look.begin(evictable, profile.evictor.node_selector)
            for strategy in profile.strategies:
                if isinstance(strategy, Misfits) and kind is Misfits:
                    look.misfits(strategy)
                elif isinstance(strategy, Balance) and kind is Balance:
                    below = kept_off(world, profile.evictor)
                    found.below = max((each for each in (found.below, below) if each is not None), default=None)
                    look.balance(f"{number}/{strategy.plugin}", strategy, figures.get(source_key(strategy)))
    return found


def source_key(strategy: Balance) -> str:
    """Figures of equal sources are taken once."""
    return repr(strategy.source)


class _Look:
    """What strategies of one look share: capacity, limits, pods that go."""

    def __init__(
        self,
        world: World,
        policy: Policy,
        memory: Memory,
        rules: Rules,
        found: Plan,
        nodes: Mapping[str, Node],
        now: float,
        wall: float,
    ) -> None:
        self._policy, self._memory, self._rules, self._found = policy, memory, rules, found
        self._nodes, self._now, self._wall = nodes, now, wall
        self._room = Room()
        kept = Kept(self._room)
        for node in world.nodes:
            self._room.node_changed(node.metadata.name, node)
            kept.node_changed(node.metadata.name, node.metadata.annotations.get(keys.KEPT_PLACES, ""))
        kept.expire(now, wall)
        #: node -> its pods that are not finished
        self._on: dict[str, list[Subject]] = {}
        for each in world.subjects:
            self._room.pod_changed(None, each.pod)
            if each.pod.node and not each.pod.finished:
                self._on.setdefault(each.pod.node, []).append(each)
        #: UID of a binding -> its pods that are not finished
        self._of_binding: dict[str, list[Subject]] = {}
        for each in world.subjects:
            if each.pod.named_binding and not each.pod.finished:
                self._of_binding.setdefault(each.pod.named_binding, []).append(each)
        self._groups = world.groups
        self._loads = Loads(nodes, self._on, self._room, rules, now, found.skip)
        self._gone: set[str] = set()
        self._by_node: Counter[str] = Counter()
        self._by_namespace: Counter[str] = Counter()

    def begin(self, evictable: Evictable, node_selector: str) -> None:
        """A profile is next."""
        self._evictable, self._targets = evictable, node_selector

    # -- pods that are wrong by themselves ---------------------------------------------------------------------------

    def misfits(self, strategy: Misfits) -> None:
        """Pods that their own node would refuse."""
        for name in sorted(self._nodes):
            for subject in sorted(self._on.get(name, ()), key=lambda each: (each.pod.priority, each.metadata.key)):
                if not strategy.namespaces.hold(subject.metadata.namespace) or (
                    strategy.labels and not selectors.label_selector_matches(strategy.labels, subject.metadata.labels)
                ):
                    continue
                if not (why := self._refused(strategy.plugin, subject, self._nodes[name])):
                    continue
                if self._stays(subject, name, None):
                    continue
                task = self._task(subject)
                open_to = (each for each in sorted(self._nodes) if each != name and self._takes(each))
                target = next((each for each in open_to if self._fits(subject, task, each)), "")
                if not target:
                    self._found.skip(f"pod {subject.metadata.key}", "no other node takes it")
                    continue
                self._move(subject, name, target, strategy.plugin, why, {})

    def _refused(self, plugin: str, subject: Subject, node: Node) -> str:
        pod = subject.pod
        if plugin.endswith("Taints"):
            taint = selectors.untolerated(node.taints, pod.tolerations)
            return f"it does not tolerate taint {taint.get('key')} of its node" if taint is not None else ""
        labels, name = node.metadata.labels, node.metadata.name
        apart = any(labels.get(key) != value for key, value in pod.node_selector.items()) or (
            bool(pod.node_terms) and not selectors.node_affinity_matches(pod.node_terms, labels, name)
        )
        return "its node does not match its node selector or affinity any more" if apart else ""

    # -- load --------------------------------------------------------------------------------------------------------

    def balance(self, name: str, strategy: Balance, figures: Figures | None) -> None:
        """One strategy by load, in numbered steps."""
        found, memory, rules = self._found, self._memory, self._rules
        # 1. Use of nodes, as far as it is known.
        uses = self._loads.measured(strategy, figures)
        if uses is None:
            return
        found.shares = {each: self._loads.shares(each, use) for each, use in uses.items()}
        # 2. Hot and cold ones.
        low, high = bounds(strategy, found.shares)
        shares = {each: self._loads.shares(each, use) for each, use in self._booked(uses, sources=False).items()}
        relieved = {each: self._loads.shares(each, use) for each, use in self._booked(uses, sources=True).items()}
        hot = {each for each, has in found.shares.items() if any(has[key] > high[key] for key in high)}
        cold = [
            each
            for each, has in sorted(shares.items())
            if each not in hot
            and self._takes(each)
            and all(has[key] <= low[key] for key in low)
            and _selected(strategy.node_selector, self._nodes[each])
        ]
        found.hot |= hot
        for each in [key for key in memory.above if key[0] == name and key[1] not in hot]:
            del memory.above[each]
        memory.above.update((name, each) for each in hot)
        lasting = {each for each in hot if memory.above[name, each] >= rules.looks}
        cool = {each for each, has in found.shares.items() if _excess(has, high)[0] <= -rules.margin}
        # The taint keeps a gang that left from coming back while the host has not placed it yet.
        cool -= memory.leaving.keys()
        found.lasting |= lasting
        found.cool = (found.cool & cool if found.measured else cool) - found.hot
        found.measured = True
        if not hot:
            found.skip(strategy.plugin, "no node is above targetThresholds")
            return
        if not cold or len(cold) <= strategy.number_of_nodes:
            found.skip(
                strategy.plugin,
                f"{len(cold)} nodes below thresholds may take pods; more than {strategy.number_of_nodes} are needed",
            )
            return
        # 3. The hottest first.
        ranked = sorted(hot, key=lambda each: (-_excess(relieved[each], high)[0], each))
        for node in ranked:
            if node not in lasting:
                looks = memory.above[name, node]
                found.skip(f"node {node}", f"above the target for {looks} of {rules.looks} looks")
            elif node in memory.took:
                found.skip(f"node {node}", f"it took pods less than {rules.pause:g} s ago")
            elif _excess(relieved[node], high)[0] <= 0:
                found.skip(f"node {node}", "pods that left it are not out of the figures yet")
            else:
                self._relieve(strategy, node, relieved[node], high, shares, cold, figures)

    def _relieve(
        self,
        strategy: Balance,
        node: str,
        has: Shares,
        high: Shares,
        shares: dict[str, Shares],
        cold: list[str],
        figures: Figures | None,
    ) -> None:
        """Move pods from one hot node until it is at the target; `has` and `shares` follow."""
        found = self._found
        _, worst = _excess(has, high)
        weighed: list[tuple[Subject, dict[str, float]]] = []
        for subject in self._on.get(node, ()):
            use = use_of(strategy, subject, figures)
            if not strategy.namespaces.hold(subject.metadata.namespace):
                found.skip(f"pod {subject.metadata.key}", "evictableNamespaces leaves its namespace out")
            elif use is None:
                found.skip(f"pod {subject.metadata.key}", "its use is unknown")
            else:
                weighed.append((subject, use))
        # The lowest priority first; of one priority, services first, then the largest use of the scarcest resource.
        weighed.sort(
            key=lambda pair: (
                pair[0].pod.priority,
                pair[0].completes,
                -pair[1].get(worst, 0),
                pair[0].metadata.key,
            )
        )
        alone = [pair for pair in weighed if not (self._rules.gangs == "ask" and self._evictable.of_host(pair[0]))]
        for subject, use in alone:
            excess, worst = _excess(has, high)
            if excess <= 0:
                return
            if use.get(worst, 0) <= 0:
                found.skip(f"pod {subject.metadata.key}", f"it uses no {worst}, which its node lacks")
                continue
            if self._stays(subject, node, strategy.per_node):
                continue
            target = self._target(subject, use, high, shares, cold)
            if not target:
                found.skip(f"pod {subject.metadata.key}", "no cold node takes it and stays below the target")
                continue
            gain = min(use[worst], excess * self._room.amounts.offered(node)[worst])
            if not self._kept(subject, target, "") and self._harm(subject, use, worst, high, shares) >= gain:
                found.skip(f"pod {subject.metadata.key}", "where its scheduler may put it, its use would do more harm")
                continue
            why = f"{worst} of {node} is at {has[worst]:.0%}, above {high[worst]:.0%}"
            self._move(subject, node, target, strategy.plugin, why, use)
            for key in high:
                has[key] -= self._loads.share(node, key, use)
                shares[target][key] += self._loads.share(target, key, use)
        gangs = {self._evictable.of_host(subject) for subject, _ in weighed} - {""}
        # The lowest priority first, then the fewest pods.
        of = self._of_binding
        for binding in sorted(gangs, key=lambda b: (max(each.pod.priority for each in of[b]), len(of[b]), b)):
            if self._rules.gangs == "ask" and _excess(has, high)[0] > 0:
                self._ask(strategy, binding, node, has, high, shares, cold, figures)
        excess, worst = _excess(has, high)
        if excess > 0:
            found.skip(f"node {node}", f"it stays above the target: {worst} at {has[worst]:.0%}")

    def _ask(
        self,
        strategy: Balance,
        binding: str,
        node: str,
        has: Shares,
        high: Shares,
        shares: dict[str, Shares],
        cold: list[str],
        figures: Figures | None,
    ) -> None:
        """Ask for the move of a gang, if all of it has places; `has` and `shares` follow."""
        gang, found = self._of_binding[binding], self._found
        about = f"gang {gang[0].pod.group or binding}"
        group = self._groups.get(gang[0].pod.group)
        uses = [use_of(strategy, each, figures) for each in gang]
        known = [each for each in uses if each is not None]
        why = self._evictable.refusal_of_gang(gang)
        if found.asks:
            why = "another gang is asked for in this look"
        elif binding in self._memory.asked:
            why = f"the host was asked less than {self._rules.settle:g} s ago"
        elif group is None or len({each.pod.group for each in gang}) > 1:
            why = "it is not one PodGroup"
        elif group.spec.network_topology or group.spec.sub_group_policy:
            why = "its topology can't be planned here"
        elif len(known) < len(gang):
            why = "the use of some of its pods is unknown"
        if why:
            found.skip(about, why)
            return
        # All of it goes first: later pods may take the places of earlier ones.
        after = {name: dict(share) for name, share in shares.items()}
        for each, use in zip(gang, known, strict=True):
            for key in high:
                if each.pod.node in after:
                    after[each.pod.node][key] -= self._loads.share(each.pod.node, key, use)
        places: dict[str, str] = {}
        for each, use in sorted(
            zip(gang, known, strict=True), key=lambda pair: (-sum(pair[0].pod.requests.values()), pair[0].metadata.key)
        ):
            away = [one.metadata.key for one in gang if one.metadata.key not in places]
            target = self._target(each, use, high, after, cold, away)
            if not target:
                break
            places[each.metadata.key] = target
            self._room.assume(each.pod, target)
            for key in high:
                after[target][key] += self._loads.share(target, key, use)
        if len(places) < len(gang):
            for each in gang:
                self._room.pod_changed(None, each.pod)
            found.skip(about, f"cold nodes have places for {len(places)} of its {len(gang)} pods")
            return
        _, worst = _excess(has, high)
        reason = f"{worst} of {node} is at {has[worst]:.0%}, above {high[worst]:.0%}"
        kept = tuple(each for one in gang for each in self._kept(one, places[one.metadata.key], binding))
        found.asks.append(Ask(binding, gang[0].pod.group, node, places, reason, kept))
        shares.update(after)
        for each, use in zip(gang, known, strict=True):
            if each.pod.node == node:
                for key in high:
                    has[key] -= self._loads.share(node, key, use)

    def _target(
        self,
        subject: Subject,
        use: Mapping[str, float],
        high: Shares,
        shares: dict[str, Shares],
        cold: list[str],
        away: Sequence[str] = (),
    ) -> str:
        task = self._task(subject)
        after = {
            each: max(shares[each][key] + self._loads.share(each, key, use) - high[key] for key in high)
            for each in cold
        }
        for each in sorted(cold, key=lambda each: (after[each], each)):
            if after[each] > -self._rules.margin:
                return ""
            if self._fits(subject, task, each, away):
                return each
        return ""

    def _harm(
        self,
        subject: Subject,
        use: Mapping[str, float],
        worst: str,
        high: Shares,
        shares: Mapping[str, Shares],
    ) -> float:
        """Use above the target that a pod brings, in units: the mean over nodes on which its scheduler may put it."""
        nodes = self._room.nodes_but([subject.metadata.key])
        fits = nodes.room_for(self._task(subject)) > 0
        found = []
        for name in (each for each, takes in zip(nodes.names, fits, strict=True) if takes):
            if name in shares and name not in self._found.hot:
                below = max(0.0, high[worst] - shares[name][worst]) * self._room.amounts.offered(name)[worst]
                found.append(max(0.0, use[worst] - below))
        return sum(found) / len(found) if found else math.inf

    def _booked(self, uses: Mapping[str, Mapping[str, float]], *, sources: bool) -> dict[str, dict[str, float]]:
        """Use with moves that figures may not show: less on what gave (`sources`), more on what took."""
        found = {name: dict(use) for name, use in uses.items()}
        made: list[_Moved | Move] = [*self._memory.moves, *self._found.moves]
        for each in made:
            name, sign = (each.node, -1) if sources else (each.target, 1)
            for key in found.get(name, ()):
                found[name][key] += sign * each.use.get(key, 0)
        return found

    # -- both --------------------------------------------------------------------------------------------------------

    def _takes(self, name: str) -> bool:
        """Whether a node may be a target, its use aside."""
        return (
            name not in self._memory.gave
            and self._room.fleet.usable(name)
            and _selected(self._targets, self._nodes[name])
        )

    def _stays(self, subject: Subject, node: str, per_node: int | None) -> bool:
        """Whether a rule or a limit keeps the pod; the reason is noted."""
        namespace, key = subject.metadata.namespace, subject.metadata.key
        if key in self._gone:
            return True
        bounds = (
            (len(self._found.moves), self._policy.total, self._rules.total, "in all"),
            (self._by_node[node], self._policy.per_node, self._rules.per_node, f"from node {node}"),
            (self._by_node[node], per_node, self._rules.per_node, f"from node {node}"),
            (self._by_namespace[namespace], self._policy.per_namespace, self._rules.per_namespace, f"of {namespace}"),
        )
        why = next(
            (
                f"{count} pods {where} go in this look already"
                for count, asked, own, where in bounds
                if count >= (own if asked is None else asked)
            ),
            "",
        )
        why = why or self._evictable.refusal(subject) or self._rests(subject)
        if why:
            self._found.skip(f"pod {key}", why)
        return bool(why)

    def _rests(self, subject: Subject) -> str:
        """Why a pod rests that came in the place of a moved one; empty where it may move."""
        times = self._memory.workloads.get(self._evictable.workload(subject))
        age = self._wall - to_seconds(subject.metadata.creation_timestamp)
        if not times or age > self._now - times[0] + _SKEW or age >= self._rules.rest:
            return ""
        return f"it replaces a moved pod and rests for {self._rules.rest:g} s"

    def _task(self, subject: Subject) -> Task:
        pod, peers = subject.pod, self._room.peers
        read = peers.read_keys() if peers.keep_others_away else None
        task = task_of(pod, rules_of([pod], read)[0])
        if pod.planned_node:
            # The pod that replaces it gets a plan of its own.
            return msgspec.structs.replace(task, node_terms=unpinned(pod.node_terms, pod.planned_node))
        return task

    def _fits(self, subject: Subject, task: Task, node: str, away: Sequence[str] = ()) -> bool:
        """Whether the node takes the pod, as Atoll places, once it and the pods of these keys have left theirs."""
        nodes = self._room.nodes_but([*away] or [subject.metadata.key])
        column = nodes.names.index(node)
        alone = nodes.with_free(np.where(np.arange(len(nodes)) == column, nodes.free, 0))
        outcome = place(alone, Gang("", [task], 1))
        return isinstance(outcome, Placement) and [nodes.names[at] for _, at, _ in outcome.pods] == [node]

    def _kept(self, subject: Subject, node: str, owner: str) -> tuple[tuple[str, Place], ...]:
        """The place to keep for the pod that replaces one; none where it is not Atoll's to place."""
        pod = subject.pod
        if not self._rules.keep or not (pod.scheduler == keys.SCHEDULER_NAME or pod.planned_node):
            return ()
        grace = pod.grace if self._policy.grace is None else self._policy.grace
        until = rfc3339_seconds(self._wall + self._rules.keep + grace)
        return ((node, Place(owner, pod.requests, pod.priority, until)),)

    def _move(
        self, subject: Subject, node: str, target: str, plugin: str, reason: str, use: Mapping[str, float]
    ) -> None:
        meta = subject.metadata
        self._found.moves.append(
            Move(
                meta.key,
                meta.uid,
                node,
                target,
                plugin,
                reason,
                use,
                self._evictable.workload(subject),
                self._kept(subject, target, subject.owner[1]),
            )
        )
        self._gone.add(meta.key)
        self._by_node[node] += 1
        self._by_namespace[meta.namespace] += 1
        self._evictable.take(subject)
        # Later pods see its place taken, and its node without it.
        self._room.assume(subject.pod, target)


def _excess(has: Mapping[str, float], high: Mapping[str, float]) -> tuple[float, str]:
    """(share above the target, resource), of the resource that is most above it."""
    return max((has[key] - high[key], key) for key in high)


def _selected(selector: str, node: Node) -> bool:
    return not selector or selectors.label_selector_matches(placer.parse_selector(selector), node.metadata.labels)
