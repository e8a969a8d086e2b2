"""A recorder of Events that only keeps them."""

from __future__ import annotations

from typing import Any

from atoll.kube.events import Recorder
from tests.kube.servers import client


class Told(Recorder):
    """Keeps what it is told of instead of writing Events."""

    def __init__(self) -> None:
        super().__init__(client(9), "control")
        self.about: list[tuple[str, str]] = []

    def record(self, about: Any, reason: str, note: str, **more: Any) -> None:
        self.about.append((about["name"], reason))
