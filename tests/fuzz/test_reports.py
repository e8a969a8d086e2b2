"""Whatever members report: the checks refuse it by name or keep what is harmless, and nothing behind them fails."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.delivery import decode_reported
from atoll.delivery.reports import checked
from atoll.dispatcher import objects
from atoll.dispatcher.capacity import Capacities
from atoll.dispatcher.core import BindingSet, CapacitySet, ClusterSet, Dispatcher, Pass, QueueSet
from atoll.dispatcher.core.events import ClusterView, QueueView
from atoll.kinds import Report
from atoll.model import gang, keys
from atoll.model.reports import BadReport
from tests.fuzz import examples
from tests.fuzz.reports import GOOD, SENT, Json, capacity, work

WORDS = [
    "state", "phase", "reason", "message", "running", "succeeded", "failed", "taskStatusCount", "worker", "placement",
    "nodes", "generation", "reservation", "epoch", "conditions", "type", "status", "active", "ready", "terminating",
    "completedIndexes", "failedIndexes", "startTime", "completionTime", "runningDuration", "version", "retryCount",
    "expires", "minAvailable", "requested", "available", "tier", "domain", "waiting", "lastTransitionTime",
]  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(["Running", "Failed", "True", "2026-01-01T00:00:00Z", "0-1", "0-999999999", "1m", "Reserved"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def mutated(draw: st.DrawFn, good: Json) -> Any:
    """Something good in which some values, anywhere, are others."""
    made: Any = copy.deepcopy(good)
    holder: Any
    key: Any
    for _ in range(draw(st.integers(1, 3))):
        holder, key = None, None
        node = made
        while isinstance(node, dict | list) and node and (holder is None or draw(st.booleans())):
            holder = node
            key = draw(st.sampled_from(sorted(node, key=str) if isinstance(node, dict) else range(len(node))))
            node = node[key]
        if holder is not None:
            holder[key] = draw(VALUES)
    return made


def binding(said: Any) -> bytes:
    """A binding of four pods, dispatched to a, with this in its aggregated status."""
    task = gang.Task("worker", 4, 4, {"cpu": 1000, "pods": 1})
    annotations = {keys.GANG: gang.encode(gang.Gang("default", [task], 4)), keys.EPOCH: "1"}
    return orjson.dumps(
        {
            "metadata": {"name": "b", "namespace": "ns", "uid": "u", "generation": 1, "annotations": annotations},
            "spec": {"clusters": [{"name": "a", "replicas": 4}], "resource": {"name": "job"}},
            "status": {"aggregatedStatus": [{"clusterName": "a", "status": said}]},
        }
    )


def core() -> Dispatcher:
    """A dispatcher with a queue, and member b with two nodes."""
    made = Dispatcher()
    made.handle(QueueSet(QueueView("default", {})))
    for name in ("a", "b"):
        made.handle(ClusterSet(ClusterView(name)))
    return made


def decide(dispatcher: Dispatcher) -> None:
    dispatcher.check()
    dispatcher.handle(Pass(1_800_000_000.0))
    dispatcher.check()


@given(st.sampled_from(["volcano", "batch"]), st.data())
@settings(max_examples=examples(150, share=0.2))
def test_any_status_of_a_work(which: str, data: st.DataObject) -> None:
    raw, kind = work(which, data.draw(mutated(GOOD[which]) | VALUES))
    seen = decode_reported(raw)
    assert bool(seen.refused) == (seen.status == {})
    said = seen.reported
    nodes = (said.get("placement") or {}).get("nodes") or {}
    assert sum(nodes.values()) <= 4
    for name in ("running", "active", "ready", "succeeded"):
        assert 0 <= said.get(name, 0) <= 4
    kind.finished(said), kind.healthy(said), kind.running(said), kind.carried(said)
    host: Json = {**SENT[which], "status": {}}
    first = kind.aggregate(host, [Report("a", said)], waiting=("", ""), now="2026-01-01T00:00:00Z")
    host["status"] = first
    kind.aggregate(host, [Report("a", said), Report("b", {})], waiting=("", ""), now="2026-01-01T00:00:01Z")
    # What is kept passes again: it is what the dispatcher reads out of the binding.
    assert checked(seen, orjson.dumps(seen.status)) == seen.status
    view = objects.binding_view(objects.decode_binding(binding(said)))
    assert view is not None
    dispatcher = core()
    dispatcher.handle(BindingSet(view))
    decide(dispatcher)


@given(st.binary(max_size=60) | VALUES.map(orjson.dumps))
@settings(max_examples=examples(100, share=0.2))
def test_any_bytes_as_the_status_of_a_work(raw: bytes) -> None:
    good, _ = work("volcano", {})
    try:
        checked(decode_reported(good), raw)
    except BadReport:
        return


@given(mutated(GOOD["volcano"]) | VALUES)
@settings(max_examples=examples(100, share=0.2))
def test_a_binding_does_not_vanish_whatever_a_member_says_in_it(said: Any) -> None:
    """Even what was written before it was checked."""
    view = objects.binding_view(objects.decode_binding(binding(said)))
    assert view is not None
    assert view.parts == (("a", (4,)),)


@st.composite
def capacities(draw: st.DrawFn) -> Json:
    made = capacity("a", draw(st.sampled_from(["r", "s"])))
    return {**made, "spec": draw(mutated(made["spec"]))}


@given(st.lists(capacities() | st.just(capacity("a")), max_size=4))
@settings(max_examples=examples(100, share=0.2))
def test_any_capacities_leave_the_other_member_its_room(published: list[Json]) -> None:
    dispatcher, believed = core(), Capacities()
    before: dict[str, objects.CapacityObject] = {}

    def tell(obj: Json) -> None:
        key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        try:
            new: objects.CapacityObject | None = objects.read_report(objects.decode_report(orjson.dumps(obj)))
        except msgspec.MsgspecError:
            new = None
        old = before.pop(key, None)
        if new is not None:
            before[key] = new
        for event in believed.changed(old, new):
            dispatcher.handle(event)

    tell(capacity("b", "q"))
    room = [event for event in Capacities().changed(None, before["karmada-es-b/q"]) if isinstance(event, CapacitySet)]
    for obj in published:
        tell(obj)
        decide(dispatcher)
    assert dispatcher.members.by_name["b"].roots == {"q": room[0].capacity}
