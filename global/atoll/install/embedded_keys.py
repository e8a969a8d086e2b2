"""Authorities, certificates and kubeconfigs of an embedded host: contents of its Secrets.

Three authorities (of the API server and its clients, of etcd, of aggregation) live in a Secret that no pod mounts. All
else is a leaf below one of them, and is made again whenever it differs from its specification. Every credential is a
client certificate in a file that its reader reads again: nothing has to be restarted, and no API server is asked.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from atoll.install.credentials import MANAGED_BY
from atoll.install.embedded import (
    ADMIN,
    APISERVER,
    AUTHORITIES,
    CONTROLLER_MANAGER,
    ETCD,
    ETCD_CLIENT,
    EmbeddedValues,
)
from atoll.install.host import PROCESSES
from atoll.install.refusal import Refused
from atoll.kube import authority, certificates
from atoll.model import keys

Json = dict[str, Any]
Files = dict[str, bytes]

LEAF_LIFE: Final = timedelta(days=365)
_CA, _ETCD_CA, _FRONT_CA = "ca", "etcd-ca", "front-proxy-ca"
_ACCOUNTS: Final = f"system:serviceaccounts:{keys.SYSTEM_NAMESPACE}"


@dataclass(frozen=True, slots=True)
class _Leaf:
    signer: str
    client: str = ""
    groups: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Content:
    """What a Secret holds; leaves by the names of their files."""

    leaves: Mapping[str, _Leaf]
    copied: tuple[str, ...] = ()
    """Files of the authorities' Secret, or `new name=name there`."""
    kubeconfig: str = ""
    """`inline`: all in one file, for people; `files`: beside the others, for programs that read those again."""


def _contents(values: EmbeddedValues) -> dict[str, _Content]:
    etcd, server = tuple(values.etcd_names()), tuple(values.apiserver_names())
    return {
        ETCD: _Content({"tls": _Leaf(_ETCD_CA, ETCD, names=etcd)}, ("ca.crt=etcd-ca.crt",)),
        ETCD_CLIENT: _Content({"tls": _Leaf(_ETCD_CA, "atoll-etcd-backup")}, ("ca.crt=etcd-ca.crt",)),
        APISERVER: _Content(
            {
                "tls": _Leaf(_CA, names=server),
                "etcd-client": _Leaf(_ETCD_CA, APISERVER),
                "front-proxy-client": _Leaf(_FRONT_CA, "front-proxy-client"),
            },
            ("ca.crt", "etcd-ca.crt", "front-proxy-ca.crt", "sa.key", "sa.pub"),
        ),
        CONTROLLER_MANAGER: _Content(
            {"tls": _Leaf(_CA, "system:kube-controller-manager")}, ("ca.crt", "sa.key"), "files"
        ),
        ADMIN: _Content({"tls": _Leaf(_CA, "atoll:host-admin", ("system:masters",))}, ("ca.crt",), "inline"),
        # The names of accounts: rights and admission policies know these.
        **{
            f"atoll-{process}": _Content(
                {
                    "tls": _Leaf(
                        _CA,
                        f"system:serviceaccount:{keys.SYSTEM_NAMESPACE}:atoll-{process}",
                        ("system:serviceaccounts", _ACCOUNTS),
                    )
                },
                ("ca.crt",),
                "files",
            )
            for process in PROCESSES
        },
    }


def make_authorities(values: EmbeddedValues, now: datetime) -> Json:
    """The Secret of new authorities."""
    files: Files = {}
    for name in (_CA, _ETCD_CA, _FRONT_CA):
        made = authority.make_signer(now, name=f"atoll-host-{name}")
        files |= {f"{name}.crt": made.certificate, f"{name}.key": made.key}
    key = ec.generate_private_key(ec.SECP256R1())
    files["sa.key"] = authority.pem_key(key)
    files["sa.pub"] = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return _secret(values, AUTHORITIES, files)


