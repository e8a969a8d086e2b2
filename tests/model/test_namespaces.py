"""One rule for system namespaces, in Python and in CEL."""

from __future__ import annotations

import re

import pytest

from atoll.install import registration
from atoll.install.policies import NAMESPACE_POLICY, SUSPENSION
from atoll.model.namespaces import is_system, system_rule

SYSTEM = ["kube-system", "kube-public", "kube-node-lease", "kube-own", "atoll-system", "karmada-es-east"]
SYSTEM += ["karmada-system", "karmada-cluster"]
OTHERS = ["default", "research", "kube", "kubeflow", "billing-system", "karmada", "my-kube-system"]


def in_cel(name: str) -> bool:
    """The expression evaluated: what CEL and Python write alike is left as it is."""
    text = re.sub(r'"([^"]*)"\.startsWith', r"'\1'.startswith", system_rule(f'"{name}"'))
    return bool(eval(text.replace("||", "or"), {"__builtins__": {}}))


@pytest.mark.parametrize("name", SYSTEM)
def test_a_system_namespace(name: str) -> None:
    assert is_system(name)
    assert in_cel(name)


@pytest.mark.parametrize("name", OTHERS)
def test_a_namespace_of_users(name: str) -> None:
    assert not is_system(name)
    assert not in_cel(name)


def test_webhooks_and_policies_have_that_rule() -> None:
    for configuration in registration.configurations({"url": "https://127.0.0.1:9443"}, "Q0E="):
        for entry in configuration["webhooks"]:
            said = [each["expression"] for each in entry["matchConditions"]]
            opted_in = bool(entry["namespaceSelector"])
            assert (f"!{system_rule('request.namespace')}" in said) == opted_in
    suspension, _ = SUSPENSION
    assert f"!{system_rule('request.namespace')}" in [
        each["expression"] for each in suspension["spec"]["matchConditions"]
    ]
    policy, _ = NAMESPACE_POLICY
    assert any(system_rule("object.metadata.name") in each["expression"] for each in policy["spec"]["validations"])
