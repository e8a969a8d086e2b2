"""Gang groups: workloads that start together or not at all, each a gang by itself, as Jobs of a HyperJob may be.

They are dispatched in one pass, when the smallest number that must start fits as a whole; each is reserved in its
members, and they start once all of that number are. Where one of them leaves and fewer are left, the rest is evicted.
Nothing of that is remembered: all of it follows from the phases of the group's bindings.

A group may be kept to so many members: once others use that many, the rest goes to these alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from atoll.dispatcher.core.backlog.backlog import Waiting
from atoll.dispatcher.core.backlog.binding import Binding
from atoll.model.decision import Phase
from atoll.model.plurals import counted, listed

_Key = tuple[str, str]
"""Namespace, name of the group."""
_RUNS = (Phase.RESERVING, Phase.DISPATCHED)


class GangGroups:
    """Which bindings are in which group, and how much of each runs."""

    def __init__(self, bindings: dict[str, Binding], waiting: Waiting) -> None:
        self._bindings, self._waiting = bindings, waiting
        self._of: dict[_Key, dict[str, None]] = {}
        self._key: dict[str, _Key] = {}
        #: of which fewer may be left than must run together
        self._doubtful: dict[_Key, None] = {}
        #: member -> how often it is supposed to be used, by the group that is examined
        self._supposed: Counter[str] = Counter()
        #: members in which that group is not to begin, as it did not fit from there
        self._begun: Collection[str] = ()

    def entered(self, binding: Binding) -> None:
        """It is filed under its phase."""
        uid, wish = binding.view.uid, binding.wish
        if (wish is None or wish.together is None) and uid not in self._key:
            # Most are in none.
            return
        key = key_of(binding)
        if key != self._key.get(uid):
            self.dropped(uid)
        if key is None:
            return
        self._key[uid] = key
        self._of.setdefault(key, {})[uid] = None
        self._doubtful[key] = None
        if binding.shape is not None or binding.phase is Phase.FINISHED:
            # With it the others may be enough.
            self.look_again(binding)

    def dropped(self, uid: str) -> None:
        """The binding is gone, or in another group."""
        key = self._key.pop(uid, None)
        if key is not None:
            del self._of[key][uid]
            if self._of[key]:
                self._doubtful[key] = None
            else:
                del self._of[key]
                self._doubtful.pop(key, None)

    def of(self, binding: Binding) -> list[Binding]:
        """All of its group, in their order; it alone where it is in none."""
        key = key_of(binding)
        return [binding] if key is None else self._all(key)

    def _all(self, key: _Key) -> list[Binding]:
        # One of them may be on its way out.
        known = (self._bindings[uid] for uid in self._of[key] if uid in self._bindings)
        return sorted(known, key=lambda each: each.key)

    def least(self, binding: Binding) -> int:
        """Weight that must run together in its group; 0 where it is in none, or each starts by itself."""
        found = [each.gang.together.least for each in self.of(binding) if each.gang.together is not None]
        least = min(found, default=0)
        return least if least > 1 else 0

    def weight(self, binding: Binding, phases: Iterable[Phase]) -> int:
        """Weight of its group's workloads in these phases, or finished."""
        counted = (*phases, Phase.FINISHED)
        return sum(weight_of(each) for each in self.of(binding) if each.phase in counted)

    def incomplete(self, binding: Binding) -> bool:
        """Whether it waits until it can start with others."""
        return self.least(binding) > self.weight(binding, _RUNS)

    def is_held(self, binding: Binding) -> bool:
        """Whether it may not start when it is reserved, before others are."""
        return self.least(binding) > self.weight(binding, (Phase.DISPATCHED,))

    def look_again(self, binding: Binding) -> None:
        """Look at those again that wait in its group."""
        groups = {
            group: None
            for each in self.of(binding)
            if each.shape is not None and (group := self._waiting.classes(each.leaf).get(each.shape.key)) is not None
        }
        for group in groups:
            self._waiting.refresh(group)

    def charged(self, binding: Binding, times: int) -> None:
        """It runs, or no more: then others may use other members than before."""
        if times < 0 and binding.view.uid in self._key and domains_of(binding):
            for each in self.of(binding):
                if each.shape is not None:
                    self._waiting.reconsider(each.leaf, each.shape)

    @contextmanager
    def supposing(self, members: Sequence[str]) -> Iterator[None]:
        """The group that is examined uses these as well."""
        self._supposed.update(members)
        try:
            yield
        finally:
            self._supposed.subtract(members)

    @contextmanager
    def beginning_elsewhere(self, begun: Collection[str]) -> Iterator[None]:
        """The group that is examined uses none of these first."""
        self._begun = begun
        try:
            yield
        finally:
            self._begun = ()

    def kept_out(self, binding: Binding, members: Sequence[str]) -> dict[str, str]:
        """Members among these that it may not use, and why."""
        most = domains_of(binding)
        if not most:
            return {}
        used = {name for each in self.of(binding) if each.phase.charged for name in each.parts}
        used |= {name for name, times in self._supposed.items() if times}
        if not used:
            return dict.fromkeys(self._begun, "its gang group does not fit from there")
        # A divided workload may use several at once.
        if len(used) < most and not (binding.shape is not None and binding.shape.divided):
            return {}
        text = f"its gang group may use {counted(most, 'member')}, and uses {listed(sorted(used))}"
        return {name: text for name in members if name not in used}

    def below(self) -> list[Binding]:
        """Running workloads with too few of their group running, since others left or never started, whose
        last decision is written.
        """
        found: list[Binding] = []
        for key in list(self._doubtful):
            bindings = self._all(key)
            runs = [each for each in bindings if each.phase in _RUNS]
            ended = [each for each in bindings if each.phase is Phase.FINISHED]
            # What ended and was deleted since left no gap.
            gap = len(bindings) > len(runs) + len(ended)
            if not (runs and gap and self.incomplete(runs[0])):
                del self._doubtful[key]
                continue
            written = [each for each in runs if each.written]
            found += written
            if len(written) == len(runs):
                del self._doubtful[key]
        return found


def key_of(binding: Binding) -> _Key | None:
    """The group that it is in."""
    if binding.wish is None or binding.wish.together is None:
        return None
    return binding.view.namespace, binding.wish.together.group


def domains_of(binding: Binding) -> int:
    """Most members that its group may use; 0 for any number."""
    return binding.wish.together.domains if binding.wish is not None and binding.wish.together is not None else 0


def weight_of(binding: Binding) -> int:
    """Its weight in its group."""
    return binding.gang.together.weight if binding.gang.together is not None else 0
