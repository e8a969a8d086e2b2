"""Works that Atoll's control did not make."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atoll.delivery.work import decode_work, stranger, work_name
from atoll.model import keys

NAME = work_name("team", "j", "Job", "batch.volcano.sh")
JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j", "namespace": "team"}}
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
IDENTITY = {keys.BINDING_UID: "u", keys.EPOCH: "1"}


def verdict(*manifests: dict[str, Any], name: str = NAME, annotations: dict[str, str] | None = None) -> str:
    metadata = {"name": name, "annotations": IDENTITY if annotations is None else annotations}
    return stranger(decode_work(json.dumps({"metadata": metadata, "spec": {"workload": {"manifests": manifests}}})))


def test_one_that_control_made_is_none() -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "team"}}
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "gold"}}
    assert verdict(NAMESPACE, account, priority, JOB) == ""


def test_the_image_pull_secrets_of_its_account_are_its_own() -> None:
    about = {"name": "a", "namespace": "team"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about, "imagePullSecrets": [{"name": "s"}]}
    assert verdict(account, SECRET, JOB) == ""
    assert "sends a Secret besides" in verdict({**account, "imagePullSecrets": ["s", {"name": 7}]}, SECRET, JOB)


CLAIM = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "team"}}
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "team"}}
ELSEWHERE = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "other"}}
SYSTEM = {**JOB, "metadata": {"name": "j", "namespace": "kube-system"}}


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        pytest.param(verdict(), "sends nothing", id="it is empty"),
        pytest.param(verdict({"kind": "Job"}), "sends nothing", id="what it sends has no name"),
        pytest.param(verdict(JOB, annotations={}), "don't say of which decision", id="no identity"),
        pytest.param(verdict(JOB, annotations={**IDENTITY, keys.EPOCH: "x"}), "don't say of which", id="no epoch"),
        pytest.param(verdict(JOB, name="j"), f"is called {NAME}", id="another name"),
        pytest.param(
            verdict(SYSTEM, name=work_name("kube-system", "j", "Job", "batch.volcano.sh")),
            "machinery",
            id="a system one",
        ),
        pytest.param(verdict(SECRET, JOB), "sends a Secret besides", id="another kind besides"),
        pytest.param(
            verdict(CLAIM, JOB), "sends a PersistentVolumeClaim besides", id="a claim that its pods don't name"
        ),
        pytest.param(verdict(ELSEWHERE, JOB), "for namespace other", id="another namespace besides"),
    ],
)
def test_any_other_is_told_why(problem: str, says: str) -> None:
    assert says in problem
