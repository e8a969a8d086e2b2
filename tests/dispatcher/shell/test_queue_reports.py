"""What queues show of themselves, without a server: counts, status patches, metrics."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import orjson
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from atoll.dispatcher import reporting
from atoll.dispatcher.core import Dispatcher, Pass, QueueGone, QueueSet, QueueView
from atoll.dispatcher.core.quota.queue import Queue
from atoll.dispatcher.core.quota.tree import Tree
from atoll.dispatcher.metrics import QueueMetrics
from atoll.dispatcher.reporting import Book, status_patch
from atoll.dispatcher.settings import ReportSettings
from atoll.kube.pace import MOST, Pace
from atoll.kube.reflector import Reflector
from atoll.model.apiresource import QUEUES
from atoll.model.decision import Decision, Line, Phase
from atoll.model.queue_object import QueueObject, decode_queue
from atoll.model.timestamps import to_seconds
from atoll.model.verdict import Reason
from tests.dispatcher.builders import EARLY, GPU, dispatched, make_binding, make_queue, scene
from tests.kube.servers import client, serving

NOW = 1_800_000_000.0


def make_status(status: dict[str, Any]) -> QueueObject:
    return decode_queue(orjson.dumps({"metadata": {"name": "q", "uid": "u"}, "status": status}))


def node_of(view: QueueView, **used: int) -> Queue:
    tree = Tree()
    tree.set_queue(view)
    node = tree.queue(view.name)
    tree.charge(node, dict(used), {})
    return node


def test_a_binding_counts_once_and_moves_with_what_it_is() -> None:
    s = scene()
    book = Book()
    s.submit(make_binding("a").tasks(4).submitted(EARLY))
    s.submit(make_binding("b").tasks(8).submitted(EARLY))
    assert dispatched(s.run()) == [("a", "m")]

    def count() -> dict[str, int]:
        for uid in ("uid-a", "uid-b"):
            book.file(uid, s.core.bindings.get(uid))
        return dict(book.counts["q"])

    assert count() == {"inqueue": 1, "pending": 1}
    assert book.below(s.core.tree.root) == Counter({"inqueue": 1, "pending": 1})
    assert book.file("uid-a", s.core.bindings["uid-a"]) == "", "the same again changes nothing"
    book.file("uid-a", replace(s.core.bindings["uid-a"], bound=True))
    assert book.counts["q"] == {"running": 1, "pending": 1}
    for uid in ("uid-a", "uid-b"):
        assert book.file(uid, None) == "q"
    assert (book.counts, book.filed) == ({}, {})


def test_counts_include_the_queues_below() -> None:
    tree = Tree()
    tree.set_queues([QueueView("lab", {}), QueueView("vision", {}, parent="lab"), QueueView("other", {})])
    book = Book()
    for name, amount in (("vision", 2), ("other", 3)):
        book.counts[name]["pending"] = amount
    assert [book.below(tree.queue(name))["pending"] for name in ("vision", "lab", "root")] == [2, 2, 5]


def test_a_status_that_says_all_is_left_alone_and_else_only_what_differs_is_written() -> None:
    node = node_of(QueueView("q", {}), cpu=1500)
    first = status_patch(make_status({"state": "Open"}), node, {"running": 2}, NOW)
    assert first is not None
    assert first["metadata"] == {"uid": "u"}
    assert {key: first["status"][key] for key in ("running", "allocated")} == {
        "running": 2,
        "allocated": {"cpu": "1500m"},
    }
    [condition] = first["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Valid", "True", "TreeValid")
    assert "state" not in first["status"], "the state is control's"
    assert status_patch(make_status(first["status"]), node, {"running": 2}, NOW + 60) is None
    later = status_patch(make_status(first["status"]), node_of(QueueView("q", {}), memory=1), {"running": 1}, NOW)
    assert later is not None
    assert later["status"] == {"running": 1, "allocated": {"cpu": None, "memory": "1"}}


def test_an_invalid_queue_says_why_and_since_when() -> None:
    bad = node_of(QueueView("q", {}, parent="nowhere"))
    first = status_patch(make_status({}), bad, {}, NOW)
    assert first is not None
    [condition] = first["status"]["conditions"]
    assert (condition["status"], condition["message"]) == ("False", "queue q: its parent nowhere does not exist")
    seen = make_status({"conditions": [{"type": "Other", "status": "True"}, condition]})
    mended = status_patch(seen, node_of(QueueView("q", {})), {}, NOW + 60)
    assert mended is not None
    other, condition = mended["status"]["conditions"]
    assert other["type"] == "Other"
    assert (condition["status"], condition["lastTransitionTime"]) == ("True", "2027-01-15T08:01:00Z")


def test_a_queue_that_is_guaranteed_more_than_there_is_stays_valid_and_says_so() -> None:
    tree = Tree()
    tree.set_queues([QueueView("q", {}, guarantee={GPU: 8})])
    tree.set_members({"m": ({GPU: 8}, {})})
    tree.take_changed()
    tree.set_members({"m": ({GPU: 4}, {})})
    assert "q" in [node.name for node in tree.take_changed()]
    patch = status_patch(make_status({}), tree.queue("q"), {}, NOW)
    assert patch is not None
    [condition] = patch["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "GuaranteeNotCovered")
    assert condition["message"] == f"It is guaranteed {GPU} 8, more than the 4 that its members have."


def test_the_core_names_the_queues_that_changed() -> None:
    s = scene()
    s.decide()
    s.submit(make_binding("a").tasks(1).submitted(EARLY))
    s.decide()
    assert ([node.name for node in s.core.changes.queues], [node.name for node in s.core.changes.waits]) == (
        ["q"],
        ["q"],
    )
    s.decide()
    s.decide()
    assert (s.core.changes.queues, s.core.changes.waits) == ([], [])
    s.tell(QueueSet(replace(make_queue("q").queue, capability={GPU: 1})))
    s.decide()
    assert "q" in [node.name for node in s.core.changes.queues]
    s.tell(QueueGone("q"))
    s.decide()
    assert "q" in [node.name for node in s.core.changes.queues]


def lines(registry: CollectorRegistry) -> dict[str, float]:
    return {
        f"{sample.name}{''.join(f' {value}' for value in sample.labels.values())}": sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_metrics_follow_a_queue_and_forget_what_is_gone() -> None:
    registry = CollectorRegistry()
    metrics = QueueMetrics(registry)
    view = QueueView("q", {"cpu": 8000}, guarantee={"cpu": 1000}, deserved={"cpu": 4000})
    node = node_of(view, cpu=1500)
    metrics.show(node, {"pending": 3, "running": 1, "inqueue": 1})
    metrics.show_blocked("q", {Reason.QUOTA_EXCEEDED: 2})
    assert lines(registry) == {
        "atoll_queue_pending q": 3,
        "atoll_queue_charged q": 2,
        "atoll_queue_blocked q QuotaExceeded": 2,
        "atoll_queue_share q": 0.375,
        "atoll_queue_used q cpu": 1.5,
        "atoll_queue_deserved q cpu": 4,
        "atoll_queue_limit q cpu": 8,
        "atoll_queue_guarantee q cpu": 1,
    }
    metrics.show_blocked("q", {Reason.BEHIND_HEAD: 3})
    assert lines(registry)["atoll_queue_blocked q BehindHead"] == 3
    assert "atoll_queue_blocked q QuotaExceeded" not in lines(registry)
    metrics.show_blocked("q", {})
    metrics.show(Tree().queue("q"), {})
    assert lines(registry) == {}


@pytest.mark.parametrize("counts", [pytest.param({}, id="unused"), pytest.param({"pending": 1}, id="still named")])
def test_metrics_have_no_lines_of_queues_that_do_not_exist(counts: dict[str, int]) -> None:
    registry = CollectorRegistry()
    QueueMetrics(registry).show(Tree().queue("gone"), counts)
    assert not lines(registry)


def test_a_queue_that_is_deleted_is_shown_while_it_is_charged() -> None:
    registry, tree = CollectorRegistry(), Tree()
    tree.charge(tree.queue("gone"), {GPU: 1}, {})
    QueueMetrics(registry).show(tree.queue("gone"), {"running": 1})
    assert lines(registry)["atoll_queue_charged gone"] == 1


@pytest.mark.parametrize("act", ["charge", "start", "wait"])
def test_whatever_moves_the_figures_of_a_queue_marks_it_once(act: str) -> None:
    tree = Tree()
    tree.set_queues([QueueView("lab", {}), QueueView("vision", {}, parent="lab")])
    node = tree.queue("vision")
    tree.take_changed()
    for _ in range(2):
        getattr(tree, act)(node, {"cpu": 1}, *([] if act == "wait" else [{}]))
    assert tree.take_changed() == [node]
    assert tree.take_changed() == []


async def test_a_status_that_stays_refused_is_written_ever_more_rarely() -> None:
    """Also while the queue itself changes all the time."""
    asked: list[float] = []

    async def refuse(_: web.Request) -> web.Response:
        asked.append(time.monotonic())
        return web.json_response({"message": "no"}, status=422)

    async with serving(refuse) as host:
        queues = Reflector(host, QUEUES, decode_queue)
        core = Dispatcher()
        reporter = reporting.Reporter(
            host, core, queues, QueueMetrics(CollectorRegistry()), settings=ReportSettings(interval=0.02)
        )
        core.handle(QueueSet(QueueView("q", {})))
        queues.put("q", make_status({}))
        task = asyncio.create_task(reporter.run())
        for _ in range(100):
            reporter._queue_changed(None, make_status({}))
            await asyncio.sleep(0.01)
        # At one pace these were fifty. A busy machine makes single pauses longer, the first as well.
        assert 3 <= len(asked) <= 8
        pauses = [after - before for before, after in itertools.pairwise(asked)]
        assert pauses[-1] > pauses[0]
        queues.put("q", None)
        assert len(reporter._refused) == 0
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Slow(Pace):
    """Of a server that takes long for each write."""

    def delay(self, urgent: int, *, most: float = MOST, now: float | None = None) -> float:
        return 0.2


async def test_news_of_queues_gathers_while_the_server_is_slow() -> None:
    written: list[float] = []

    async def take(_: web.Request) -> web.Response:
        written.append(time.monotonic())
        return web.json_response({"metadata": {"name": "q", "resourceVersion": "2"}})

    async with serving(take) as host:
        host.pace = Slow()
        queues, core = Reflector(host, QUEUES, decode_queue), Dispatcher()
        settings = ReportSettings(interval=0.01)
        reporter = reporting.Reporter(host, core, queues, QueueMetrics(CollectorRegistry()), settings=settings)
        core.handle(QueueSet(QueueView("q", {})))
        queues.put("q", make_status({}))
        task = asyncio.create_task(reporter.run())
        while len(written) < 3:
            reporter._queue_changed(None, make_status({}))
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert all(later - earlier > 0.15 for earlier, later in itertools.pairwise(written))


def test_a_queue_that_is_forgotten_and_named_again_is_remembered_nowhere() -> None:
    """All of it between two looks of the reporter, which is told of both nodes."""
    s = scene()
    registry = CollectorRegistry()
    queues = Reflector(client(9), QUEUES, decode_queue)
    reporter = reporting.Reporter(client(9), s.core, queues, QueueMetrics(registry))

    def look() -> None:
        for uid in ("uid-a", "uid-b"):
            reporter._bindings[uid] = None
        for node in reporter._changed():
            reporter._show(node)

    def decided() -> None:
        s.run()
        reporter.told(Pass(s.now), [])

    s.submit(make_binding("a").queue("none"))
    decided()
    look()
    s.gone("a")
    decided()
    s.submit(make_binding("b").queue("none"))
    look()
    s.gone("b")
    decided()
    look()
    assert not [line for line in lines(registry) if " none" in line]
    assert not reporter._moved


def test_the_way_of_a_workload_to_its_first_dispatch_and_first_run_is_measured_by_queue() -> None:
    registry = CollectorRegistry()
    metrics = QueueMetrics(registry)
    view = make_binding("a").submitted("2026-01-01T00:00:00Z").build()
    began = to_seconds("2026-01-01T00:00:00Z")
    metrics.admitted("q", view, began + 2)
    metrics.ran("q", view, began + 7)
    again = Line("2026-01-01T00:01:00Z", Phase.EVICTING, Reason.PREEMPTED)
    metrics.admitted("q", replace(view, decision=Decision(story=[again])), began + 600)
    shown = lines(registry)
    for name, seconds in (("admission", 2), ("running", 7)):
        counted = {key: value for key, value in shown.items() if key.startswith(f"atoll_queue_{name}_seconds_")}
        assert counted[f"atoll_queue_{name}_seconds_count q"] == 1, "only the first time"
        assert counted[f"atoll_queue_{name}_seconds_sum q"] == seconds
    metrics.forget("q")
    assert not lines(registry)
