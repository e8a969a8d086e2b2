"""Workloads that keep to the members of others of their group, or away from them: `workloadAffinity` of a policy.

Groups are of one namespace; an ended or waiting workload is in no member. No running workload is moved for a group.
"""

from __future__ import annotations

from collections.abc import Iterator

from atoll.dispatcher.core.backlog.backlog import Waiting
from atoll.dispatcher.core.backlog.binding import Binding

_Key = tuple[bool, str, str]
"""Whether it is kept to, namespace, label and value."""


class Neighbours:
    """Which bindings are in which group."""

    def __init__(self, bindings: dict[str, Binding], waiting: Waiting) -> None:
        self._bindings, self._waiting = bindings, waiting
        self._of: dict[_Key, dict[str, None]] = {}
        self._keys: dict[str, list[_Key]] = {}

    def entered(self, binding: Binding) -> None:
        """It is filed under its phase."""
        uid, wish = binding.view.uid, binding.wish
        if (wish is None or not (wish.follows or wish.avoids)) and uid not in self._keys:
            # Most are in none.
            return
        wanted = [*_keys(binding)]
        if wanted == self._keys.get(uid, []):
            return
        self.dropped(uid)
        self._keys[uid] = wanted
        for key in wanted:
            self._of.setdefault(key, {})[uid] = None

    def dropped(self, uid: str) -> None:
        """The binding is gone, or in other groups."""
        for key in self._keys.pop(uid, ()):
            del self._of[key][uid]
            if not self._of[key]:
                del self._of[key]

    def charged(self, binding: Binding, times: int) -> None:
        """It runs, or no more: then others may use other members than before."""
        if times > 0 or not self._keys:
            return
        for key in self._keys.get(binding.view.uid, ()):
            for uid in self._of[key]:
                other = self._bindings.get(uid)
                if other is not None and other.shape is not None:
                    self._waiting.reconsider(other.leaf, other.shape)

    def kept_out(self, binding: Binding, members: list[str]) -> dict[str, str]:
        """Members among these that it may not use, and why."""
        found: dict[str, str] = {}
        for key in _keys(binding):
            beside, _, text = key
            for uid in sorted(self._of.get(key, ())):
                other = self._bindings.get(uid)
                if other is None or other is binding or uid == binding.view.uid or not other.phase.charged:
                    continue
                if not other.parts:
                    continue
                for name in members:
                    if (name in other.parts) is not beside:
                        said = f"runs in {', '.join(other.parts)}" if beside else "runs there"
                        found.setdefault(name, f"{other.view.name} of its group {text} {said}")
        return found


def _keys(binding: Binding) -> Iterator[_Key]:
    if binding.wish is not None and binding.wish.follows:
        yield True, binding.view.namespace, binding.wish.follows
    if binding.wish is not None and binding.wish.avoids:
        yield False, binding.view.namespace, binding.wish.avoids
