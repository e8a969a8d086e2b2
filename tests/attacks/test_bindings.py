"""Bindings by hand: of somebody who may do everything in his own namespace, and nothing elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from atoll.kube import errors
from atoll.model import keys
from atoll.model.apiresource import BINDINGS, JOBS
from tests.integration.federation import Json, Site, job
from tests.integration.tenants import Tenant, made, rights_count

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture(loop_scope="session")
async def owner(site: Site) -> AsyncIterator[Tenant]:
    """With every verb on every resource of the namespace."""
    found = await made(site, "cluster-admin")
    await rights_count(found)
    yield found
    await found.api.close()
    found.kubeconfig.unlink()


def binding(site: Site, name: str, uid: str = "", **metadata: object) -> Json:
    resource = {"apiVersion": JOBS.api_version, "kind": "Job", "name": "mine", "namespace": site.namespace, "uid": uid}
    return {
        "apiVersion": BINDINGS.api_version,
        "kind": BINDINGS.kind,
        "metadata": {"name": name, "namespace": site.namespace, **metadata},
        "spec": {"resource": resource, "suspension": {"scheduling": True}},
    }


GANG = '{"queue":"default","tasks":[{"name":"worker","replicas":1,"minAvailable":1,"requests":{"cpu":100}}],"minAvailable":1}'
GLASS = {keys.BREAK_GLASS: "I like to"}


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"annotations": {keys.GANG: GANG, keys.EPOCH: "0"}}, id="a gang of another queue"),
        pytest.param({"annotations": {keys.GANG: GANG, **GLASS}}, id="the same with broken glass"),
        pytest.param({"finalizers": [keys.BINDING_FINALIZER]}, id="what control would take for its own"),
    ],
)
async def test_bindings_of_atoll_are_made_by_control_alone(site: Site, owner: Tenant, metadata: Json) -> None:
    with pytest.raises(errors.Forbidden) as refused:
        await owner.api.create(BINDINGS, binding(site, "mine-job", **metadata))
    assert "only atoll-control makes bindings" in refused.value.message


async def test_the_binding_of_another_system_does_not_become_atolls(site: Site, owner: Tenant) -> None:
    await owner.api.create(BINDINGS, binding(site, "mine-job"))
    for patch in ({"annotations": {keys.GANG: GANG}}, {"finalizers": [keys.BINDING_FINALIZER]}):
        with pytest.raises(errors.Forbidden):
            await owner.api.merge_patch(BINDINGS, "mine-job", {"metadata": patch}, site.namespace)
    await owner.api.delete(BINDINGS, "mine-job", site.namespace)


async def test_who_owns_a_namespace_neither_ends_a_binding_nor_decides_it(site: Site, owner: Tenant) -> None:
    await owner.api.create(
        JOBS, {**job("mine", seconds=None), "metadata": {"name": "mine", "namespace": site.namespace}}
    )
    await site.phase("mine", "Running")
    over = {"conditions": [{"type": "Finished", "status": "True", "reason": "x", "lastTransitionTime": None}]}
    with pytest.raises(errors.Forbidden) as refused:
        await owner.api.merge_patch(BINDINGS, "mine-job", {"status": over}, site.namespace, subresource="status")
    assert "only atoll-control writes the status" in refused.value.message
    specs: list[Json] = [{"clusters": []}, {"suspension": {"scheduling": True}}]
    for spec in specs:
        patch = {"metadata": {"annotations": GLASS}, "spec": spec}
        with pytest.raises(errors.Forbidden):
            await owner.api.merge_patch(BINDINGS, "mine-job", patch, site.namespace)
    with pytest.raises(errors.Forbidden):
        await owner.api.merge_patch(BINDINGS, "mine-job", {"metadata": {"finalizers": None}}, site.namespace)
