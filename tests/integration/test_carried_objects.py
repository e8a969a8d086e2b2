"""ConfigMaps and Secrets that pods refer to: they come with the workload, follow the host, and go with the last Work."""

from __future__ import annotations

import base64

import pytest

from atoll.model import keys
from atoll.model.apiresource import (
    BATCH_JOBS,
    BINDINGS,
    CLAIMS,
    CONFIGMAPS,
    EVENTS,
    NAMESPACES,
    PODS,
    POLICIES,
    SECRETS,
    SERVICE_ACCOUNTS,
    VOLUMES,
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


async def test_a_workload_finds_a_config_map_a_secret_a_claim_and_its_account_in_a_member_that_had_none(
    site: Site,
) -> None:
    """All of them are gone afterwards."""
    await site.only(MEMBER)
    host, member = site.host, site.members[MEMBER]
    await host.create(CONFIGMAPS, made(CONFIGMAPS, "settings", site, {"a": "1"}))
    for name in ("token", "registry"):
        await host.create(SECRETS, made(SECRETS, name, site, {"key": KEY}))
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""}
    about = {"name": "scratch", "namespace": site.namespace}
    await host.create(CLAIMS, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": claim})
    account = {"name": "robot", "namespace": site.namespace, "annotations": {"example.com/role": "reader"}}
    of_account = {"imagePullSecrets": [{"name": "registry"}], "automountServiceAccountToken": False}
    await host.create(
        SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account, **of_account}
    )
    wanted = batch_job("uses", seconds=None)
    pod = wanted["spec"]["template"]["spec"]
    pod["serviceAccountName"] = "robot"
    pod["containers"][0]["envFrom"] = [{"configMapRef": {"name": "settings"}}]
    pod["volumes"] = [
        {"name": "v", "secret": {"secretName": "token"}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "scratch"}},
    ]
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/scratch"}}
    about = {"name": f"scratch-{site.namespace}"}
    named = {"claimRef": {"namespace": site.namespace, "name": "scratch"}, "storageClassName": ""}
    await member.create(
        VOLUMES, {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": about, "spec": {**volume, **named}}
    )
    await site.submit(wanted)
    await told(site, "ServiceAccountNotPropagated", "annotations", "imagePullSecrets", "serviceaccounts")
    await told(site, "ClaimNotPropagated", "scratch", "persistentvolumeclaims")
    assert await site.find(CLAIMS, "scratch", MEMBER) is None
    consent = {"metadata": {"annotations": {keys.PROPAGATE: "persistentvolumeclaims"}}}
    await host.merge_patch(NAMESPACES, site.namespace, consent)

    async def bare() -> bool:
        found = await site.find(SERVICE_ACCOUNTS, "robot", MEMBER)
        return found is not None and "imagePullSecrets" not in found

    await until(bare, what="the account is there by its name")
    site.kubectl(
        *("create", "rolebinding", keys.SECRET_READER, "-n", site.namespace),
        *(f"--clusterrole={keys.SECRET_READER}", "--serviceaccount=atoll-system:atoll-control"),
    )
    consent = {"metadata": {"annotations": {keys.PROPAGATE: "secrets,persistentvolumeclaims,serviceaccounts"}}}
    await host.merge_patch(NAMESPACES, site.namespace, consent)
    for name in ("token", "registry"):
        await has(site, SECRETS, name, {"key": KEY})

    async def whole() -> bool:
        found = await site.find(SERVICE_ACCOUNTS, "robot", MEMBER)
        said = found is not None and found["metadata"]["annotations"].get("example.com/role") == "reader"
        return said and found is not None and {key: found.get(key) for key in of_account} == of_account

    await until(whole, what="the account is as on the host")

    async def claimed() -> bool:
        found = await site.find(CLAIMS, "scratch", MEMBER)
        return found is not None and found["spec"]["resources"] == claim["resources"]

    await until(claimed, what="the claim is there")

    async def runs() -> bool:
        return any((each.get("status") or {}).get("phase") == "Running" for each in await site.pods(MEMBER))

    await until(runs, what="its pod runs")
    await host.delete(BATCH_JOBS, "uses", site.namespace)
    gone = ((SECRETS, "token"), (SECRETS, "registry"), (CONFIGMAPS, "settings"), (SERVICE_ACCOUNTS, "robot"))

    async def all_gone() -> bool:
        left = [await site.find(resource, name, MEMBER) for resource, name in (*gone, (CLAIMS, "scratch"))]
        return not any(left)

    await until(all_gone, what="all of it is gone")
    await member.delete(VOLUMES, about["name"])


async def test_a_policy_that_propagates_no_dependencies_takes_none_along(site: Site) -> None:
    await site.only(MEMBER)
    off, on = ({"spec": {"propagateDeps": each}} for each in (False, None))
    await site.host.merge_patch(POLICIES, f"only-{MEMBER}", off, site.namespace)
    await site.host.create(CONFIGMAPS, made(CONFIGMAPS, "settings", site, {"a": "1"}))
    wanted = batch_job("alone", seconds=None)
    wanted["spec"]["template"]["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "settings"}}]
    await site.submit(wanted)

    async def there() -> bool:
        return bool(await site.pods(MEMBER))

    await until(there, what="it is in the member")
    assert await site.find(CONFIGMAPS, "settings", MEMBER) is None
    await site.host.merge_patch(POLICIES, f"only-{MEMBER}", on, site.namespace)
    await has(site, CONFIGMAPS, "settings", {"a": "1"})
    await site.host.merge_patch(POLICIES, f"only-{MEMBER}", off, site.namespace)
    await has(site, CONFIGMAPS, "settings", None)
