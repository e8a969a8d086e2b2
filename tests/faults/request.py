"""What a request to an API server is about, read from its first line as the server's audit log would tell it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, slots=True)
class Request:
    """One request; the names are those of `atoll.local.audit.ObjectRef`, empty where they do not apply."""

    method: str
    target: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False

    @property
    def verb(self) -> str:
        """As in RBAC and in the audit log."""
        match self.method:
            case "GET":
                return "watch" if self.watch else "get" if self.name else "list"
            case "DELETE":
                return "delete" if self.name else "deletecollection"
        return _VERBS.get(self.method, self.method.lower())

    @property
    def path(self) -> str:
        """The resource with its subresource: `pods`, `pods/binding`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def about(self, resource: str) -> bool:
        """Whether it is about `pods/binding`; `pods` means pods and every subresource of theirs."""
        return resource in (self.resource, self.path)


def parse(method: str, target: str) -> Request:
    """Read method and target of a request line; a path that is no resource's leaves the resource empty."""
    url = urlsplit(target)
    parts = [unquote(part) for part in url.path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, rest = parts[1], parts[3:]
    else:
        return Request(method, target)
    namespace = ""
    # Namespaces are a resource themselves, with subresources of their own.
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    name, subresource = (rest[1] if len(rest) > 1 else ""), "/".join(rest[2:])
    watch = "watch" in url.query and parse_qs(url.query).get("watch", [""])[0] in ("true", "1")
    return Request(method, target, group, rest[0], namespace, name, subresource, watch and method == "GET")
