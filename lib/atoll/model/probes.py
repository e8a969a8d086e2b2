"""Requests that pods of a task must answer: what a JobFlow asks of Jobs, and their members' agents try out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

MOST = 32
"""Of one Job."""


class Probe(msgspec.Struct, frozen=True, omit_defaults=True):
    """A port of the pods of a task that must accept connections, or answer a request."""

    task: str
    port: int
    path: str = ""
    """Of an HTTP request; empty where a connection is enough."""
    header: tuple[str, str] | None = None
    """Sent along with the request."""

    def __str__(self) -> str:
        return f"port {self.port} of task {self.task}" + (f" ({self.path})" if self.path else "")


_decoder = msgspec.json.Decoder(list[Probe])


def of_flow(probe: Mapping[str, Any]) -> list[Probe]:
    """Those of a step's dependency, as its JobFlow writes them."""
    found = []
    for each in probe.get("httpGetList") or ():
        header = each.get("httpHeader") or {}
        named = (str(header["name"]), str(header.get("value") or "")) if header.get("name") else None
        found.append(Probe(str(each.get("taskName")), int(each.get("port") or 0), str(each.get("path") or "/"), named))
    ports = probe.get("tcpSocketList") or ()
    return [*found, *(Probe(str(each.get("taskName")), int(each.get("port") or 0)) for each in ports)]


def encode(probes: list[Probe]) -> str:
    """For annotation `atoll.sh/probes`."""
    return msgspec.json.encode(probes).decode()


def decode(text: str | None) -> list[Probe]:
    """Those of an annotation, no more than `MOST`; none where it can't be read."""
    try:
        return _decoder.decode(text or "[]")[:MOST]
    except msgspec.MsgspecError:
        return []
