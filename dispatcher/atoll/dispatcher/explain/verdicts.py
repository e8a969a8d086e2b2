"""The whole verdict on one workload: its place, what blocks it with numbers, what would let it start.

Questions only: no question here changes a decision, which tests prove by histories with and without
questions. The cost follows the shapes in its queue and the members, not the number of waiting workloads.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from atoll.dispatcher.core.admission import standing_verdict
from atoll.dispatcher.core.backfill.permits import QueueRules
from atoll.dispatcher.core.backfill.reservation import Reservation
from atoll.dispatcher.core.backlog.backlog import Key, differs, first_key, shared
from atoll.dispatcher.core.backlog.binding import Binding, withheld
from atoll.dispatcher.core.backlog.order import order_key
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.shape import Shape, shape_key, shape_of
from atoll.dispatcher.core.elastic.resizing import Stop
from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.core.placement import excluding
from atoll.dispatcher.core.placement.choice import Choice, alone
from atoll.dispatcher.core.placement.choosing import choose
from atoll.dispatcher.core.preemption.candidates import Victim
from atoll.dispatcher.core.preemption.search import Plan, plan
from atoll.dispatcher.core.preemption.trial import Claimant
from atoll.dispatcher.core.quota.queue import Queue, Standing, path, subtree
from atoll.dispatcher.explain import relaxing
from atoll.dispatcher.explain.departures import departures
from atoll.dispatcher.explain.excess import exceeded, higher, limit_of
from atoll.dispatcher.explain.figures import figures
from atoll.dispatcher.explain.protection import protected
from atoll.fit import Miss, Placement, place
from atoll.fit.place import ALL, covering
from atoll.fit.placement import MANY
from atoll.fit.pods import joined
from atoll.model import claim_shapes, keys, quantity, selectors, spelling
from atoll.model.decision import Phase
from atoll.model.flavors import SIGN
from atoll.model.gang import Gang
from atoll.model.plurals import counted
from atoll.model.query import Account, Change, ChangeKind, Limit, Named, Place, Position, Reserved, Room
from atoll.model.queues import Strategy
from atoll.model.timestamps import rfc3339
from atoll.model.vector import Vector
from atoll.model.verdict import Blocker, Reason, Verdict, kind_for_people, reason_of_refusal

if TYPE_CHECKING:
    from atoll.dispatcher.core.dispatcher import Dispatcher


def account(core: Dispatcher, uid: str, now: float | None = None) -> Account | None:
    """All about a binding; None when the core does not know it.

    Args:
        core: unchanged afterwards.
        uid: of the binding.
        now: seconds since the epoch; None for the time of the last pass.
    """
    binding = core.bindings.get(uid)
    if binding is None:
        return None
    found = _account(core, binding, core.state.now if now is None else now)
    return msgspec.structs.replace(found, figures=figures(binding.leaf))


def _account(core: Dispatcher, binding: Binding, now: float) -> Account:
    uid = binding.view.uid
    verdict = core.verdict(uid)
    if binding.shape is None:
        reason = verdict.reason if verdict is not None else binding.view.decision.reason
        said = verdict or Verdict(reason, binding.view.decision.blocker)
        return Account(
            phase=binding.phase.value,
            reason=reason.value,
            message=said.sentence(),
            blocker=said.blocker if said.reason is Reason.QUEUE_NOT_OPEN else None,
            since=_since(binding, said),
            changes=_by_itself(said),
        )
    look = _Look(core, binding, binding.shape, core.members)
    with core.reservations.untouched():
        outcome = look.outcome()
        if verdict is None:
            verdict = outcome if isinstance(outcome, Verdict) else Verdict(Reason.SUBMITTED)
        elif isinstance(outcome, Verdict) and (_has_numbers(verdict) or not differs(verdict, outcome)):
            # Numbers are of now, and so is their subject: another member may come nearest by now.
            verdict = outcome
        verdict = look.in_full(verdict)
        return Account(
            phase=binding.phase.value,
            reason=verdict.reason.value,
            message=verdict.sentence(),
            blocker=verdict.blocker,
            since=_since(binding, verdict),
            queue=_position(core, binding, waits=True),
            limits=look.limits,
            clusters=look.rooms,
            reserved=_reserved(core, uid),
            changes=[*look.changes(verdict), *(look.protected(now) if verdict.reason in _SEARCHED else ())],
            never=look.never(verdict),
            moves=core.defragmentation.declined(uid) if verdict.reason is Reason.NO_DOMAIN_FITS else "",
        )


def _wrong(member: Member) -> str:
    """The HyperNodes of a member that are wrong; empty where none are."""
    if not member.problems:
        return ""
    (name, message), *others = member.problems
    more = f" (and {len(others)} more)" if others else ""
    return f"HyperNode {name} is wrong: {message}{more}"


def _has_numbers(verdict: Verdict) -> bool:
    return verdict.blocker is not None and bool(verdict.blocker.resource)


def what_if(core: Dispatcher, view: BindingView, now: float) -> Account:
    """Whether a workload that does not exist would start if it came now, where, or the smallest change that would
    admit it.

    Args:
        core: unchanged afterwards.
        view: of a binding that can be read; its UID is no other binding's.
        now: seconds since the epoch.
    """
    gang = view.gang
    assert gang is not None, "what can't be read is refused before"
    if not gang.submitted:
        gang = msgspec.structs.replace(gang, submitted=rfc3339(now))
        view = replace(view, gang=gang)
    leaf = core.tree.queues.get(gang.queue)
    if leaf is None:
        return _refused(standing_verdict(gang.queue, Standing.MISSING))
    if gang.hold:
        kept = withheld(gang)
        return Account(reason=kept.reason.value, message=kept.sentence(), changes=_by_itself(kept))
    if (outside := core.state.outside(leaf, view.namespace)) is not None:
        return _refused(outside)
    binding = Binding(view, 0, Phase.SUSPENDED, {}, gang, None, order_key(view), leaf, {})
    view = core.state.filed_as(binding)
    binding = replace(binding, view=view, wish=view.gang, variants=view.variants)
    members = core.members.aside()
    shape = shape_of(view, shape_key(view, core.state.restricted(binding)))
    binding.amount = shape.request
    members.enroll(shape)
    look = _Look(core, binding, shape, members)
    with core.reservations.untouched(), core.tree.supposing(core.tree.wait, leaf, shape.request):
        outcome = look.outcome()
        position = _position(core, binding, waits=False)
        for variant, other in zip(binding.variants[1:], shape.others, strict=True):
            if isinstance(outcome, Choice):
                break
            # With another flavor than the first; where none will do, it waits for that one.
            second = replace(binding, wish=variant.gang, amount=other.request, variants=(variant,))
            beside = _Look(core, second, other, members)
            found = beside.outcome()
            if isinstance(found, Choice):
                outcome, look, binding = found, beside, second
        if isinstance(outcome, Choice):
            flavors = [f"{each.resource}{SIGN}{each.flavor}" for each in binding.flavors]
            return Account(starts=True, places=_places(look.whole(outcome)), queue=position, flavors=flavors)
        outcome = look.in_full(outcome)
        changes = look.changes(outcome)
        if outcome.reason in _SEARCHED:
            changes = sorted([*changes, *look.search(now)], key=lambda change: not change.enough)
        return Account(
            reason=outcome.reason.value,
            message=outcome.sentence(),
            blocker=outcome.blocker,
            queue=position,
            limits=look.limits,
            clusters=look.rooms,
            changes=changes,
            never=look.never(outcome),
        )


_SEARCHED = (Reason.QUOTA_EXCEEDED, Reason.INSUFFICIENT_RESOURCES, Reason.NO_DOMAIN_FITS, Reason.WOULD_DELAY)
"""Verdicts that the end of others can change."""


@dataclass
class _Look:
    """One workload against everything as it is; each answer is found once."""

    core: Dispatcher
    binding: Binding
    shape: Shape
    """Enrolled."""
    members: Members
    #: member -> what of it would go there, where a ceiling stops that
    _capped_in: Mapping[str, Vector] = field(default_factory=dict)
    #: member -> what of it would have to be larger, and why, though all that runs there had ended
    _small_in: dict[str, tuple[str, str]] = field(default_factory=dict)
    #: members in which it was placed as they are, the nearest first
    _tried: list[Member] = field(default_factory=list)
    #: reservations that it would delay in members, by UID of their workloads
    _delayed: dict[str, Reservation] = field(default_factory=dict)
    #: members that it may not use, and what would have to be otherwise for that
    _excluded: list[tuple[Member, str]] = field(default_factory=list)

    @property
    def _gang(self) -> Gang:
        return self.binding.gang

    @property
    def _leaf(self) -> Queue:
        return self.binding.leaf

    @property
    def _claimant(self) -> Claimant:
        return Claimant(self.binding.view.uid, self._leaf, -self.binding.key[0], self.shape)

    @cached_property
    def _rules(self) -> QueueRules:
        return self.core.policy.rules(self.binding, self.shape)

    def outcome(self) -> Choice | Verdict:
        """What a pass would say of this workload now, also if it does not come to it."""
        core, leaf = self.core, self._leaf
        if core.tree.standing(leaf) is Standing.OPEN and self._is_behind():
            return Verdict(Reason.BEHIND_HEAD, Blocker("Queue", leaf.name))
        found = core.admission.admit(leaf, self.shape, self.binding.view.namespace, lambda: self.choice)
        return found if isinstance(found, Choice) else found.verdict

    def _is_behind(self) -> bool:
        """Whether its queue is strict and another one is first."""
        if self._leaf.view is None or self._leaf.view.strategy is not Strategy.FIFO:
            return False
        head = self.core.waiting.head(self._leaf)
        return head is not None and first_key(head) < _place(self.core, self.binding)

    @cached_property
    def choice(self) -> Choice | Verdict:
        """Where it would go, quota aside."""
        core = self.core
        rules = core.policy.rules(self.binding, self.shape)
        found = choose(self.shape, self._gang, self.members, rules)
        self._capped_in = rules.exceeded
        return found if isinstance(found, Choice) else core.state.exclusions.in_words(self.binding, self.shape, found)

    def whole(self, choice: Choice) -> Choice:
        """The choice with the pods beyond the minimum that it would be given as it starts."""
        if not self.shape.elastic:
            return choice
        [member], [part], [begins] = choice.members, choice.gangs, choice.placements
        nodes = member.nodes.copy()
        nodes.take(part.requests(), begins)
        started = replace(self.binding, parts={member.name: part})
        growth = self.core.resizing.growth(started, nodes, begins.pods, {}, begins)
        if isinstance(growth, Stop):
            return choice
        size, more = growth
        return Choice((member,), (self._gang.sized(size),), (joined(begins, more),))

    # -- what blocks -------------------------------------------------------------------------------------------------

    @cached_property
    def limits(self) -> list[Limit]:
        """Every limit that it would exceed: of the queues on its path, from its own up, and of its namespace; then the
        ceilings of these queues in the members where it could go.
        """
        wanted = [(name, amount) for name, amount in sorted(self.shape.request.items()) if amount > 0]
        above = {node.name: position for position, node in enumerate(path(self._leaf))}
        found = [limit for name, amount in wanted for limit in exceeded(self._leaf, name, amount)]
        found.sort(key=lambda limit: above[limit.name])
        for bound in self.core.namespaces.bounds(self.binding.view.namespace, self.shape.charges):
            for name, amount in sorted(bound.request.items()):
                left = bound.hard.get(name, math.inf) - bound.used.get(name, 0)
                if amount > max(left, 0):
                    found.append(limit_of(bound.kind, bound.name, name, amount, int(left)))
        return [*found, *self._ceilings()] if isinstance(self.choice, Verdict) else found

    def _ceilings(self) -> Iterator[Limit]:
        for member, wanted in self._capped_in.items():
            for queue in path(self._leaf):
                if member in queue.ceilings:
                    used, ceiling = queue.used_in.get(member, {}), queue.ceilings[member]
                    kind, name_of = ("Cluster", member) if queue.parent is None else ("Queue", queue.name)
                    for name, amount in sorted(wanted.items()):
                        left = ceiling.get(name, math.inf) - used.get(name, 0)
                        if amount > max(left, 0):
                            yield limit_of(kind, name_of, name, amount, int(left), cluster=member)

    @cached_property
    def rooms(self) -> list[Room]:
        """Pods that each member could take, the largest number first."""
        members, shape, core = self.members, self.shape, self.core
        allowed = np.any(members.table.allowed(shape), axis=0) if members.table.order else np.zeros(0, np.bool_)
        serving, kept_out = core.state.exclusions.serves(self._leaf), core.state.exclusions.kept_out(self.binding)
        avoided, refusing = core.state.exclusions.avoided(self.binding, shape), core.refusals.avoided(self.binding.view)
        failed = core.state.failures.of(shape.key)
        barred = core.breakers.barred(self.binding.view.namespace, self.binding.view.kind)
        floor = np.array(shape.floor)
        held = np.minimum(members.table.counts[list(shape.rows)], floor[:, None]).sum(axis=0)
        wanted = sum(shape.floor)
        rooms, exact = [], core.settings.reasons.exact
        for column in np.lexsort((np.arange(len(members.table.order)), -held)):
            member, fits = members.table.order[int(column)], int(held[column])
            if member.view is None:
                # It has left the federation, and is remembered for what ran there.
                continue
            if not allowed[column]:
                if (unfit := member.unfit(shape.gang)) is None:
                    why, text = Reason.NO_CLUSTER, excluding.by_policy(member, self.binding.view)
                    self._excluded.append((member, _OTHERWISE.get(text, _TAINTED)))
                else:
                    why, text = unfit[0].reason, unfit[1]
                rooms.append(_room(member, wanted, fits, why, text))
            elif serving is not None and not serving[column]:
                rooms.append(_room(member, wanted, fits, Reason.NO_CLUSTER, excluding.QUEUE))
                self._excluded.append((member, "a queue that uses this member"))
            elif member.name in kept_out:
                rooms.append(_room(member, wanted, fits, Reason.NO_CLUSTER, kept_out[member.name]))
                near = member.name in core.state.neighbours.kept_out(self.binding, [member.name])
                self._excluded.append((member, _NEAR if near else _MORE_MEMBERS))
            elif not members.table.ready[column]:
                rooms.append(_room(member, wanted, fits, Reason.CLUSTERS_NOT_READY, "it is not ready"))
            elif member.name in refusing:
                said = f": {refusing[member.name]}" if refusing[member.name] else ""
                text = f"it did not take it and is avoided for a while{said}"
                rooms.append(_room(member, wanted, fits, reason_of_refusal(refusing[member.name]), text))
            elif member.name in barred:
                text = "it does not bind what is sent to it, makes no pods of its kind, or confirms no removals; one"
                text += " workload at a time is tried"
                rooms.append(_room(member, wanted, fits, Reason.MEMBER_FAILING, text))
            elif member.name in avoided:
                said = failed.get(member.name, "")
                text = "it failed such a workload lately and is avoided for a while" + (f": {said}" if said else "")
                rooms.append(_room(member, wanted, fits, Reason.AVOIDED, text))
            elif unknown := self._lacks_tier(member):
                rooms.append(_room(member, wanted, 0, Reason.NO_TOPOLOGY, unknown))
            elif exact:
                exact -= 1
                self._tried.append(member)
                rooms.append(self._exact(member, wanted))
            else:
                reason = Reason.NO_DOMAIN_FITS if shape.limited else Reason.INSUFFICIENT_RESOURCES
                rooms.append(_room(member, wanted, fits, reason, Miss(reason, wanted, fits).sentence()))
        # Members that could take it at once come first, then by how near they come.
        return sorted(rooms, key=lambda room: (bool(room.reason), -room.fits))

    def _lacks_tier(self, member: Member) -> str:
        """That a member has no tier of the name by which the workload asks for one; empty where it has."""
        names = member.nodes.tier_names
        if member.problems:
            return ""
        parts = [task.partition.wish for task in self._gang.tasks if task.partition is not None]
        for wish in (self._gang.network_topology, *parts):
            if wish is not None and wish.highest_tier_name and not member.has_domain(wish):
                known = f"its tiers are {', '.join(names)}" if names else "it has no HyperNodes"
                hint = spelling.meant(wish.highest_tier_name, names) or f"; {known}"
                return f"it has no tier {wish.highest_tier_name}{hint}"
        return ""

    def _exact(self, member: Member, wanted: int) -> Room:
        placement = place(member.nodes, self._gang, room=self.members.table.room(member, self.shape))
        if isinstance(placement, Placement):
            choice = alone(self.shape, self._gang, member, placement)
            domain = _domain(member, placement)
            capped = self._rules.capped(choice)
            if capped is not None and (block := capped.blocker) is not None:
                whose = f"of queue {block.name} there" if block.kind == "Queue" else "of this member"
                text = f"the ceiling {whose} leaves {block.available} {block.resource}"
                return _room(member, wanted, wanted, Reason.QUOTA_EXCEEDED, text)
            if self._rules.settle(choice) is None:
                self._delayed |= {each.uid: each for each in self._rules.delayed}
                queues = ", ".join(sorted({each.leaf.name for each in self._rules.delayed}))
                whose = f" of queue {queues}" if queues else ""
                text = f"the capacity there is reserved for a workload{whose} that comes before it"
                return _room(member, wanted, wanted, Reason.WOULD_DELAY, text)
            return Room(member.name, wanted, wanted, message="it has room", domain=domain)
        shortage = quantity.format_units(placement.resource, placement.needed) if placement.resource else ""
        too_small = ""
        if pod := self._too_small(member):
            too_small = pod
            self._small_in[member.name] = "larger nodes, or smaller pods: ", f"{pod} in cluster {member.name}"
        elif not self.shape.divided and (gang := self._all_too_small(member, placement)):
            too_small, what = gang, "larger domains" if placement.reason is Reason.NO_DOMAIN_FITS else "more nodes"
            self._small_in[member.name] = f"{what} in cluster {member.name}, or a gang of fewer pods: ", gang
        wrong = _wrong(member) if self.shape.limited else ""
        devices = self._devices(member, placement.domain)
        return Room(
            member.name,
            wanted,
            placement.available,
            placement.reason.value,
            "; ".join(text for text in (placement.sentence(), too_small, wrong, devices) if text),
            placement.domain,
            placement.resource,
            shortage,
        )

    def _devices(self, member: Member, domain: str) -> str:
        """For how many pods devices are free that go together, in a domain or in all of the member; empty where that is
        enough, and where the member does not say it of all its nodes with free devices.
        """
        nodes = member.nodes.seen_by(self._gang.network_topology)
        index = next((index for index, each in enumerate(nodes.tree.domains) if each.name == domain), ALL)
        inside = np.zeros(len(nodes), np.bool_)
        inside[nodes.inside(index)] = True
        for task, least in zip(self._gang.tasks, self.shape.floor, strict=True):
            name = claim_shapes.name_of(claim_shapes.shape_of(task.claims))
            if not task.claims or name not in nodes.resources:
                continue
            fits = np.where(inside & nodes.accepting(task), nodes.free[nodes.resources.index(name)].clip(min=0), 0)
            # Decisions in flight leave most of the number that stands for no figure.
            unsaid = fits > MANY // 2
            if (nodes.room(task.requests)[unsaid] > 0).any() or (pods := int(fits[~unsaid].sum())) >= least:
                continue
            found = np.flatnonzero(fits * ~unsaid)
            around, _ = covering(nodes, found)
            where = nodes.tree.domains[around].name if around is not None else member.name
            on = f", on {counted(len(found), 'node')} of {where}" if pods else ""
            return (
                f"devices that go together ({claim_shapes.words(task.claims)}) are free for {counted(pods, 'pod')}{on};"
                f" {least} needed"
            )
        return ""

    def _too_small(self, member: Member) -> str:
        """Why no node there holds a pod of some task, even if all that runs there had ended; empty where one would."""
        total, rooms = member.total(), self.members.table.room(member, self.shape)
        if not total:
            return ""
        for task, least, room in zip(self._gang.tasks, self.shape.floor, rooms, strict=True):
            accepts = member.nodes.accepting(task)
            if not least or room.any() or not accepts.any():
                continue
            nodes = self.core.reservations.timeline.emptied(member)
            most = dict(zip(nodes.resources, (nodes.free * accepts).max(axis=1).tolist(), strict=True))
            seen = dict(zip(nodes.resources, nodes.free.sum(axis=1).tolist(), strict=True))
            for name, amount in sorted(task.requests.items()):
                if amount <= (most_of := max(most.get(name, 0), 0)) or seen.get(name, 0) < total.get(name, 0):
                    # Or others use some of it as well, or it is not known where: nodes may have more than they seem to.
                    continue
                asked, has = (quantity.format_units(name, value) for value in (amount, most_of))
                limit = f"no node has more than {has}" if most_of else "no node has any"
                return f"a pod of task {task.name} asks for {asked} {name}, and {limit} for it"
        return ""

    def _all_too_small(self, member: Member, miss: Miss) -> str:
        """Whether nothing there would hold the gang even if all that runs there had ended; empty where it would."""
        if miss.reason not in (Reason.NO_DOMAIN_FITS, Reason.INSUFFICIENT_RESOURCES):
            return ""
        total = member.total()
        if not total:
            return ""
        nodes = self.core.reservations.timeline.emptied(member)
        seen = dict(zip(nodes.resources, nodes.free.sum(axis=1).tolist(), strict=True))
        if any(seen.get(name, 0) < total.get(name, 0) for task in self._gang.tasks for name in task.requests):
            # Others use some of it as well, or it is not known where.
            return ""
        if isinstance(place(nodes, self._gang), Placement):
            return ""
        if miss.reason is Reason.INSUFFICIENT_RESOURCES:
            return "its nodes together are not enough, even if all of them were empty"
        return "no domain of a tier that it allows is large enough, even if all of them were empty"

    def never(self, verdict: Verdict) -> str:
        """Why it can't start as things are, whatever ends; empty where it may."""
        asked = [(name, amount) for name, amount in sorted(self.shape.request.items()) if amount > 0]
        views = [queue.view for queue in path(self._leaf) if queue.view is not None]
        bounds = [("queue", view.name, view.capability, asked) for view in views]
        bounds += [
            (kind_for_people(bound.kind), bound.name, bound.hard, sorted(bound.request.items()))
            for bound in self.core.namespaces.bounds(self.binding.view.namespace, self.shape.charges)
        ]
        for kind, name, most, requested in bounds:
            for resource, amount in requested:
                if amount > most.get(resource, amount):
                    wants, has = (quantity.format_units(resource, each) for each in (amount, most[resource]))
                    return f"it asks for {wants} {resource}, and {kind} {name} may use {has} at most"
        if verdict.reason is Reason.NO_NODE_MATCHES:
            return "no node of the members that it may use accepts its pods, whatever ends there"
        if verdict.reason in (Reason.INSUFFICIENT_RESOURCES, Reason.NO_DOMAIN_FITS, Reason.QUOTA_EXCEEDED):
            full = [room.cluster for room in self.rooms if room.reason != Reason.NO_CLUSTER.value]
            cordoned = any(why == _UNCORDON for _, why in self._excluded)
            if full and not cordoned and all(name in self._small_in for name in full):
                return "no member that it may use is large enough, even if all that runs there had ended"
        return ""

    # -- what would help ---------------------------------------------------------------------------------------------

    def _relaxations(self) -> list[Change]:
        """Wishes that it could give up to start now; none where its quota blocks it too."""
        if self.limits or self.shape.divided or self.shape.others:
            return []
        self.rooms  # noqa: B018  finds the members
        return [
            *relaxing.relaxations(
                self._gang, self._tried, self._excluded[: self.core.settings.reasons.exact], self._would_fit
            )
        ]

    def _would_fit(self, member: Member, gang: Gang) -> bool:
        if member.view is None or not member.ready:
            return False
        placement = place(member.nodes, gang)
        return isinstance(placement, Placement) and self._rules.permits(alone(self.shape, gang, member, placement))

    def changes(self, verdict: Verdict) -> list[Change]:
        """Changes known to help without a search: sufficient ones first."""
        found = self._changes(verdict)
        if verdict.reason in _RELAXED:
            found = [*self._relaxations(), *found]
        return sorted(found, key=lambda change: not change.enough)

    def _changes(self, verdict: Verdict) -> list[Change]:
        queue = self._leaf.name
        match verdict.reason:
            case Reason.QUEUE_NOT_FOUND | Reason.QUEUE_CLOSED | Reason.QUEUE_INVALID | Reason.QUEUE_NOT_LEAF:
                return [_queue_change(verdict.reason, self._leaf)]
            case Reason.BEHIND_HEAD:
                return [Change(ChangeKind.QUEUE, f"the first workload of queue {queue} starts or leaves")]
            case Reason.QUOTA_EXCEEDED:
                stopped = self.choice.blocker if isinstance(self.choice, Verdict) else None
                ceiling = stopped.cluster if stopped is not None else ""
                limits = [limit for limit in self.limits if limit.cluster in ("", ceiling)]
                if not limits:
                    # What stopped it has gone since the last pass.
                    return _by_itself(Verdict(Reason.SUBMITTED))
                enough = bool(ceiling) or isinstance(self.choice, Choice)
                rest = "" if enough else ", and there must be room as well"
                kind = (
                    ChangeKind.LIMITS if any(each.declared or each.guaranteed for each in limits) else ChangeKind.ROOM
                )
                change = Change(kind, f"{higher(limits)}{rest}", enough, limits)
                return [change, *(self._within_limits() if enough else self._more_room())]
            case Reason.INSUFFICIENT_RESOURCES | Reason.NO_DOMAIN_FITS:
                return self._more_room()
            case Reason.WOULD_DELAY:
                return [
                    Change(ChangeKind.WISH, "a shorter estimate of its run time, if that is true"),
                    self._start_of_reserved(),
                ]
            case Reason.NO_CLUSTER:
                allowed = "a policy, and a queue, that allow a member which has room"
                return [*self._missing_members(), Change(ChangeKind.POLICY, allowed)]
            case Reason.NO_TOPOLOGY:
                text = "HyperNodes of a tier that it allows in a member, a higher highestTierAllowed, or none"
                return [Change(ChangeKind.WISH, text)]
            case Reason.TOPOLOGY_INVALID:
                wrong = [f"{_wrong(member)} in {member.name}" for member in self.members.table.order if member.problems]
                return [Change(ChangeKind.WISH, text) for text in wrong]
            case Reason.NO_PLACER:
                text = "a member where kube-scheduler, Volcano or Kueue places, or pods that do not insist on that"
                return [Change(ChangeKind.POLICY, text)]
            case Reason.FEATURE_MISSING:
                text = "a member whose agent and Kubernetes have that, or a workload without it"
                return [Change(ChangeKind.POLICY, text)]
            case Reason.AGENT_VERSION:
                return [Change(ChangeKind.WAIT, "an operator upgrades the host, or the agents of its members")]
            case Reason.NO_NODE_MATCHES:
                return [Change(ChangeKind.WISH, "nodes that its selectors and tolerations accept")]
        return _by_itself(verdict)

    @cached_property
    def reserved(self) -> list[Reservation]:
        """Reservations that it would delay, the earliest first."""
        self.rooms  # noqa: B018  finds the ones in members
        found = self._delayed | {each.uid: each for each in self._rules.short_of()}
        return sorted(found.values(), key=lambda each: (each.at, each.uid))

    def _start_of_reserved(self) -> Change:
        """Start of the workloads that it would delay, by name; their queues are no secret."""
        if not self.reserved:
            return Change(ChangeKind.WAIT, "the workload with the reservation starts")
        queues = ", ".join(sorted({each.leaf.name for each in self.reserved}))
        text = f"the start of {{}} with a reservation, of queue {queues}"
        return self._by_others(ChangeKind.WAIT, text, (each.uid for each in self.reserved))

    def in_full(self, verdict: Verdict) -> Verdict:
        """The verdict, with the queue of the reservation that it is about."""
        if verdict.reason is not Reason.WOULD_DELAY or not self.reserved:
            return verdict
        return Verdict(verdict.reason, Blocker("Queue", self.reserved[0].leaf.name))

    def _within_limits(self) -> list[Change]:
        """Options of its user where quota stops it: begin with fewer pods, or go to another queue."""
        tree, found = self.core.tree, []
        if len(self._gang.tasks) == 1 and (most := self._pods_within_limits()):
            text = f"to start with {counted(most, 'pod')}, or to ask for as many: minAvailable of a Volcano Job,"
            found.append(Change(ChangeKind.WISH, f"{text} annotation {keys.GROUP_MIN_MEMBER} of others"))
        namespace, request = self.binding.view.namespace, self.shape.request
        others = (
            queue.name
            for queue in tree.queues.values()
            if queue is not self._leaf
            and tree.standing(queue) is Standing.OPEN
            and self.core.state.outside(queue, namespace) is None
            and tree.shortage(queue, request) is None
            and any(tree.shortage_in(queue, member, request) is None for member in tree.members)
        )
        if names := heapq.nsmallest(_OTHER_QUEUES, others):
            text = f"another queue whose limits have room for it: {', '.join(names)}"
            found.append(Change(ChangeKind.QUEUE, text))
        return found

    def _pods_within_limits(self) -> int:
        """The most pods, fewer than it must start with, within its queue's limits; 0 if only a ceiling stops it."""
        if self.core.tree.shortage(self._leaf, self.shape.request) is None:
            return 0
        least = sum(self.shape.floor)
        return bisect.bisect_left(
            range(1, least),
            True,
            key=lambda pods: self.core.tree.shortage(self._leaf, self._gang.sized([pods]).total()) is not None,
        )

    def _missing_members(self) -> list[Change]:
        """Members that its queue, or one above it, names or selects and that do not exist."""
        found = []
        for queue in path(self._leaf):
            view = queue.view
            if view is None:
                continue
            if queue.serving == frozenset() and view.affinity:
                label = "label one (atollctl cluster label NAME KEY=VALUE)"
                text = (
                    f"no member matches the selector of queue {queue.name} ({selectors.text(view.affinity)}): {label}"
                )
                found.append(f"{text}, or select others (atollctl queue update {queue.name} --clusters SELECTOR)")
            found += [
                f"member {name}, which queue {queue.name} names in spec.extendClusters and which does not exist: join"
                f" it, or name others (atollctl queue update {queue.name} --member NAME)"
                for name in sorted(set(view.members) - set(self.core.tree.members))
            ]
        return [Change(ChangeKind.QUEUE, text) for text in found]

    def _more_room(self) -> list[Change]:
        """Capacity in the member that comes nearest."""
        full = [room for room in self.rooms if room.fits < room.pods and room.reason in _FULL]
        if not full:
            return []
        nearest = next((room for room in full if room.cluster not in self._small_in), None)
        if nearest is None:
            return [Change(ChangeKind.ROOM, "".join(self._small_in[full[0].cluster]))]
        parts = sorted((room.fits for room in full), reverse=True)[: self.shape.most_clusters]
        together = sum(parts)
        if self.shape.divided and len(parts) > 1 and together < nearest.pods:
            pods = counted(nearest.pods - together, "more pod")
            return [Change(ChangeKind.ROOM, f"room for {pods} in the members that it may be divided over")]
        where = f"cluster {nearest.cluster}" + (f", domain {nearest.domain}" if nearest.domain else "")
        what = f", such as {nearest.shortage} {nearest.resource}" if nearest.resource else " on its nodes"
        pods = counted(nearest.pods - nearest.fits, "more pod")
        found = [Change(ChangeKind.ROOM, f"room for {pods} in {where}{what}")]
        if not self.shape.divided and not self._gang.whole and together >= nearest.pods:
            text = "a policy that lets it be divided (replicaSchedulingType: Divided): together its members have room"
            found.append(Change(ChangeKind.POLICY, text))
        return found

    def search(self, now: float) -> list[Change]:
        """Its victims if the dispatcher evicts for it, and the workloads whose end would let it start."""
        core, found = self.core, []
        claimant = self._claimant
        running = list(core.triggers.running())
        # As the dispatcher plans: other claimants are counted as having the capacity of their victims.
        evicting = None
        if self._gang.preempts:
            with core.reservations.settled(but=self.binding.view.uid):
                evicting = plan(
                    claimant,
                    running,
                    core.tree,
                    self.members,
                    now=now,
                    rules=self._rules,
                    settings=core.settings.preemption,
                )
        if evicting is not None and evicting.losses:
            verb = "evicted" if evicting.victims else "shrunk"
            if 0 < len(evicting.victims) < len(evicting.losses):
                verb += " or shrunk"
            found.append(self._going(ChangeKind.EVICT, f"{{}} {verb} by the dispatcher", evicting))
        elif self._gang.preempts:
            found += self._protected(running, now)
        ends = {each.uid: self._end(each) for each in running}
        running.sort(key=lambda each: (ends[each.uid], each.uid))
        ending = departures(
            claimant,
            running[: core.settings.reasons.ending],
            core.tree,
            self.members,
            rules=self._rules,
            settings=core.settings.preemption,
        )
        if ending is not None and ending.losses:
            at = max(ends[loss.uid] for loss in ending.losses)
            found.append(self._going(ChangeKind.FINISH, "the end of {}", ending, at))
        return found

    def protected(self, now: float) -> list[Change]:
        """Workloads that the dispatcher may evict for it once they have run long enough."""
        group = self.core.waiting.classes(self._leaf).get(self.shape.key)
        if group is None or not group.members or not self.core.triggers.may_evict(group):
            return []
        with self.core.reservations.settled():
            return self._protected(self.core.triggers.possible_victims(group), now)

    def _protected(self, victims: Sequence[Victim], now: float) -> list[Change]:
        core = self.core
        if core.namespaces.shortage(self.binding.view.namespace, self.shape.charges) is not None:
            # No victim is evicted for a limit of its namespace.
            return []
        rules, settings = self._rules, core.settings.preemption
        found = protected(self._claimant, victims, core.tree, self.members, now=now, rules=rules, settings=settings)
        if not found:
            return []
        end = rfc3339(found[-1].started + found[-1].protection)
        until = f"protected until {end}" if len(found) == 1 else f"the last one protected until {end}"
        return [self._by_others(ChangeKind.WAIT, f"eviction of {{}}, {until}", (each.uid for each in found))]

    def _end(self, victim: Victim) -> float:
        stay = self.core.reservations.timeline.get(victim.uid)
        return stay.end if stay is not None else math.inf

    def _going(self, kind: ChangeKind, text: str, found: Plan, at: float = math.inf) -> Change:
        when = rfc3339(at + self.core.settings.backfill.settle) if at < math.inf else ""
        return self._by_others(kind, text, (loss.uid for loss in found.losses), enough=True, at=when)

    def _by_others(
        self, kind: ChangeKind, text: str, uids: Iterable[str], *, enough: bool = False, at: str = ""
    ) -> Change:
        """A change of other workloads, the first ones by name; `{}` in the text stands for their number."""
        names, most = _named(self.core, uids), self.core.settings.reasons.named
        said = text.format(counted(len(names), "workload"))
        return Change(kind, said, enough, workloads=names[:most], more=max(len(names) - most, 0), at=at)


