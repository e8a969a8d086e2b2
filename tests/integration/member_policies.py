"""Admission policies that a member has of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from atoll.kube.transport import ApiServer
from atoll.model.apiresource import JOBS, ApiResource

_POLICIES = ApiResource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
_BINDINGS = ApiResource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False
)


@asynccontextmanager
async def policy_on_jobs(
    api: ApiServer, namespace: str, *, operation: str, expression: str, message: str, resource: ApiResource = JOBS
) -> AsyncIterator[None]:
    """Volcano Jobs, or others, of a namespace must be as `expression` says, or are answered 422 with that message; within."""
    name = f"{operation.lower()}-{namespace}"
    spec = {
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceRules": [
                {
                    "apiGroups": [resource.group],
                    "apiVersions": ["*"],
                    "resources": [resource.plural],
                    "operations": [operation],
                }
            ],
        },
        "validations": [{"expression": expression, "message": message}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    for each, wanted in ((_POLICIES, spec), (_BINDINGS, binding)):
        about = {"apiVersion": each.api_version, "kind": each.kind}
        await api.create(each, {**about, "metadata": {"name": name}, "spec": wanted})
    try:
        yield
    finally:
        for each in (_BINDINGS, _POLICIES):
            await api.delete(each, name)
