"""A recorder of Events that only keeps them, and records without a store."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry

from atoll.control.caches import Caches
from atoll.control.notifications import Notifications, counter
from atoll.control.records import RecordMetrics, Records
from atoll.control.settings import NotificationSettings
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer
from tests.kube.servers import client


def records_of(host: ApiServer, caches: Caches) -> Records:
    """Counters alone."""
    return Records(host, caches, RecordMetrics(CollectorRegistry()), None)


def silent(caches: Caches) -> Notifications:
    """Without targets nobody is notified."""
    count = counter(CollectorRegistry())
    return Notifications(caches, Told(), count, settings=NotificationSettings())


class Told(Recorder):
    """Keeps what it is told of instead of writing Events."""

    def __init__(self) -> None:
        super().__init__(client(9), "control")
        self.about: list[tuple[str, str]] = []

    def record(self, about: Any, reason: str, note: str, **more: Any) -> None:
        self.about.append((about["name"], reason))
