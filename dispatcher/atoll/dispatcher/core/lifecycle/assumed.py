"""Dispatched pods not yet visible in ClusterCapacity: counted in their members until they are."""

from __future__ import annotations

from atoll.dispatcher.core.backlog.binding import Binding, contained
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.members import Members
from atoll.fit.pods import last_pods
from atoll.model.decision import Phase


class Assumed:
    """Counts it, and stops once the figures contain it or never will."""

    def __init__(self, members: Members, bindings: dict[str, Binding]) -> None:
        self.members, self.bindings = members, bindings

    def settle(self, binding: Binding) -> None:
        """Forget assumed pods once the member's own figures contain them, or once they have ended."""
        uid = binding.view.uid
        for member in list(self.members.holders.get(uid, ())):
            if contained(binding, member):
                self.members.forget(member, uid)
        for name in binding.parts:
            member = self.members.member(name)
            if binding.phase is Phase.EVICTING and uid not in member.expected:
                # The figures contain leaving pods.
                continue
            if not contained(binding, member):
                self.members.expect(member, uid)
                self.members.assume_no_more(member, uid, binding.parts[name])
                self._assume_late(binding, member)

    def settle_member(self, member: Member) -> None:
        for uid in sorted(member.expected):
            binding = self.bindings.get(uid)
            if binding is None or contained(binding, member):
                self.members.forget(member, uid)
            else:
                self._assume_late(binding, member)

    def _assume_late(self, binding: Binding, member: Member) -> None:
        """Count a part that an earlier leader decided and the member's figures lack, where it would go now."""
        uid = binding.view.uid
        if uid not in member.inflight and member.roots:
            part = binding.parts[member.name]
            if binding.bound and binding.phase is Phase.DISPATCHED:
                # Its last pods, for the first ones are there, unless the figures are older than they are.
                generation, pods = binding.view.placed.get(member.name, (0, 0))
                if generation <= member.generation:
                    part = part.sized(last_pods(part, max(binding.expected_in(member.name) - pods, 0)))
            self.members.assume_late(member, uid, part)
