"""`atollctl explain`: where a workload stands, why it waits, what would help."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import CommandError
from atoll.cli.options import DataOutput, settings
from atoll.cli.printing import show_data

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer
    from atoll.model.apiresource import ApiResource

Json = dict[str, Any]

_VERDICT_S = 3.0
"""Seconds to wait for the dispatcher; the binding itself says the most important."""
_VOLCANO_JOB = ("vcjob", "vj", "job.batch.volcano.sh", "jobs.batch.volcano.sh", "jobs.v1alpha1.batch.volcano.sh")


def explain(
    ctx: typer.Context,
    workload: Annotated[
        str,
        typer.Argument(
            metavar="[KIND/]NAME", help="The workload; without a kind the Volcano Job of that name, else the batch Job."
        ),
    ],
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
    """Everything on the host that says something about the workload.

    Raises:
        NotFound: no such workload.
        CommandError: no such kind, no kind and nothing of that name, or a Volcano Job and a batch Job of it.
    """
    from atoll.cli.explanation import Facts
    from atoll.cli.operations import find
    from atoll.kube.errors import NotFound
    from atoll.model import keys
    from atoll.model.apiresource import BINDINGS, CAPACITIES, CLUSTERS, LEASES, NAMESPACES, QUEUES, WORKS

    _, found = await find(host, workload, namespace)
    bindings = await host.list(BINDINGS)
    uid = found["metadata"]["uid"]
    binding = next((b for b in bindings if ((b.get("spec") or {}).get("resource") or {}).get("uid") == uid), None)
    works: list[Json] = []
    if binding is not None:
        selector = f"{keys.BINDING_NAME}={binding['metadata']['name']},{keys.BINDING_NAMESPACE}={namespace}"
        works = await host.list(WORKS, label_selector=selector)
    try:
        labels = (await host.get(NAMESPACES, namespace))["metadata"].get("labels") or {}
    except NotFound:
        labels = {}
    leases = await host.list(LEASES, keys.SYSTEM_NAMESPACE)
    verdict, hint = await _verdict(host, binding["metadata"]["name"], namespace) if binding is not None else (None, "")
    return Facts(
        found,
        binding,
        bindings,
        queues=await host.list(QUEUES),
        clusters=await _listed(host, CLUSTERS),
        capacities=await _listed(host, CAPACITIES) or [],
        works=works,
        leases=leases,
        namespace_labels=labels,
        verdict=verdict,
        hint=hint,
    )


async def _listed(host: ApiServer, resource: ApiResource) -> list[Json] | None:
    """All objects; None where this user may not list them, as they only add to the explanation."""
    from atoll.kube.errors import Forbidden

    try:
        return await host.list(resource)
    except Forbidden:
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
