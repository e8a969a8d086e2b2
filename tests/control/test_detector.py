"""What the detector does with workloads that came by the webhook: one that can't be read is in nobody's way."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest
from aiohttp import web

from atoll.control.caches import Caches
from atoll.control.detector import Detector
from atoll.control.objects import decode_binding
from atoll.kube.events import Recorder
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import gang, keys
from atoll.model.apiresource import JOBS
from atoll.model.objects import Full, decode_full, decode_meta
from atoll.model.priority import decode_priority_class
from tests.kube.servers import serving

Json = dict[str, Any]
GOOD: Json = {"name": "w", "replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}


def job(name: str, *tasks: Any, **spec: Any) -> bytes:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "generation": 1}
    return orjson.dumps({"metadata": metadata, "spec": {"tasks": list(tasks), **spec}})


class Told(Recorder):
    """Keeps what would be Events."""

    def __init__(self, host: ApiServer) -> None:
        super().__init__(host, "control")
        self.told: list[tuple[str, str, str]] = []

    def record(self, about: Any, reason: str, note: str, **_: Any) -> None:
        self.told.append((about["name"], reason, note))


async def reconciled(
    *workloads: bytes, bindings: tuple[bytes, ...] = (), sent: list[Json] | None = None, classes: tuple[bytes, ...] = ()
) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The bindings that are made of these workloads, in this order, and the Events about them; `sent` gets what is written."""
    made: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        made.append(body["metadata"].get("name") or request.path)
        if sent is not None:
            sent.append(body)
        return web.json_response(body, status=201)

    async with serving(answer) as host:
        caches, recorder = Caches(host), Told(host)
        detector = Detector(host, caches, recorder)
        caches.namespaces.put(
            "ns", decode_meta(b'{"metadata": {"name": "ns", "labels": {"atoll.sh/enabled": "true"}}}')
        )
        for raw in classes:
            found_class = decode_priority_class(raw)
            caches.priority_classes.put(found_class.metadata.name, found_class)
        for raw in bindings:
            binding = decode_binding(raw)
            caches.bindings.put(binding.metadata.key, binding)
        for raw in workloads:
            found = decode_full(raw)
            cast(Reflector[Full], caches.workloads[JOBS]).put(found.metadata.key, found)
        for _ in workloads:
            key = await detector.queue.get()
            await detector.reconcile(key)
            detector.queue.done(key)
        return made, recorder.told


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(job("bad", "worker"), id="a text as a task"),
        pytest.param(job("bad", {**GOOD, "template": "x"}), id="a text as a template"),
        pytest.param(job("bad", {**GOOD, "replicas": []}), id="a list of replicas"),
        pytest.param(job("bad", {**GOOD, "replicas": 1e30}), id="more replicas than can be written"),
        pytest.param(job("bad", GOOD, minAvailable="all"), id="a word as a minimum"),
        pytest.param(job("bad", GOOD, networkTopology=[1]), id="a list as a topology"),
        pytest.param(b'{"metadata": {"name": "bad", "namespace": "ns", "uid": "u"}}', id="no spec"),
        pytest.param(
            b'{"metadata": {"name": "bad", "namespace": "ns", "uid": "u"}, "spec": 7}', id="a number as a spec"
        ),
        pytest.param(
            b'{"metadata": {"name": "bad", "namespace": "ns", "uid": "u"}, "spec": {}, "status": "done"}',
            id="a text as a status",
        ),
    ],
)
async def test_a_workload_that_cannot_be_read_has_an_event_and_the_others_get_their_bindings(bad: bytes) -> None:
    made, told = await reconciled(bad, job("good", GOOD))
    assert made == ["good-job"]
    [(name, reason, note)] = told
    assert (name, reason) == ("bad", "InvalidWorkload")
    assert note.startswith("it is invalid and was ignored; fix it and apply it again: ")


