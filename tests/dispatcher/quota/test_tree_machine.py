"""Random histories of the quota tree, each step compared with figures computed from scratch.

The reference knows only what was told: the queues, the members and the list of charges. It computes every figure by
walking all of them, level by level, with no state of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from atoll.dispatcher.core.events import Ceiling, QueueView
from atoll.dispatcher.core.quota.queue import Queue, Standing, path
from atoll.dispatcher.core.quota.tree import Tree
from atoll.dispatcher.explain.excess import exceeded
from atoll.model import vector
from atoll.model.vector import Vector
from atoll.model.weighted_shares import Claim, water_fill
from tests.dispatcher.builders import problems_of
from tests.dispatcher.quota.trees import serves

NAMES = ("a", "b", "c", "d", "e")
RESOURCES = ("cpu", "gpu")
MEMBERS = ("m1", "m2")
T = TypeVar("T")


def remembered(method: Callable[..., T]) -> Callable[..., T]:
    """Computed once per step; the naive recursion asks for the same figure again and again."""

    @wraps(method)
    def once(self: Reference, *arguments: str) -> T:
        key = (method.__name__, *arguments)
        if key not in self.known:
            self.known[key] = method(self, *arguments)
        figure: T = self.known[key]
        return figure

    return once


class Reference:
    def __init__(self, views: dict[str, QueueView], members: dict[str, tuple[Vector, dict[str, str]]]) -> None:
        self.views, self.members = views, members
        self.charges: list[tuple[str, Vector, dict[str, Vector]]] = []
        self.waits: list[tuple[str, Vector]] = []
        self.known: dict[tuple[str, ...], Any] = {}

    # -- structure

    @remembered
    def circle(self, name: str) -> bool:
        at = name
        for _ in range(len(self.views) + 1):
            view = self.views.get(at)
            at = view.parent if view else ""
            if at in ("", "root"):
                return False
            if at == name:
                return True
        return False

    @remembered
    def parent(self, name: str) -> str:
        view = self.views.get(name)
        return "root" if view is None or not view.parent or self.circle(name) else view.parent

    @remembered
    def path(self, name: str) -> list[str]:
        return [name] if name == "root" else [name, *self.path(self.parent(name))]

    @remembered
    def names(self) -> set[str]:
        named = {*self.views, *(v.parent for v in self.views.values() if v.parent), *(c[0] for c in self.charges)}
        return (named | {w[0] for w in self.waits}) - {"root"}

    @remembered
    def children(self, name: str) -> list[str]:
        return sorted(other for other in self.names() if self.parent(other) == name)

    # -- sums

    @remembered
    def used(self, name: str) -> Vector:
        return vector.total(amount for at, amount, _ in self.charges if name in self.path(at))

    @remembered
    def wanted(self, name: str) -> Vector:
        return vector.total([self.used(name), *(amount for at, amount in self.waits if name in self.path(at))])

    @remembered
    def used_in(self, name: str) -> dict[str, Vector]:
        there = {m: vector.total(w.get(m, {}) for at, _, w in self.charges if name in self.path(at)) for m in MEMBERS}
        return {m: amount for m, amount in there.items() if amount}

    # -- figures

    @remembered
    def serves(self, name: str, member: str) -> bool:
        for each in self.path(name):
            view = self.views.get(each)
            if view and view.members and member not in view.members:
                return False
            if view and view.affinity:
                site = view.affinity["matchLabels"]["site"]
                if member not in self.members or self.members[member][1].get("site") != site:
                    return False
        return True

    @remembered
    def total(self, name: str, resource: str) -> int | None:
        serving = [m for m in self.members if self.serves(name, m)]
        if not self.members or any(not self.members[m][0] for m in serving):
            return None
        if not any(resource in total for total, _ in self.members.values()):
            return None
        return sum(self.members[m][0].get(resource, 0) for m in serving)

    @remembered
    def guarantee(self, name: str, resource: str) -> int:
        if name == "root":
            return sum(self.guarantee(child, resource) for child in self.children(name))
        view = self.views.get(name)
        if view is None or self.circle(name):
            return 0
        return min(view.guarantee.get(resource, 0), view.capability.get(resource, 10**9))

    @remembered
    def limit(self, name: str, resource: str) -> int | None:
        view = self.views.get(name)
        bounds = [self.total(name, resource), view.capability.get(resource) if view else None]
        if name != "root":
            above = self.limit(self.parent(name), resource)
            if above is not None:
                pledged = sum(self.guarantee(c, resource) for c in self.children(self.parent(name)))
                bounds.append(max(above - pledged, 0) + self.guarantee(name, resource))
        return min((b for b in bounds if b is not None), default=None)

    @remembered
    def problem(self, name: str) -> bool:
        view = self.views.get(name)
        if name == "root":
            return False
        up = self.parent(name)
        if view is not None:
            over = any(view.guarantee[r] > view.capability.get(r, 10**9) for r in view.guarantee)
            below = any(
                sum(self.guarantee(c, r) for c in self.children(name)) > self.guarantee(name, r) for r in RESOURCES
            )
            if self.circle(name) or over or below or (up != "root" and up not in self.views):
                return True
        return self.problem(up)

    def counts(self, name: str) -> bool:
        """Whether it takes part in figures: it exists, uses something, or others are below it."""
        return name == "root" or name in self.views or bool(self.used(name) or self.children(name))

    @remembered
    def closed(self, name: str) -> bool:
        return any(each in self.views and not self.views[each].open for each in self.path(name))

    @remembered
    def deserved(self, name: str, resource: str) -> int | None:
        limit = self.limit(name, resource)
        if name == "root":
            return limit
        up = self.parent(name)
        siblings = self.children(up)
        view = self.views.get(name)
        floor = self.guarantee(name, resource)
        if any(resource in self.views[s].deserved for s in siblings if s in self.views):
            wish = view.deserved.get(resource, 0) if view else 0
            return max(wish if limit is None else min(wish, limit), floor)
        pool = self.pool(up, resource)
        if pool is None:
            return floor or None
        takers = [s for s in siblings if self.demand(s)]
        if name not in takers:
            return floor
        claims = [
            Claim(
                self.views[s].weight if s in self.views else 1,
                self.demand(s).get(resource, 0),
                self.limit(s, resource),
                self.guarantee(s, resource),
                self.views[s].created if s in self.views else "",
                s,
            )
            for s in takers
        ]
        return water_fill(pool, claims)[takers.index(name)]

    @remembered
    def demand(self, name: str) -> Vector:
        stuck = self.closed(name) or self.problem(name) or name not in self.views
        return self.used(name) if stuck else self.wanted(name)

    @remembered
    def pool(self, name: str, resource: str) -> int | None:
        if name != "root":
            up = self.parent(name)
            declared = any(resource in self.views[s].deserved for s in self.children(up) if s in self.views)
            if declared or self.pool(up, resource) is not None:
                return self.deserved(name, resource)
        return self.limit(name, resource)

    @remembered
    def standing(self, name: str) -> Standing:
        if name not in self.views:
            return Standing.MISSING
        if self.problem(name):
            return Standing.INVALID
        if self.children(name):
            return Standing.PARENT
        return Standing.CLOSED if self.closed(name) else Standing.OPEN


def figures(tree: Tree, name: str) -> dict[str, Any]:
    node = tree.queue(name)
    return {
        "path": [each.name for each in path(node)],
        "used": node.used,
        "wanted": node.wanted,
        "limit": node.limit,
        "guarantee": node.guarantee,
        "deserved": node.deserved,
        "standing": tree.standing(node) if name != "root" else None,
        "problem": node.problem,
        "members": [m for m in MEMBERS if serves(node, m)],
        "used_in": node.used_in,
        "rank": node.rank(),
    }


def demand(tree: Tree, name: str) -> dict[str, Any]:
    """All there is of a queue that is only named."""
    node = tree.queue(name)
    return {"path": [each.name for each in path(node)], "used": node.used, "wanted": node.wanted}


small = st.integers(0, 6)
amounts = st.dictionaries(st.sampled_from(RESOURCES), small)
views = st.builds(
    QueueView,
    name=st.sampled_from((*NAMES, "root")),
    capability=st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 12), max_size=1),
    priority=st.integers(0, 1),
    open=st.sampled_from([True, True, True, False]),
    parent=st.sampled_from(("", "", "root", *NAMES, "ghost")),
    guarantee=st.just({}) | st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 3), max_size=1),
    deserved=st.just({}) | st.dictionaries(st.sampled_from(RESOURCES), small, max_size=1),
    weight=st.integers(1, 4),
    created=st.sampled_from(["", "1", "2"]),
    members=st.just({})
    | st.dictionaries(st.sampled_from(MEMBERS), st.builds(Ceiling, capability=st.just({}) | st.just({"gpu": 3}))),
    affinity=st.sampled_from([{}, {}, {"matchLabels": {"site": "x"}}]),
)
facts = st.tuples(
    st.just({}) | st.fixed_dictionaries({"gpu": st.integers(0, 20)}, optional={"cpu": st.integers(0, 20)}),
    st.sampled_from([{}, {"site": "x"}]),
)
queue_names = st.sampled_from((*NAMES, "ghost"))


class History(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tree = Tree()
        self.truth = Reference({}, {})

    @rule(view=views)
    def set_queue(self, view: QueueView) -> None:
        before = {name: self.seen(name) for name in self.tree.queues}
        told = {node.name for node in self.tree.set_queue(view)}
        self.truth.views[view.name] = view
        self.nothing_untold(before, told)

    @rule(name=st.sampled_from((*NAMES, "root")))
    def drop_queue(self, name: str) -> None:
        before = {each: self.seen(each) for each in self.tree.queues}
        told = {node.name for node in self.tree.drop_queue(name)}
        self.truth.views.pop(name, None)
        self.nothing_untold(before, told)

    @rule(members=st.dictionaries(st.sampled_from(MEMBERS), facts))
    def set_members(self, members: dict[str, Any]) -> None:
        before = {name: self.seen(name) for name in self.tree.queues}
        told = {node.name for node in self.tree.set_members(members)}
        self.truth.members = members
        self.nothing_untold(before, told)

    @rule(name=queue_names, amount=amounts, member=st.sampled_from(MEMBERS))
    def charge(self, name: str, amount: Vector, member: str) -> None:
        half = {r: v // 2 for r, v in amount.items()}
        rest = {r: v - half[r] for r, v in amount.items()}
        where = {member: half, "m2" if member == "m1" else "m1": rest}
        self.tree.charge(self.tree.queue(name), amount, where)
        self.truth.charges.append((name, amount, where))

    @rule(pick=st.integers(0, 99))
    def release(self, pick: int) -> None:
        if self.truth.charges:
            name, amount, where = self.truth.charges.pop(pick % len(self.truth.charges))
            self.tree.charge(self.tree.queue(name), amount, where, -1)

    @rule(name=queue_names, amount=amounts)
    def wait(self, name: str, amount: Vector) -> None:
        self.tree.wait(self.tree.queue(name), amount)
        self.truth.waits.append((name, amount))

    @rule(pick=st.integers(0, 99))
    def wait_no_longer(self, pick: int) -> None:
        if self.truth.waits:
            name, amount = self.truth.waits.pop(pick % len(self.truth.waits))
            self.tree.wait(self.tree.queue(name), amount, -1)

    @rule(pick=st.integers(0, 99), member=st.sampled_from(MEMBERS))
    def start(self, pick: int, member: str) -> None:
        if self.truth.waits:
            name, amount = self.truth.waits.pop(pick % len(self.truth.waits))
            self.tree.start(self.tree.queue(name), amount, {member: amount})
            self.truth.charges.append((name, amount, {member: amount}))

    @rule(pick=st.integers(0, 99))
    def return_to_the_queue(self, pick: int) -> None:
        if self.truth.charges:
            name, amount, where = self.truth.charges.pop(pick % len(self.truth.charges))
            self.tree.start(self.tree.queue(name), amount, where, -1)
            self.truth.waits.append((name, amount))

    def seen(self, name: str) -> tuple[Any, ...]:
        node = self.tree.queues[name]
        members = [m for m in MEMBERS if serves(node, m)]
        stops = node.closed, node.problem, node.view is None
        return node.limit, node.guarantee, members, stops

    def nothing_untold(self, before: dict[str, tuple[Any, ...]], told: set[str]) -> None:
        untold = {name for name, was in before.items() if self.seen(name) != was} - told
        assert not untold, f"changed and not told: {sorted(untold)}"

    @invariant()
    def equals_the_reference(self) -> None:
        self.tree.check()
        truth = self.truth
        truth.known.clear()
        for name in sorted({*truth.names(), "root"}):
            seen = figures(self.tree, name)
            assert seen["path"] == truth.path(name), name
            assert (seen["used"], seen["wanted"]) == (truth.used(name), truth.wanted(name)), name
            if not truth.counts(name):
                continue
            for resource in RESOURCES:
                assert seen["limit"].get(resource) == truth.limit(name, resource), (name, resource)
                assert seen["guarantee"].get(resource, 0) == truth.guarantee(name, resource), (name, resource)
                assert seen["deserved"].get(resource) == truth.deserved(name, resource), (name, resource)
            assert seen["members"] == [m for m in MEMBERS if self.served(name, m)], name
            if name != "root":
                assert seen["standing"] is truth.standing(name), name
            view = truth.views.get(name)
            ceilings = view is not None and any(each.capability for each in view.members.values())
            assert seen["used_in"] == (truth.used_in(name) if ceilings else {}), name

    @invariant()
    def what_is_said_to_stop_a_request_are_limits_that_do(self) -> None:
        for name in filter(self.truth.counts, sorted({*self.truth.names(), "root"})):
            node = self.tree.queue(name)
            for resource in RESOURCES:
                for amount in (1, 7):
                    stops = self.tree.shortage(node, {resource: amount}) is not None
                    assert bool([*exceeded(node, resource, amount)]) == stops, (name, resource, amount)

    def served(self, name: str, member: str) -> bool:
        # A restricted queue is not served by a member that is not there.
        views = [self.truth.views.get(each) for each in self.truth.path(name)]
        restricted = any(v and (v.members or v.affinity) for v in views)
        return self.truth.serves(name, member) and (member in self.truth.members or not restricted)

    @invariant()
    def equals_a_tree_that_was_told_everything_at_once_in_another_order(self) -> None:
        self.truth.known.clear()
        for fresh in self.retold():
            fresh.check()
            for name in self.truth.names() | {"root"}:
                of = figures if self.truth.counts(name) else demand
                assert of(fresh, name) == of(self.tree, name), name

    def retold(self) -> Iterator[Tree]:
        truth = self.truth
        for backwards in (False, True):
            tree = Tree()
            for name, amount, where in truth.charges:
                tree.charge(tree.queue(name), amount, where)
            if backwards:
                tree.set_members(truth.members)
            for name in sorted(truth.views, reverse=backwards):
                tree.set_queue(truth.views[name])
            if not backwards:
                tree.set_members(truth.members)
            for name, amount in reversed(truth.waits):
                tree.wait(tree.queue(name), amount)
            yield tree

    @invariant()
    def the_first_of_those_below_which_somebody_waits_has_the_least_rank(self) -> None:
        waits = [name for name, _ in self.truth.waits]
        for parent in list(self.tree.queues.values()):
            below = {child: sum(self.below(name, child) for name in waits) for child in parent.children.values()}
            assert [child.waiting for child in below] == list(below.values())
            siblings = {child: None for child, waiting in below.items() if waiting}
            while siblings:
                first = self.tree.first([siblings])
                names = sorted(siblings, key=lambda each: each.name)
                # The same in parts, which may overlap.
                assert first is self.tree.first([part for part in (names[::2], names[1:]) if part])
                assert first is min(siblings, key=Queue.rank)
                del siblings[first]

    def below(self, name: str, node: Queue) -> bool:
        return node in path(self.tree.queues[name])

    @invariant()
    def validate_agrees(self) -> None:
        self.truth.known.clear()
        problems = problems_of(self.truth.views.values())
        assert problems.keys() == {name for name in self.truth.names() if self.truth.problem(name)}


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
