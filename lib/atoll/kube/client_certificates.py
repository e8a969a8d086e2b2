"""Client certificates of agents, by CertificateSigningRequests of their own accounts.

A certificate names the account, so it has the rights of the account's tokens, and admission policies know it. There is
one request for each member, of a fixed name, and the account itself makes it, at first with a token and later with the
certificate before.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from atoll.kube import errors
from atoll.kube.authority import pem_key
from atoll.kube.transport import ApiServer
from atoll.model import certificates
from atoll.model.apiresource import SIGNING_REQUESTS

Json = dict[str, Any]

_POLL: Final = 0.5
_WAIT_S: Final = 60.0


class NotSigned(ValueError):
    """There is no certificate; the message says why and what to do."""


def subject_of(cluster: str) -> x509.Name:
    """The account of a member's agent, in groups of its own."""
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in certificates.groups(cluster)]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, certificates.account(cluster))])


async def ask(
    api: ApiServer, cluster: str, *, approve: Callable[[Json], Any] | None = None, wait: float = _WAIT_S
) -> dict[str, str]:
    """A certificate with its key, as fields of a user in a kubeconfig.

    Args:
        api: the host, with the account of the member's agent.
        cluster: name of the member.
        approve: an administrator's approval of the request, awaited; None: `atoll-control` gives it.
        wait: seconds.

    Raises:
        NotSigned: it was denied, or not signed in time.
        ApiError: the host refused.
    """
    key, name = ec.generate_private_key(ec.SECP256R1()), certificates.request_name(cluster)
    pem = x509.CertificateSigningRequestBuilder().subject_name(subject_of(cluster)).sign(key, hashes.SHA256())
    await api.delete(SIGNING_REQUESTS, name)
    request = await api.create(
        SIGNING_REQUESTS,
        {
            "apiVersion": SIGNING_REQUESTS.api_version,
            "kind": SIGNING_REQUESTS.kind,
            "metadata": {"name": name},
            "spec": {
                "request": _text(pem.public_bytes(serialization.Encoding.PEM)),
                "signerName": certificates.SIGNER,
                "usages": list(certificates.USAGES),
                "expirationSeconds": certificates.LIFE,
            },
        },
    )
    if approve is not None:
        await approve(request)
    try:
        async with asyncio.timeout(wait):
            signed = await _signed(api, request)
    except TimeoutError:
        by = "its signer may be off, as on some clouds" if approve is not None else "atoll-control may be away"
        raise NotSigned(
            f"CertificateSigningRequest {name} got no certificate of {certificates.SIGNER} in {wait:g} s: {by};"
            " members may join with `--credentials token` instead"
        ) from None
    await api.delete(SIGNING_REQUESTS, name, uid=request["metadata"]["uid"])
    return {certificates.CERTIFICATE: signed, certificates.KEY: _text(pem_key(key))}


async def _signed(api: ApiServer, request: Json) -> str:
    name, uid = request["metadata"]["name"], request["metadata"]["uid"]
    while True:
        try:
            found = await api.get(SIGNING_REQUESTS, name)
        except errors.NotFound:
            found = {"metadata": {}}
        if found["metadata"].get("uid") != uid:
            raise NotSigned(f"CertificateSigningRequest {name} was replaced: another agent of this member asks as well")
        status = found.get("status") or {}
        if certificate := status.get("certificate"):
            return str(certificate)
        for each in status.get("conditions") or ():
            if each["type"] in ("Denied", "Failed"):
                raise NotSigned(f"CertificateSigningRequest {name} is {each['type'].lower()}: {each.get('message')}")
        await asyncio.sleep(_POLL)


async def approve(host: ApiServer, request: Json, field_manager: str) -> None:
    """Approve this very request.

    Raises:
        ApiError: the host refused; Conflict where it is another request by now.
    """
    condition = {"type": "Approved", "status": "True", "reason": "AtollMember", "message": "the agent of a member"}
    patch = {"metadata": {"uid": request["metadata"]["uid"]}, "status": {"conditions": [condition]}}
    name = request["metadata"]["name"]
    await host.merge_patch(SIGNING_REQUESTS, name, patch, subresource="approval", field_manager=field_manager)


def fault(request: Json, cluster: str) -> str:
    """Difference of a request from the one that the agent of this member makes; empty for none."""
    spec = request["spec"]
    for field, wanted in (
        ("username", certificates.account(cluster)),
        ("signerName", certificates.SIGNER),
        ("expirationSeconds", certificates.LIFE),
    ):
        if spec.get(field) != wanted:
            return f"spec.{field} is {spec.get(field)!r}, not {wanted!r}"
    if sorted(spec.get("usages") or ()) != sorted(certificates.USAGES):
        return f"spec.usages is {spec.get('usages')!r}"
    try:
        found = x509.load_pem_x509_csr(base64.b64decode(spec["request"]))
    except ValueError:
        return "spec.request is no certificate request"
    if found.subject.rfc4514_string() != subject_of(cluster).rfc4514_string():
        return f"its subject is {found.subject.rfc4514_string()!r}"
    if list(found.extensions) or not found.is_signature_valid:
        return "spec.request has extensions, or is not signed with its key"
    return ""


def times_of(certificate: str) -> tuple[str, datetime, datetime] | None:
    """Common name, begin and end of a certificate as a kubeconfig has it; None for none."""
    try:
        found = x509.load_pem_x509_certificate(base64.b64decode(certificate))
        [name] = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except ValueError:
        return None
    return str(name.value), found.not_valid_before_utc, found.not_valid_after_utc


def _text(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
