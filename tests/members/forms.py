"""The forms that members have, and federations of them.

`federation_of("volcano")` starts a host and one member called `volcano`; more names give more members. Tests of one form
use it through `forms` and `member_site` of this folder's conftest.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from atoll.local.atoll_federation import QUICK_ELECTION, AtollFederation
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig, Kubernetes, Member, NodeGroup
from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS, BINDINGS
from tests.integration.federation import Json, Site, batch_job, job, until
from tests.members import kueue_member, sets_member, volcano_member
from tests.members.manifests import apply
from tests.members.modules import programs

CPUS = 8
"""Of each node, beside 32Gi."""
NODES = 2
OLDEST = "1.33"
ADDED = {"key": "added-by-policy", "operator": "Exists"}
"""The toleration that members of form `mutating` add to the templates of batch Jobs."""


@dataclass(frozen=True)
class Form:
    """How a member looks."""

    about: str
    layout: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its layout."""
    crds: Callable[[], Sequence[Json]] | None = None
    """Its CRDs, where it comes with its own."""
    install: Callable[[Federation, Member], Awaitable[None]] | None = None
    """What is there before it joins."""
    project: ModuleType | None = None
    """Where that has programs of its own: it names them."""


async def _add_policy(federation: Federation, member: Member) -> None:
    await asyncio.to_thread(apply, federation.members[member.name], _policy())


def _policy() -> list[Json]:
    api, name = "admissionregistration.k8s.io/v1", "add-toleration"
    value = f'Object.spec.template.spec.tolerations{{key: "{ADDED["key"]}", operator: "Exists"}}'
    path = "/spec/template/spec/tolerations"
    # The API server of 1.36 panics on a list of objects as a value, hence two steps.
    add = (
        f'(has(object.spec.template.spec.tolerations) ? [] : [JSONPatch{{op: "add", path: "{path}", value: []}}])'
        f' + [JSONPatch{{op: "add", path: "{path}/-", value: {value}}}]'
    )
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [rule]},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": add}}],
    }
    return [
        {"apiVersion": api, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": api,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name},
        },
    ]


def pod_security(level: str, directory: Path) -> Kubernetes:
    """Flags of an API server that enforces a Pod Security level in every namespace but the system's own."""
    configuration = {
        "apiVersion": "pod-security.admission.config.k8s.io/v1",
        "kind": "PodSecurityConfiguration",
        "defaults": {"enforce": level, "enforce-version": "latest"},
        "exemptions": {"namespaces": ["kube-system"]},
    }
    plugins = [{"name": "PodSecurity", "configuration": configuration}]
    path = directory / f"pod-security-{level}.yaml"
    path.write_text(
        yaml.safe_dump(
            {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins}
        )
    )
    return Kubernetes(flags={"apiserver": [f"--admission-control-config-file={path}"]})


