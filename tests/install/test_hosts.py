"""Which clusters can be a host or a member: other systems, older versions, namespaces."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from aiohttp import web

from atoll import install
from atoll.install import foreign, versions
from atoll.kube.errors import Forbidden
from atoll.local.binaries import ensure
from atoll.local.federation import Federation
from atoll.local.install import wait_until
from atoll.local.layout import FederationConfig
from atoll.model import keys
from atoll.model.apiresource import (
    API_SERVICES,
    CRDS,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    VALIDATING_WEBHOOKS,
    ApiResource,
)
from atoll.model.timestamps import rfc3339_micro
from tests.kube.servers import serving

Json = dict[str, Any]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration]

WITHOUT_MANAGED_BY = {"version": "1.33", "feature_gates": {"JobManagedBy": False}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Federation]:
    """A host that keeps no managedBy, and a member of the oldest version."""
    oldest = f"{versions.OLDEST[0]}.{versions.OLDEST[1]}"
    config = FederationConfig.model_validate(
        {
            "host": WITHOUT_MANAGED_BY,
            "members": [{"name": "new"}, {"name": "old", "kubernetes": {"version": oldest}}],
        }
    )
    async with Federation(config, directory=tmp_path_factory.mktemp("federation"), binaries=ensure()) as federation:
        yield federation


async def prepare(handle: Any, out: Path, said: list[str] | None = None, **options: Any) -> None:
    async with await handle.connect() as api:
        await install.init(
            api,
            await install.endpoint(handle.kubeconfig),
            out=out,
            webhook_client_config={"url": "https://127.0.0.1:1"},
            progress=(said if said is not None else []).append,
            **options,
        )


# -- versions ----------------------------------------------------------------------------------------------------------


async def test_a_host_that_drops_managed_by_is_refused_and_nothing_is_changed(bare: Federation, tmp_path: Path) -> None:
    with pytest.raises(install.Refused) as refused:
        await prepare(bare.host, tmp_path)
    for word in ("spec.managedBy", "JobManagedBy", "emulating 1.33", "--feature-gates=JobManagedBy=true"):
        assert word in str(refused.value)
    async with await bare.host.connect() as host:
        assert await host.list(CRDS) == []
        assert keys.SYSTEM_NAMESPACE not in [each["metadata"]["name"] for each in await host.list(NAMESPACES)]


async def test_the_oldest_version_can_be_a_host_and_its_version_is_said(bare: Federation, tmp_path: Path) -> None:
    said: list[str] = []
    await prepare(bare.members["old"], tmp_path, said)
    assert any("emulating 1.33" in line for line in said)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param({"major": "1", "minor": "31", "gitVersion": "v1.31.4"}, "is Kubernetes v1.31.4", id="older"),
        pytest.param({"major": "1", "minor": "32+", "gitVersion": "v1.32.1-eks"}, "v1.32.1-eks", id="of a provider"),
        pytest.param(
            {"major": "1", "minor": "36", "gitVersion": "v1.36.0", "emulationMajor": "1", "emulationMinor": "32"},
            "v1.36.0 emulating 1.32",
            id="that emulates an older one",
        ),
        pytest.param({"hello": "world"}, "does not say its Kubernetes version", id="that is no API server"),
    ],
)
async def test_a_member_that_is_too_old_is_refused(answer: Json, words: str) -> None:
    async def version(_: web.Request) -> web.Response:
        return web.json_response(answer)

    async with serving(version) as api:
        with pytest.raises(install.Refused) as refused:
            await versions.check_member(api, "m")
        assert words in str(refused.value)


async def test_a_newer_version_than_was_tested_is_taken_and_said_to_be_untested() -> None:
    async def version(_: web.Request) -> web.Response:
        return web.json_response({"major": "1", "minor": "99", "gitVersion": "v1.99.0"})

    async with serving(version) as api:
        found = await versions.check_member(api, "m")
    assert versions.said(found) == "Kubernetes v1.99.0; Atoll is tested with 1.33 to 1.36"


async def test_a_host_that_lets_nothing_be_tried_is_judged_by_its_version() -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/version":
            return web.json_response({"major": "1", "minor": "34", "gitVersion": "v1.34.0"})
        return web.json_response({"kind": "Status", "message": "denied by a policy", "reason": "Forbidden"}, status=403)

    async with serving(answer) as api:
        assert (await versions.check_host(api)).number == (1, 34)


# -- other systems -----------------------------------------------------------------------------------------------------


def webhook(resource: ApiResource, name: str, entry: str, group: str) -> tuple[ApiResource, Json]:
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]}
    return resource, {
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": entry,
                "clientConfig": {"url": "https://127.0.0.1:1"},
                "rules": [rule],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "failurePolicy": "Ignore",
            }
        ],
    }


def deployment(name: str, labels: Json | None = None) -> tuple[ApiResource, Json]:
    selector = {"app": name}
    return DEPLOYMENTS, {
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "spec": {
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": selector}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }


def aggregated(group: str) -> tuple[ApiResource, Json]:
    return API_SERVICES, {
        "metadata": {"name": f"v1alpha1.{group}"},
        "spec": {
            "group": group,
            "version": "v1alpha1",
            "groupPriorityMinimum": 2000,
            "versionPriority": 10,
            "insecureSkipTLSVerify": True,
            "service": {"name": "absent", "namespace": "default"},
        },
    }


def crd(group: str, *, converted: bool) -> tuple[ApiResource, Json]:
    conversion = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": {"url": "https://127.0.0.1:1"}, "conversionReviewVersions": ["v1"]},
    }
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return CRDS, {
        "metadata": {"name": f"probes.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "probes", "singular": "probe", "kind": "Probe", "listKind": "ProbeList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
            "conversion": conversion if converted else {"strategy": "None"},
        },
    }


def lease(age: float) -> tuple[ApiResource, Json]:
    """Renewed so many seconds before the test, not before all tests are collected: `aged` says when that is."""
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 15, "renewTime": age}
    return LEASES, {"metadata": {"name": "karmada-controller-manager", "namespace": "karmada-system"}, "spec": spec}


def aged(resource: ApiResource, obj: Json) -> tuple[ApiResource, Json]:
    if resource is not LEASES:
        return resource, obj
    return resource, {
        **obj,
        "spec": {**obj["spec"], "renewTime": rfc3339_micro(time.time() - obj["spec"]["renewTime"])},
    }


@pytest.mark.parametrize(
    ("made", "system"),
    [
        pytest.param(deployment("karmada-controller-manager"), "Karmada", id="Karmada's Deployment"),
        pytest.param(
            webhook(MUTATING_WEBHOOKS, "mutating-config", "resourcebinding.karmada.io", "work.karmada.io"),
            "Karmada",
            id="Karmada's webhook as its installer calls it",
        ),
        pytest.param(aggregated("cluster.karmada.io"), "Karmada", id="Karmada's own API server"),
        pytest.param(crd("work.karmada.io", converted=True), "Karmada", id="CRDs that Karmada's webhook converts"),
        pytest.param(lease(1), "Karmada", id="a lease of Karmada that is renewed"),
        pytest.param(
            webhook(VALIDATING_WEBHOOKS, "mine-jobs-validate", "validatejob.volcano.sh", "batch.volcano.sh"),
            "Volcano",
            id="Volcano under another release's name",
        ),
        pytest.param(deployment("mine", {"app": "volcano-scheduler"}), "Volcano", id="Volcano by its label"),
        pytest.param(
            webhook(MUTATING_WEBHOOKS, "mine", "mworkload.kb.io", "kueue.x-k8s.io"),
            "Kueue",
            id="Kueue under another name",
        ),
        pytest.param(deployment("mine", {"app.kubernetes.io/name": "kueue"}), "Kueue", id="Kueue by its label"),
        pytest.param(deployment("volcano-exporter"), None, id="something that is called alike"),
        pytest.param(
            webhook(VALIDATING_WEBHOOKS, "policies", "validate.kyverno.svc-fail", "batch.volcano.sh"),
            None,
            id="a policy engine with policies for Volcano Jobs",
        ),
        pytest.param(crd("work.karmada.io", converted=False), None, id="CRDs that Karmada left behind"),
        pytest.param(lease(3600), None, id="a lease that Karmada left behind"),
    ],
)
async def test_a_host_that_runs_another_system_is_refused(
    bare: Federation, tmp_path: Path, made: tuple[ApiResource, Json], system: str | None
) -> None:
    resource, obj = aged(*made)
    handle = bare.members["new"]
    async with await handle.connect() as host:
        karmada = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-system"}}
        await host.apply(NAMESPACES, karmada, field_manager="test")
        await host.create(resource, {"apiVersion": resource.api_version, "kind": resource.kind, **obj})
        try:
            found = await foreign.running(host)
            assert list(found) == ([system] if system else [])
            if system:
                with pytest.raises(install.Refused, match=f"the host runs {system} .*{obj['metadata']['name']}"):
                    await prepare(handle, tmp_path)
        finally:
            await host.delete(resource, obj["metadata"]["name"], obj["metadata"].get("namespace"))

        async def still() -> str:
            there = [each["metadata"]["name"] for each in await host.list(resource)]
            return "there still" if obj["metadata"]["name"] in there else ""

        await wait_until(still, "the end of what was made", 30)


# -- namespaces --------------------------------------------------------------------------------------------------------


async def test_init_opts_in_what_it_is_told_and_nothing_else(bare: Federation, tmp_path: Path) -> None:
    handle = bare.members["old"]
    async with await handle.connect() as host:
        await prepare(handle, tmp_path)
        assert await host.list(NAMESPACES, label_selector=keys.ENABLED) == []
        await host.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research"}})
        await prepare(handle, tmp_path, enable=["research"])
        opted = await host.list(NAMESPACES, label_selector=f"{keys.ENABLED}=true")
        assert [each["metadata"]["name"] for each in opted] == ["research"]
        await prepare(handle, tmp_path, enable=["research=labelled"])
        opted = await host.list(NAMESPACES, label_selector=f"{keys.ENABLED}=labelled")
        assert [each["metadata"]["name"] for each in opted] == ["research"]
        for name, why in (
            ("kube-system", "system namespace"),
            ("reserch", "there is none"),
            ("research=labeled", "research or research=labelled"),
        ):
            with pytest.raises(install.Refused, match=f"{name.partition('=')[0]}: .*{why}"):
                await prepare(handle, tmp_path, enable=[name])


async def test_a_word_that_opts_nothing_in_is_refused(bare: Federation, tmp_path: Path) -> None:
    handle = bare.members["old"]
    await prepare(handle, tmp_path)
    async with await handle.connect() as host:
        namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mistyped"}}
        await host.apply(NAMESPACES, namespace, field_manager="test")

        async def let_pass(word: str) -> str:
            try:
                await host.merge_patch(NAMESPACES, "mistyped", {"metadata": {"labels": {keys.ENABLED: word}}})
            except Forbidden as error:
                return "" if "label atoll.sh/enabled is true" in error.message else error.message
            return "it is let pass"

        await wait_until(lambda: let_pass("labeled"), "the policy is enforced", 30)
        for word in ("false", "labelled", "true"):
            assert await let_pass(word) == "it is let pass"


@pytest.mark.parametrize("name", ["kube-system", "kube-mine", "karmada-es-east", "karmada-system", "atoll-system"])
async def test_a_system_namespace_can_not_be_opted_in(bare: Federation, tmp_path: Path, name: str) -> None:
    handle = bare.members["old"]
    await prepare(handle, tmp_path)
    async with await handle.connect() as host:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await host.apply(NAMESPACES, namespace, field_manager="test")

        async def let_pass() -> str:
            try:
                await host.request(
                    "PATCH",
                    NAMESPACES.path(None, name),
                    body=orjson.dumps({"metadata": {"labels": {keys.ENABLED: "true"}}}),
                    content_type="application/merge-patch+json",
                    params={"dryRun": "All"},
                )
            except Forbidden as error:
                return "" if "system namespaces can't be opted in" in error.message else error.message
            return "it is let pass"

        await wait_until(let_pass, "the policy is enforced", 30)
