"""Where a gang goes."""

from __future__ import annotations

from msgspec import Struct

from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.fit import Placement
from atoll.fit.place import covering
from atoll.fit.pods import cut
from atoll.model import vector
from atoll.model.decision import Spots
from atoll.model.gang import Gang
from atoll.model.vector import Vector


class Choice(Struct, frozen=True):
    """Where a gang goes."""

    members: tuple[Member, ...]
    gangs: tuple[Gang, ...]
    """Per member: the gang of its part; the whole where there is one."""
    placements: tuple[Placement, ...]
    """Per member: where its part is expected."""

    @property
    def divided(self) -> bool:
        return len(self.members) > 1

    def total(self) -> Vector:
        """What all parts request together."""
        return vector.total(gang.total() for gang in self.gangs)

    def sentence(self) -> str:
        """For the story."""
        parts = []
        for member, gang, placement in zip(self.members, self.gangs, self.placements, strict=True):
            pods = f"{gang.replicas} pods to " if self.divided else "to "
            name = member.nodes.tree.domains[placement.domain].name if placement.domain is not None else ""
            parts.append(f"{pods}{member.name}" + (f", domain {name} expected" if name else ""))
        return "; ".join(parts)


def alone(shape: Shape, gang: Gang, member: Member, placement: Placement) -> Choice:
    """One member for a gang of the shape, of which as much goes there as is placed."""
    if shape.elastic:
        # It begins with its minimum; more pods follow where no other workload can use the capacity.
        least = cut(placement, shape.floor)
        least.domain, least.tier = covering(member.nodes, least.arrays()[1])
        return Choice((member,), (gang.sized(shape.floor),), (least,))
    return Choice((member,), (gang,), (placement,))


def spots(member: Member, gang: Gang, placement: Placement) -> dict[str, Spots]:
    """The nodes of a placement in its member, as a decision names them; none where some have no names."""
    names = member.nodes.names
    found = [(gang.tasks[task].name, names[node], count) for task, node, count in placement.pods]
    return {member.name: found} if all(node for _, node, _ in found) else {}
