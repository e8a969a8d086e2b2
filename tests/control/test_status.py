"""A workload's status on the host: what is final stays so, whatever control's caches still say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import msgspec
import orjson
import pytest

from atoll import install
from atoll.control.caches import Caches
from atoll.control.objects import BindingObject, BindingSpec, ClusterObject, Target, decode_binding
from atoll.control.overrides import Overrides
from atoll.control.settings import StatusSettings
from atoll.control.status import Status, _waiting
from atoll.delivery.work import Workload, WorkObject, WorkSpec
from atoll.kinds import Kind, Outcome, apps, volcano_job
from atoll.kinds.batch_job import KIND as BATCH_JOB
from atoll.kube import errors
from atoll.kube.events import Recorder
from atoll.kube.pace import MOST, Pace
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import decision, keys
from atoll.model.apiresource import BATCH_JOBS, BINDINGS, EVENTS, JOBS, NAMESPACES, STATEFUL_SETS
from atoll.model.decision import Decision, Phase
from atoll.model.keys import execution_namespace
from atoll.model.objects import Full, Meta, decode_full
from atoll.model.verdict import Reason
from tests.control.recorders import records_of, silent
from tests.integration.federation import Site, batch_job, job, until

Json = dict[str, Any]

pytestmark = pytest.mark.integration


class Calm(Pace):
    """Of a server that is never slow: each look writes what it finds."""

    def delay(self, urgent: int, *, most: float = MOST, now: float | None = None) -> float:
        return 0.0


def status_of(host: ApiServer, caches: Caches) -> Status:
    recorder = Recorder(host, "test")
    host.pace, settings = Calm(), StatusSettings(counts=0.0)
    return Status(
        host,
        caches,
        recorder,
        Overrides(host, caches, recorder),
        records_of(host, caches),
        silent(caches),
        settings=settings,
    )


EVICTING = BindingObject(
    metadata=Meta(annotations={keys.DECISION: decision.encode(Decision(2, Phase.EVICTING, Reason.DEADLINE_EXCEEDED))})
)


@pytest.mark.parametrize("finished", [True, False], ids=["its binding is finished", "only the workload says so"])
async def test_a_job_that_completed_while_it_was_evicted_stays_completed(site: Site, finished: bool) -> None:
    made = await site.submit(job("done", seconds=0.2))
    done = await site.phase("done", "Completed")
    # A cache that is behind: the job as it was before anything was said about it.
    stale = decode_full(orjson.dumps(made))
    conditions = [{"type": "Finished", "status": "True"}] if finished else []
    binding = msgspec.structs.replace(EVICTING, status={"conditions": conditions})
    status = status_of(site.host, Caches(site.host))
    try:
        await status._workload_status(volcano_job.KIND, stale, binding, [])
    except errors.Invalid:
        assert not finished
    assert (await site.host.get(JOBS, "done", site.namespace))["status"] == done["status"]


async def test_a_report_that_was_on_its_way_for_long_does_not_replace_the_end_of_a_job(site: Site) -> None:
    """1. A leader is stopped while it writes that a job runs. 2. The next one says that it is over. 3. It goes on."""
    made = await site.submit(job("ended", seconds=0.2))
    done = await site.phase("ended", "Completed")
    work = WorkObject(
        metadata=Meta(namespace=execution_namespace("alpha")),
        spec=WorkSpec(workload=Workload([{"metadata": {"name": "ended"}, "spec": made["spec"]}])),
        status={"manifestStatuses": [{"status": {"state": {"phase": "Running"}, "running": 1}}]},
    )
    binding = BindingObject(spec=BindingSpec(clusters=[Target("alpha", 1)]))
    status = status_of(site.host, Caches(site.host))
    with pytest.raises(errors.Invalid):
        await status._workload_status(volcano_job.KIND, decode_full(orjson.dumps(made)), binding, [work])
    assert (await site.host.get(JOBS, "ended", site.namespace))["status"] == done["status"]


async def test_a_part_that_is_over_before_another_begins_counts_as_bound(site: Site) -> None:
    """Otherwise the whole would be taken back at its deadline, though every pod of it was bound."""
    task = {"name": "worker", "replicas": 1, "template": {"spec": {"containers": []}}}
    manifest = {"metadata": {"name": "divided"}, "spec": {"minAvailable": 1, "tasks": [task]}}
    over = {"state": {"phase": "Completed"}, "succeeded": 1}
    runs = {"state": {"phase": "Running"}, "placement": {"generation": 3, "nodes": {"n0": 1}}}
    works = [
        WorkObject(
            metadata=Meta(namespace=execution_namespace(name)),
            spec=WorkSpec(workload=Workload([manifest])),
            status={"manifestStatuses": [{"status": said}]},
        )
        for name, said in (("alpha", over), ("beta", runs))
    ]
    binding = BindingObject(spec=BindingSpec(clusters=[Target("alpha", 1), Target("beta", 1)]))
    status = status_of(site.host, Caches(site.host))
    said = await status._binding_status(volcano_job.KIND, binding, works)
    assert "Bound" in [each["type"] for each in said["conditions"] if each["status"] == "True"]


async def reconcile(site: Site, cached: BindingObject, name: str) -> None:
    """Look at the Job's binding with control's rights and a cache that has this of it."""
    kubeconfig = install.kubeconfig_of(site.federation.atoll.credentials, "control")
    async with await ApiServer.from_kubeconfig(kubeconfig) as host:
        caches = Caches(host)
        status = status_of(host, caches)
        caches.bindings.put(cached.metadata.key, cached)
        found = decode_full(orjson.dumps(await site.host.get(JOBS, name, site.namespace)))
        cast(Reflector[Full], caches.workloads[JOBS]).put(found.metadata.key, found)
        await status.reconcile(cached.metadata.key)


async def test_what_was_said_of_one_epoch_is_not_said_of_the_next(site: Site) -> None:
    """1. Every pod of epoch 1 ends. 2. The dispatcher takes it back. 3. Control, whose cache is behind, says so of 2."""
    await site.submit(job("next", queue="no-such-queue"))
    await site.reason("next", "QueueNotFound")
    raw = await site.host.get(BINDINGS, "next-job", site.namespace)
    metadata = {**raw["metadata"], "annotations": {**raw["metadata"]["annotations"], keys.EPOCH: "1"}}
    metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) - 1)
    cached = decode_binding(orjson.dumps({**raw, "metadata": metadata, "status": {}}))
    with pytest.raises(errors.Conflict):
        await reconcile(site, cached, "next")


async def test_a_status_that_was_on_its_way_for_long_does_not_replace_what_was_said_since(site: Site) -> None:
    """1. A leader is cut off while it writes. 2. The next one says that all is over. 3. What the first wrote arrives."""
    await site.submit(job("late", seconds=0.2))
    await site.phase("late", "Completed")
    raw = await site.host.get(BINDINGS, "late-job", site.namespace)
    metadata = {**raw["metadata"], "resourceVersion": str(int(raw["metadata"]["resourceVersion"]) - 1)}
    cached = decode_binding(orjson.dumps({**raw, "metadata": metadata, "status": {}}))
    with pytest.raises(errors.Conflict):
        await reconcile(site, cached, "late")
    assert (await site.host.get(BINDINGS, "late-job", site.namespace))["status"] == raw["status"]


async def test_a_status_that_an_earlier_leader_wrote_late_is_looked_at(site: Site) -> None:
    await site.submit(job("touched", seconds=0.2))
    done = await site.phase("touched", "Completed")
    before = await site.host.get(BINDINGS, "touched-job", site.namespace)
    lesser = {**before["status"], "conditions": before["status"]["conditions"][:1], "aggregatedStatus": []}
    control = install.kubeconfig_of(site.federation.atoll.credentials, "control")
    async with await ApiServer.from_kubeconfig(control) as another:
        await another.json_patch(
            BINDINGS,
            "touched-job",
            [{"op": "add", "path": "/status", "value": lesser}],
            site.namespace,
            subresource="status",
        )

    async def mended() -> bool:
        binding = await site.host.get(BINDINGS, "touched-job", site.namespace)
        return any(each["type"] == "Finished" for each in binding["status"]["conditions"])

    await until(mended, what="the status is as its members say")
    assert (await site.host.get(JOBS, "touched", site.namespace))["status"] == done["status"]


def cluster(name: str, status: str, since: str) -> ClusterObject:
    ready = {"type": "Ready", "status": status, "lastTransitionTime": since}
    return ClusterObject(metadata=Meta(name=name), status={"conditions": [ready]})


async def test_what_runs_in_a_member_that_is_lost_says_so_until_it_is_back(site: Site) -> None:
    """1. All is well: nothing is said of the member. 2. It is lost: the binding says since when. 3. It is back."""
    task = {"name": "worker", "replicas": 1, "template": {"spec": {"containers": []}}}
    manifest = {"metadata": {"name": "lost"}, "spec": {"minAvailable": 1, "tasks": [task]}}
    runs = {"state": {"phase": "Running"}, "placement": {"generation": 3, "nodes": {"n0": 1}, "running": 1}}
    work = WorkObject(
        metadata=Meta(namespace=execution_namespace("alpha")),
        spec=WorkSpec(workload=Workload([manifest])),
        status={"manifestStatuses": [{"status": runs}]},
    )
    binding = BindingObject(spec=BindingSpec(clusters=[Target("alpha", 1)]))
    caches = Caches(site.host)
    status = status_of(site.host, caches)
    said = []
    for state, since in (("True", "2026-01-01T10:00:00Z"), ("Unknown", "2026-01-01T10:04:00Z"), ("True", "")):
        caches.clusters.put("alpha", cluster("alpha", state, since), anyhow=True)
        seen = await status._binding_status(volcano_job.KIND, binding, [work])
        binding = msgspec.structs.replace(binding, status=seen)
        found = {each["type"]: each for each in seen["conditions"]}
        assert found["Running"]["status"] == "True"
        said.append((found.get("MemberReady", {}).get("status"), found.get("MemberReady", {}).get("message")))
    assert said == [
        (None, None), ("False", "alpha not ready since 2026-01-01T10:04:00Z, figures are of then"), ("True", ""),
    ]  # fmt: skip


async def test_what_was_evicted_from_a_member_that_is_lost_says_what_it_waits_for(site: Site) -> None:
    caches = Caches(site.host)
    status = status_of(site.host, caches)
    taken = msgspec.structs.replace(EVICTING, metadata=Meta(uid="u", annotations=EVICTING.metadata.annotations))
    annotations = {keys.BINDING_UID: "u", keys.EPOCH: "1"}
    name = execution_namespace("alpha")
    work = WorkObject(metadata=Meta(name="w", namespace=name, annotations=annotations))
    caches.works.put(work.metadata.key, work)
    caches.clusters.put("alpha", cluster("alpha", "Unknown", "2026-01-01T10:04:00Z"), anyhow=True)
    seen = await status._binding_status(volcano_job.KIND, taken, [])
    [released] = [each for each in seen["conditions"] if each["type"] == "Released"]
    assert (released["status"], released["message"]) == (
        "False",
        "alpha not ready since 2026-01-01T10:04:00Z, figures are of then: only its agent can say that nothing of it is left",
    )
    binding = msgspec.structs.replace(taken, status=seen)
    assert "only its agent can say" in _waiting(binding, [])[1]
    caches.clusters.put("alpha", cluster("alpha", "True", ""), anyhow=True)
    seen = await status._binding_status(volcano_job.KIND, binding, [])
    assert "Released" not in [each["type"] for each in seen["conditions"]]


@contextlib.asynccontextmanager
async def writer(site: Site, kind: Kind, made: Json, said: Json) -> AsyncIterator[Callable[[Json], Awaitable[None]]]:
    """Writes the status that a member reports of an object of the host; a call takes the object as it was seen."""
    about = made["metadata"]
    work = WorkObject(
        metadata=Meta(namespace=execution_namespace("alpha")), status={"manifestStatuses": [{"status": said}]}
    )
    reference = {key: made[key] for key in ("apiVersion", "kind")} | {
        key: about[key] for key in ("name", "namespace", "uid")
    }
    body = {
        "metadata": {"name": f"{about['name']}-x", "namespace": about["namespace"]}, "spec": {"resource": reference}
    }  # fmt: skip
    recorder, caches = Recorder(site.host, "test"), Caches(site.host)
    overrides = Overrides(site.host, caches, recorder)
    status = Status(site.host, caches, recorder, overrides, records_of(site.host, caches), silent(caches))
    writes = asyncio.create_task(recorder.run())

    async def write(seen: Json) -> None:
        binding = decode_binding(orjson.dumps(body))
        await status._workload_status(kind, decode_full(orjson.dumps(seen)), binding, [work])

    try:
        yield write
    finally:
        writes.cancel()


async def test_a_status_that_the_api_server_refuses_is_told_of_and_offered_again_later(site: Site) -> None:
    labels = {"app": "refused"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    spec = {"replicas": 1, "serviceName": "refused", "selector": {"matchLabels": labels}, "template": pod}
    about = {"apiVersion": STATEFUL_SETS.api_version, "kind": STATEFUL_SETS.kind}
    metadata = {"name": "refused", "annotations": {keys.HOLD: "true"}}
    made = await site.submit({**about, "metadata": metadata, "spec": spec})
    async with writer(site, apps.STATEFUL_SET, {**about, **made}, {"replicas": 1, "currentRevision": 5}) as write:

        async def told() -> bool:
            # Invalid where control has written it meanwhile.
            with pytest.raises((errors.Retry, errors.Invalid)):
                await write(await site.host.get(STATEFUL_SETS, "refused", site.namespace))
            found = await site.host.list(EVENTS, site.namespace)
            return any((each["reason"], each["regarding"]["name"]) == ("StatusRefused", "refused") for each in found)

        await until(told, what="an Event tells of it")


async def test_an_end_refused_for_a_change_that_the_cache_lacks_is_offered_again_at_once(site: Site) -> None:
    """The start that was written a moment before can't be changed any more."""
    namespace = f"{site.namespace}-plain"
    await site.host.create(NAMESPACES, {"metadata": {"name": namespace}})
    head = {"apiVersion": BATCH_JOBS.api_version, "kind": BATCH_JOBS.kind}
    body = batch_job("ended")
    about = {"metadata": {"name": "ended", "namespace": namespace}}
    spec = {**body["spec"], "managedBy": "example.com/none"}
    made = {**head, **await site.host.create(BATCH_JOBS, {**head, **about, "spec": spec})}
    began = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
    await site.host.merge_patch(BATCH_JOBS, "ended", began, namespace, subresource="status")
    done = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}
    said = {"succeeded": 1, "completionTime": "2026-01-01T00:01:00Z", "conditions": [done]}
    async with writer(site, BATCH_JOB, made, said) as write:
        with pytest.raises(errors.Retry) as found:
            await write(made)
        assert found.value.after < 1
        await write(await site.host.get(BATCH_JOBS, "ended", namespace))
    ended = await site.host.get(BATCH_JOBS, "ended", namespace)
    assert BATCH_JOB.finished(ended["status"]) is Outcome.SUCCEEDED
    await site.host.delete(NAMESPACES, namespace)
