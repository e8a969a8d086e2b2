"""Rendered objects and dry runs show the very objects that `init` and `join` write, and write nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
import yaml

from atoll import install
from atoll.install.rendering import HostValues, MemberValues
from atoll.kube.errors import AlreadyExists, NotFound
from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig
from atoll.model import keys
from atoll.model.apiresource import (
    ADMISSION_POLICIES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTERS,
    CRDS,
    FLOW_SCHEMAS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    QUEUES,
    SECRETS,
    SERVICE_ACCOUNTS,
    VALIDATING_WEBHOOKS,
)
from tests.atollctl import Ran, atollctl
from tests.install.served import path_of, try_strictly

Json = dict[str, Any]


def on_servers(test: Any) -> Any:
    return pytest.mark.integration(pytest.mark.asyncio(loop_scope="module")(test))


_EMPTY: tuple[Any, ...] = ({}, [], None, "", False)
_OURS = "app.kubernetes.io/managed-by=atoll"


def lacking(wanted: Any, found: Any, path: str = "") -> list[str]:
    """The fields that an object on a server lacks, or has otherwise; servers drop empty ones."""
    if isinstance(wanted, dict):
        there = found if isinstance(found, dict) else {}
        return [each for key, value in wanted.items() for each in lacking(value, there.get(key), f"{path}.{key}")]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        return [each for index, (one, other) in pairs for each in lacking(one, other, f"{path}[{index}]")]
    return [] if wanted == found or (wanted in _EMPTY and found in _EMPTY) else [f"{path}: {wanted!r} != {found!r}"]


async def differences(api: ApiServer, rendered: Sequence[Json]) -> list[str]:
    return [
        f"{obj['kind']} {obj['metadata']['name']}{each}"
        for obj in rendered
        for each in lacking(obj, orjson.loads(await api.request("GET", await path_of(api, obj))))
    ]


async def state(api: ApiServer) -> dict[str, str]:
    """Versions of all that an installation may write; a cluster that has just started still writes objects of its own."""
    found = {}
    for resource in (NAMESPACES, SERVICE_ACCOUNTS, SECRETS, CRDS, CLUSTER_ROLES, QUEUES, CLUSTERS, MUTATING_WEBHOOKS):
        try:
            objects = await api.list(resource)
        except NotFound:
            continue
        for each in objects:
            meta = each["metadata"]
            name = f"{meta.get('namespace')}/{meta['name']}"
            if resource in (CRDS, QUEUES, CLUSTERS) or "atoll" in name or keys.EXECUTION_PREFIX in name:
                found[f"{resource.kind} {name}"] = meta["resourceVersion"]
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Federation]:
    config = FederationConfig.model_validate({"members": [{"name": "east"}]})
    async with Federation(config, directory=tmp_path_factory.mktemp("federation"), binaries=ensure()) as federation:
        yield federation


async def init(bare: Federation, out: Path, *flags: str) -> Ran:
    return await atollctl("init", f"--kubeconfig={bare.host.kubeconfig}", f"--out={out}", *flags)


async def join(bare: Federation, out: Path, *flags: str) -> Ran:
    member = f"--member-kubeconfig={bare.members['east'].kubeconfig}"
    return await atollctl("join", "east", f"--kubeconfig={bare.host.kubeconfig}", member, f"--out={out}", *flags)


# On real servers each test relies on the ones before it: a new host, a prepared host, a member.


@on_servers
async def test_init_dry_run_on_a_new_host_creates_nothing(bare: Federation, host: ApiServer, tmp_path: Path) -> None:
    ran = await init(bare, tmp_path / "out", "--dry-run")
    assert ran.code == 0, ran.said
    assert await state(host) == {}
    assert not (tmp_path / "out").exists()
    assert "host: Queue default: created (dry run)" in ran.out
    assert "host: MutatingWebhookConfiguration atoll: created (dry run)" in ran.out
    assert all(line.endswith(": created (dry run)") for line in ran.out.splitlines()), ran.out


@on_servers
async def test_rendered_host_is_what_init_writes(bare: Federation, host: ApiServer, tmp_path: Path) -> None:
    ran = await init(bare, tmp_path, "--webhook-url=https://127.0.0.1:1")
    assert ran.code == 0, ran.said
    rendered = await install.render_host(HostValues())
    assert await differences(host, rendered) == []
    names = {(each["kind"], each["metadata"]["name"]) for each in rendered}
    for resource in (CRDS, SERVICE_ACCOUNTS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, FLOW_SCHEMAS, ADMISSION_POLICIES):
        made = {(resource.kind, each["metadata"]["name"]) for each in await host.list(resource, label_selector=_OURS)}
        assert made, resource
        assert made <= names
    await try_strictly(host, rendered)


@on_servers
async def test_init_dry_run_on_a_prepared_host_changes_what_its_flags_say(
    bare: Federation, host: ApiServer, tmp_path: Path
) -> None:
    before = await state(host)
    assert before
    ran = await init(bare, tmp_path, "--dry-run")
    assert ran.code == 0, ran.said
    changed = [line for line in ran.out.splitlines() if not line.endswith(": unchanged (dry run)")]
    assert changed == []
    ran = await init(bare, tmp_path, "--dry-run", "--webhook-url=https://127.0.0.1:2")
    changed = [line for line in ran.out.splitlines() if not line.endswith(": unchanged (dry run)")]
    assert changed == [
        "host: MutatingWebhookConfiguration atoll: changed (dry run)",
        "host: ValidatingWebhookConfiguration atoll: changed (dry run)",
    ]
    assert await state(host) == before


@on_servers
async def test_init_dry_run_as_yaml_holds_the_webhooks_and_no_secret(
    bare: Federation, host: ApiServer, tmp_path: Path
) -> None:
    ran = await init(bare, tmp_path, "--dry-run", "-o", "yaml")
    objects = list(yaml.safe_load_all(ran.out))
    kinds = {each["kind"] for each in objects}
    assert {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} <= kinds
    assert "Secret" not in kinds
    assert "caBundle:" not in ran.out
    assert await differences(host, objects) == []


@on_servers
async def test_join_dry_run_creates_nothing(bare: Federation, host: ApiServer, east: ApiServer, tmp_path: Path) -> None:
    before = await state(host), await state(east)
    ran = await join(bare, tmp_path / "out", "--dry-run")
    assert ran.code == 0, ran.said
    assert (await state(host), await state(east)) == before
    assert not (tmp_path / "out").exists()
    assert "host: Cluster east: created (dry run)" in ran.out
    assert "member east: ServiceAccount atoll-system/atoll-agent: created (dry run)" in ran.out


@on_servers
async def test_rendered_member_is_what_join_writes(
    bare: Federation, host: ApiServer, east: ApiServer, tmp_path: Path
) -> None:
    ran = await join(bare, tmp_path, "--region=eu-1", "--label=gpu=h100")
    assert ran.code == 0, ran.said
    endpoint = (await host.get(CLUSTERS, "east"))["spec"]["apiEndpoint"]
    values = MemberValues(endpoint=endpoint, region="eu-1", labels={"gpu": "h100"})
    in_host, in_member = await install.render_member("east", values)
    assert await differences(host, in_host) == []
    assert await differences(east, in_member) == []
    await try_strictly(host, in_host)
    await try_strictly(east, in_member)
    ran = await join(bare, tmp_path, "--dry-run")
    assert [line for line in ran.out.splitlines() if not line.endswith(": unchanged (dry run)")] == []


async def test_no_write_of_a_rehearsal_reaches_a_server_without_dry_run(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, Any]] = []

    async def request(_: ApiServer, method: str, path: str, **options: Any) -> bytes:
        sent.append((method, dict(options.get("params") or {})))
        return b'{"metadata": {"name": "a"}}'

    monkeypatch.setattr(ApiServer, "request", request)
    api = install.Rehearsal(None)  # type: ignore[arg-type]
    queue = {"metadata": {"name": "a"}}
    await api.create(QUEUES, {"metadata": {"name": "b"}})
    await api.apply(QUEUES, queue, field_manager="test")
    await api.merge_patch(QUEUES, "c", {"spec": {}})
    await api.replace(QUEUES, queue)
    await api.json_patch(QUEUES, "a", [])
    await api.create_in(SERVICE_ACCOUNTS, "a", "default", "token", {})
    await api.delete(QUEUES, "d")
    writes = [params for method, params in sent if method != "GET"]
    assert len(writes) == 7
    assert all(params["dryRun"] == "All" for params in writes)


async def test_later_reads_of_a_rehearsal_see_earlier_writes() -> None:
    from atoll.install.rehearsal import Nowhere

    api = Nowhere()
    await api.create(QUEUES, {"metadata": {"name": "a"}, "spec": {"weight": 1, "parent": "root"}})
    with pytest.raises(AlreadyExists):
        await api.create(QUEUES, {"metadata": {"name": "a"}})
    await api.merge_patch(QUEUES, "a", {"spec": {"parent": None}})
    assert (await api.get(QUEUES, "a"))["spec"] == {"weight": 1}
    assert api.lines() == ["Queue a: created"]
    await api.delete(QUEUES, "a")
    with pytest.raises(NotFound):
        await api.get(QUEUES, "a")
    assert api.manifests() == []


async def test_rendered_objects_hold_no_secret_and_no_webhook() -> None:
    in_host, in_member = await install.render_member("east", MemberValues(endpoint="https://east:6443"))
    objects = [*await install.render_host(HostValues()), *in_host, *in_member]
    kinds = {each["kind"] for each in objects}
    assert not kinds & {"Secret", MUTATING_WEBHOOKS.kind, VALIDATING_WEBHOOKS.kind}


async def test_rendered_profile_follows_the_values() -> None:
    async def profile(values: HostValues) -> str | None:
        [system] = [each for each in await install.render_host(values) if each["kind"] == "Namespace"]
        label: str | None = system["metadata"]["labels"].get(keys.HOST_PROFILE)
        return label

    assert await profile(HostValues()) is None
    assert await profile(HostValues(runs_deployments=True)) == "shared"
    assert await profile(HostValues(on="karmada")) == "karmada"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"hots": {}}, "unknown field `hots`"),
        ({"host": {"on": "mars"}}, "$.host.on"),
        ({"member": {"labels": {"a": 1}}}, "$.member.labels"),
        ([], "Expected `object`"),
    ],
    ids=["unknown block", "unknown profile", "label that is no text", "no mapping"],
)
def test_wrong_values_are_refused_with_their_field(content: Any, message: str) -> None:
    with pytest.raises(install.BadValues) as refused:
        install.values_of(content)
    assert message in str(refused.value)


async def test_commands_refuse_flags_without_a_meaning(tmp_path: Path) -> None:
    file = tmp_path / "east.yaml"
    file.write_text("{}")
    for words, message in (
        (("init", "-o", "yaml"), "-o goes with --dry-run"),
        (("join", "east", f"--member-kubeconfig={file}", "--dry-run", "--beside-host"), "leave it out"),
        (("render", "member", "east", "--in", "host"), "give the https URL of the member's API server"),
        (("render", "member", "East", "--in", "host", "-f", str(file)), "https URL"),
    ):
        ran = await atollctl(*words)
        assert (ran.code, message in ran.said) == (2, True), (words, ran)
