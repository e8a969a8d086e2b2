"""How a pod names a pod of another member, where a policy says that a network joins the members.

Atoll connects no networks; annotation `atoll.sh/network` of a policy says that something else does, and what names
mean then: `{pod}.{cluster}.{service}.{namespace}.svc.clusterset.local`.
"""

from __future__ import annotations

import re
from typing import Final

PARTS: Final = ("pod", "cluster", "service", "namespace")
"""What a name is put together from."""
CLUSTER_SET: Final = "clusterset.local"
"""The domain of the Multi-Cluster Services API, in which a Service has a name once it is exported."""
_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_REST: Final = re.compile(r"[a-z0-9.-]*")


class BadNetwork(ValueError):
    """Names can't be made in that way; the message says why."""


def check(template: str) -> None:
    """Return if names of pods can be made from it.

    Raises:
        BadNetwork: they can't.
    """
    found = _FIELD.findall(template)
    if unknown := [each for each in found if each not in PARTS]:
        raise BadNetwork(f"{{{unknown[0]}}} is not known; use {', '.join(f'{{{each}}}' for each in PARTS)}")
    if missing := [each for each in ("pod", "cluster") if each not in found]:
        raise BadNetwork(f"{{{missing[0]}}} is missing: pods of two members would have one name")
    if not _REST.fullmatch(_FIELD.sub("", template)):
        raise BadNetwork("is no name in the DNS: use lower-case letters, digits, '-' and '.' between the parts")


def read(text: str | None) -> str:
    """The template that an annotation has; empty where it has none, or one that can't be used."""
    try:
        check(text or "")
    except BadNetwork:
        return ""
    return text or ""


def name(template: str, *, pod: str, cluster: str, service: str, namespace: str) -> str:
    """The name of a pod. The template is one that `check` lets pass."""
    values = {"pod": pod, "cluster": cluster, "service": service, "namespace": namespace}
    return _FIELD.sub(lambda found: values[found[1]], template)
