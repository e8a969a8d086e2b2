"""Picks written as a resource.k8s.io/v1 AllocationResult per claim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from atoll.fit.devices.problem import Problem
from atoll.fit.devices.search import Pick
from atoll.model.devices import Nodes
from atoll.model.selectors import NODE_NAME

Json = dict[str, Any]


def allocation_results(
    problem: Problem, picks: Sequence[Pick], node: str, share_id: Callable[[], str] = lambda: str(uuid4())
) -> list[Json]:
    """One per claim, for its `status.allocation`."""
    found = []
    for number, claim in enumerate(problem.claims):
        own = [pick for pick in picks if pick.ask.claim == number]
        devices: Json = {"results": [_result(pick, share_id) for pick in own]}
        if config := _config(problem, claim.config, own):
            devices["config"] = config
        result: Json = {"devices": devices}
        if selector := _node_selector(own, node):
            result["nodeSelector"] = selector
        found.append(result)
    return found


def _result(pick: Pick, share_id: Callable[[], str]) -> Json:
    wish, device = pick.ask.wish, pick.option.device
    result: Json = {
        "request": wish.name,
        "driver": device.id.driver,
        "pool": device.id.pool,
        "device": device.id.name,
    }
    if wish.admin:
        result["adminAccess"] = True
    if wish.raw_tolerations:
        result["tolerations"] = [dict(each) for each in wish.raw_tolerations]
    if device.binding_conditions:
        result["bindingConditions"] = list(device.binding_conditions)
    if device.binding_failure_conditions:
        result["bindingFailureConditions"] = list(device.binding_failure_conditions)
    if pick.option.amounts is not None:
        result["shareID"] = share_id()
        if pick.option.amounts:
            result["consumedCapacity"] = dict(pick.option.amounts)
    return result


def _config(problem: Problem, of_claim: Sequence[Mapping[str, Any]], picks: Sequence[Pick]) -> list[Json]:
    """Each class's once, for all of its requests, then the claim's for requests that were satisfied."""
    by_class: dict[str, list[str]] = {}
    for pick in picks:
        names = by_class.setdefault(pick.ask.wish.device_class, [])
        if pick.ask.wish.name not in names:
            names.append(pick.ask.wish.name)
    found: list[Json] = [
        {"source": "FromClass", "requests": names, **each}
        for name, names in by_class.items()
        for each in problem.classes[name].config
    ]
    chosen = {name for pick in picks for name in (pick.ask.wish.name, pick.ask.wish.name.split("/")[0])}
    found += (
        {"source": "FromClaim", **each}
        for each in of_claim
        if not each.get("requests") or not chosen.isdisjoint(each["requests"])
    )
    return found


def _node_selector(picks: Sequence[Pick], node: str) -> Json | None:
    """The nodes that reach all devices; None for every node."""
    by_field: dict[str, list[Json]] = {"matchFields": [], "matchExpressions": []}
    for pick in picks:
        nodes: Nodes = pick.option.device.nodes
        if nodes.name is not None or pick.option.device.binds_to_node:
            only = {"key": NODE_NAME, "operator": "In", "values": [node]}
            return {"nodeSelectorTerms": [{"matchFields": [only]}]}
        for term in nodes.terms or ():
            for name, requirements in by_field.items():
                requirements += [each for each in term.get(name) or () if not _among(each, requirements)]
    term = {name: requirements for name, requirements in by_field.items() if requirements}
    return {"nodeSelectorTerms": [term]} if term else None


def _among(requirement: Mapping[str, Any], requirements: Sequence[Mapping[str, Any]]) -> bool:
    def parts(each: Mapping[str, Any]) -> tuple[Any, ...]:
        return each.get("key"), each.get("operator"), frozenset(each.get("values") or ())

    return parts(requirement) in map(parts, requirements)
