"""The one certificate request of each member's agent: its name, and all that it may ask for."""

from __future__ import annotations

from typing import Final

from atoll.model import keys

SIGNER: Final = "kubernetes.io/kube-apiserver-client"
USAGES: Final = ("digital signature", "client auth")
LIFE: Final = 30 * 24 * 3600
"""Seconds."""
AGENT: Final = "atoll-agent"
"""Name of the account, and with the member's name that of the request."""
ACCOUNT: Final = "system:serviceaccount:"
CERTIFICATE: Final = "client-certificate-data"
KEY: Final = "client-key-data"
"""Fields of a user in a kubeconfig."""
BY_CERTIFICATE: Final = "Certificate"
"""Value of `spec.credentials` of a ClusterRequest."""


def request_name(cluster: str) -> str:
    """Of the CertificateSigningRequest."""
    return f"{AGENT}-{cluster}"


def account(cluster: str) -> str:
    """The agent's account on the host, as a user name."""
    return f"{ACCOUNT}{keys.execution_namespace(cluster)}:{AGENT}"


def groups(cluster: str) -> tuple[str, str]:
    """Groups that a token of the account has as well."""
    return "system:serviceaccounts", f"system:serviceaccounts:{keys.execution_namespace(cluster)}"
