"""A decision is written only over what it was made on: what users and members said since, and the watch has not
brought yet, refuses it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest

from atoll import install
from atoll.dispatcher import objects
from atoll.dispatcher.core import Dispatch, Evict, Part, Refused
from atoll.dispatcher.shell import Shell
from atoll.dispatcher.writes import patch_of
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import BINDINGS, JOBS
from atoll.model.decision import Decision, Phase
from atoll.model.verdict import Reason
from tests.integration.federation import Json, Site, job, until


@pytest.fixture
async def dispatcher(site: Site) -> AsyncIterator[ApiServer]:
    kubeconfig = install.kubeconfig_of(site.federation.atoll.credentials, "dispatcher")
    async with await ApiServer.from_kubeconfig(kubeconfig) as host:
        yield host


async def binding_of(site: Site, name: str) -> Json:
    async def look() -> Json | None:
        found = await site.find(BINDINGS, f"{name}-job")
        # What waits is explained once; after that nobody but the test writes it.
        return found if found and keys.DECISION in found["metadata"]["annotations"] else None

    return await until(look, what=f"{name} has a binding")


@pytest.mark.integration
async def test_what_was_held_since_the_decision_is_not_dispatched(site: Site, dispatcher: ApiServer) -> None:
    """1. The dispatcher decides. 2. The user holds the job. 3. The decision is written."""
    await site.submit(job("wanted", queue="no-such-queue"))
    seen = objects.decode_binding(orjson.dumps(await binding_of(site, "wanted")))
    wish = {"metadata": {"annotations": {keys.HOLD: "true"}}}
    await site.host.merge_patch(JOBS, "wanted", wish, site.namespace)

    async def held() -> bool:
        return '"hold":true' in (await binding_of(site, "wanted"))["metadata"]["annotations"][keys.GANG]

    await until(held, what="the binding says that it is held")
    meta = seen.metadata
    decision = Decision(1, Phase.DISPATCHED, Reason.DISPATCHED)
    parts = (Part("alpha", (("worker", 1),)),)
    command = Dispatch(meta.uid, meta.namespace, meta.name, meta.generation, 0, decision, parts=parts)
    with pytest.raises(errors.Invalid):
        await dispatcher.json_patch(BINDINGS, meta.name, patch_of(command, seen), meta.namespace)


@pytest.mark.integration
async def test_what_was_bound_since_the_decision_is_not_evicted(site: Site, dispatcher: ApiServer) -> None:
    """1. The deadline passes. 2. The last pod is bound, and the binding says so. 3. The eviction is written."""
    await site.submit(job("late", seconds=None))
    await site.phase("late", "Running")
    raw = await site.host.get(BINDINGS, "late-job", site.namespace)
    # As the cache had it, before the status that says that it is bound.
    before = {**raw, "status": {}, "metadata": {**raw["metadata"], "resourceVersion": "1"}}
    seen = objects.decode_binding(orjson.dumps(before))
    meta = seen.metadata
    decision = Decision(2, Phase.EVICTING, Reason.DEADLINE_EXCEEDED)
    command = Evict(meta.uid, meta.namespace, meta.name, meta.generation, 1, decision)
    with pytest.raises(errors.Invalid):
        await dispatcher.json_patch(BINDINGS, meta.name, patch_of(command, seen), meta.namespace)


@pytest.mark.integration
async def test_a_refused_decision_is_not_made_again_at_once(site: Site, dispatcher: ApiServer) -> None:
    """As long as the watch is behind it would be the same one, and refused again: some hundred times a second."""
    await site.submit(job("moved", queue="no-such-queue"))
    meta = objects.decode_binding(orjson.dumps(await binding_of(site, "moved"))).metadata
    outdated = Evict(meta.uid, meta.namespace, meta.name, meta.generation, 7, Decision(8, Phase.EVICTING, Reason.HELD))
    shell = Shell(dispatcher)
    await shell._writes.carry_out(1, outdated, None)
    assert not shell._events

    async def told() -> bool:
        return shell._events == [Refused(meta.uid, 8, meta.generation)]

    await until(told, what="the core hears of it")


def test_what_is_left_of_a_workload_is_spread_as_far_as_it_goes() -> None:
    """Five of six pods of a job in two members have succeeded; for the last one two members can't be had."""
    wish = {
        "queue": "q",
        "minAvailable": 1,
        "tasks": [{"name": "main", "replicas": 1, "minAvailable": 1, "requests": {"pods": 1}}],
    }
    spread = {"spreadByField": "cluster", "minGroups": 2, "maxGroups": 3}
    placement = {"replicaScheduling": {"replicaSchedulingType": "Divided"}, "spreadConstraints": [spread]}
    annotations = {keys.GANG: orjson.dumps(wish).decode(), keys.EPOCH: "2"}
    metadata = {"name": "rest-job", "namespace": "ns", "uid": "u", "annotations": annotations}
    view = objects.binding_view(
        objects.decode_binding(orjson.dumps({"metadata": metadata, "spec": {"placement": placement}}))
    )
    assert view is not None
    assert (view.least_clusters, view.most_clusters) == (1, 3)
