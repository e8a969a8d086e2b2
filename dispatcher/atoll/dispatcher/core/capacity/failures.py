"""Members that failed a shape: a gang of it was not reserved or bound there in time, or it would not fit there.

Such a member is not chosen for the shape again until its capacity changes, or a while has passed, which doubles with
each failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from atoll.dispatcher.core.settings import AvoidedSettings
from atoll.model.pauses import Pause, count_after, pause_after, spread


class Failures:
    def __init__(self, settings: AvoidedSettings = AvoidedSettings()) -> None:
        self._settings = settings
        #: (shape, member) -> since the first failure until all are forgotten
        self.known: dict[tuple[bytes, str], Pause] = {}
        #: namespaces of which pods got no nodes: what waits in them is in classes of its own, lest their failures cost
        #: another one a member
        self._marked: dict[str, None] = {}

    def is_marked(self, namespace: str) -> bool:
        """Whether what this namespace asks for is of shapes of its own."""
        return namespace in self._marked

    def mark(self, namespace: str) -> bool:
        """Give a namespace shapes of its own; whether it had none."""
        fresh = namespace not in self._marked
        self._marked[namespace] = None
        return fresh

    def failed(self, shape: bytes, member: str, namespace: str, uid: str, now: float, words: str = "") -> None:
        """A workload of the shape failed in the member."""
        before = self.known.get((shape, member))
        failures = count_after(before)
        until = now + pause_after(failures, self._settings) * spread(f"{uid}/{member}")
        if before is not None and not before.over:
            until = max(before.until, until)
        alone = namespace if self.is_marked(namespace) else ""
        self.known[shape, member] = Pause(until, failures, namespace=alone, words=words)

    def of(self, shape: bytes) -> Mapping[str, str]:
        """The members that are not to be tried for a shape, and why in the words of each; empty where it has none."""
        return {name: each.words for (key, name), each in self.known.items() if key == shape and not each.over}

    def moved_on(self, member: str) -> Iterator[bytes]:
        """The member's figures are other ones: each shape that may try it again."""
        for (shape, name), each in self.known.items():
            if name == member and not each.over:
                each.over = True
                yield shape

    def ended(self, now: float) -> Iterator[tuple[bytes, str]]:
        """(Shape that may try a member again, empty) and (empty, namespace that needs no shapes of its own)."""
        for key, each in list(self.known.items()):
            if each.forgotten(self._settings) <= now:
                del self.known[key]
                others = (other.namespace for other in self.known.values())
                if each.namespace in self._marked and each.namespace not in others:
                    del self._marked[each.namespace]
                    yield b"", each.namespace
            elif each.ends(now):
                yield key[0], ""

    @property
    def next(self) -> float | None:
        """When something ends; None for never."""
        known = self.known.values()
        return min([each.forgotten(self._settings) if each.over else each.until for each in known], default=None)
