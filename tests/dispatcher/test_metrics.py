"""Series of queues: there while the queue is, gone with it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from atoll.dispatcher.core import Dispatcher, QueueGone
from atoll.dispatcher.shell import Metrics
from tests.dispatcher.builders import make_queue


def test_a_queue_that_is_deleted_loses_its_series() -> None:
    registry = CollectorRegistry()
    metrics, core = Metrics(registry), Dispatcher()
    for name in ("stays", "goes"):
        core.handle(make_queue(name, cpu=1))
    metrics.show(core)
    assert 'atoll_queue_pending{queue="goes"} 0.0' in generate_latest(registry).decode()
    core.handle(QueueGone("goes"))
    metrics.show(core)
    text = generate_latest(registry).decode()
    assert "goes" not in text
    assert 'atoll_queue_charged{queue="stays"} 0.0' in text