_RELAXED = (
    Reason.INSUFFICIENT_RESOURCES, Reason.NO_DOMAIN_FITS, Reason.NO_TOPOLOGY, Reason.NO_NODE_MATCHES, Reason.NO_CLUSTER,
)  # fmt: skip
"""Verdicts that follow from its own wishes as well as from what members have."""
_OTHER_QUEUES = 3
"""Other queues that are named."""
_NEAR = "a policy without that workloadAffinity"
_MORE_MEMBERS = "more members for its gang group (maxDomains of its HyperJob)"
_TAINTED = "a toleration of its taint (clusterTolerations of its policy)"
_UNCORDON = "an end of its cordon (atollctl uncordon)"
_OTHERWISE = {
    "its policy does not allow this member": "a policy that allows another member",
    "this member is cordoned": _UNCORDON,
}
_FULL = (Reason.INSUFFICIENT_RESOURCES.value, Reason.NO_DOMAIN_FITS.value)


def _refused(verdict: Verdict) -> Account:
    assert verdict.blocker is not None, "it names the queue"
    changes = [_queue_change(verdict.reason, Queue(verdict.blocker.name))]
    return Account(reason=verdict.reason.value, message=verdict.sentence(), blocker=verdict.blocker, changes=changes)


def _queue_change(reason: Reason, queue: Queue) -> Change:
    name = queue.name
    leaves = ", ".join(sorted(each.name for each in subtree(queue) if each is not queue and not each.children))
    text = {
        Reason.QUEUE_NOT_FOUND: f"queue {name} is created",
        Reason.QUEUE_CLOSED: f"queue {name}, or the closed one above it, is opened",
        Reason.QUEUE_INVALID: f"fix queue {name}",
        Reason.QUEUE_NOT_LEAF: f"it goes to one of the queues below {name}: {leaves}",
        Reason.QUEUE_NOT_OPEN: f"its namespace gets labels that queue {name} is open to, or it goes to another queue",
    }[reason]
    return Change(ChangeKind.QUEUE, text)


