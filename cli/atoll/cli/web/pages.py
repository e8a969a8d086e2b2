"""From an address to a page: the views that `atollctl` prints, in HTML."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final
from urllib.parse import quote, urlencode

from aiohttp import web
from yarl import URL

from atoll.cli.errors import CommandError
from atoll.cli.web import reports
from atoll.cli.web.page import Page, rendered
from atoll.cli.web.world import World
from atoll.kube.errors import ApiError
from atoll.model import keys, runs
from atoll.model.apiresource import CAPACITIES, CLUSTERS, LEASES, QUEUES, VERDICTS, WORKS
from atoll.view import (
    available,
    clusters,
    explanation,
    nodes,
    queue_description,
    queue_objects,
    queue_tree,
    queues,
    racks,
)
from atoll.view.queue_description import Federation

Json = dict[str, Any]

ROWS: Final = 100
"""Workloads of one page."""
_EVENTS: Final = 100
_DOMAINS: Final = 500
"""Domains of one member on a page."""
_NODES: Final = 1000
"""Nodes of a workload in one member on a page."""
_STOCKS: Final = 500
"""Amounts of members that a namespace may use, on a page."""
_LOG_BYTES: Final = 2**18
STATES: Final = ("waiting", "starting", "running")


@dataclass(frozen=True, slots=True)
class View:
    """An address that there is."""

    key: str
    """The same for all addresses of one page."""
    make: Callable[[World], Awaitable[Page]]


def find(url: URL) -> View:
    """The page of an address.

    Raises:
        HTTPNotFound: none.
    """
    for pattern, make in _ROUTES.items():
        if match := re.fullmatch(pattern, url.raw_path):
            asked = {key: value[:253] for key, value in url.query.items() if key in _QUERY and value}
            key = f"{url.raw_path}?{urlencode(sorted(asked.items()))}"
            return View(key, partial(make, asked={**asked, **match.groupdict()}))
    raise web.HTTPNotFound(text="there is no such page")


async def _federation(world: World, asked: Mapping[str, str]) -> Page:
    """Members, devices, processes."""
    capacities, works, leases = map(world.bodies, (CAPACITIES, WORKS, LEASES))
    members = [clusters.summary(each, capacities, works, leases) for each in world.bodies(CLUSTERS)]
    now = time.time()
    federation = await world.federation()
    return rendered(
        world,
        "Federation",
        "/",
        "federation.html",
        members=members,
        rows=[dict(zip(clusters.HEADERS, row, strict=True)) for row in clusters.rows(members, now, wide=False)],
        processes=_processes(leases),
        waiting=sum(use.pending for use in federation.use.values()),
        running=sum(use.dispatched for use in federation.use.values()),
        now=now,
    )


def _processes(leases: list[Json]) -> list[Json]:
    """Leaders of Atoll's own processes, with the time of their last sign of life."""
    return [
        {
            "name": each["metadata"]["name"],
            "holder": (each.get("spec") or {}).get("holderIdentity") or "",
            "renewed": (each.get("spec") or {}).get("renewTime") or "",
        }
        for each in leases
        if each["metadata"].get("namespace") == keys.SYSTEM_NAMESPACE
    ]


async def _topology(world: World, asked: Mapping[str, str]) -> Page:
    """Nodes and domains of members, as `nodes`."""
    federation, capacities = await world.federation(), world.bodies(CAPACITIES)
    names = nodes.resources(capacities)
    resource = asked.get("resource") or next(iter(names), "cpu")
    found = nodes.documents(world.bodies(CLUSTERS), capacities, federation.tree, resource)
    return rendered(
        world,
        "Topology",
        "/topology",
        "topology.html",
        members=found,
        resource=resource,
        resources=names,
        most=_DOMAINS,
    )


async def _available(world: World, asked: Mapping[str, str]) -> Page:
    """Amounts of members that a namespace may use, as `available`; the dispatcher answers once in some seconds."""
    from atoll.cli.available import gather

    form = {key: asked.get(key, "") for key in ("queue", "resource")}
    form["namespace"] = namespace = asked.get("namespace", world.shown)
    if not re.fullmatch(_PART, namespace):
        raise web.HTTPBadRequest(text="namespace: write its name")
    key = f"available {namespace} {form['queue']}"
    items, problem = [], ""
    try:
        items = await world.shared(key, lambda: gather(world.host, namespace, form["queue"]), lasting=True)
    except ApiError as error:
        problem = error.said
    except CommandError as error:
        problem = str(error)
    rows = available.rows(items, form["resource"])
    return rendered(
        world,
        "Available",
        "/available",
        "available.html",
        form=form | {"template": "filter-available.html"},
        headers=available.HEADERS,
        rows=rows[:_STOCKS],
        count=len(rows),
        notes=available.notes(items)[:_STOCKS],
        problem=problem,
        namespace=namespace,
    )


