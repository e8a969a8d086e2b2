"""What the host has: workloads by the name that a person wrote, their bindings, and members that are not ready."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from atoll.cli.errors import CommandError
from atoll.model.conditions import condition, is_true

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer
    from atoll.model.apiresource import ApiResource

Json = dict[str, Any]

_ANSWER_S = 3.0
"""Seconds to wait for the list of a group's resource types."""
_VOLCANO_JOB = ("vcjob", "vj", "job.batch.volcano.sh", "jobs.batch.volcano.sh", "jobs.v1alpha1.batch.volcano.sh")


def parse(workload: str) -> tuple[str, str]:
    """Kind in lower case and name.

    Raises:
        CommandError: not of the form KIND/NAME or NAME.
    """
    kind, slash, name = workload.rpartition("/")
    if (slash and not kind) or "/" in kind or not name:
        raise CommandError(f"{workload!r}: write KIND/NAME, such as vcjob/train, or the name of a Volcano Job", 2)
    return kind.lower() or "vcjob", name


async def bindings_named(host: ApiServer, resource: ApiResource, workload: Json) -> list[Json]:
    """The bindings that have a name which the workload's may have."""
    from atoll.model.apiresource import BINDINGS
    from atoll.model.binding_names import binding_names

    meta = workload["metadata"]
    found = [
        await found_or_none(host, BINDINGS, name, meta.get("namespace"))
        for name in binding_names(resource, meta["name"])
    ]
    return [each for each in found if each is not None]


async def binding_of(host: ApiServer, resource: ApiResource, workload: Json) -> Json | None:
    """The binding of a workload; None where there is none yet.

    Raises:
        Forbidden: this user may not read it.
    """
    named = await bindings_named(host, resource, workload)
    return next((each for each in named if is_of(each, workload)), None)


def is_of(binding: Json, workload: Json) -> bool:
    """Whether it is the binding of this workload, and not of an earlier one of its name."""
    reference = (binding.get("spec") or {}).get("resource") or {}
    return bool(reference.get("uid") == workload["metadata"]["uid"])


async def found_or_none(host: ApiServer, resource: ApiResource, name: str, namespace: str | None = None) -> Json | None:
    """The object, where there is one."""
    from atoll.kube.errors import NotFound

    try:
        return await host.get(resource, name, namespace)
    except NotFound:
        return None


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
            entries = orjson.loads(await host.request("GET", path, deadline=_ANSWER_S))["resources"]
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


async def find(host: ApiServer, workload: str, namespace: str) -> tuple[ApiResource, Json]:
    """The resource and the object that the user means.

    Raises:
        NotFound: there is none of that kind.
        CommandError: no such kind; without a kind, nothing of that name, or a Volcano Job and a batch Job.
    """
    from atoll.kube.errors import NotFound
    from atoll.model.apiresource import BATCH_JOBS, JOBS

    kind, name = parse(workload)
    if "/" in workload:
        resource = await find_resource(host, kind)
        return resource, await host.get(resource, name, namespace)
    found = []
    for resource in (JOBS, BATCH_JOBS):
        try:
            found.append((resource, await host.get(resource, name, namespace)))
        except NotFound:
            continue
    if not found:
        raise CommandError(
            f"there is no Volcano Job and no batch Job {name} in namespace {namespace}: choose another with -n, or"
            f" write KIND/NAME, such as job/{name} or vcjob/{name}"
        )
    if len(found) > 1:
        raise CommandError(
            f"{name} is a Volcano Job and a batch Job in namespace {namespace}: write vcjob/{name} or job.batch/{name}"
        )
    return found[0]


async def listed(host: ApiServer, namespace: str | None, selector: str | None = None) -> list[Json]:
    """The Volcano Jobs and, where their user may list them, the batch Jobs of a namespace, or of all.

    Raises:
        Forbidden: not even Volcano Jobs may be listed.
    """
    from atoll.kube import errors
    from atoll.model.apiresource import BATCH_JOBS, JOBS

    found: list[Json] = []
    for resource in (JOBS, BATCH_JOBS):
        try:
            items = await host.list(resource, namespace, label_selector=selector or "")
        except errors.Forbidden as error:
            if resource == JOBS:
                raise
            print(f"batch Jobs are left out: {error.message}", file=sys.stderr)
            continue
        found += [{"apiVersion": resource.api_version, "kind": resource.kind, **each} for each in items]
    return found


def ours(jobs: Sequence[Json]) -> list[Json]:
    """The jobs without the batch Jobs that Atoll leaves alone."""
    from atoll.model.apiresource import BATCH_JOBS

    if all(job["apiVersion"] != BATCH_JOBS.api_version for job in jobs):
        # Nothing but Volcano Jobs: then no kind need be known.
        return [*jobs]
    from atoll.kinds import BY_RESOURCE

    takes = BY_RESOURCE[BATCH_JOBS].takes
    return [job for job in jobs if job["apiVersion"] != BATCH_JOBS.api_version or takes(job)]


def title(resource: ApiResource, name: str) -> str:
    """As kubectl names it: `job.batch.volcano.sh/train`."""
    return f"{resource.kind.lower()}{'.' if resource.group else ''}{resource.group}/{name}"


async def not_ready(host: ApiServer) -> dict[str, str]:
    """Member -> since when it is not ready (RFC 3339); none where this user may not list members."""
    from atoll.kube.errors import Forbidden
    from atoll.model.apiresource import CLUSTERS

    try:
        clusters = await host.list(CLUSTERS)
    except Forbidden:
        return {}
    found = {each["metadata"]["name"]: condition(each, "Ready") for each in clusters}
    return {
        name: str(ready.get("lastTransitionTime", "")) for name, ready in found.items() if ready and not is_true(ready)
    }
