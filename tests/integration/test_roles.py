"""Least privilege: what processes did in this run is what their roles say, no more and no less."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from atoll import install
from atoll.install import roles
from atoll.install.roles import Grant, Rule
from atoll.kube.errors import Forbidden
from atoll.kube.transport import ApiServer
from atoll.local import audit
from atoll.local.atoll_federation import AtollFederation
from atoll.model.apiresource import (
    BINDINGS,
    CAPACITIES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTERS,
    CONFIGMAPS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    QUEUES,
    SECRETS,
    SERVICE_ACCOUNTS,
    WORKS,
    ApiResource,
)
from tests.integration import made_up
from tests.integration.federation import Site, job, until

pytestmark = pytest.mark.integration

HOST = "host"
ACCOUNT = "system:serviceaccount:"
REVIEW = ApiResource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False)

Use = tuple[str, Rule, str]
"""(role, rule, verb)."""


def granted(federation: AtollFederation) -> dict[tuple[str, str], tuple[str, tuple[Grant, ...]]]:
    """(cluster, user) -> name of the role and what it grants."""
    found: dict[tuple[str, str], tuple[str, tuple[Grant, ...]]] = {
        (HOST, f"{ACCOUNT}atoll-system:atoll-{process}"): (process, grants) for process, grants in roles.HOST.items()
    }
    # Tests bind it in their namespaces.
    found[HOST, f"{ACCOUNT}atoll-system:atoll-control"] = (
        "control",
        (*roles.HOST["control"], roles.SECRETS_OF_NAMESPACES),
    )
    for name in federation.members:
        on_host = roles.agent_on_host(name)
        everything = (*on_host, *roles.reader_of_cluster(name))
        found[HOST, f"{ACCOUNT}{on_host[0].namespace}:{install.AGENT}"] = ("agent on the host", everything)
        found[name, f"{ACCOUNT}atoll-system:{install.AGENT}"] = (
            "agent in its member",
            (*roles.AGENT_IN_MEMBER, *roles.LOCKS_IN_MEMBER),
        )
    return found


def _logs(directory: Path) -> Iterator[Path]:
    """The audit logs of a session's federation, and of the same in each other process of a run in several."""
    run, process = directory.parent.parent, directory.parent.name
    processes = f"popen-*/{directory.name}" if process.startswith("popen-") else f"{process}/{directory.name}"
    return run.glob(f"{processes}/logs/*-audit.log")


def requests(federation: AtollFederation) -> Iterator[tuple[str, audit.Event]]:
    """Every request that an account of ours has sent in this run, with the cluster that was asked."""
    for log in _logs(federation.federation.directory):
        cluster = log.name.removesuffix("-audit.log")
        for event in audit.read(log):
            ours = event.user.username.startswith((f"{ACCOUNT}atoll-system:", f"{ACCOUNT}karmada-es-"))
            # Rights to declared kinds are their users' to give, and a test takes them away.
            declared = event.object_ref.api_group == made_up.GROUP
            # Other tests try on purpose, with a process's credentials, what is to be refused.
            if ours and not declared and not event.user_agent.startswith("test-"):
                yield cluster, event


def covers(grant: Grant, rule: Rule, event: audit.Event) -> bool:
    what = event.object_ref
    return (
        (rule.group, rule.resource) == (what.api_group, what.path)
        and event.verb in rule.verbs
        and (not rule.names or what.name in rule.names)
        and grant.namespace in (None, what.namespace)
    )


def rules_of(grants: Iterable[tuple[str, tuple[Grant, ...]]]) -> dict[Use, str]:
    """Every verb of every rule -> why it may be unused."""
    return {
        (role, rule, verb): rule.rare
        for role, each in grants
        for grant in each
        for rule in grant.rules
        for verb in rule.verbs
    }


