"""Gangs that broke us: each has a pause, twice as long each time, after which it is tried again."""

from __future__ import annotations

from atoll.agent.scheduler.core.settings import AsideSettings
from atoll.model.pauses import pause_after


class Aside:
    """One gang that breaks us is no reason to place none; later the world may be another one."""

    def __init__(self, settings: AsideSettings = AsideSettings()) -> None:
        """Begin without failures."""
        self._settings = settings
        #: gang key -> failures in a row
        self._failures: dict[str, int] = {}
        #: gang key -> end of its pause; of gangs that have one
        self._until: dict[str, float] = {}

    @property
    def deadline(self) -> float | None:
        """When the next pause ends; None without any."""
        return min(self._until.values(), default=None)

    def failed(self, key: str, now: float) -> None:
        """It broke once more."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._until[key] = now + pause_after(failures, self._settings)

    def pauses(self, key: str) -> bool:
        """Whether it is too early to try it again."""
        return key in self._until

    def over(self, now: float) -> list[str]:
        """Gangs whose pause has ended; each appears once."""
        found = [key for key, until in self._until.items() if until <= now]
        for key in found:
            del self._until[key]
        return found

    def forget(self, key: str) -> None:
        """It is in order or gone: its pauses start anew."""
        self._failures.pop(key, None)
        self._until.pop(key, None)

    def __len__(self) -> int:
        return len(self._failures)