def make_secrets(values: EmbeddedValues, found: Mapping[str, Json], now: datetime) -> list[Json]:
    """The Secrets that lack something, or hold a certificate that has lived for two thirds of its life.

    Args:
        values: name the servers.
        found: Secrets that are there, by name; the authorities' among them.
        now: the time.

    Raises:
        Refused: an authority can't be used, or is over.
    """
    root = _files(found[AUTHORITIES])
    made = []
    for name, content in _contents(values).items():
        present = _files(found[name]) if name in found else {}
        files: Files = {}
        for file, leaf in content.leaves.items():
            kept = {each: present[each] for each in (f"{file}.crt", f"{file}.key") if each in present}
            files |= kept if _is_good(kept, leaf, root, now) else _issue(file, leaf, root, now)
        for each in content.copied:
            target, _, source = each.partition("=")
            files[target] = root[source or target]
        if content.kubeconfig:
            files["kubeconfig"] = _kubeconfig(values.server, files, inline=content.kubeconfig == "inline")
        if files != present:
            made.append(_secret(values, name, files))
    return made


def ends(secrets: Mapping[str, Json]) -> datetime:
    """When the first certificate ends."""
    return min(
        x509.load_pem_x509_certificate(content).not_valid_after_utc
        for secret in secrets.values()
        for file, content in _files(secret).items()
        if file.endswith(".crt")
    )


def admin_kubeconfig(secret: Json, server: str) -> str:
    """The administrator's kubeconfig for another address of the API server."""
    return _kubeconfig(server, _files(secret), inline=True).decode()


def _is_good(kept: Files, leaf: _Leaf, root: Files, now: datetime) -> bool:
    if len(kept) != 2:
        return False
    try:
        certificate = x509.load_pem_x509_certificate(next(each for file, each in kept.items() if file.endswith(".crt")))
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(root[f"{leaf.signer}.crt"]))
    except Exception:
        # A new one cures any defect of it.
        return False
    begins, over = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now < begins + (over - begins) * 2 / 3 and set(leaf.names) == _names(certificate)


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(each.value) for each in found}


def _issue(file: str, leaf: _Leaf, root: Files, now: datetime) -> Files:
    signer = authority.Signer(root[f"{leaf.signer}.key"], root[f"{leaf.signer}.crt"])
    try:
        if now >= signer.ends:
            raise Refused(f"Secret {AUTHORITIES}: {leaf.signer}.crt ended on {signer.ends:%Y-%m-%d}")
        made = certificates.issue(signer, leaf.names, now, LEAF_LIFE, client=leaf.client, groups=leaf.groups)
    except authority.BadSecret as error:
        raise Refused(f"Secret {AUTHORITIES}: {leaf.signer} can't be used: put the Secret back from a copy") from error
    return {f"{file}.crt": made.chain, f"{file}.key": made.key}


def _kubeconfig(server: str, files: Files, *, inline: bool) -> bytes:
    def part(field: str, file: str) -> dict[str, str]:
        return {f"{field}-data": base64.b64encode(files[file]).decode()} if inline else {field: file}

    user = {**part("client-certificate", "tls.crt"), **part("client-key", "tls.key")}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "atoll",
        "clusters": [{"name": "atoll", "cluster": {"server": server, **part("certificate-authority", "ca.crt")}}],
        "users": [{"name": "atoll", "user": user}],
        "contexts": [{"name": "atoll", "context": {"cluster": "atoll", "user": "atoll"}}],
    }
    return yaml.safe_dump(content, sort_keys=False).encode()


def _files(secret: Json) -> Files:
    return {name: base64.b64decode(value) for name, value in (secret.get("data") or {}).items()}


def _secret(values: EmbeddedValues, name: str, files: Files) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": values.namespace, "labels": MANAGED_BY},
        "type": "Opaque",
        "data": {file: base64.b64encode(content).decode() for file, content in sorted(files.items())},
    }
