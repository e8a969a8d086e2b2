"""What `queue describe` shows of a queue that is ordered by fair share: who uses how much of it, and who goes next.

By present charges: earlier use by namespaces, which counts where the queue has a half-life, is known to the
dispatcher alone (`atollctl explain`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from atoll.dispatcher.core.backlog.fair_order import dominant
from atoll.dispatcher.core.backlog.order import order_key
from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.core.quota.queue import Queue
from atoll.model import fairness, keys, vector
from atoll.model.fairness import Order
from atoll.model.vector import Vector
from atoll.view.bindings import charges
from atoll.view.tables import table

Json = dict[str, Any]


def weighs(queue: Json) -> bool:
    """Whether the weights of namespaces matter to a queue."""
    return (queue["metadata"].get("annotations") or {}).get(keys.ORDER) == Order.FAIR_NAMESPACES


def of_queue(node: Queue, mine: Iterable[BindingView], namespaces: Sequence[Json]) -> dict[str, Json]:
    """Namespace -> its dominant share of the queue, the least first; nothing where the queue has another order.

    Args:
        node: the queue, in its tree.
        mine: its workloads that have not ended.
        namespaces: namespaces of the host that this user may see.
    """
    if node.view is None or node.view.order is not Order.FAIR_NAMESPACES:
        return {}
    used: dict[str, Vector] = {}
    for view in mine:
        amounts = used.setdefault(view.namespace, {})
        if view.decision.phase.charged:
            vector.add(amounts, vector.total(charges(view).values()))
    said = {each["metadata"]["name"]: (each["metadata"].get("annotations") or {}) for each in namespaces}
    found = []
    for name, amounts in used.items():
        resource, part = dominant(node, amounts)
        text = said.get(name, {}).get(keys.FAIR_WEIGHT)
        weight = fairness.weight_or_one(text)
        line: Json = {"namespace": name, "resource": resource, "part": round(part, 6), "weight": weight}
        line["share"] = round(part / weight, 6)
        if (problem := _problem(text)) is not None:
            line["problem"] = problem
        found.append(line)
    return {line["namespace"]: line for line in sorted(found, key=lambda line: (line["share"], line["namespace"]))}


def _problem(text: str | None) -> str | None:
    try:
        fairness.weight(text or "1")
    except ValueError as error:
        return f"annotation {keys.FAIR_WEIGHT}: {error}; it counts as 1"
    return None


def in_order(node: Queue, waiting: Sequence[BindingView], shares: Mapping[str, Json]) -> list[BindingView]:
    """Waiting workloads of the queue, the next one first, as far as that follows from present use."""
    order = node.view.order if node.view is not None else Order.PRIORITY

    def place(view: BindingView) -> tuple[int, float, str, str]:
        first, age, uid = order_key(view)
        share = 0.0
        if order is Order.FAIR_JOBS and view.gang is not None:
            share = round(dominant(node, view.gang.sized(view.gang.floor()).total())[1], 9)
        elif view.namespace in shares:
            share = shares[view.namespace]["share"]
        return first, share, age, uid

    return sorted(waiting, key=place)


def text(data: Json) -> list[str]:
    """The shares as a person reads them."""
    rows = [
        [each["namespace"], f"{each['part']:.1%}", each["resource"], f"{each['weight']:g}", f"{each['share']:.1%}"]
        for each in data["shares"]
    ]
    headers = ("NAMESPACE", "USES", "OF", "WEIGHT", "COUNTS AS")
    lines = ["Shares of namespaces, the next one first"]
    if "fairHalfLife" in data:
        lines[0] += f" (now; what was used before fades with a half-life of {data['fairHalfLife']}: atollctl explain)"
    lines += [f"  {line}" for line in table(headers, rows).splitlines()]
    return [*lines, *(f"  {each['namespace']}: {each['problem']}" for each in data["shares"] if "problem" in each)]
