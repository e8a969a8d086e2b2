"""Which members a workload is kept from, by its queue or by its failures there, and their text."""

from __future__ import annotations

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from atoll.dispatcher.core.backlog.binding import Binding
from atoll.dispatcher.core.capacity.breakers import Breakers
from atoll.dispatcher.core.capacity.failures import Failures
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.refusals import MOST_WORDS, Refusals
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.groups.neighbours import Neighbours
from atoll.dispatcher.core.groups.together import GangGroups, domains_of
from atoll.dispatcher.core.placement import excluding
from atoll.dispatcher.core.quota.queue import Queue
from atoll.model.verdict import Blocker, Reason, Verdict, reason_of_refusal


class Exclusions:
    """Says where a workload is not to go."""

    def __init__(
        self,
        members: Members,
        refusals: Refusals,
        breakers: Breakers,
        failures: Failures,
        neighbours: Neighbours,
        together: GangGroups,
    ) -> None:
        self.members, self.neighbours, self.together = members, neighbours, together
        self.refusals, self.breakers, self.failures = refusals, breakers, failures
        #: members that serve a queue -> bool[members], None for all; of `_version`
        self._masks: dict[frozenset[str], NDArray[np.bool_] | None] = {}
        self._version = -1

    def serves(self, leaf: Queue) -> NDArray[np.bool_] | None:
        """bool[members]: which members the queue may use; None for all."""
        if (serving := leaf.serving) is None:
            return None
        if self._version != self.members.table.version:
            self._masks.clear()
            self._version = self.members.table.version
        if serving not in self._masks:
            mask = np.array([member.name in serving for member in self.members.table.order], np.bool_)
            self._masks[serving] = None if mask.all() else mask
        return self._masks[serving]

    def usable(self, binding: Binding) -> NDArray[np.bool_] | None:
        """bool[members]: which members its queue may use, and those beside or apart from which it runs allow it; None
        for all.
        """
        serving = self.serves(binding.leaf)
        if not (out := self.kept_out(binding)):
            return serving
        mask = np.array([member.name not in out for member in self.members.table.order], np.bool_)
        return mask if serving is None else mask & serving

    def kept_out(self, binding: Binding) -> dict[str, str]:
        """Members that it may not use because of where others of its groups run, and why."""
        near = binding.gang.follows or binding.gang.avoids
        if not (near or domains_of(binding)):
            return {}
        members = [member.name for member in self.members.table.order]
        return self.together.kept_out(binding, members) | self.neighbours.kept_out(binding, members)

    def avoided(self, binding: Binding, shape: Shape) -> set[str]:
        """The members that failed this shape, or refused this workload, and are not to be tried yet."""
        found = self.refusing(binding)
        found.update(self.failures.of(shape.key))
        return found

    def refusing(self, binding: Binding) -> set[str]:
        """The members of these that are not to be tried yet for any shape of its."""
        found = self.breakers.barred(binding.view.namespace, binding.view.kind)
        found.update(self.refusals.avoided(binding.view))
        return found

    def in_words(self, binding: Binding, shape: Shape, verdict: Verdict) -> Verdict:
        """The verdict on a workload; where members that refused it are all that it could go to, in their words."""
        if verdict.reason is Reason.NO_CLUSTER and not (verdict.blocker is not None and verdict.blocker.message):
            serving, out = self.serves(binding.leaf), self.kept_out(binding)
            return excluding.verdict(binding.view, shape, binding.leaf, self.members, serving, out)
        if verdict.reason is not Reason.AVOIDED:
            return verdict
        refused, given_up = binding.view.decision.refused, self.refusals.given_up(binding.view)
        if refused is not None and given_up:
            serving = self.serves(binding.leaf)
            if given_up.issuperset(self._named(shape, True if serving is None else serving)):
                return self.refusals.deactivation(binding.view, refused)
        words = next(((name, said) for name, said in self.refusals.avoided(binding.view).items() if said), None)
        if words is None:
            barred = self.breakers.barred(binding.view.namespace, binding.view.kind)
            ready = self._named(shape, self.members.table.ready) if barred else []
            failing = ", ".join(name for name in ready if name in barred)
            if failing:
                return Verdict(Reason.MEMBER_FAILING, Blocker("Cluster", failing))
            why = "; ".join(sorted({said for said in self.failures.of(shape.key).values() if said}))
            assert verdict.blocker is not None
            return Verdict(verdict.reason, structs.replace(verdict.blocker, message=why[:MOST_WORDS]))
        return Verdict(reason_of_refusal(words[1]), Blocker("Cluster", words[0], message=words[1]))

    def _named(self, shape: Shape, among: NDArray[np.bool_] | bool) -> list[str]:
        """Names of the members that accept a shape, among bool[members]."""
        table = self.members.table
        return [table.order[column].name for column in np.flatnonzero(np.any(table.allowed(shape), axis=0) & among)]
