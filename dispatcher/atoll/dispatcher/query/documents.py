"""The API's documents as Kubernetes clients want them: discovery, objects, refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from atoll.dispatcher.objects import BindingObject
from atoll.model import gang, keys, tunnel
from atoll.model.ages import age
from atoll.model.apiresource import AVAILABILITIES, QUEUE_RUNS, TUNNELS, VERDICTS, WHAT_IFS, ApiResource
from atoll.model.query import Account, Available, Change, Named, Position

Json = dict[str, Any]

_VERSION = {"groupVersion": VERDICTS.api_version, "version": VERDICTS.version}

GROUP: Json = {
    "kind": "APIGroup",
    "apiVersion": "v1",
    "name": VERDICTS.group,
    "versions": [_VERSION],
    "preferredVersion": _VERSION,
}
RESOURCES: Json = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": VERDICTS.api_version,
    "resources": [
        {
            "name": resource.plural,
            "singularName": resource.kind.lower(),
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": verbs,
        }
        for resource, verbs in (
            (VERDICTS, ["get", "list"]),
            (WHAT_IFS, ["create"]),
            (AVAILABILITIES, ["list"]),
            (QUEUE_RUNS, ["get"]),
        )
    ]
    + [
        {"name": name, "singularName": "", "namespaced": each.namespaced, "kind": each.kind, "verbs": ["get"]}
        for name, each in (
            (f"{VERDICTS.plural}/log", VERDICTS),
            (f"{VERDICTS.plural}/events", VERDICTS),
            (f"{VERDICTS.plural}/pods", VERDICTS),
            (f"{VERDICTS.plural}/exec", VERDICTS),
            (f"{VERDICTS.plural}/portforward", VERDICTS),
            (f"{TUNNELS.plural}/{tunnel.SUBRESOURCE}", TUNNELS),
        )
    ],
}


@dataclass
class Refusal(Exception):
    """An answer other than the requested one."""

    code: int
    reason: str
    message: str
    retry_after: int | None = None
    """Seconds."""

    def status(self) -> Json:
        """As Kubernetes words it."""
        details = {"details": {"retryAfterSeconds": self.retry_after}} if self.retry_after else {}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
            **details,
        }


def verdict(binding: BindingObject, account: Account) -> Json:
    """A Verdict: the binding's name, UID and age, and all that there is to say."""
    meta = binding.metadata
    return {
        "apiVersion": VERDICTS.api_version,
        "kind": VERDICTS.kind,
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
            "creationTimestamp": meta.creation_timestamp,
        },
        "workload": binding.spec.resource.name,
        "queue": _queue(binding),
        "clusters": [target.name for target in binding.spec.clusters],
        "status": _plain(account),
    }


def _queue(binding: BindingObject) -> str:
    try:
        return gang.decode(binding.metadata.annotations.get(keys.GANG, "")).queue
    except msgspec.MsgspecError:
        return ""


def availability(namespace: str, member: str, found: Available) -> Json:
    """An Availability: what a namespace may use of a member."""
    return {
        "apiVersion": AVAILABILITIES.api_version,
        "kind": AVAILABILITIES.kind,
        "metadata": {"name": member, "namespace": namespace},
        "status": msgspec.to_builtins(found),
    }


def page(resource: ApiResource, items: Sequence[Json], after: str, left: int) -> Json:
    """A part of a list; `after` is where the next one begins."""
    more = {"continue": after, "remainingItemCount": left} if after else {}
    return {"apiVersion": resource.api_version, "kind": f"{resource.kind}List", "metadata": more, "items": list(items)}


def what_if(asked: Json, account: Account) -> Json:
    """The WhatIf that was sent, answered."""
    return {
        "apiVersion": WHAT_IFS.api_version,
        "kind": WHAT_IFS.kind,
        "metadata": asked.get("metadata") or {},
        "spec": asked.get("spec") or {},
        "status": {"starts": account.starts, **_plain(account)},
    }


def _plain(account: Account) -> Json:
    result: Json = msgspec.to_builtins(account)
    return result


