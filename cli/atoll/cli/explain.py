"""`atollctl explain`: where a workload stands, why it waits, what would help."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from atoll.cli.lookup import bindings_named, find, found_or_none, is_of, parse
from atoll.cli.options import DataOutput, settings
from atoll.cli.printing import show_data
from atoll.cli.workloads import Name

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer
    from atoll.model.apiresource import ApiResource

Json = dict[str, Any]

_VERDICT_S = 3.0
"""Seconds to wait for the dispatcher; the binding itself says the most important."""
_READY = "Clusters: whether they are ready"


def explain(
    ctx: typer.Context,
    workload: Name,
    output: DataOutput = None,
) -> None:
    """Explain where a workload is on its way, why it waits, and what would help."""
    parse(workload)
    from atoll.cli.connection import call
    from atoll.view import explanation

    options = settings(ctx)
    facts = call(options, lambda host: gather(host, workload, options.one_namespace))
    data = explanation.explain(facts, time.time())
    if output is not None:
        show_data(data, output)
    else:
        print(explanation.text(data))


async def gather(host: ApiServer, workload: str, namespace: str) -> Any:
    """Everything on the host that says something about the workload and that its user may see.

    Raises:
        NotFound: no such workload.
        CommandError: no such kind, no kind and nothing of that name, or a Volcano Job and a batch Job of it.
    """
    from atoll.cli.unseen import Unseen
    from atoll.model import keys
    from atoll.model.apiresource import CLUSTERS, LEASES, MADE, NAMESPACES, WORKS
    from atoll.model.verdict import Reason
    from atoll.view.explanation import Facts
    from atoll.view.seen import seen

    resource, found = await find(host, workload, namespace)
    unseen = Unseen()
    allowed = unseen.allowed
    if resource in MADE:
        made = await allowed("what it made", _made(host, MADE[resource], found)) or []
        return Facts(found, made=made, unseen=unseen.lines)
    named = await allowed("its binding", bindings_named(host, resource, found)) or []
    binding = next((each for each in named if is_of(each, found)), None)
    predecessor = next((each for each in named if _is_of_another(each, found)), None) if binding is None else None
    view = seen(binding) if binding is not None else None
    labels: dict[str, str] | None = {}
    leases: list[Json] | None = []
    if view is None:
        home = await allowed(f"namespace {namespace}", host.get(NAMESPACES, namespace))
        labels = home["metadata"].get("labels") or {} if home is not None else None
    if view is None or view.decision.reason is Reason.SUBMITTED:
        leases = await allowed("which processes of Atoll run", host.list(LEASES, keys.SYSTEM_NAMESPACE))
    if binding is None or view is None:
        lost = [
            each
            for item in ((predecessor or {}).get("spec") or {}).get("clusters") or ()
            if (each := await allowed(_READY, found_or_none(host, CLUSTERS, item["name"]))) is not None
        ]
        warning = await allowed("Events about it", _warning(host, found)) if binding is None else None
        return Facts(
            found,
            binding,
            clusters=lost,
            leases=leases,
            namespace_labels=labels,
            predecessor=predecessor,
            warning=warning,
            unseen=unseen.lines,
        )
    name = binding["metadata"]["name"]
    verdict, hint = await _verdict(host, name, namespace)
    queues = await allowed("its queue", _queues(host, view.gang.queue)) if view.gang is not None else []
    works: list[Json] = []
    clusters: list[Json] = []
    targets = [item["name"] for item in (binding.get("spec") or {}).get("clusters") or ()]
    if view.decision.phase.charged or targets:
        selector = f"{keys.BINDING_NAME}={name},{keys.BINDING_NAMESPACE}={namespace}"
        works = await allowed("Works: how far they are delivered", host.list(WORKS, label_selector=selector)) or []
    for target in targets:
        cluster = await allowed(_READY, found_or_none(host, CLUSTERS, target))
        if cluster is not None:
            clusters.append(cluster)
    return Facts(
        found,
        binding,
        queues=queues or [],
        clusters=clusters,
        works=works,
        leases=leases,
        namespace_labels=labels,
        verdict=verdict,
        hint=hint,
        unseen=unseen.lines,
    )


async def _warning(host: ApiServer, workload: Json) -> Json | None:
    from atoll.cli.job_events import about, last

    ours = [
        each
        for each in await about(host, workload)
        if each.get("type") == "Warning" and each.get("reportingController") == "atoll.sh/control" and each.get("note")
    ]
    return max(ours, key=last, default=None)


async def _made(host: ApiServer, resource: ApiResource, maker: Json) -> list[tuple[Json, Json | None]]:
    """The workloads of which this is the controller, oldest first, each with its binding."""
    from atoll.cli.lookup import binding_of

    meta = maker["metadata"]
    made = [
        {"apiVersion": resource.api_version, "kind": resource.kind, **each}
        for each in await host.list(resource, meta["namespace"])
        if any(owner["uid"] == meta["uid"] for owner in each["metadata"].get("ownerReferences") or ())
    ]
    made.sort(key=lambda each: (each["metadata"].get("creationTimestamp", ""), each["metadata"]["name"]))
    return [(each, await binding_of(host, resource, each)) for each in made]


def _is_of_another(binding: Json, workload: Json) -> bool:
    """Whether it is of one of the same kind and name that was there before."""
    reference = (binding.get("spec") or {}).get("resource") or {}
    return bool(
        (reference.get("kind"), reference.get("name")) == (workload["kind"], workload["metadata"]["name"])
        and reference.get("uid") != workload["metadata"]["uid"]
    )


async def _queues(host: ApiServer, name: str) -> list[Json]:
    """A queue and those above it, as far as they exist."""
    from atoll.model.apiresource import QUEUES
    from atoll.view.queue_objects import parent_of

    found: list[Json] = []
    while name and name not in [each["metadata"]["name"] for each in found]:
        queue = await found_or_none(host, QUEUES, name)
        if queue is None:
            break
        found.append(queue)
        name = parent_of(queue)
    return found


async def _verdict(host: ApiServer, name: str, namespace: str) -> tuple[Json | None, str]:
    """What the leading dispatcher says of a binding; None, and why, where it does not say anything."""
    import orjson

    from atoll.kube.errors import ApiError, Forbidden, NotFound
    from atoll.model.apiresource import VERDICTS

    try:
        found = orjson.loads(await host.request("GET", VERDICTS.path(namespace, name), deadline=_VERDICT_S))
    except NotFound:
        return None, "no dispatcher serves the query API (kubectl get apiservice v1alpha1.query.atoll.sh)"
    except Forbidden:
        return None, f"you may not get verdicts.query.atoll.sh in namespace {namespace}: ClusterRole view has that"
    except ApiError as error:
        return None, f"the query API does not answer: {error.message}"
    status: Json = found["status"]
    return status, ""
