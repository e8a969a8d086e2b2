"""What Atoll must be allowed to do with a declared kind, on the host and in members, and what of it rules lack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from atoll.model.apiresource import ApiResource

ON_HOST: Final = (("", ("list", "watch", "patch", "delete")), ("status", ("patch",)))
"""(subresource, verbs)."""
IN_MEMBER: Final = (("", ("get", "list", "watch", "create", "patch", "delete")),)


def missing(
    rules: Iterable[Mapping[str, Any]], resource: ApiResource, wanted: Iterable[tuple[str, tuple[str, ...]]]
) -> list[str]:
    """What rules of a ClusterRole do not allow: `patch foos.example.com/status`, in the order of what is wanted.

    Args:
        rules: of the role; those for objects of some names do not count.
        resource: of the kind.
        wanted: `ON_HOST` or `IN_MEMBER`.
    """
    given = [
        each
        for each in rules
        if not each.get("resourceNames") and {resource.group, "*"} & set(each.get("apiGroups") or ())
    ]
    found = []
    for subresource, verbs in wanted:
        path = f"{resource.plural}/{subresource}" if subresource else resource.plural
        names = {path, "*", f"*/{subresource}"} if subresource else {path, "*"}
        allowed = {
            verb for each in given if names & set(each.get("resources") or ()) for verb in each.get("verbs") or ()
        }
        lacking = [verb for verb in verbs if not {verb, "*"} & allowed]
        if lacking:
            of = f"{resource.plural}.{resource.group}" + (f"/{subresource}" if subresource else "")
            found.append(f"{', '.join(lacking)} {of}")
    return found
