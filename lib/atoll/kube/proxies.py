"""The proxy that the environment names for an address, by the rules of Kubernetes' own clients."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import urlsplit


def from_environment(url: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The proxy for a https URL (`HTTPS_PROXY`); None where `NO_PROXY` names its host, and for the machine itself.

    `NO_PROXY` holds addresses, ranges (10.0.0.0/8), names with all that end in them, `*`; each may end in a port.
    """
    proxy, exceptions = (environment.get(name) or environment.get(name.lower()) for name in ("HTTPS_PROXY", "NO_PROXY"))
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    if not proxy or parts.scheme != "https" or host == "localhost":
        return None
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is not None and address.is_loopback:
        return None
    for exception in filter(None, (each.strip().lower() for each in (exceptions or "").split(","))):
        if exception == "*" or _names(exception, host, parts.port or 443, address):
            return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _names(exception: str, host: str, port: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    try:
        network = ipaddress.ip_network(exception, strict=False)
    except ValueError:
        name, colon, of_port = exception.rpartition(":")
        if colon and of_port.isdigit():
            return int(of_port) == port and _names(name.strip("[]"), host, port, address)
        name = exception.removeprefix("*").removeprefix(".")
        # A leading dot leaves the name itself out.
        return host.endswith(f".{name}") or (host == name and exception == name)
    return address is not None and address in network
