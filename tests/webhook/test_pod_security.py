"""The Pod Security Standards, control by control; PodSecurity of a real API server is the oracle."""

from __future__ import annotations

import asyncio
import copy
import re
from typing import Any

import orjson
import pytest

from atoll.admission import pod_security
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import NAMESPACES, PODS, SERVICE_ACCOUNTS
from atoll.model.pod_security import PREFIX
from tests.integration.federation import Site

Json = dict[str, Any]

SAFE: Json = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
SAFE_POD: Json = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def pod(*, pod: Json | None = None, annotations: Json | None = None, init: Json | None = None, security: Json | None = None,
        **container: Any) -> Json:  # fmt: skip
    """A template that keeps `restricted`, but for what is given. `pod`: fields of its spec, whose securityContext adds to
    the safe one; `security` adds to the container's; None takes a field off.
    """
    spec = copy.deepcopy(pod or {})
    context = without({**SAFE_POD, **spec.pop("securityContext", {})})
    own = without({**SAFE, **(security or {})})
    containers = [{"name": "c", "image": "busybox", "securityContext": own, **container}]
    if init is not None:
        spec["initContainers"] = [{"name": "i", "image": "busybox", "securityContext": SAFE, **init}]
    return {
        "metadata": {"annotations": annotations or {}},
        "spec": {"restartPolicy": "Never", "securityContext": context, "containers": containers, **spec},
    }


def without(fields: Json) -> Json:
    return {key: value for key, value in fields.items() if value is not None}


def probe(host: str) -> Json:
    return {"httpGet": {"host": host, "port": 80}}


def volume(**source: Any) -> Json:
    return {"volumes": [{"name": "v", **source}]}


WINDOWS = {"os": {"name": "windows"}, "securityContext": {"seccompProfile": None}}

