"""New trials of workloads in members that failed, refused them or were barred."""

from __future__ import annotations

from functools import partial

from atoll.dispatcher.core.backlog.deadlines import earliest
from atoll.dispatcher.core.backlog.wake_index import KEPT, MEMBERS
from atoll.dispatcher.core.lifecycle.state import State


class Retries:
    """Ends pauses of members, and has the workloads that waited for them looked at again."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.waiting, self.bindings, self.wakes = state.waiting, state.bindings, state.wakes
        self.refusals, self.breakers, self.failures = state.refusals, state.breakers, state.failures

    @property
    def next(self) -> float | None:
        """When the first pause ends."""
        return earliest(self.failures.next, self.refusals.next, self.breakers.next)

    def pass_begins(self) -> None:
        """Time has passed."""
        self._try_again()
        self._forget_refusals()
        self.breakers.pass_begins(self._state.now)

    def heed_breakers(self) -> None:
        """Look again at what waits where other members may be tried than before."""
        if self.breakers.moved:
            self.breakers.moved = False
            for scope in self.breakers.to_mark():
                self._state.file_again(scope, partial(self.breakers.mark, scope))
            self.wakes.fire(MEMBERS)
            self.wakes.fire(KEPT)

    def _forget_refusals(self) -> None:
        """Look again at what waited for members that may be tried again."""
        uids, namespaces, forgotten = self.refusals.ended(self._state.now)
        for uid in uids:
            binding = self.bindings.get(uid)
            if binding is not None and binding.shape is not None:
                self.waiting.wake_shape(binding.shape.key)
        for namespace in namespaces:
            self._state.wake_namespace(namespace)
        for namespace in forgotten:
            self._state.file_again(namespace)

    def _try_again(self) -> None:
        """Members that failed long enough ago may be tried again; their failures are forgotten much later."""
        for shape, namespace in self.failures.ended(self._state.now):
            if namespace:
                self._state.file_again(namespace)
            else:
                self.waiting.wake_shape(shape)