class Judgement:
    """The requests of a run against the rules."""

    def __init__(
        self,
        known: Mapping[tuple[str, str], tuple[str, tuple[Grant, ...]]],
        sent: Iterable[tuple[str, audit.Event]],
    ) -> None:
        rules = rules_of(known.values())
        used: set[Use] = set()
        #: refused by the server
        self.refused: set[str] = set()
        #: let through although no rule of ours says so
        self.beyond: set[str] = set()
        for cluster, event in sent:
            if (cluster, event.user.username) not in known:
                continue
            role, grants = known[cluster, event.user.username]
            what = event.object_ref
            if not what.resource and event.verb == "get" and event.uri.startswith(("/api/", "/apis")):
                # Discovery, which Kubernetes' role system:discovery gives to every account.
                continue
            line = f"{role}: {event.verb} {what.path} {what.key} ({what.api_group})"
            if event.forbidden:
                self.refused.add(line)
                continue
            found = [rule for grant in grants for rule in grant.rules if covers(grant, rule, event)]
            if not found and what.resource != REVIEW.plural:
                self.beyond.add(line)
            used |= {(role, rule, event.verb) for rule in found}
        left = rules.keys() - used
        self.unused = {f"{role}: {verb} {rule.resource} ({rule.rare})" for role, rule, verb in left if rule.rare}
        self.idle = {f"{role}: {verb} {rule.resource}" for role, rule, verb in left if not rule.rare}


async def small_scenario(site: Site) -> None:
    """Jobs to their end, one with an account of its own, one deleted while it runs, one removed by its TTL."""
    rich = job("rich")
    rich["spec"]["tasks"][0]["template"]["spec"]["serviceAccountName"] = "robot"
    for each in (job("plain", replicas=2), rich, job("brief", ttlSecondsAfterFinished=1), job("endless", seconds=None)):
        await site.submit(each)
    await site.phase("endless", "Running")
    site.kubectl("delete", "vcjob", "endless", "-n", site.namespace)
    for name in ("plain", "rich"):
        await site.phase(name, "Completed")

    async def gone() -> bool:
        left = [await site.find(BINDINGS, f"{name}-job") for name in ("endless", "brief")]
        return not any(left)

    await until(gone, what="the bindings of the deleted jobs are gone")


async def test_no_request_was_refused_and_no_rule_was_unused_without_a_reason(site: Site) -> None:
    await small_scenario(site)
    known = granted(site.federation)

    async def judged() -> Judgement | None:
        # Leases are renewed every other second: a run that is quicker than that has not used all rules yet.
        found = Judgement(known, requests(site.federation))
        return found if found.refused or found.beyond or not found.idle else None

    try:
        judgement = await until(judged)
    except AssertionError:
        judgement = Judgement(known, requests(site.federation))
    assert not judgement.refused, "requests that were refused: add rules, or stop sending them"
    assert not judgement.beyond, "requests that no rule covers and that were let through: who else gave these rights?"
    assert not judgement.idle, "rules that nobody used: drop them, or say in `rare` who will"
    for line in sorted(judgement.unused):
        print("not used in this run:", line)


@pytest.mark.parametrize(
    ("resource", "namespace"),
    [
        pytest.param(WORKS, "karmada-es-beta", id="Works of another member"),
        pytest.param(CAPACITIES, "karmada-es-beta", id="capacity of another member"),
        pytest.param(LEASES, "karmada-es-beta", id="the lease of another member"),
        pytest.param(WORKS, None, id="Works of all members"),
        pytest.param(BINDINGS, "default", id="bindings"),
        pytest.param(SECRETS, "karmada-es-alpha", id="Secrets of its own namespace"),
        pytest.param(SECRETS, "atoll-system", id="Secrets of the system"),
        pytest.param(SERVICE_ACCOUNTS, "karmada-es-alpha", id="accounts"),
        pytest.param(CONFIGMAPS, "default", id="ConfigMaps of users"),
        pytest.param(CLUSTERS, None, id="Clusters"),
        pytest.param(NAMESPACES, None, id="namespaces"),
    ],
)
async def test_an_agent_can_not_read_on_the_host(
    federation: AtollFederation, resource: ApiResource, namespace: str | None
) -> None:
    # Not as the agent's own requests: those must not be refused.
    assert not await allowed(federation, "list", resource, namespace)
    assert await allowed(federation, "list", WORKS, "karmada-es-alpha")