CASES: dict[str, tuple[Json, tuple[int, ...]]] = {
    "all is well": (pod(), (0, 36)),
    "nothing is said": ({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "b"}]}}, (0, 8, 19, 22, 36)),
    "hostPID": (pod(pod={"hostPID": True}), (36,)),
    "hostIPC and hostPID": (pod(pod={"hostPID": True, "hostIPC": True}), (36,)),
    "hostNetwork": (pod(pod={"hostNetwork": True}), (36,)),
    "SYS_ADMIN": (pod(security={"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN", "CHOWN"]}}), (21, 36)),
    "NET_BIND_SERVICE": (pod(security={"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}), (21, 36)),
    "drops something": (pod(security={"capabilities": {"drop": ["CHOWN"]}}), (21, 22, 36)),
    "hostPath": (pod(pod=volume(hostPath={"path": "/"})), (36,)),
    "nfs": (pod(pod=volume(nfs={"path": "/", "server": "s"})), (36,)),
    "an emptyDir by default": (pod(pod=volume()), (36,)),
    "an image": (pod(pod=volume(image={"reference": "r"})), (36,)),
    "a Secret and a claim": (
        pod(pod={"volumes": [{"name": "s", "secret": {"secretName": "s"}},
                             {"name": "p", "persistentVolumeClaim": {"claimName": "p"}}]}),
        (36,),
    ),
    "hostPort": (pod(ports=[{"containerPort": 80, "hostPort": 8080}], init={"ports": [{"containerPort": 81}]}), (36,)),
    "two hostPorts": (
        pod(ports=[{"containerPort": 80, "hostPort": 8080}], init={"ports": [{"containerPort": 81, "hostPort": 81}]}),
        (36,),
    ),
    "a probe of another host": (pod(livenessProbe=probe("10.0.0.1")), (33, 34, 36)),
    "a hook of another host": (pod(lifecycle={"preStop": probe("10.0.0.1")}), (33, 34)),
    "a probe": (pod(livenessProbe=probe("")), (36,)),
    "AppArmor off": (pod(security={"appArmorProfile": {"type": "Unconfined"}}), (0, 36)),
    "AppArmor off by the pod": (pod(pod={"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}), (36,)),
    "SELinux": (pod(security={"seLinuxOptions": {"type": "spc_t", "user": "u"}}), (36,)),
    "SELinux of the pod": (pod(pod={"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}), (36,)),
    "SELinux of an engine": (pod(security={"seLinuxOptions": {"type": "container_engine_t"}}), (30, 31, 36)),
    "an unmasked proc": (
        pod(pod={"hostUsers": False}, security={"procMount": "Unmasked"}), (34, 35, 36)
    ),
    "seccomp off": (pod(security={"seccompProfile": {"type": "Unconfined"}}), (18, 19, 36)),
    "seccomp off in the pod": (pod(pod={"securityContext": {"seccompProfile": {"type": "Unconfined"}}}), (19, 36)),
    "no seccomp": (pod(pod={"securityContext": {"seccompProfile": None}}), (18, 19, 36)),
    "a sysctl of 1.27": (
        pod(pod={"securityContext": {"sysctls": [{"name": "net.ipv4.ip_local_reserved_ports", "value": "1"}]}}),
        (26, 27, 36),
    ),
    "a sysctl of 1.29": (
        pod(pod={"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_fin_timeout", "value": "1"}]}}), (28, 29)
    ),
    "a sysctl of 1.32": (
        pod(pod={"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]}}), (31, 32)
    ),
    "a sysctl of no version": (
        pod(pod={"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}), (0, 36)
    ),
    "may escalate": (pod(security={"allowPrivilegeEscalation": True}), (7, 8, 36)),
    "root by its pod": (pod(pod={"securityContext": {"runAsNonRoot": False}}), (0, 36)),
    "root by its container": (pod(security={"runAsNonRoot": False}), (36,)),
    "a container of two says no root": (pod(pod={"securityContext": {"runAsNonRoot": None}}, init={}, security={"runAsNonRoot": True}), (36,)),
    "root with users of its own": (
        pod(pod={"hostUsers": False, "securityContext": {"runAsNonRoot": None, "runAsUser": 0}}), (34, 35, 36)
    ),
    "user 0": (pod(pod={"securityContext": {"runAsUser": 0, "runAsNonRoot": None}}), (22, 23, 36)),
    "user 0 in a container": (pod(pod={"securityContext": {"runAsNonRoot": None}}, security={"runAsUser": 0}), (36,)),
    "Windows": (
        pod(pod=WINDOWS, security={"allowPrivilegeEscalation": None, "capabilities": None}), (24, 25, 36)
    ),
}  # fmt: skip
LEVELS = ("baseline", "restricted")


def labels(level: str, minor: int) -> dict[str, str]:
    version = f"v1.{minor}" if minor < pod_security.NEWEST else "latest"
    return {f"{PREFIX}enforce": level, f"{PREFIX}enforce-version": version}


def parts(text: str) -> set[str]:
    """The violations that a sentence of PodSecurity lists."""
    return set(re.split(r", (?=[^()]*(?:\(|$))", text)) if text else set()


def ours(template: Json, asked: dict[str, str]) -> str:
    """The refusal in one sentence, as PodSecurity writes it."""
    found = list(pod_security.problems([("t", template)], asked))
    heads = {each.message.partition(": ")[0] for each in found}
    assert len(heads) <= 1
    return f"{heads.pop()}: " + ", ".join(each.message.partition(": ")[2] for each in found) if found else ""


async def verdict(api: ApiServer, namespace: str, template: Json) -> str:
    """What PodSecurity says of a pod that is not made."""
    body = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template.get("metadata", {}), "name": "p"}}
    try:
        await api.request("POST", PODS.path(namespace), body=orjson.dumps(body), params={"dryRun": "All"})
    except errors.Forbidden as error:
        return error.said.partition("is forbidden: ")[2]
    return ""


@pytest.mark.integration
async def test_every_pod_is_judged_as_the_api_server_judges_it(site: Site) -> None:
    api = site.members["topo"]
    wanted = sorted({(level, minor) for _, minors in CASES.values() for level in LEVELS for minor in minors})
    names = {each: f"{site.namespace}-{each[0]}-{each[1]}" for each in wanted}
    for (level, minor), name in names.items():
        about = {"name": name, "labels": labels(level, minor)}
        await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": about})
        try:
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
            await api.create(SERVICE_ACCOUNTS, account)
        except errors.AlreadyExists:
            continue

    async def judge(case: str, template: Json, level: str, minor: int) -> None:
        theirs, own = await verdict(api, names[level, minor], template), ours(template, labels(level, minor))
        assert theirs.partition(": ")[0] == own.partition(": ")[0], f"{case}, {level}, 1.{minor}: {theirs}"
        assert parts(theirs.partition(": ")[2]) == parts(own.partition(": ")[2]), f"{case}, {level}, 1.{minor}"

    judged = [(case, t, level, minor) for case, (t, minors) in CASES.items() for level in LEVELS for minor in minors]
    results = await asyncio.gather(*(judge(*each) for each in judged), return_exceptions=True)
    wrong = [str(each) for each in results if each is not None]
    for name in names.values():
        await api.delete(NAMESPACES, name)
    assert not wrong, "\n".join(wrong)


# -- without an oracle -------------------------------------------------------------------------------------------------

HOST_PROCESS = {"windowsOptions": {"hostProcess": True}}
NOT_ALLOWED: list[Any] = [
    pytest.param(pod(security={"privileged": True}), 'privileged (container "c" must not set securityContext.privileged=true)',
                 id="privileged"),
    pytest.param(pod(security={"privileged": True}, init={"securityContext": {**SAFE, "privileged": True}}),
                 'privileged (containers "i", "c" must not set securityContext.privileged=true)', id="twice"),
    pytest.param(pod(pod={"securityContext": HOST_PROCESS}),
                 "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)", id="a process of the host"),
    pytest.param(pod(security=HOST_PROCESS),
                 'hostProcess (container "c" must not set securityContext.windowsOptions.hostProcess=true)',
                 id="a container that is one"),
]  # fmt: skip


@pytest.mark.parametrize(("template", "says"), NOT_ALLOWED)
@pytest.mark.parametrize("level", LEVELS)
def test_what_the_api_servers_of_the_tests_take_from_no_client(template: Json, says: str, level: str) -> None:
    assert ours(template, labels(level, 36)) == f'violates PodSecurity "{level}:latest": {says}'


@pytest.mark.parametrize(
    ("annotation", "minor", "refused"),
    [
        pytest.param({"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}, 18, True, id="of the pod"),
        pytest.param({"container.seccomp.security.alpha.kubernetes.io/c": "unconfined"}, 18, True, id="of a container"),
        pytest.param(
            {"container.seccomp.security.alpha.kubernetes.io/x": "unconfined"}, 18, False, id="of no container"
        ),
        pytest.param({"seccomp.security.alpha.kubernetes.io/pod": "localhost/a"}, 18, False, id="of the node"),
        pytest.param(
            {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}, 19, False, id="when it has no meaning"
        ),
        pytest.param({"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}, 36, True, id="of AppArmor"),
        pytest.param(
            {"container.apparmor.security.beta.kubernetes.io/c": "runtime/default"}, 36, False, id="its default"
        ),
    ],
)
def test_annotations_of_older_versions(annotation: Json, minor: int, refused: bool) -> None:
    assert bool(ours(pod(annotations=annotation), labels("baseline", minor))) is refused


def test_a_proc_mount_of_users_of_the_node() -> None:
    text = ours(pod(security={"procMount": "Unmasked"}), labels("baseline", 36))
    assert text == (
        'violates PodSecurity "baseline:latest": procMount (container "c" must not set securityContext.procMount to'
        ' "Unmasked")'
    )


@pytest.mark.parametrize(
    ("given", "mode", "shown"),
    [
        pytest.param({}, "enforce", None, id="nothing"),
        pytest.param({"enforce": "privileged"}, "enforce", None, id="everything is allowed"),
        pytest.param({"enforce": "baseline"}, "enforce", "baseline:latest", id="the newest where no version is said"),
        pytest.param({"enforce": "baseline", "enforce-version": "v1.30"}, "enforce", "baseline:v1.30", id="a version"),
        pytest.param(
            {"enforce": "baseline", "enforce-version": "v1.99"}, "enforce", "baseline:v1.99", id="a future one"
        ),
        pytest.param({"enforce": "strict"}, "enforce", "restricted:latest", id="the strictest for an unknown level"),
        pytest.param({"warn": "strict"}, "warn", None, id="nothing to warn of for an unknown level"),
        pytest.param({"enforce": "baseline"}, "warn", "baseline:latest", id="a warning of what is enforced"),
        pytest.param(
            {"enforce": "baseline", "warn": "restricted"}, "warn", "restricted:latest", id="a warning of its own"
        ),
        pytest.param({"enforce": "baseline"}, "audit", None, id="no audit of what is enforced"),
    ],
)
def test_what_labels_ask_for(given: dict[str, str], mode: str, shown: str | None) -> None:
    found = pod_security.wish({f"{PREFIX}{key}": value for key, value in given.items()}, mode)
    assert (found.shown if found is not None else None) == shown


@pytest.mark.parametrize("template", [None, [], {"spec": 1}, {"spec": {"containers": [1], "volumes": "x"}}])
def test_what_has_a_wrong_type_is_left_to_the_schema(template: object) -> None:
    list(pod_security.problems([("t", template)], labels("restricted", 36)))