@pytest.mark.parametrize(
    ("named", "preempts"),
    [
        pytest.param({"priorityClassName": "polite"}, False, id="of the Job"),
        pytest.param({"priorityClassName": "urgent"}, True, id="that preempts"),
        pytest.param({}, False, id="of those that name none"),
    ],
)
async def test_a_gang_says_whether_its_priority_class_preempts(named: Json, preempts: bool) -> None:
    classes = (
        b'{"metadata": {"name": "polite"}, "value": 9, "preemptionPolicy": "Never"}',
        b'{"metadata": {"name": "urgent"}, "value": 9, "preemptionPolicy": "PreemptLowerPriority"}',
        b'{"metadata": {"name": "usual"}, "value": 9, "globalDefault": true, "preemptionPolicy": "Never"}',
    )
    sent: list[Json] = []
    await reconciled(job("patient", GOOD, **named), sent=sent, classes=classes)
    read = gang.decode(sent[0]["metadata"]["annotations"][keys.GANG])
    assert (read.priority, read.preempts) == (9, preempts)


async def test_a_priority_class_that_does_not_exist_is_told() -> None:
    sent: list[Json] = []
    made, told = await reconciled(job("typo", GOOD, priorityClassName="hihg"), job("good", GOOD), sent=sent)
    assert made == ["typo-job", "good-job"]
    assert [gang.decode(each["metadata"]["annotations"][keys.GANG]).classless for each in sent] == [True, False]
    [(name, reason, note)] = told
    assert (name, reason) == ("typo", "PriorityClassNotFound")
    assert note.startswith("PriorityClass hihg does not exist here: it counts with priority 0")


@pytest.mark.parametrize(
    ("task", "said"),
    [
        pytest.param({**GOOD, "replicas": 100_001}, "asks for 100001 pods", id="too many pods"),
        pytest.param(
            {
                **GOOD,
                "template": {
                    "spec": {
                        "affinity": {
                            "nodeAffinity": {
                                "requiredDuringSchedulingIgnoredDuringExecution": {
                                    "nodeSelectorTerms": [{"matchExpressions": [{"operator": "Exists"}]}]
                                }
                            }
                        }
                    }
                },
            },
            "required node affinity",
            id="an expression without a key",
        ),
    ],
)
async def test_what_cannot_run_has_a_binding_and_an_event_that_says_why(task: Json, said: str) -> None:
    """The dispatcher says no more than InvalidGang of it."""
    made, told = await reconciled(job("bad", task))
    assert made == ["bad-job"]
    [(name, reason, note)] = told
    assert (name, reason, said in note) == ("bad", "InvalidGang", True)


async def test_a_binding_of_another_system_for_the_same_workload_is_left_alone() -> None:
    """A Karmada calls its bindings as we do."""
    reference = {"apiVersion": JOBS.api_version, "kind": "Job", "namespace": "ns", "name": "good", "uid": "uid-good"}
    theirs = {"metadata": {"name": "good-job", "namespace": "ns", "uid": "b"}, "spec": {"resource": reference}}
    made, told = await reconciled(job("good", GOOD), bindings=(orjson.dumps(theirs),))
    assert len(made) == 1
    assert made[0].startswith("good-job-"), "a binding of our own, under another name"
    assert told == []


@pytest.mark.parametrize(
    ("suspended", "decision", "queue"),
    [
        pytest.param(
            False, {"phase": "Dispatched"}, "old", id="while it is dispatched it stays in the queue that pays"
        ),
        pytest.param(True, {"phase": "Evicting"}, "old", id="so it does until it has gone"),
        pytest.param(True, {"phase": "Suspended"}, "new", id="while it waits it goes where its workload says"),
    ],
)
async def test_the_queue_of_a_binding(suspended: bool, decision: Json, queue: str) -> None:
    made: list[Json] = []
    await reconciled(job("a", GOOD, queue="old"), sent=made)
    [binding] = made
    binding["metadata"] |= {"uid": "b", "resourceVersion": "7"}
    binding["metadata"]["annotations"][keys.DECISION] = orjson.dumps(decision).decode()
    binding["spec"]["suspension"] = {"scheduling": suspended}
    patches: list[Json] = []
    await reconciled(job("a", {**GOOD, "replicas": 2}, queue="new"), bindings=(orjson.dumps(binding),), sent=patches)
    [patch] = patches
    assert orjson.loads(patch["metadata"]["annotations"][keys.GANG])["queue"] == queue
    assert patch["metadata"].get("resourceVersion") == ("7" if queue == "new" else None)
