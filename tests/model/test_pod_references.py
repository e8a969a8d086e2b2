"""What pod templates refer to, in every place where Kubernetes has such a reference."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model.apiresource import CLAIMS, CONFIGMAPS, SECRETS
from atoll.model.pod_references import Reference, references

CONTAINERS = [{"name": "c", "image": "i"}]


def config(name: str, *, optional: bool = False) -> Reference:
    return Reference(CONFIGMAPS, name, optional)


def secret(name: str, *, optional: bool = False) -> Reference:
    return Reference(SECRETS, name, optional)


@pytest.mark.parametrize(
    ("pod", "found"),
    [
        pytest.param({"volumes": [{"name": "v", "configMap": {"name": "a"}}]}, [config("a")], id="volume"),
        pytest.param(
            {"volumes": [{"name": "v", "secret": {"secretName": "a"}}]}, [secret("a")], id="volume of a Secret"
        ),
        pytest.param(
            {"volumes": [{"projected": {"sources": [{"configMap": {"name": "a"}}, {"secret": {"name": "b"}}]}}]},
            [config("a"), secret("b")],
            id="sources of a projected volume",
        ),
        pytest.param(
            {"volumes": [{"azureFile": {"secretName": "a"}}, {"csi": {"nodePublishSecretRef": {"name": "b"}}}]},
            [secret("a"), secret("b")],
            id="credentials of a volume",
        ),
        pytest.param(
            {"initContainers": [{"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "a", "key": "k"}}}]}]},
            [secret("a")],
            id="one variable of an init container",
        ),
        pytest.param(
            {"initContainers": [{"envFrom": [{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "b"}}]}]},
            [config("a"), secret("b")],
            id="all variables",
        ),
        pytest.param(
            {"volumes": [{"persistentVolumeClaim": {"claimName": "a"}}]}, [Reference(CLAIMS, "a", False)], id="claim"
        ),
        pytest.param({"imagePullSecrets": [{"name": "a"}]}, [secret("a", optional=True)], id="image pull secrets"),
        pytest.param(
            {"volumes": [{"configMap": {"name": "a", "optional": True}}]}, [config("a", optional=True)], id="optional"
        ),
        pytest.param(
            {"volumes": [{"configMap": {"name": "a", "optional": True}}, {"configMap": {"name": "a"}}]},
            [config("a")],
            id="optional in one place and needed in another",
        ),
        pytest.param({"volumes": [{"configMap": {"name": "kube-root-ca.crt"}}]}, [], id="what every namespace has"),
        pytest.param(
            {"volumes": [{"configMap": "a"}, {"secret": {"secretName": 1}}, None], "imagePullSecrets": ["x"]},
            [],
            id="wrong types are left out",
        ),
    ],
)
def test_what_a_pod_refers_to(pod: dict[str, Any], found: list[Reference]) -> None:
    template = {"spec": {"containers": CONTAINERS, **pod}}
    assert references({"spec": {"template": template}}) == found
    assert references({"spec": {"tasks": [{"template": template}, {"template": template}]}}) == found
