"""ConfigMaps and Secrets that pods refer to: they come with the workload, follow the host, and go with the last Work."""

from __future__ import annotations

import base64

import pytest

from atoll.model import keys
from atoll.model.apiresource import (
    BATCH_JOBS,
    BINDINGS,
    CONFIGMAPS,
    EVENTS,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    ApiResource,
)
from tests.integration.federation import Json, Site, batch_job, until

pytestmark = pytest.mark.integration

MEMBER = "topo"
KEY = base64.b64encode(b"key").decode()


def made(resource: ApiResource, name: str, site: Site, data: Json) -> Json:
    about = {"name": name, "namespace": site.namespace}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": about, "data": data}


async def told(site: Site, reason: str, *words: str) -> None:
    async def look() -> bool:
        events = await site.host.list(EVENTS, site.namespace)
        return any(each["reason"] == reason and all(word in each["note"] for word in words) for each in events)

    await until(look, what=f"Event {reason} with {words}")


async def has(site: Site, resource: ApiResource, name: str, data: Json | None) -> None:
    """Wait until the member has it with these contents; or not at all."""

    async def look() -> bool:
        found = await site.find(resource, name, MEMBER)
        return found is None if data is None else found is not None and found.get("data") == data

    await until(look, what=f"{resource.kind} {name} is {data}")


async def test_what_pods_refer_to_comes_with_the_workload_and_goes_with_the_last(site: Site) -> None:
    """The member has none of it at first, but a ConfigMap of a user of its own."""
    await site.only(MEMBER)
    host, member = site.host, site.members[MEMBER]
    consent, refusal = ({"metadata": {"annotations": {keys.PROPAGATE: each}}} for each in ("secrets", None))
    await host.create(CONFIGMAPS, made(CONFIGMAPS, "settings", site, {"a": "1"}))
    await host.create(CONFIGMAPS, made(CONFIGMAPS, "theirs", site, {"a": "host"}))
    await host.create(CONFIGMAPS, made(CONFIGMAPS, "large", site, {"a": "x" * (600 << 10)}))
    await host.create(SECRETS, made(SECRETS, "token", site, {"key": KEY}))
    # Its users may be there before any work is.
    about = {"name": site.namespace, "labels": {keys.ACCEPT: "true"}}
    await member.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": about})
    await member.create(CONFIGMAPS, made(CONFIGMAPS, "theirs", site, {"a": "member"}))

    wanted = batch_job("uses", seconds=None)
    pod = wanted["spec"]["template"]["spec"]
    pod["serviceAccountName"] = "own"
    pod["containers"][0]["envFrom"] = [
        {"configMapRef": {"name": "settings"}},
        {"configMapRef": {"name": "theirs"}},
        {"configMapRef": {"name": "maybe", "optional": True}},
        {"configMapRef": {"name": "later"}},
        {"configMapRef": {"name": "large"}},
    ]
    pod["volumes"] = [{"name": "v", "secret": {"secretName": "token"}}]
    await site.submit(wanted)

    async def runs() -> bool:
        return any(each["spec"].get("nodeName") for each in await member.list(PODS, site.namespace))

    await until(runs, what="its pod has a node")
    await has(site, CONFIGMAPS, "settings", {"a": "1"})
    await told(site, "SecretNotPropagated", "token", f"kubectl annotate --overwrite namespace {site.namespace}")
    await told(site, "DependencyNotFound", "ConfigMap later")
    await told(site, "DependencyTooLarge", "ConfigMap large", "524288 bytes")
    await told(site, "DependencyDiffers", "ConfigMap", "theirs", MEMBER)
    assert await site.find(SECRETS, "token", MEMBER) is None
    await host.merge_patch(NAMESPACES, site.namespace, consent)
    await told(
        site, "DependencyNotRead", "token", f"kubectl create rolebinding {keys.SECRET_READER} -n {site.namespace}"
    )
    await host.merge_patch(NAMESPACES, site.namespace, refusal)
    site.kubectl(
        *("create", "rolebinding", keys.SECRET_READER, "-n", site.namespace),
        *(f"--clusterrole={keys.SECRET_READER}", "--serviceaccount=atoll-system:atoll-control"),
    )
    assert not [e for e in await host.list(EVENTS, site.namespace) if "maybe" in e["note"]]

    await host.merge_patch(NAMESPACES, site.namespace, consent)
    await has(site, SECRETS, "token", {"key": KEY})
    await host.merge_patch(CONFIGMAPS, "settings", {"data": {"a": "2", "b": "3"}}, site.namespace)
    await has(site, CONFIGMAPS, "settings", {"a": "2", "b": "3"})
    await host.create(CONFIGMAPS, made(CONFIGMAPS, "later", site, {"a": "l"}))
    await has(site, CONFIGMAPS, "later", {"a": "l"})
    await host.merge_patch(NAMESPACES, site.namespace, refusal)
    await has(site, SECRETS, "token", None)
    await host.merge_patch(NAMESPACES, site.namespace, consent)
    await has(site, SECRETS, "token", {"key": KEY})

    other = batch_job("too", seconds=None)
    other["spec"]["template"]["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "settings"}}]
    await site.submit(other)

    async def both() -> bool:
        return len(await member.list(PODS, site.namespace)) == 2

    await until(both, what="both run")
    for name in ("uses", "too"):
        await host.delete(BATCH_JOBS, name, site.namespace)

        async def gone(name: str = name) -> bool:
            return not [
                each for each in await host.list(BINDINGS, site.namespace) if each["spec"]["resource"]["name"] == name
            ]

        await until(gone, what=f"{name} is gone")
        await has(site, SECRETS, "token", None)
        await has(site, CONFIGMAPS, "settings", {"a": "2", "b": "3"} if name == "uses" else None)
    assert await site.find(SERVICE_ACCOUNTS, "own", MEMBER) is None
    assert await site.find(CONFIGMAPS, "later", MEMBER) is None
    await has(site, CONFIGMAPS, "theirs", {"a": "member"})