def safe(workload: Json) -> Json:
    """The Volcano or batch Job with the security context that level `restricted` asks for."""
    made = copy.deepcopy(workload)
    templates = [each["template"] for each in made["spec"].get("tasks") or [made["spec"]]]
    for template in templates:
        template["spec"]["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for container in template["spec"]["containers"]:
            container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return made


FORMS = {
    "plain": Form("kube-scheduler, as most clusters are"),
    "own": Form("nodes that are Atoll's alone", {"placer": "atoll"}),
    "volcano": Form(
        "Volcano as it is installed", crds=volcano_member.crds, install=volcano_member.install, project=volcano_member
    ),
    "kueue": Form(
        "Kueue as it is installed",
        {"placer": "kueue", "member_queue": kueue_member.QUEUE},
        crds=lambda: [*_usual_crds(), *kueue_member.crds()],
        install=kueue_member.install,
        project=kueue_member,
    ),
    "sets": Form(
        "JobSet's and LeaderWorkerSet's controllers",
        crds=lambda: [*_usual_crds(), *sets_member.crds()],
        install=sets_member.install,
    ),
    "mutating": Form("a policy that adds a toleration to batch Jobs", install=_add_policy),
    "restricted": Form("Pod Security level restricted in every namespace"),
    "oldest": Form("the oldest Kubernetes that is supported", {"kubernetes": Kubernetes(version=OLDEST)}),
}
"""By name; unless the layout says otherwise, the agent finds out who places."""


def _usual_crds() -> Sequence[Json]:
    from atoll import install

    return install.member_crds()


def member_of(form: str, directory: Path, **layout: Any) -> Member:
    """The layout of a member of this form, called like it; `layout` has further fields."""
    nodes = NodeGroup(count=NODES, prefix=f"{form}-n", allocatable={"cpu": str(CPUS), "memory": "32Gi", "pods": "110"})
    fields: dict[str, Any] = {"placer": "auto", "nodes": [nodes], **FORMS[form].layout}
    if form == "restricted":
        fields["kubernetes"] = pod_security("restricted", directory)
    return Member(name=form, **(fields | layout))


@contextlib.asynccontextmanager
async def federation_of(*forms: str, directory: Path, layouts: Mapping[str, Mapping[str, Any]] | None = None,
                        **options: Any) -> AsyncIterator[AtollFederation]:  # fmt: skip
    """A host and one member of each form.

    Args:
        forms: names of `FORMS`.
        directory: everything goes below it.
        layouts: form -> further fields of that member's layout.
        options: of `AtollFederation`.

    Skips the test before anything is started where programs that a form needs were not built.
    """
    for project in filter(None, (FORMS[form].project for form in forms)):
        await asyncio.to_thread(programs, project.PROJECT, project.TOOLS)
    members = [member_of(form, directory, **(layouts or {}).get(form, {})) for form in forms]
    own_crds = {form: crds() for form in forms if (crds := FORMS[form].crds) is not None}

    async def before_join(federation: Federation) -> None:
        installs = [(FORMS[member.name].install, member) for member in members]
        await asyncio.gather(*(install(federation, member) for install, member in installs if install is not None))

    options.setdefault("flags", {"control": QUICK_ELECTION, "dispatcher": QUICK_ELECTION})
    async with AtollFederation(
        FederationConfig(members=members),
        directory / "federation",
        crds_of=own_crds,
        before_join=before_join,
        **options,
    ) as running:
        yield running


@contextlib.asynccontextmanager
async def site_of(federation: AtollFederation) -> AsyncIterator[Site]:
    """The federation as one test sees it: a namespace of its own and administrator's clients."""
    host = await federation.host.connect()
    members = {name: await each.connect() for name, each in federation.members.items()}
    made = Site(federation, host, members)
    await made.open()
    try:
        yield made
    finally:
        await made.close()
        await asyncio.gather(host.close(), *(api.close() for api in members.values()))


async def completes(site: Site, obj: Json) -> Json:
    """Submit a batch Job and wait until the host says that it is complete."""
    await site.submit(obj)
    return await completed(site, obj["metadata"]["name"])


async def completed(site: Site, name: str) -> Json:
    """Wait until the host says that the batch Job is complete."""

    async def ended() -> Json | None:
        found = await site.find(BATCH_JOBS, name)
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        return found if any(c["type"] == "Complete" and c["status"] == "True" for c in conditions) else None

    return await until(ended, what=f"the Job {name} is complete on the host")


async def runs_both(site: Site, member: str) -> None:
    """A Volcano Job and a batch Job go there, run as gangs of two, end, and leave nothing."""
    await site.only(member)
    await site.submit(safe(job("gang", replicas=2, cpu="3")))
    done = await completes(site, safe(batch_job("batch", parallelism=2, cpu="3")))
    assert done["status"]["succeeded"] == 2
    ended = await site.phase("gang", "Completed")
    if member != "volcano":
        # Volcano's controllers leave the count out of the status with which they complete a Job.
        assert ended["status"]["succeeded"] == 2
    assert await site.where("gang") == member
    for name in ("gang-job", "batch-job"):
        binding = await site.find(BINDINGS, name)
        assert binding is not None
        assert binding["metadata"]["annotations"][keys.EPOCH] == "1"