async def allowed(federation: AtollFederation, verb: str, resource: ApiResource, namespace: str | None) -> bool:
    """What the host says to the credentials of alpha's agent."""
    file, _ = install.agent_kubeconfigs(federation.atoll.credentials, "alpha")
    what = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace or ""}
    review = {"apiVersion": REVIEW.api_version, "kind": REVIEW.kind, "metadata": {}}
    async with await ApiServer.from_kubeconfig(file, user_agent="test") as agent:
        answer = await agent.create(REVIEW, {**review, "spec": {"resourceAttributes": what}})
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize(
    ("process", "verb", "resource", "namespace"),
    [
        ("dispatcher", "create", WORKS, "karmada-es-alpha"),
        ("dispatcher", "list", SECRETS, "atoll-system"),
        ("dispatcher", "delete", BINDINGS, "default"),
        ("control", "get", SECRETS, "atoll-system"),
        ("control", "create", PODS, "default"),
        ("control", "create", CLUSTER_ROLE_BINDINGS, None),
        ("webhook", "list", SECRETS, "atoll-system"),
        ("webhook", "list", BINDINGS, None),
        ("webhook", "patch", QUEUES, None),
        ("webhook", "list", NODES, None),
    ],
)
async def test_a_process_of_the_host_may_not(
    federation: AtollFederation, process: str, verb: str, resource: ApiResource, namespace: str | None
) -> None:
    file = install.kubeconfig_of(federation.atoll.credentials, process)
    what = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace or ""}
    review = {"apiVersion": REVIEW.api_version, "kind": REVIEW.kind, "metadata": {}}
    async with await ApiServer.from_kubeconfig(file, user_agent="test") as api:
        answer = await api.create(REVIEW, {**review, "spec": {"resourceAttributes": what}})
    assert not answer["status"]["allowed"]


async def test_no_account_of_ours_is_cluster_admin(site: Site) -> None:
    for api in (site.host, *site.members.values()):
        for binding in await api.list(CLUSTER_ROLE_BINDINGS):
            ours = [
                each
                for each in binding.get("subjects") or ()
                if each["kind"] == "ServiceAccount" and each["name"].startswith("atoll-")
            ]
            if not ours:
                continue
            role = await api.get(CLUSTER_ROLES, binding["roleRef"]["name"])
            for rule in role.get("rules") or ():
                assert "*" not in [*rule["verbs"], *rule.get("resources", ()), *rule.get("apiGroups", ())]


async def test_an_agent_that_asks_for_more_is_refused_by_the_server(site: Site) -> None:
    """The reviews above are the same authorizer's word; this is its deed, by an account of its own."""
    metadata = {"name": install.AGENT, "namespace": site.namespace}
    await site.host.create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    await install.ensure_rights(
        site.host,
        "stranger",
        (site.namespace, install.AGENT),
        [Grant(site.namespace, roles.agent_on_host("x")[0].rules)],
    )
    token, _ = await install.issue_token(site.host, install.AGENT, site.namespace)
    file = site.federation.atoll.credentials / "stranger.kubeconfig"
    install.write_kubeconfig(file, await install.endpoint(site.federation.host.kubeconfig), "stranger", token)
    async with await ApiServer.from_kubeconfig(file, user_agent="test") as stranger:
        assert await stranger.list(WORKS, site.namespace) == []
        for resource, namespace in ((WORKS, "karmada-es-beta"), (SECRETS, site.namespace), (BINDINGS, site.namespace)):
            with pytest.raises(Forbidden):
                await stranger.list(resource, namespace)
    file.unlink()