def _by_itself(verdict: Verdict) -> list[Change]:
    if verdict.reason is Reason.QUEUE_NOT_OPEN and verdict.blocker is not None:
        return [_queue_change(verdict.reason, Queue(verdict.blocker.name))]
    text = {
        Reason.HELD: (ChangeKind.WISH, "its user releases it"),
        Reason.NO_PODS: (ChangeKind.WISH, "its user gives it pods"),
        Reason.POLICY_SUSPENDED: (ChangeKind.WISH, "spec.suspension of its propagation policy is lifted"),
        Reason.GANG_GROUP_INCOMPLETE: (
            ChangeKind.WAIT,
            "enough of its gang group can start, or fewer have to",
        ),
        Reason.CLUSTERS_NOT_READY: (ChangeKind.WAIT, "a member that it may use is ready again"),
        Reason.NAMESPACE_NOT_ACCEPTED: (ChangeKind.WISH, "the member's administrator lets the namespace in"),
        Reason.OVERRIDE_FAILED: (ChangeKind.WISH, "fix the override policy, or the workload"),
        Reason.REFUSED_BY_MEMBER: (ChangeKind.WISH, "fix what the member names, there or in the workload"),
        Reason.DEACTIVATED: (ChangeKind.WISH, "fix what the member names, and then: atollctl job retry"),
        Reason.AVOIDED: (ChangeKind.WAIT, "the room in the members that failed it changes, or their pause is over"),
        Reason.MEMBER_FAILING: (ChangeKind.WAIT, "what is tried in the members that fail is bound there"),
        Reason.ASKING_MEMBERS: (ChangeKind.WAIT, "the members that are asked answer, within seconds"),
        Reason.AWAITING_VICTIMS: (ChangeKind.WAIT, "its victims end"),
        Reason.NOT_READY_IN_TIME: (ChangeKind.WAIT, "its pause is over; until then, fix what its containers wait for"),
        Reason.SUBMITTED: (ChangeKind.WAIT, "the next pass of the dispatcher looks at it"),
    }.get(verdict.reason)
    return [Change(*text)] if text is not None else []