async def _queues(world: World, asked: Mapping[str, str]) -> Page:
    """The tree of queues, as `queue list` orders it, with the figures of `queue describe`."""
    federation = await world.federation()
    objects = world.bodies(QUEUES)
    states = queue_tree.states(objects)
    found = []
    for depth, queue in queues.tree(objects):
        name = queue["metadata"]["name"]
        if (node := federation.tree.queues.get(name)) is not None:
            counts = queue_objects.counts(queue)
            figures = queue_tree.resources(node)
            found.append({"name": name, "depth": depth, "state": states[name], "counts": counts, "resources": figures})
    return rendered(world, "Queues", "/queues", "queues.html", queues=found)


async def _queue(world: World, asked: Mapping[str, str]) -> Page:
    """One queue, as `queue describe`."""
    federation = await world.federation()
    name = asked["name"]
    if (queue := federation.queues.get(name)) is None:
        raise web.HTTPNotFound(text=f"there is no queue {name} that you may see")
    data = queue_description.describe(queue, federation, time.time())
    pending, running = (_named(world, data[key][:ROWS]) for key in ("pending", "running"))
    path = f"/queues/{quote(name)}"
    return rendered(world, f"Queue {name}", path, "queue.html", data=data, pending=pending, running=running)


async def _workloads(world: World, asked: Mapping[str, str]) -> Page:
    """Workloads that have not ended: the ones that wait in the order of their queues, with help for each."""
    federation = await world.federation()
    now, state = time.time(), asked.get("state", STATES[0])
    number = max(1, int(asked["page"])) if asked.get("page", "").isdecimal() else 1
    found = [each for name in sorted(federation.by_queue) for each in _in_state(federation, name, state)]
    found = [(place, view) for place, view in found if _matches(view, asked)]
    lines = [
        queue_description.pending(place, view, now) | {"queue": view.gang.queue, "bound": view.bound}
        for place, view in islice(found, (number - 1) * ROWS, number * ROWS)
        if view.gang is not None
    ]
    form = {key: asked.get(key, "") for key in ("queue", "namespace", "reason", "name")} | {"state": state}
    links = {
        word: "/workloads?" + urlencode({**{key: value for key, value in form.items() if value}, "page": to})
        for word, to in (("previous", number - 1), ("next", number + 1))
        if 1 <= to <= -(-len(found) // ROWS)
    }
    for line in _named(world, lines):
        if state == STATES[0] and line["link"]:
            line["help"] = _help(world, federation, line, now)
    return rendered(
        world,
        "Workloads",
        "/workloads",
        "workloads.html",
        form=form | {"template": "filter-workloads.html"},
        state=state,
        workloads=lines,
        count=len(found),
        first=(number - 1) * ROWS,
        links=links,
    )


def _in_state(federation: Federation, queue: str, state: str) -> list[tuple[int | None, Any]]:
    if state == STATES[0]:
        return list(queue_description.waiting(federation, queue))
    bound = state == STATES[2]
    mine = sorted(federation.by_queue[queue], key=lambda view: (view.namespace, view.name))
    return [(None, view) for view in mine if view.decision.phase.charged and view.bound is bound]


def _matches(view: Any, asked: Mapping[str, str]) -> bool:
    return (
        asked.get("queue", view.gang.queue) == view.gang.queue
        and asked.get("namespace", view.namespace) == view.namespace
        and asked.get("reason", view.decision.reason.value) == view.decision.reason.value
        and asked.get("name", "") in view.name
    )


def _named(world: World, lines: list[Json]) -> list[Json]:
    """The lines with the names of their workloads and links to them."""
    for line in lines:
        binding = world.binding(line["namespace"], line["binding"]) or {}
        reference = (binding.get("spec") or {}).get("resource") or {}
        line["workload"], line["link"] = line["binding"], ""
        if {"apiVersion", "kind", "name"} <= reference.keys():
            kind = runs.kind_of(reference["apiVersion"], reference["kind"]).lower()
            line["workload"], line["kind"] = reference["name"], reference["kind"]
            line["link"] = "/workloads/" + "/".join(map(quote, (line["namespace"], kind, reference["name"])))
    return lines


def _help(world: World, federation: Federation, line: Json, now: float) -> list[str]:
    """Changes that would let a workload start, as `explain` names them by the binding alone."""
    binding = world.binding(line["namespace"], line["binding"])
    if binding is None:
        return []
    reference = binding["spec"]["resource"]
    workload = {
        "apiVersion": reference["apiVersion"],
        "kind": reference["kind"],
        "metadata": {"namespace": line["namespace"], "name": reference["name"]},
    }
    queue = federation.queues.get(line["queue"])
    path = queue_objects.path_of(queue, federation.queues) if queue is not None else []
    facts = explanation.Facts(workload, binding, queues=path, leases=None)
    found: list[str] = (explanation.explain(facts, now).get("waiting") or {}).get("help") or []
    return found


async def _workload(world: World, asked: Mapping[str, str]) -> Page:
    """One workload: `explain`, `job pods` and `job events`."""
    from atoll.cli import explain, job_events, job_pods

    name, namespace = f"{asked['kind']}/{asked['name']}", asked["namespace"]
    facts = await explain.gather(world.host, name, namespace)
    now = time.time()
    data = explanation.explain(facts, now)
    pods = await job_pods.gather(world.host, name, namespace) if "makes" not in data else None
    missing: list[str] = []
    events: list[Json] = []
    try:
        events, missing = await job_events.gather(world.host, name, namespace)
    except ApiError as error:
        missing = [error.said]
    for member in pods["clusters"] if pods is not None else ():
        shown = dict(sorted(member["nodes"].items())[:_NODES])
        member["racks"] = racks.drawn(member["cluster"], shown, world.bodies(CAPACITIES))
        member["more"] = len(member["nodes"]) - len(shown)
    path = "/workloads/" + "/".join(map(quote, (namespace, asked["kind"], asked["name"])))
    rows = [dict(zip(job_events.HEADERS, job_events.row(each, now), strict=True)) for each in events[-_EVENTS:]]
    return rendered(
        world,
        f"{data['workload']['kind']} {namespace}/{asked['name']}",
        path,
        "workload.html",
        data=data,
        text=explanation.text(data),
        pods=pods,
        events=rows,
        missing=missing,
        command=f"atollctl explain {name} -n {namespace}",
    )


async def _log(world: World, asked: Mapping[str, str]) -> Page:
    """Last lines of the pods of a workload, as `job logs`."""
    from atoll.cli.lookup import binding_of, find

    name, namespace = f"{asked['kind']}/{asked['name']}", asked["namespace"]
    resource, found = await find(world.host, name, namespace)
    binding = await binding_of(world.host, resource, found)
    text = b""
    if binding is not None:
        meta = binding["metadata"]
        address = VERDICTS.path(meta["namespace"], meta["name"], "log")
        async for chunk in world.host.stream(VERDICTS, address, {"tail": "100"}):
            text = (text + chunk)[-_LOG_BYTES:]
    back = "/workloads/" + "/".join(map(quote, (namespace, asked["kind"], asked["name"])))
    title = f"Output of {resource.kind} {namespace}/{asked['name']}"
    return rendered(world, title, f"{back}/log", "log.html", text=text.decode(errors="replace"), back=back)


_PART = "[A-Za-z0-9][A-Za-z0-9.-]*"
"""Of names of Kubernetes, which need no quotes."""
_ONE = rf"/workloads/(?P<namespace>{_PART})/(?P<kind>{_PART})/(?P<name>{_PART})"
_ROUTES: Final[dict[str, Callable[..., Awaitable[Page]]]] = {
    "/": _federation,
    "/topology": _topology,
    "/available": _available,
    "/queues": _queues,
    rf"/queues/(?P<name>{_PART})": _queue,
    "/workloads": _workloads,
    "/usage": reports.usage,
    "/timeline": reports.timeline,
    _ONE: _workload,
    f"{_ONE}/log": _log,
}
_QUERY: Final = ("queue", "namespace", "reason", "name", "state", "page", "resource", "by", "since")
