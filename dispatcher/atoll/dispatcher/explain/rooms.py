"""Pods of a workload that each member could take, and the reason where it could not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from atoll.dispatcher.core.backfill.permits import QueueRules
from atoll.dispatcher.core.backfill.reservation import Reservation
from atoll.dispatcher.core.backlog.binding import Binding
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.placement import excluding
from atoll.dispatcher.core.placement.choice import alone
from atoll.fit import Miss, Placement, place
from atoll.fit.place import ALL, covering
from atoll.fit.placement import MANY
from atoll.model import claim_shapes, quantity, spelling
from atoll.model.gang import Gang
from atoll.model.plurals import counted
from atoll.model.query import Room
from atoll.model.verdict import Reason, reason_of_refusal

if TYPE_CHECKING:
    from atoll.dispatcher.core.dispatcher import Dispatcher

UNCORDON = "an end of its cordon (atollctl uncordon)"
_NEAR = "a policy without that workloadAffinity"
_MORE_MEMBERS = "more members for its gang group (maxDomains of its HyperJob)"
_TAINTED = "a toleration of its taint (clusterTolerations of its policy)"
_OTHERWISE = {
    "its policy does not allow this member": "a policy that allows another member",
    "this member is cordoned": UNCORDON,
}


@dataclass
class Survey:
    """All members, asked one after the other as soon as it is made."""

    core: Dispatcher
    binding: Binding
    shape: Shape
    """Enrolled."""
    members: Members
    rules: QueueRules
    rooms: list[Room] = field(init=False)
    """Pods that each member could take, the largest number first."""
    #: member -> what of it would have to be larger, and why, though all that runs there had ended
    small: dict[str, tuple[str, str]] = field(default_factory=dict)
    #: members in which it was placed as they are, the nearest first
    tried: list[Member] = field(default_factory=list)
    #: reservations that it would delay in members, by UID of their workloads
    delayed: dict[str, Reservation] = field(default_factory=dict)
    #: members that it may not use, and what would have to be otherwise for that
    excluded: list[tuple[Member, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rooms = self._surveyed()

    @property
    def _gang(self) -> Gang:
        return self.binding.gang

    def _surveyed(self) -> list[Room]:
        members, shape, core = self.members, self.shape, self.core
        allowed = np.any(members.table.allowed(shape), axis=0) if members.table.order else np.zeros(0, np.bool_)
        serving, kept_out = (
            core.state.exclusions.serves(self.binding.leaf),
            core.state.exclusions.kept_out(self.binding),
        )
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
                    self.excluded.append((member, _OTHERWISE.get(text, _TAINTED)))
                else:
                    why, text = unfit[0].reason, unfit[1]
                rooms.append(_room(member, wanted, fits, why, text))
            elif serving is not None and not serving[column]:
                rooms.append(_room(member, wanted, fits, Reason.NO_CLUSTER, excluding.QUEUE))
                self.excluded.append((member, "a queue that uses this member"))
            elif member.name in kept_out:
                rooms.append(_room(member, wanted, fits, Reason.NO_CLUSTER, kept_out[member.name]))
                near = member.name in core.state.neighbours.kept_out(self.binding, [member.name])
                self.excluded.append((member, _NEAR if near else _MORE_MEMBERS))
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
                self.tried.append(member)
                rooms.append(self._exact(member, wanted))
            else:
                reason = Reason.NO_DOMAIN_FITS if shape.limited else Reason.INSUFFICIENT_RESOURCES
                rooms.append(_room(member, wanted, fits, reason, Miss(reason, wanted, fits).sentence()))
        # Members that could take it at once come first, then by how near they come.
        return sorted(rooms, key=lambda room: (bool(room.reason), -room.fits))

    def _lacks_tier(self, member: Member) -> str:
        """That a member has no tier of the name by which the workload asks for one; empty where it has."""
        names = member.nodes.trees.tier_names
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
            domain = domain_of(member, placement)
            capped = self.rules.capped(choice)
            if capped is not None and (block := capped.blocker) is not None:
                whose = f"of queue {block.name} there" if block.kind == "Queue" else "of this member"
                text = f"the ceiling {whose} leaves {block.available} {block.resource}"
                return _room(member, wanted, wanted, Reason.QUOTA_EXCEEDED, text)
            if self.rules.settle(choice) is None:
                self.delayed |= {each.uid: each for each in self.rules.delayed}
                queues = ", ".join(sorted({each.leaf.name for each in self.rules.delayed}))
                whose = f" of queue {queues}" if queues else ""
                text = f"the capacity there is reserved for a workload{whose} that comes before it"
                return _room(member, wanted, wanted, Reason.WOULD_DELAY, text)
            return Room(member.name, wanted, wanted, message="it has room", domain=domain)
        shortage = quantity.format_units(placement.resource, placement.needed) if placement.resource else ""
        too_small = ""
        if pod := self._too_small(member):
            too_small = pod
            self.small[member.name] = "larger nodes, or smaller pods: ", f"{pod} in cluster {member.name}"
        elif not self.shape.divided and (gang := self._all_too_small(member, placement)):
            too_small, what = gang, "larger domains" if placement.reason is Reason.NO_DOMAIN_FITS else "more nodes"
            self.small[member.name] = f"{what} in cluster {member.name}, or a gang of fewer pods: ", gang
        wrong = wrong_hyper_nodes(member) if self.shape.limited else ""
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
        inside[nodes.layout.inside(index)] = True
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


def wrong_hyper_nodes(member: Member) -> str:
    """The HyperNodes of a member that are wrong; empty where none are."""
    if not member.problems:
        return ""
    (name, message), *others = member.problems
    more = f" (and {len(others)} more)" if others else ""
    return f"HyperNode {name} is wrong: {message}{more}"


def domain_of(member: Member, placement: Placement) -> str:
    return member.nodes.tree.domains[placement.domain].name if placement.domain is not None else ""


def _room(member: Member, wanted: int, fits: int, reason: Reason, message: str) -> Room:
    return Room(member.name, wanted, fits, reason.value, message)