def _position(core: Dispatcher, binding: Binding, *, waits: bool) -> Position:
    """Its place in the queue, by bisection in each class of it."""
    ahead, waiting = 0, 0 if waits else 1
    near: list[Key] = []
    most = core.settings.reasons.ahead
    place = _place(core, binding)
    for group in core.waiting.classes(binding.leaf).values():
        before = bisect.bisect_left(group.members, place, key=partial(shared, share=group.share))
        ahead += before
        waiting += len(group.members)
        near += [shared(key, group.share) for key in group.members[max(before - most, 0) : before]]
    named = heapq.nlargest(most, near)[::-1]
    return Position(
        binding.leaf.name,
        ahead + 1,
        waiting,
        _named(core, (key[2] for key in named)),
        ahead - len(named),
        core.state.fair.standing(binding.leaf, binding.view.namespace, binding.amount),
    )


def _place(core: Dispatcher, binding: Binding) -> Key:
    """By which it is ordered among all that wait in its queue."""
    return core.state.fair.key(binding.leaf, binding.view.namespace, binding.amount, binding.key)


def _named(core: Dispatcher, uids: Iterable[str]) -> list[Named]:
    return [Named(view.namespace, view.name) for uid in uids for view in (core.bindings[uid].view,)]


def _reserved(core: Dispatcher, uid: str) -> Reserved | None:
    reservation = core.reservations.own(uid)
    if reservation is None:
        return None
    names = ", ".join(member.name for member in (reservation.member, *reservation.also))
    return Reserved(names, rfc3339(reservation.at) if reservation.at < math.inf else "")


def _since(binding: Binding, verdict: Verdict) -> str:
    """When the reason was first written, by the story; empty while the binding does not say it."""
    at = ""
    for line in reversed(binding.view.decision.story):
        if line.reason is not verdict.reason:
            break
        at = line.at
    return at


def _places(choice: Choice) -> list[Place]:
    parts: Sequence[tuple[Member, Gang, Placement]] = list(
        zip(choice.members, choice.gangs, choice.placements, strict=True)
    )
    return [
        Place(member.name, sum(placement.counts), _domain(member, placement)) for member, _, placement in parts
    ]  # fmt: skip


def _domain(member: Member, placement: Placement) -> str:
    return member.nodes.tree.domains[placement.domain].name if placement.domain is not None else ""


def _room(member: Member, wanted: int, fits: int, reason: Reason, message: str) -> Room:
    return Room(member.name, wanted, fits, reason.value, message)
