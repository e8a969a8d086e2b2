"""What one reading of the credentials gave, whoever read them, and the TLS context that follows from it."""

from __future__ import annotations

import os
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

Material = str | bytes
"""Certificates or a key in PEM form: the path of a file, or the text itself."""


class BadKubeconfig(ValueError):
    """The kubeconfig is missing or can't be used; the message says which one, which field and what to do."""


@dataclass(frozen=True, slots=True)
class Access:
    """An API server and the credentials for it, as they are now."""

    url: str
    """Without a slash at its end."""
    header: str | None = None
    """The Authorization header; None where a client certificate speaks."""
    authority: Material | None = None
    """Whose certificates to trust; None for those of the machine."""
    certificate: Material | None = None
    key: Material | None = None
    verify: bool = True
    proxy: str | None = None
    server_name: str | None = None
    """Name to expect in the certificate when it is not the URL's host."""
    expires: float | None = None
    """Seconds since the epoch."""
    files: frozenset[str] = field(default_factory=frozenset)
    """What to read again once it changes on disk."""

    def tls(self) -> ssl.SSLContext | None:
        """The context for the URL; None for one without TLS.

        Raises:
            OSError, ValueError: certificates that can't be read or do not belong together.
        """
        if not self.url.startswith("https"):
            return None
        if isinstance(self.authority, bytes):
            context = tls_context(ca_data=self.authority.decode("ascii"))
        else:
            context = tls_context(ca_file=self.authority)
        if isinstance(self.certificate, str) and not isinstance(self.key, bytes):
            context.load_cert_chain(self.certificate, self.key)
        elif self.certificate is not None:
            load_chain(context, b"\n".join(content(each) for each in (self.certificate, self.key) if each is not None))
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def identity(self) -> object:
        """Something that differs when a certificate or a key does.

        Raises:
            OSError: one can't be read.
        """
        return [content(each) if each is not None else None for each in (self.authority, self.certificate, self.key)]


def tls_context(ca_file: str | None = None, ca_data: str | None = None) -> ssl.SSLContext:
    """A client's context that trusts these authorities (PEM), or the machine's where none are given."""
    context = ssl.create_default_context(cafile=ca_file, cadata=ca_data)
    # An API server's own certificate is a leaf that clients pin as their CA; strict X.509 checks refuse that.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def load_chain(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a certificate with its key: Python reads these from files only, so one is there for that moment.

    Raises:
        OSError, ValueError: they can't be read, or do not belong together.
    """
    descriptor, path = tempfile.mkstemp(prefix="atoll-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
        # A password would be asked for on the terminal.
        context.load_cert_chain(path, password="")
    finally:
        os.unlink(path)


def content(material: Material) -> bytes:
    """The PEM text.

    Raises:
        OSError: its file can't be read.
    """
    return material if isinstance(material, bytes) else Path(material).read_bytes()
