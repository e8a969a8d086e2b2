"""Works that nobody wants are removed, also those that control never knew of; a binding does not go before its Works."""

from __future__ import annotations

import orjson
import pytest

from atoll import install
from atoll.control import objects
from atoll.control.caches import Caches
from atoll.control.carried_objects import Dependencies
from atoll.control.overrides import Overrides
from atoll.control.rules import Rules
from atoll.control.works import Works
from atoll.delivery.work import WorkObject
from atoll.kube import errors
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import BINDINGS, WORKS
from atoll.model.objects import Meta
from tests.control.recorders import records_of
from tests.integration.federation import Json, Site, job, until

pytestmark = pytest.mark.integration


async def work_of(site: Site, binding: Json, *, cluster: str = "topo", epoch: str = "1") -> Json:
    """What a control that was stopped at this write, and goes on now, creates."""
    notes = {
        keys.BINDING_UID: binding["metadata"]["uid"],
        keys.EPOCH: epoch,
        keys.BINDING_NAME: binding["metadata"]["name"],
        keys.BINDING_NAMESPACE: site.namespace,
    }
    name = f"late-{site.namespace}"
    metadata = {"name": name, "namespace": keys.execution_namespace(cluster), "annotations": notes}
    spec = {"workload": {"manifests": []}, "suspendDispatching": True}
    work = {"apiVersion": WORKS.api_version, "kind": WORKS.kind, "metadata": metadata, "spec": spec}
    control = install.kubeconfig_of(site.federation.atoll.credentials, "control")
    async with await ApiServer.from_kubeconfig(control) as host:
        return await host.create(WORKS, work)


async def until_gone(site: Site, work: Json) -> None:
    async def gone() -> bool:
        try:
            await site.host.get(WORKS, work["metadata"]["name"], work["metadata"]["namespace"])
        except errors.NotFound:
            return True
        return False

    try:
        await until(gone, what="the Work that nobody wants is gone")
    finally:
        await site.host.delete(WORKS, work["metadata"]["name"], work["metadata"]["namespace"])


async def test_a_work_that_comes_after_its_binding_went_is_removed(site: Site) -> None:
    binding = {"metadata": {"name": "gone-job", "uid": "uid-of-no-binding"}}
    await until_gone(site, await work_of(site, binding))


async def test_a_work_that_comes_after_its_epoch_went_is_removed(site: Site) -> None:
    await site.submit(job("runs", seconds=None))
    await site.phase("runs", "Running")
    binding = await site.host.get(BINDINGS, "runs-job", site.namespace)
    cluster = binding["spec"]["clusters"][0]["name"]
    other = next(name for name in site.members if name != cluster)
    await until_gone(site, await work_of(site, binding, cluster=other, epoch="0"))
    assert (await site.host.get(BINDINGS, "runs-job", site.namespace))["metadata"]["annotations"][keys.EPOCH] == "1"


async def test_a_work_that_is_newer_than_the_cached_binding_is_left_alone(site: Site) -> None:
    """The watch of bindings is behind that of Works: the binding's change comes, the Work is no stray."""
    async with await site.federation.host.connect() as host:
        caches = Caches(host)
        recorder = Recorder(host, "control")
        works = Works(
            host,
            caches,
            Rules(caches, recorder),
            Dependencies(host, caches, recorder),
            Overrides(host, caches, recorder),
            records_of(host, caches),
        )
        notes = {keys.EPOCH: "1", keys.BINDING_UID: "uid-1", keys.BINDING_NAMESPACE: "ns", keys.BINDING_NAME: "a-job"}
        binding = Meta(name="a-job", namespace="ns", uid="uid-1", annotations=notes)
        work = Meta(name="a", namespace="karmada-es-alpha", uid="uid-2", annotations={**notes, keys.EPOCH: "2"})
        caches.bindings.put(binding.key, objects.BindingObject(metadata=binding))
        caches.works.put(work.key, WorkObject(metadata=work))
        await works.reconcile(binding.key)
        assert not host.requests


async def test_a_binding_does_not_go_before_a_work_that_the_cache_has_not_seen(site: Site) -> None:
    await site.submit(job("unseen", seconds=None))
    await site.phase("unseen", "Running")
    raw = await site.host.get(BINDINGS, "unseen-job", site.namespace)
    binding = objects.decode_binding(orjson.dumps(raw))
    names = [
        (work["metadata"]["namespace"], work["metadata"]["name"])
        for name in site.members
        for work in await site.host.list(WORKS, keys.execution_namespace(name))
        if work["metadata"]["annotations"].get(keys.BINDING_UID) == binding.metadata.uid
    ]
    assert names
    caches = Caches(site.host)
    recorder = Recorder(site.host, "control")
    dependencies, overrides = Dependencies(site.host, caches, recorder), Overrides(site.host, caches, recorder)
    works = Works(site.host, caches, Rules(caches, recorder), dependencies, overrides, records_of(site.host, caches))
    going = {**raw, "metadata": {**raw["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    caches.bindings.put(binding.metadata.key, objects.decode_binding(orjson.dumps(going)))
    caches.expected_works[binding.metadata.uid].update(names)
    await works.reconcile(binding.metadata.key)
    found = await site.host.get(BINDINGS, "unseen-job", site.namespace)
    assert keys.BINDING_FINALIZER in found["metadata"].get("finalizers", ())
