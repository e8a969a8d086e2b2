"""Charts and manifests: they are of the code, Helm takes them, and an API server takes what comes out."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml

from atoll import install
from atoll.cli import chart_files
from atoll.install import embedded, embedding
from atoll.install.embedded import Backup, EmbeddedValues
from atoll.install.rendering import HostValues, MemberValues
from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
from atoll.local.cluster import ClusterHandle
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig
from atoll.model import keys
from atoll.model.apiresource import NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from tests.atollctl import Ran, atollctl
from tests.install.rendered import CHARTS, helm, is_hook, ran, refused, template
from tests.install.served import apply, try_strictly
from tests.programs import printed

Json = dict[str, Any]

IMAGE = {"image": {"repository": "registry.example.org/atoll"}}
MINIMAL: dict[str, Json] = {
    "atoll-crds": {},
    "atoll": IMAGE,
    "atoll-agent": {**IMAGE, "cluster": "east"},
    "atoll-topology": IMAGE,
}
INVITED: Json = {
    "host": {"url": "https://host.example:6443", "caHash": f"sha256:{'b' * 64}", "token": "the-token"},
    "agent": {"settings": {"join": {"region": "eu-1"}}},
}
_POD: Json = {
    "replicas": 3,
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "podLabels": {"a": "b"},
    "podAnnotations": {"a": "b"},
    "extraEnv": [{"name": "A", "value": "b"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "extraArgs": ["--drain-seconds=4"],
}
_ELECTED: Json = {**_POD, "settings": {"election": {"lease": 20}}}
_COMMON: Json = {
    "image": {"repository": "registry.example.org/atoll", "digest": f"sha256:{'a' * 64}", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "proxy": {"https": "http://proxy:3128", "exceptions": "10.0.0.0/8,.svc"},
    "commonLabels": {"team": "batch"},
    "logLevel": "debug",
    "networkPolicy": {"enabled": True, "extraEgress": [{"ports": [{"protocol": "TCP", "port": 8080}]}]},
    "monitoring": {"scrapeAnnotations": True, "podMonitor": {"enabled": True, "labels": {"release": "stack"}}},
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more", "namespace": "default"}}],
}
FULL: dict[str, Json] = {
    "atoll-crds": {"member": True, "keep": False},
    "atoll": {
        **_COMMON,
        "crds": {"install": False},
        "webhook": {**_POD, "url": "https://webhook:9443", "certManager": {"enabled": True}},
        "control": {**_ELECTED, "shards": 3},
        "dispatcher": _ELECTED,
        "web": {**_POD, "enabled": True, "names": ["atoll.example.org", "a.example"], "settings": {"users": 8}},
        "monitoring": {
            **_COMMON["monitoring"],
            "prometheusRule": {"enabled": True, "labels": {"release": "stack"}},
            "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Atoll"}},
        },
    },
    "atoll-agent": {
        **_COMMON,
        "cluster": "east",
        "allowExec": True,
        "agent": _ELECTED,
        "descheduler": {**_ELECTED, "enabled": True, "policy": {"apiVersion": "descheduler/v1alpha2"}},
    },
    "atoll-topology": {
        **_COMMON,
        "topology": {**_POD, "replicas": 1, "settings": {"recovery": 30}},
        "discovery": {"sources": [{"labels": ["rack"]}]},
    },
}
SINGLE = {"webhook": {"replicas": 1}, "control": {"replicas": 1}, "dispatcher": {"replicas": 1}}
VALUES = [
    *((chart, "minimal", values) for chart, values in MINIMAL.items()),
    *((chart, "full", values) for chart, values in FULL.items()),
    ("atoll", "single", {**IMAGE, **SINGLE, "priorityClassName": ""}),
    ("atoll-agent", "invited", {**MINIMAL["atoll-agent"], **INVITED}),
]
EMBEDDED = EmbeddedValues(
    image="registry.example.org/atoll:1",
    namespace="batch",
    priority_class="system-cluster-critical",
)
EMBEDDED_FULL = EmbeddedValues(
    image="registry.example.org/atoll:1",
    namespace="batch",
    endpoint="https://atoll.example.org:6443",
    service_type="LoadBalancer",
    service_annotations={"a": "b"},
    etcd_replicas=3,
    storage="1Gi",
    storage_class="fast",
    backup=Backup("@daily", 3, "2Gi"),
    etcd_image="registry.example.org/etcd:1",
    apiserver_image="registry.example.org/kube-apiserver:1",
    controller_manager_image="registry.example.org/kube-controller-manager:1",
    image_pull_secrets=["registry"],
    apiserver_flags=["--oidc-issuer-url=https://login.example.org", '--oidc-username-prefix="'],
    replicas=1,
    resources={"etcd": {"requests": {"cpu": "1"}}, "controller-manager": {"limits": {"memory": "3Gi"}}},
)
EACH_EMBEDDED = pytest.mark.parametrize(
    "values", [pytest.param(EMBEDDED, id="minimal"), pytest.param(EMBEDDED_FULL, id="full")]
)
EACH = pytest.mark.parametrize(("chart", "values"), [pytest.param(a, c, id=f"{a}-{b}") for a, b, c in VALUES])
_OTHERS = ("monitoring.coreos.com/v1", "cert-manager.io/v1")
"""APIs that no cluster of the tests has."""


def pods(objects: list[Json]) -> Iterator[tuple[str, Json]]:
    for each in objects:
        if each["kind"] == "Pod":
            yield each["metadata"]["name"], each["spec"]
        elif each["kind"] in ("Deployment", "Job"):
            yield each["metadata"]["name"], each["spec"]["template"]["spec"]


def bare(each: Json) -> Json:
    """An object as `atollctl render` has it."""
    metadata = {key: value for key, value in each["metadata"].items() if key != "annotations"}
    return {**each, "metadata": metadata}


def test_generated_files_are_up_to_date() -> None:
    assert chart_files.stale() == []


def test_manifests_are_what_helm_makes_of_the_charts() -> None:
    for path, text in chart_files.manifests(helm()):
        assert path.read_text() == text, path


@EACH
def test_helm_lint_finds_nothing(chart: str, values: Json) -> None:
    run = ran("lint", "--strict", str(CHARTS / chart), "--namespace=atoll-system", values=values)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("chart", "values", "message"),
    [
        ("atoll", {}, "image.repository is missing"),
        ("atoll-agent", {"cluster": "east"}, "image.repository is missing"),
        ("atoll-agent", IMAGE, "cluster is missing"),
        ("atoll-agent", {**IMAGE, "cluster": "a", "descheduler": {"enabled": True}}, "descheduler.policy is missing"),
        ("atoll", {**IMAGE, "imge": {}}, "imge"),
        ("atoll", {**IMAGE, "web": {"enabled": True}}, "web.names is missing"),
        ("atoll", {**IMAGE, "webhook": {"replica": 1}}, "replica"),
        ("atoll", {**IMAGE, "webhook": {"replicas": "two"}}, "replicas"),
        ("atoll", {"image": {"repository": "a", "digest": "abc"}}, "digest"),
        ("atoll", {**IMAGE, "webhook": {"url": "http://plain"}}, "url"),
        ("atoll-agent", {**IMAGE, "cluster": "East"}, "cluster"),
        ("atoll-agent", {**IMAGE, "cluster": "east", "host": {"token": "a"}}, "host.url is missing"),
        ("atoll-agent", {**IMAGE, "cluster": "east", "host": {"url": "http://plain"}}, "url"),
        ("atoll-agent", {**IMAGE, "cluster": "east", "host": {**INVITED["host"], "caHash": "b"}}, "caHash"),
        (
            "atoll-agent",
            {**IMAGE, "cluster": "east", "host": {**INVITED["host"], "secretName": "b"}},
            "Secret atoll-host",
        ),
        ("atoll-topology", {**IMAGE, "topology": {"replicas": 2}}, "replicas"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_wrong_values_are_refused_with_their_name(chart: str, values: Json, message: str) -> None:
    assert message in refused(chart, values)


def test_another_namespace_is_refused() -> None:
    assert "--namespace atoll-system --create-namespace" in refused("atoll", IMAGE, "--namespace=batch")


@pytest.mark.parametrize("allow_exec", [False, True], ids=["without exec", "with exec"])
async def test_charts_give_the_rights_policies_and_crds_of_the_code(allow_exec: bool) -> None:
    host = await install.render_host(HostValues(runs_deployments=True))
    _, member = await install.render_member("east", MemberValues(endpoint="https://east", allow_exec=allow_exec))
    agent = {**MINIMAL["atoll-agent"], "allowExec": allow_exec}
    for chart, values, rendered, for_member in (
        ("atoll", IMAGE, host, False),
        ("atoll-agent", agent, member, True),
    ):
        objects = [bare(each) for each in template(chart, values) if not is_hook(each)]
        by_hooks = ("CustomResourceDefinition", "Namespace", "Queue", "EndpointSlice")
        wanted = [each for each in rendered if each["kind"] not in by_hooks]
        assert [each for each in wanted if each not in objects] == []
        kinds = {each["kind"] for each in wanted} - {"Service"}
        assert [each for each in objects if each["kind"] in kinds and each not in wanted] == []
        crds = [each for each in rendered if each["kind"] == "CustomResourceDefinition"]
        found = template("atoll-crds", {"member": for_member, "keep": False})
        assert sorted(found, key=lambda each: each["metadata"]["name"]) == crds


@EACH
def test_pods_are_restricted_and_start_one_image(chart: str, values: Json) -> None:
    for name, spec in pods(template(chart, values)):
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["image"].startswith("registry.example.org/atoll")
            assert container["resources"]["requests"]


@EACH
def test_processes_take_their_flags_and_settings(chart: str, values: Json, tmp_path: Path) -> None:
    objects = template(chart, values)
    for each in objects:
        if each["kind"] != "Deployment":
            continue
        settings = [one for one in objects if one["metadata"]["name"] == f"{each['metadata']['name']}-settings"]
        file = tmp_path / "settings.yaml"
        spec = each["spec"]["template"]["spec"]
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            flags = list(container["args"])
            if settings:
                file.write_text(settings[0]["data"]["settings.yaml"])
                flags = [f"--config={file}" if flag.startswith("--config=") else flag for flag in flags]
            shown = printed(container["command"][0], *flags, "--print-config")
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert yaml.safe_load(shown)["health"] == {"port": ports["health"], "host": "0.0.0.0"}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["port"] == "health"


@pytest.mark.parametrize("mode", ["off", "on"])
def test_reclaimed_capacity_brings_its_right_to_write_nodes(mode: str) -> None:
    policy = {"policyFrom": "volcano-system/policy"} if mode == "off" else {}
    values = {"enabled": True, "settings": {"colocation": {"mode": mode}}, **policy}
    objects = template("atoll-agent", {**IMAGE, "cluster": "a", "descheduler": values})
    [role] = [
        each for each in objects if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", "atoll-descheduler")
    ]
    writes = [each for each in role["rules"] if each["resources"] == ["nodes/status"]]
    assert [each["verbs"] for each in writes] == ([["patch"]] if mode == "on" else [])


def test_pages_are_off_by_default_and_have_no_account() -> None:
    objects = template("atoll", FULL["atoll"])
    assert "atoll-web" not in [each["metadata"]["name"] for each in template("atoll", IMAGE)]
    spec = dict(pods(objects))["atoll-web"]
    assert (spec["automountServiceAccountToken"], spec.get("serviceAccountName")) == (False, None)
    named = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    config = yaml.safe_load(named["ConfigMap", "atoll-web-host"]["data"]["host.yaml"])
    assert config["users"] == [{"name": "none", "user": {}}]
    mounts = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
    assert config["clusters"][0]["cluster"]["certificate-authority"].startswith(mounts["ca"])
    assert named["Service", "atoll-web"]["spec"]["ports"] == [{"name": "pages", "port": 80, "targetPort": "pages"}]
    assert "atoll-web" not in [name for kind, name in named if kind == "ServiceAccount"]


def test_token_of_an_invitation_is_in_a_secret_alone() -> None:
    invited = {**MINIMAL["atoll-agent"], **INVITED}
    with_token = [each for each in template("atoll-agent", invited) if "the-token" in yaml.safe_dump(each)]
    assert [(each["kind"], each["stringData"]) for each in with_token] == [("Secret", {"token": "the-token"})]


def test_member_that_has_joined_needs_no_token() -> None:
    joined = {**MINIMAL["atoll-agent"], "host": {**INVITED["host"], "token": ""}}
    [(_, pod)] = pods([each for each in template("atoll-agent", joined) if each["kind"] == "Deployment"])
    assert "initContainers" not in pod
    assert pod["containers"][0]["args"][-2:] == ["--cluster=east", "--host-secret"]


def embedded_chart(values: EmbeddedValues) -> list[Json]:
    given = msgspec.to_builtins(values)
    for each in ("image", "namespace", "imagePullSecrets", "priorityClass"):
        del given[each]
    chart = {
        "image": {"repository": "registry.example.org/atoll", "tag": "1"},
        "imagePullSecrets": [{"name": each} for each in values.image_pull_secrets],
        "priorityClassName": values.priority_class,
        "host": {"mode": "embedded", "embedded": given},
    }
    return template("atoll", chart, f"--namespace={values.namespace}")


@EACH_EMBEDDED
async def test_embedded_host_has_the_objects_of_init(values: EmbeddedValues) -> None:
    rendered = await install.render_host(HostValues(mode="embedded", embedded=values))
    # Helm makes the namespace, the hook the values.
    wanted = {(each["kind"], each["metadata"]["name"]): each for each in rendered[2:]}
    found = [each for each in embedded_chart(values) if not is_hook(each)]
    for each in found:
        annotations = each["metadata"].get("annotations")
        match each["kind"]:
            case "Job":
                assert re.fullmatch("atoll-host-init-[0-9a-f]{8}", each["metadata"]["name"])
                each["metadata"]["name"] = "atoll-host-init"
            case "PersistentVolumeClaim":
                assert annotations == {"helm.sh/resource-policy": "keep"}
                del each["metadata"]["annotations"]
    assert {(each["kind"], each["metadata"]["name"]): each for each in found} == wanted


@EACH_EMBEDDED
def test_hook_of_an_embedded_host_gets_its_values(values: EmbeddedValues) -> None:
    [job] = [each for each in embedded_chart(values) if each["kind"] == "Job" and is_hook(each)]
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "embed"
    assert msgspec.json.decode(container["args"][1], type=EmbeddedValues) == values


def test_defaults_of_an_embedded_host_are_those_of_init() -> None:
    values = yaml.safe_load((CHARTS / "atoll" / "values.yaml").read_text())["host"]["embedded"]
    assert msgspec.convert(values, EmbeddedValues) == EmbeddedValues()
    named = {each.encode_name for each in msgspec.structs.fields(EmbeddedValues)}
    assert set(values) == named - {"image", "namespace", "imagePullSecrets", "priorityClass"}


@pytest.mark.parametrize(
    "values",
    [
        {"webhook": {"replicas": 3}},
        {"web": {"enabled": True}},
        {"nodeSelector": {"a": "b"}},
        {"monitoring": {"podMonitor": {"enabled": True}}},
    ],
    ids=lambda given: next(iter(given)),
)
def test_value_that_an_embedded_host_does_not_have_is_refused(values: Json) -> None:
    said = refused("atoll", {**IMAGE, "host": {"mode": "embedded"}, **values})
    assert f"{next(iter(values))}: an embedded host does not have it" in said


def test_two_replicas_are_spread_and_protected_and_one_is_not() -> None:
    def kinds(values: Json) -> list[str]:
        return [each["kind"] for each in template("atoll", values) if not is_hook(each)]

    assert kinds(IMAGE).count("PodDisruptionBudget") == 3
    assert "PodDisruptionBudget" not in kinds({**IMAGE, **SINGLE})
    for _, spec in pods([each for each in template("atoll", IMAGE) if each["kind"] == "Deployment"]):
        assert [each["topologyKey"] for each in spec["topologySpreadConstraints"]] == [
            "topology.kubernetes.io/zone", "kubernetes.io/hostname",
        ]  # fmt: skip


@pytest.mark.parametrize(("values", "replicas", "flags"), [
    ({}, 2, []), ({"shards": 3}, 4, ["--shards=3"]), ({"shards": 2, "replicas": 5}, 5, ["--shards=2"]),
])  # fmt: skip
def test_shards_of_control_have_a_replica_each_and_one_more(values: Json, replicas: int, flags: list[str]) -> None:
    objects = template("atoll", {**IMAGE, "control": values})
    [control] = [
        each for each in objects if (each["kind"], each["metadata"]["name"]) == ("Deployment", "atoll-control")
    ]
    [container] = control["spec"]["template"]["spec"]["containers"]
    assert control["spec"]["replicas"] == replicas
    assert [each for each in container["args"] if each.startswith("--shards")] == flags


def test_dashboards_and_alerts_are_those_of_the_repository() -> None:
    objects = template("atoll", FULL["atoll"])
    [rules] = [each for each in objects if each["kind"] == "PrometheusRule"]
    monitoring = chart_files.DEPLOY / "monitoring"
    assert rules["spec"] == yaml.safe_load((monitoring / "rules.yaml").read_text())
    shown = {
        name: text
        for each in objects
        if each["kind"] == "ConfigMap" and each["metadata"]["name"].startswith("atoll-dashboard-")
        for name, text in each["data"].items()
    }
    assert shown == {f"atoll-{file.name}": file.read_text() for file in (monitoring / "dashboards").glob("*.json")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClusterHandle]:
    helm()
    config = FederationConfig.model_construct(members=[])
    folder = tmp_path_factory.mktemp("federation")
    async with (
        Federation(config, directory=folder, binaries=ensure()) as federation,
        await federation.host.connect() as connected,
    ):
        labels = {f"pod-security.kubernetes.io/{each}": "restricted" for each in ("enforce", "warn")}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": keys.SYSTEM_NAMESPACE}}
        namespace["metadata"] |= {"labels": labels}  # type: ignore[operator]
        await connected.create(NAMESPACES, namespace)
        # A Pod is refused without its account, and a dry run keeps none.
        named = {"name": "atoll-installer", "namespace": keys.SYSTEM_NAMESPACE}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named}
        await connected.create(SERVICE_ACCOUNTS, account)
        yield federation.host


@pytest_asyncio.fixture(loop_scope="module")
async def api(cluster: ClusterHandle) -> AsyncIterator[ApiServer]:
    async with await cluster.connect() as connected:
        yield connected


@pytest.mark.integration
@pytest.mark.asyncio(loop_scope="module")
@EACH
async def test_an_api_server_takes_every_object_strictly(api: ApiServer, chart: str, values: Json) -> None:
    objects = template(chart, values)
    await try_strictly(api, [each for each in objects if each["apiVersion"] not in _OTHERS])


@pytest.mark.integration
@pytest.mark.asyncio(loop_scope="module")
async def test_hook_of_an_embedded_host_makes_what_its_pods_mount(
    cluster: ClusterHandle, api: ApiServer, tmp_path: Path
) -> None:
    """With the rights of the chart's account: once, again, and not with another number of etcds."""
    chart = embedded_chart(EMBEDDED)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": EMBEDDED.namespace}}
    await apply(api, [namespace, *(each for each in chart if is_hook(each) and each["kind"] not in ("Job", "Pod"))])
    await try_strictly(api, chart)
    await try_strictly(api, embedded_chart(EMBEDDED_FULL))
    token, _ = await install.issue_token(api, "atoll-installer", EMBEDDED.namespace)
    file = tmp_path / "kubeconfig"
    at = await install.endpoint(cluster.kubeconfig)
    install.write_kubeconfig(file, at, "atoll-installer", token, namespace=EMBEDDED.namespace)

    async def hook(values: EmbeddedValues) -> Ran:
        [job] = [each for each in embedded_chart(values) if each["kind"] == "Job" and is_hook(each)]
        [container] = job["spec"]["template"]["spec"]["containers"]
        return await atollctl(*container["command"][1:], *container["args"], f"--kubeconfig={file}")

    for _ in range(2):
        ran = await hook(EMBEDDED)
        assert ran.code == 0, ran
    kept = {each["metadata"]["name"] for each in await api.list(SECRETS, EMBEDDED.namespace)}
    assert set(embedded.SECRETS) <= kept
    assert await embedding.present_values(api, EMBEDDED.namespace) == EMBEDDED
    assert "etcdReplicas" in (await hook(EMBEDDED_FULL)).said


@pytest.mark.integration
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("mode", "namespace"), [("cluster", keys.SYSTEM_NAMESPACE), ("embedded", "changed")])
async def test_mode_of_a_host_that_runs_can_not_change(
    cluster: ClusterHandle, api: ApiServer, mode: str, namespace: str
) -> None:
    running = [each for each in embedded_chart(EMBEDDED) if each["metadata"]["name"] in ("atoll-control", "atoll-etcd")]
    kinds = ("Deployment",) if mode == "embedded" else ("Deployment", "StatefulSet")
    await apply(api, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}])
    for each in running:
        if each["kind"] in kinds:
            await apply(api, [{**each, "metadata": {**each["metadata"], "namespace": namespace}}])
    flags = (f"--namespace={namespace}", "--dry-run=server", f"--kubeconfig={cluster.kubeconfig}")
    said = refused("atoll", {**IMAGE, "host": {"mode": mode}}, *flags)
    assert f"host.mode {mode}: namespace {namespace} has a host of the other mode" in said
