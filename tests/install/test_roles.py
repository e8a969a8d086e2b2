"""The rules themselves: nothing in them is wider than a rule has to be."""

from __future__ import annotations

import pytest

from atoll.install.roles import (
    AGENT_IN_MEMBER,
    HOST,
    Grant,
    Rule,
    agent_on_host,
    manifest_rules,
    reader_of_cluster,
    reader_of_secret,
)
from atoll.model import keys

GRANTS = [
    *((process, grant) for process, grants in HOST.items() for grant in grants),
    *(("agent on the host", grant) for grant in agent_on_host("east")),
    *(("agent in its member", grant) for grant in AGENT_IN_MEMBER),
]
RULES = [(who, grant, rule) for who, grant in GRANTS for rule in grant.rules]


def test_nothing_is_granted_by_a_star() -> None:
    for who, _, rule in RULES:
        assert "*" not in (rule.group, *rule.verbs), who
        assert "*" not in rule.resource, who


def test_no_process_may_change_rights_or_act_as_others() -> None:
    for who, _, rule in RULES:
        if rule.group == "rbac.authorization.k8s.io":
            # What they may do with declared kinds is read, in one role.
            assert ({*rule.verbs}, rule.names) == ({"list", "watch"}, ("atoll-workload-kinds",)), who
        assert not {"bind", "escalate", "impersonate"} & {*rule.verbs}, who
        if rule.resource == "serviceaccounts/token":
            # An agent renews the token that it has, and gets none of another account.
            assert (who.startswith("agent"), rule.verbs, rule.names) == (True, ("create",), ("atoll-agent",)), who


def test_secrets_are_read_by_name_only_by_the_webhook_and_by_agents_that_keep_their_credentials_there() -> None:
    found = [(who, grant.namespace, rule) for who, grant, rule in RULES if rule.resource == "secrets"]
    # An agent makes and changes those that pods refer to, and lists none: a patch of it tests for a label of Atoll's.
    found = [
        (who, namespace, rule)
        for who, namespace, rule in found
        if who == "webhook" or not {*rule.verbs} <= {"create", "patch", "delete"}
    ]
    own = {("agent in its member", ("atoll-host",))}
    assert {(who, rule.names) for who, _, rule in found if who != "webhook"} == own
    assert {namespace for _, namespace, _ in found} == {keys.SYSTEM_NAMESPACE}
    assert all(rule.names for _, _, rule in found if "create" not in rule.verbs)


def test_an_agent_has_nothing_outside_of_its_namespace_on_the_host() -> None:
    assert [grant.namespace for grant in agent_on_host("east")] == ["karmada-es-east"]


def test_an_agent_beside_the_host_has_one_cluster_one_tunnel_and_one_secret_by_name() -> None:
    grants = (*reader_of_cluster("east"), *reader_of_secret("creds", "east-token"))
    rules = [(grant.namespace, rule) for grant in grants for rule in grant.rules]
    assert [(namespace, rule.resource, rule.verbs, rule.names) for namespace, rule in rules] == [
        (None, "clusters", ("list", "watch"), ("east",)),
        (None, "workloadkinds", ("list", "watch"), ()),
        (None, "clusters", ("get",), ("east",)),
        (None, "tunnels/proxy", ("get",), ("east",)),
        ("creds", "secrets", ("get", "patch"), ("east-token",)),
    ]


def test_no_agent_may_enter_pods_unless_that_was_chosen() -> None:
    entered = {"pods/exec", "pods/portforward", "pods/attach", "pods/proxy", "pods/ephemeralcontainers", "*"}
    assert not [rule for grant in AGENT_IN_MEMBER for rule in grant.rules if rule.resource in entered]


def test_no_verb_is_granted_twice() -> None:
    seen: set[tuple[str, str | None, str, str, str]] = set()
    for who, grant, rule in RULES:
        for verb in rule.verbs:
            key = (who, grant.namespace, rule.group, rule.resource, verb)
            assert key not in seen
            seen.add(key)


@pytest.mark.parametrize(("who", "grant"), GRANTS)
def test_the_role_says_what_the_rules_say(who: str, grant: Grant) -> None:
    said = {
        (group, resource, verb, tuple(rule.get("resourceNames", ())))
        for rule in manifest_rules(grant)
        for group in rule.get("apiGroups", ("",))
        for resource in rule.get("resources") or rule["nonResourceURLs"]
        for verb in rule["verbs"]
    }
    assert said == {(r.group, r.resource, verb, r.names) for r in grant.rules for verb in r.verbs}


def test_rules_of_equal_verbs_in_one_group_are_one_rule() -> None:
    rules = (
        Rule("g", "a", ("list",)),
        Rule("g", "a", ("watch",)),
        Rule("g", "b", ("list", "watch")),
        Rule("g", "c", ("get",), ("n",)),
    )
    assert manifest_rules(Grant(None, rules)) == [
        {"apiGroups": ["g"], "resources": ["a", "b"], "verbs": ["list", "watch"]},
        {"apiGroups": ["g"], "resources": ["c"], "verbs": ["get"], "resourceNames": ["n"]},
    ]
