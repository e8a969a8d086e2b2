"""Charges for pods of a workload in a member beyond their requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from atoll.model import quantity
from atoll.model.gang import Gang

Json = dict[str, Any]


def of_part(gang: Gang | None, placement: Mapping[str, Any]) -> Json:
    """Task -> resource -> what one pod asked for and is charged, as Kubernetes writes amounts; empty where the member
    says of none that it requests more.

    Args:
        gang: of the workload; None where it can't be read.
        placement: what the member reports.
    """
    asked = {task.name: task.requests for task in gang.tasks} if gang is not None else {}
    found: Json = {}
    for task, amounts in sorted((placement.get("requests") or {}).items()):
        more = {name: amount for name, amount in amounts.items() if amount > asked.get(task, {}).get(name, 0)}
        if task in asked and more:
            found[task] = {
                name: {"asked": _text(name, asked[task].get(name, 0)), "charged": _text(name, amount)}
                for name, amount in sorted(more.items())
            }
    return found


def _text(name: str, amount: int) -> str:
    return quantity.format_units(name, amount)


def sentences(charged: Json) -> Iterator[str]:
    """A line per task, for people."""
    for task, amounts in charged.items():
        each = ", ".join(f"{name} {both['charged']} (asked {both['asked']})" for name, both in amounts.items())
        yield f"task {task}, each pod as the member counts it: {each}"
