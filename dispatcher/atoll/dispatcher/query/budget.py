"""How much of the leader's time questions may take, shared equally by their users."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_REMEMBERED: Final = 60.0
"""Seconds after its last question for which a user counts as one who asks."""


class Exhausted(Exception):
    """The user has had its part for now; `wait` says for how many seconds."""

    def __init__(self, wait: float) -> None:
        super().__init__(f"{wait:.1f} s")
        self.wait = wait


class Budget:
    """A share of the time of one loop, the same part of it for every user that asks."""

    def __init__(self, share: float, patience: float) -> None:
        """No user has spent anything.

        Args:
            share: of the time, for all users together.
            patience: seconds that a question may wait for its part; one that would wait longer is refused at once.
        """
        self._share, self._patience = share, patience
        #: user -> when its next question may be answered, and when it asked last, by time.perf_counter
        self._users: dict[str, tuple[float, float]] = {}

    async def wait(self, user: str) -> None:
        """Return when a question of the user may be answered.

        Raises:
            Exhausted: not soon enough.
        """
        while True:
            now = time.perf_counter()
            self._forget(now)
            following = self._users.get(user, (now, now))[0]
            self._users.pop(user, None)
            self._users[user] = (following, now)
            if following - now > self._patience:
                raise Exhausted(following - now)
            if following <= now:
                return
            await asyncio.sleep(following - now)

    @contextmanager
    def spend(self, user: str) -> Iterator[None]:
        """Charge the time that the block takes, which must not wait for anything, to the user."""
        began = time.perf_counter()
        try:
            yield
        finally:
            cost = time.perf_counter() - began
            following = max(began, self._users.get(user, (began, began))[0])
            self._users[user] = (following + cost * max(len(self._users), 1) / self._share, began)

    def _forget(self, now: float) -> None:
        # The one that asked longest ago comes first.
        while self._users:
            user, (following, asked) = next(iter(self._users.items()))
            if max(asked + _REMEMBERED, following) > now:
                return
            del self._users[user]