def for_user(
    account: Account, namespace: str, binding: Callable[[str, str], BindingObject | None], *, everything: bool
) -> Account:
    """The account with the names of workloads, of which those in other namespaces are only counted.

    Args:
        account: as the core gives it.
        namespace: of which the user may see the names.
        binding: of a namespace and a name, as it was last seen.
        everything: the user may see the names of all.
    """
    replace = msgspec.structs.replace

    def own(names: Sequence[Named]) -> list[Named]:
        found = [each for each in names if everything or each.namespace == namespace]
        seen = [(each, binding(each.namespace, each.name)) for each in found]
        return [each if known is None else replace(each, workload=known.spec.resource.name) for each, known in seen]

    def position(place: Position) -> Position:
        seen = own(place.ahead)
        return replace(place, ahead=seen, more=place.more + len(place.ahead) - len(seen))

    def change(each: Change) -> Change:
        seen = own(each.workloads)
        return replace(each, workloads=seen, more=each.more + len(each.workloads) - len(seen))

    return replace(
        account,
        queue=position(account.queue) if account.queue is not None else None,
        changes=[change(each) for each in account.changes],
    )


# -- tables ------------------------------------------------------------------------------------------------------------

_COLUMNS = (
    ("Name", "name", 0, "Name of the binding."),
    ("Workload", "", 0, "Name of the workload."),
    ("Queue", "", 0, "Its queue."),
    ("Place", "", 0, "Its place among those that wait there, the next one is the first; empty once it is dispatched."),
    ("Reason", "", 0, "Why it waits."),
    ("Cluster", "", 0, "Where it runs, else the member with most room for it."),
    ("Age", "", 0, "Since its binding was made."),
    ("Wanted", "", 1, "Of what is short."),
    ("Available", "", 1, "Of what is short."),
    ("Message", "", 1, "The reason in a sentence."),
)


_AVAILABLE = (
    ("Name", "name", 0, "Name of the member."),
    ("Free", "", 0, "Free and total amount of each device, or of CPUs where it has none."),
    ("On One Node", "", 0, "The most of each that is free on one node."),
    ("Queues", "", 0, "Queues that take workloads of the namespace there."),
    ("Message", "", 1, "Why the member takes nothing now, or not everything."),
)


def table(answer: Json, now: float, include: str = "Metadata") -> Json:
    """Verdicts or Availabilities as kubectl prints them.

    Args:
        answer: one of them, or a list.
        now: seconds since the epoch.
        include: what of each object goes with its row: `Metadata`, `Object` or `None`.
    """
    several = "items" in answer
    available = answer["kind"].removesuffix("List") == AVAILABILITIES.kind
    items = answer["items"] if several else [answer]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": answer["metadata"] if several else {},
        "columnDefinitions": [
            {"name": name, "type": "string", "format": form, "description": text, "priority": priority}
            for name, form, priority, text in (_AVAILABLE if available else _COLUMNS)
        ],
        "rows": [_row(item, _amounts(item) if available else _cells(item, now), include) for item in items],
    }


def _amounts(item: Json) -> list[str]:
    status = item["status"]
    stocks, more = status.get("stocks", ()), status.get("more", 0)
    queues = [*(each["queue"] for each in status.get("queues", ())), *([f"+{more}"] if more else ())]
    return [
        item["metadata"]["name"],
        ", ".join(f"{each['free']} of {each['total']} {each['resource']}" for each in stocks),
        ", ".join(each["node"] for each in stocks),
        ",".join(queues) or "<none>",
        status.get("message", ""),
    ]


def _cells(item: Json, now: float) -> list[str]:
    meta, status = item["metadata"], item["status"]
    place, short = status.get("queue") or {}, status.get("blocker") or {}
    rooms = status.get("clusters") or ()
    where = item["clusters"] or [each["cluster"] for each in rooms[:1]]
    return [
        meta["name"],
        item["workload"],
        item["queue"],
        f"{place['position']} of {place['waiting']}" if place else "",
        status.get("reason", ""),
        ",".join(where),
        age(meta["creationTimestamp"], now),
        f"{short['requested']} {short['resource']}" if short.get("requested") else "",
        short.get("available", ""),
        status.get("message", ""),
    ]


def _row(item: Json, cells: list[str], include: str) -> Json:
    row: Json = {"cells": cells}
    if include == "Object":
        row["object"] = item
    elif include != "None":
        row["object"] = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
    return row
