"""Rows of `atollctl available`: what a namespace may use of each member."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]

HEADERS = ("MEMBER", "RESOURCE", "FREE", "TOTAL", "ON ONE NODE", "GANGS", "IN ONE DOMAIN", "QUEUES")
KEYS = ("member", "resource", "free", "total", "node", "gangs", "near", "queues")
"""Of the columns, for programs."""


def rows(items: Iterable[Json], resource: str = "") -> list[list[object]]:
    """A row for each resource of each Availability.

    Args:
        items: the objects.
        resource: only this one.
    """
    return [
        [
            item["metadata"]["name"],
            name,
            stock["free"],
            stock["total"],
            stock["node"],
            _gangs(stock, "pods"),
            _gangs(stock, "near"),
            _queues(item["status"], name),
        ]
        for item in items
        for stock in item["status"].get("stocks") or ()
        if resource in ("", name := stock["resource"])
    ]


def notes(items: Iterable[Json]) -> list[str]:
    """Why members take nothing, or not everything."""
    said = [(item["metadata"]["name"], item["status"].get("message")) for item in items]
    return [f"member {member} {message}" for member, message in said if message]


def _gangs(stock: Json, count: str) -> str:
    """Pods and what each requests: `5x8 10x4`."""
    return " ".join(f"{gang[count]}x{gang['each']}" for gang in stock.get("gangs") or () if gang[count])


def _queues(status: Json, resource: str) -> str:
    """Queues with what each has left: `research (16), default`."""
    named = [
        f"{each['queue']} ({left})" if (left := (each.get("resources") or {}).get(resource)) else each["queue"]
        for each in status.get("queues") or ()
    ]
    more = status.get("more", 0)
    return ", ".join([*named, f"+{more}"] if more else named) or "none"
