"""`atollctl explain`: where a workload stands, why it waits, what would help."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from atoll.cli.errors import CommandError
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
_VOLCANO_JOB = ("vcjob", "vj", "job.batch.volcano.sh", "jobs.batch.volcano.sh", "jobs.v1alpha1.batch.volcano.sh")


def explain(
    ctx: typer.Context,
    workload: Name,
    output: DataOutput = None,
) -> None:
    """Explain where a workload is on its way, why it waits, and what would help."""
    parse(workload)
    from atoll.cli import explanation
    from atoll.cli.connection import call

    options = settings(ctx)
    facts = call(options, lambda host: gather(host, workload, options.one_namespace))
    data = explanation.explain(facts, time.time())
    if output is not None:
        show_data(data, output)
    else:
        print(explanation.text(data))


def parse(workload: str) -> tuple[str, str]:
    """Kind in lower case and name.

    Raises:
        CommandError: not of the form KIND/NAME or NAME.
    """
    kind, slash, name = workload.rpartition("/")
    if (slash and not kind) or "/" in kind or not name:
        raise CommandError(f"{workload!r}: write KIND/NAME, such as vcjob/train, or the name of a Volcano Job", 2)
    return kind.lower() or "vcjob", name


async def gather(host: ApiServer, workload: str, namespace: str) -> Any:
    """Everything on the host that says something about the workload and that its user may see.

    Raises:
        NotFound: no such workload.
        CommandError: no such kind, no kind and nothing of that name, or a Volcano Job and a batch Job of it.
    """
    from atoll.cli.explanation import Facts
    from atoll.cli.seen import seen
    from atoll.cli.unseen import Unseen
    from atoll.cli.workloads import find
    from atoll.model import keys
    from atoll.model.apiresource import CLUSTERS, LEASES, NAMESPACES, WORKS
    from atoll.model.verdict import Reason

    resource, found = await find(host, workload, namespace)
    # What a single object is named by its list is named as well.
    found = {"apiVersion": resource.api_version, "kind": resource.kind, **found}
    unseen = Unseen()
    allowed = unseen.allowed
    named = await allowed("its binding", bindings_named(host, resource, found)) or []
    binding = next((each for each in named if _is_of(each, found)), None)
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
            if (each := await allowed(_READY, _found(host, CLUSTERS, item["name"]))) is not None
        ]
        return Facts(
            found,
            binding,
            clusters=lost,
            leases=leases,
            namespace_labels=labels,
            predecessor=predecessor,
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
        cluster = await allowed(_READY, _found(host, CLUSTERS, target))
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


async def bindings_named(host: ApiServer, resource: ApiResource, workload: Json) -> list[Json]:
    """The bindings that have a name which the workload's may have."""
    from atoll.model.apiresource import BINDINGS
    from atoll.model.binding_names import binding_names

    meta = workload["metadata"]
    found = [
        await _found(host, BINDINGS, name, meta.get("namespace")) for name in binding_names(resource, meta["name"])
    ]
    return [each for each in found if each is not None]


async def binding_of(host: ApiServer, resource: ApiResource, workload: Json) -> Json | None:
    """The binding of a workload; None where there is none yet.

    Raises:
        Forbidden: this user may not read it.
    """
    named = await bindings_named(host, resource, workload)
    return next((each for each in named if _is_of(each, workload)), None)


def _is_of(binding: Json, workload: Json) -> bool:
    reference = (binding.get("spec") or {}).get("resource") or {}
    return bool(reference.get("uid") == workload["metadata"]["uid"])


def _is_of_another(binding: Json, workload: Json) -> bool:
    """Whether it is of one of the same kind and name that was there before."""
    reference = (binding.get("spec") or {}).get("resource") or {}
    return bool(
        (reference.get("kind"), reference.get("name")) == (workload["kind"], workload["metadata"]["name"])
        and reference.get("uid") != workload["metadata"]["uid"]
    )


async def _queues(host: ApiServer, name: str) -> list[Json]:
    """A queue and those above it, as far as they exist."""
    from atoll.cli.queue_objects import parent_of
    from atoll.model.apiresource import QUEUES

    found: list[Json] = []
    while name and name not in [each["metadata"]["name"] for each in found]:
        queue = await _found(host, QUEUES, name)
        if queue is None:
            break
        found.append(queue)
        name = parent_of(queue)
    return found


async def _found(host: ApiServer, resource: ApiResource, name: str, namespace: str | None = None) -> Json | None:
    from atoll.kube.errors import NotFound

    try:
        return await host.get(resource, name, namespace)
    except NotFound:
        return None


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


async def find_resource(host: ApiServer, kind: str) -> ApiResource:
    """The resource type of this singular, plural, kind or short name, with the group behind a dot or without.

    Raises:
        CommandError: the host serves none.
    """
    from atoll.model.apiresource import JOBS

    if kind in _VOLCANO_JOB:
        return JOBS
    import orjson

    from atoll.kube.errors import ApiError
    from atoll.model.apiresource import ApiResource as Resource

    word, _, group = kind.partition(".")
    core = [("", "v1", "/api/v1")]
    groups = orjson.loads(await host.request("GET", "/apis"))["groups"]
    preferred = [
        (item["name"], item["preferredVersion"]["version"], f"/apis/{item['preferredVersion']['groupVersion']}")
        for item in groups
    ]
    for name, version, path in core + preferred:
        if group and name != group:
            continue
        try:
            entries = orjson.loads(await host.request("GET", path, deadline=_VERDICT_S))["resources"]
        except ApiError:
            # Of an aggregated API that nobody serves now.
            continue
        for entry in entries:
            if "/" in entry["name"]:
                continue
            names = {entry["name"], entry.get("singularName"), entry["kind"].lower(), *(entry.get("shortNames") or ())}
            if word in names:
                return Resource(name, version, entry["name"], entry["kind"], bool(entry["namespaced"]))
    raise CommandError(f"the host has no resource type {kind!r}; `kubectl api-resources` lists what there is")
