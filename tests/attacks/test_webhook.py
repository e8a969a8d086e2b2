"""A thief of the webhook's credentials changes the CA in its registration, one of control's the rules for declared kinds."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from atoll import install
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, ApiResource
from tests.integration.federation import Json, Site, job, until

pytestmark = pytest.mark.integration
BOTH = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
NAME = "atoll"


@pytest_asyncio.fixture(loop_scope="session")
async def thief(site: Site) -> AsyncIterator[ApiServer]:
    """With the credentials of the webhook."""
    async with await stolen(site, "webhook") as api:
        yield api


@pytest_asyncio.fixture(loop_scope="session")
async def control(site: Site) -> AsyncIterator[ApiServer]:
    """With the credentials of control."""
    async with await stolen(site, "control") as api:
        yield api


async def stolen(site: Site, process: str) -> ApiServer:
    file = install.kubeconfig_of(site.federation.atoll.credentials, process)
    return await ApiServer.from_kubeconfig(file, user_agent="test-thief")


def first(change: Callable[[Json], object]) -> Callable[[Json], None]:
    return lambda found: (change(found["webhooks"][0]), None)[1]


EVERYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"], "scope": "*"}


def declared(**rule: list[str]) -> Callable[[Json], None]:
    """Change the rules for declared kinds."""

    def change(found: Json) -> None:
        for hook in found["webhooks"]:
            if "declared" in hook["name"]:
                hook["rules"] = [{**EVERYTHING, "operations": ["CREATE", "UPDATE"], "scope": "Namespaced", **rule}]

    return change


CHANGES = [
    pytest.param(first(lambda hook: hook.update(rules=[EVERYTHING])), id="to see all objects"),
    pytest.param(first(lambda hook: hook["rules"].append(EVERYTHING)), id="to see all objects besides"),
    pytest.param(first(lambda hook: hook.update(namespaceSelector={})), id="of all namespaces"),
    pytest.param(
        first(lambda hook: hook.update(clientConfig={"url": "https://127.0.0.1:1"})), id="to be somewhere else"
    ),
    pytest.param(first(lambda hook: hook.update(matchConditions=[])), id="of system namespaces and our accounts"),
    pytest.param(first(lambda hook: hook.update(failurePolicy="Ignore")), id="to be passed by"),
    pytest.param(first(lambda hook: hook.update(timeoutSeconds=30)), id="to take its time"),
    pytest.param(lambda found: found.update(webhooks=found["webhooks"][1:]), id="to be asked less"),
    pytest.param(
        lambda found: found["webhooks"].append({**found["webhooks"][0], "name": "more.atoll.sh"}), id="one more"
    ),
    pytest.param(
        lambda found: found["metadata"]["annotations"].update({keys.CLIENT_CONFIG: '{"url":"https://h:1"}'}),
        id="another address for the next start",
    ),
    pytest.param(declared(), id="to see all custom resources"),
    pytest.param(declared(apiGroups=["x.example.com"]), id="to see all of a group"),
    pytest.param(declared(apiGroups=["x.example.com"], resources=["ys/status"]), id="to see a status"),
    pytest.param(declared(apiGroups=["x.example.com"], resources=["ys"], operations=["DELETE"]), id="to see deletions"),
]


async def refused(site: Site, thief: ApiServer, resource: ApiResource, change: Callable[[Json], None]) -> None:
    before = await site.host.get(resource, NAME)
    wanted = copy.deepcopy(before)
    change(wanted)
    patch = {"metadata": {"annotations": wanted["metadata"]["annotations"]}, "webhooks": wanted["webhooks"]}
    try:
        with pytest.raises(errors.Forbidden):
            await thief.merge_patch(resource, NAME, patch)
    finally:
        found = await site.host.get(resource, NAME)
        await site.host.merge_patch(resource, NAME, {"webhooks": before["webhooks"]})
    assert found["webhooks"] == before["webhooks"]


@pytest.mark.parametrize("resource", BOTH, ids=["mutating", "validating"])
@pytest.mark.parametrize(
    "change", [*CHANGES, pytest.param(declared(apiGroups=["x.example.com"], resources=["ys"]), id="of a kind")]
)
async def test_the_webhook_can_t_change_what_it_is_asked_about(
    site: Site, thief: ApiServer, resource: ApiResource, change: Callable[[Json], None]
) -> None:
    await refused(site, thief, resource, change)


@pytest.mark.parametrize("resource", BOTH, ids=["mutating", "validating"])
@pytest.mark.parametrize(
    "change", [*CHANGES, pytest.param(first(lambda hook: hook["clientConfig"].update(caBundle="")), id="to be trusted")]
)
async def test_control_can_t_change_what_the_webhook_is_asked_about_but_declared_kinds(
    site: Site, control: ApiServer, resource: ApiResource, change: Callable[[Json], None]
) -> None:
    await refused(site, control, resource, change)


async def test_it_makes_and_removes_no_configuration(site: Site, thief: ApiServer) -> None:
    for resource in BOTH:
        with pytest.raises(errors.Forbidden):
            await thief.delete(resource, NAME)
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "mine"}}
        with pytest.raises(errors.Forbidden):
            await thief.create(resource, body)
        with pytest.raises(errors.Forbidden):
            await thief.apply(resource, body, field_manager="atoll-webhook")


async def test_it_reads_no_secret_but_its_own(site: Site, thief: ApiServer) -> None:
    with pytest.raises(errors.Forbidden):
        await thief.list(SECRETS, keys.SYSTEM_NAMESPACE)
    with pytest.raises(errors.Forbidden):
        await thief.list(SECRETS, site.namespace)


async def test_a_ca_that_is_taken_away_is_trusted_again_at_once(site: Site) -> None:
    for resource in BOTH:
        found = await site.host.get(resource, NAME)
        for hook in found["webhooks"]:
            hook["clientConfig"]["caBundle"] = ""
        await site.host.merge_patch(resource, NAME, {"webhooks": found["webhooks"]})

    async def taken() -> bool:
        try:
            await site.submit(job("train"))
        except errors.ApiError:
            return False
        return True

    await until(taken, what="the webhook is trusted again")
    await site.phase("train", "Completed")
