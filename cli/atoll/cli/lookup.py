"""What the host has: workloads by the name that a person wrote, their bindings, and members that are not ready."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from atoll.cli.errors import CommandError
from atoll.model.conditions import condition, is_true

if TYPE_CHECKING:
    from atoll.kinds import Kind
    from atoll.kube.transport import ApiServer
    from atoll.model.apiresource import ApiResource

Json = dict[str, Any]

_ALIKE = 3
"""Workloads that are named in place of one that is not there."""
_ANSWER_S = 3.0
"""Seconds to wait for the list of a group's resource types."""


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
    if reference.get("uid") == workload["metadata"]["uid"]:
        return True
    from atoll.kinds import kind_of, objects_of

    kind = kind_of(workload)
    if kind is None or kind.assembly is None:
        return False
    # Others may have taken the place of the object that gave the workload its UID.
    owners = {each["uid"] for each in binding["metadata"].get("ownerReferences") or ()}
    return any(each["metadata"]["uid"] in owners for each in objects_of(kind, workload))


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
    from atoll.kinds import known

    for each in known():
        if kind in each.words.names:
            return each.resource
    await read_declared(host)
    for each in known():
        if kind in each.words.names:
            return each.resource
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


async def check_queue(host: ApiServer, name: str) -> None:
    """Refuse the name of a queue that does not exist, with the nearest one that does; quiet where queues can't be read.

    Raises:
        CommandError: there is no such queue.
    """
    from atoll.kube.errors import Forbidden
    from atoll.model.apiresource import QUEUES

    try:
        names = [each["metadata"]["name"] for each in await host.list(QUEUES)]
    except Forbidden:
        return
    if name not in names:
        raise no_queue(name, names)


def no_queue(name: str, names: Iterable[str]) -> CommandError:
    """The error of a queue that does not exist, with the nearest name."""
    from atoll.model import spelling

    return CommandError(f"there is no queue {name}{spelling.meant(name, names) or ': see atollctl queue list'}")


async def _alike(host: ApiServer, kinds: Sequence[Kind], name: str, namespace: str) -> str:
    """`; did you mean ...?` with workloads whose names begin so, or are spelt so; empty where there are none."""
    from atoll.cli.suggestions import names_of
    from atoll.model import spelling

    found = [(kind, each) for kind in kinds for each in await names_of(host, kind.resource, namespace)]
    words = [each for _, each in found]
    chosen = [each for each in words if each.startswith(name)] or spelling.near(name, words, _ALIKE)
    ways = [f"{kind.words.prefix}{each}" for kind, each in found if each in chosen]
    more = f" or {len(ways) - _ALIKE} more" if len(ways) > _ALIKE else ""
    return f"; did you mean {', '.join(ways[:_ALIKE])}{more}?" if ways else ""


async def find(host: ApiServer, workload: str, namespace: str) -> tuple[ApiResource, Json]:
    """The resource and the object that the user means.

    Raises:
        NotFound: there is none of that kind.
        Forbidden: this user may not read that kind; without a kind, nothing of that name among those that it may read.
        CommandError: no such kind; without a kind, nothing of that name, or workloads of several kinds.
    """
    from atoll.kinds import BY_RESOURCE, known
    from atoll.kube.errors import Forbidden

    word, name = parse(workload)
    if "/" in workload:
        resource = await find_resource(host, word)
        kind = BY_RESOURCE.get(resource)
        if kind is None or kind.assembly is None or word not in kind.words.names:
            return resource, await host.get(resource, name, namespace)
        if (one := await _found(host, kind, name, namespace)) is None:
            raise CommandError(
                f"there is no {kind.words.title} {name} in namespace {namespace}: choose another one", option="-n"
            )
        return resource, one
    there = await served_kinds(host)
    kinds = [kind for kind in known() if kind.resource in there]
    found: list[tuple[Kind, Json]] = []
    denied: list[Forbidden] = []
    for kind in kinds:
        try:
            one = await _found(host, kind, name, namespace)
        except Forbidden as error:
            # The user means one of a kind that the user may read, if there is one.
            denied.append(error)
            continue
        if one is not None:
            found.append((kind, one))
    if denied and not found:
        raise denied[0]
    if not found:
        *others, last = (kind.words.title for kind in kinds)
        titles = f"{', '.join(others)} or {last}"
        ways = " or ".join(f"{kind.words.names[0]}/{name}" for kind in kinds[:3])
        raise CommandError(
            f"there is no {titles} {name} in namespace {namespace}: choose another namespace, or write KIND/NAME, such"
            f" as {ways}{await _alike(host, [each for each in kinds if each.assembly is None], name, namespace)}",
            option="-n",
        )
    if len(found) > 1:
        titles = " and ".join(f"a {kind.words.title}" for kind, _ in found)
        ways = " or ".join(f"{kind.words.names[0]}/{name}" for kind, _ in found)
        raise CommandError(f"{name} is {titles} in namespace {namespace}: write {ways}")
    kind, each = found[0]
    return kind.resource, each


async def _found(host: ApiServer, kind: Kind, name: str, namespace: str) -> Json | None:
    """The workload of this kind and name, where there is one."""
    if kind.assembly is None:
        return await found_or_none(host, kind.resource, name, namespace)
    from atoll.kinds import assembled

    objects = await host.list(kind.resource, namespace, label_selector=f"{kind.assembly.selector}={name}")
    one = next(iter(assembled(kind, objects)), None)
    # Objects of a list don't name their kind.
    about = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
    return about | one if one is not None else None


def selectors(labels: str | None) -> dict[ApiResource, str]:
    """Resource of each kind -> the label selector of what workloads with these labels are made of."""
    from atoll.kinds import known

    wanted = [(kind, kind.assembly.selector if kind.assembly is not None else "") for kind in known()]
    return {kind.resource: ",".join(filter(None, (own, labels))) for kind, own in wanted}


async def served_kinds(host: ApiServer) -> list[ApiResource]:
    """The resources of the kinds that the host has."""
    from atoll.kinds import known
    from atoll.kube.served import served

    await read_declared(host)
    optional = [kind.resource for kind in known() if kind.optional]
    return [kind.resource for kind in known() if not kind.optional] + (await served(host, optional) if optional else [])


async def read_declared(host: ApiServer) -> list[Json]:
    """Know from now on the kinds that users of this host declared; returns their WorkloadKinds, the faulty ones among
    them; none where this user may not read them.
    """
    from atoll.kinds import declare
    from atoll.kinds.declared import followed
    from atoll.kube.errors import Forbidden, NotFound
    from atoll.model.apiresource import WORKLOAD_KINDS

    try:
        found: list[Json] = await host.list(WORKLOAD_KINDS)
    except (Forbidden, NotFound):
        return []
    declare(followed(found))
    return found


async def listed(host: ApiServer, namespace: str | None, selector: str | None = None) -> list[Json]:
    """The workloads of a namespace, or of all, of the kinds that their user may list.

    Raises:
        Forbidden: not even those of the first kind, Volcano Jobs, may be listed.
    """
    from atoll.kinds import KINDS, known
    from atoll.kube import errors

    found: list[Json] = []
    there = await served_kinds(host)
    labels = selectors(selector)
    for kind in (each for each in known() if each.resource in there):
        resource = kind.resource
        try:
            items = await host.list(resource, namespace, label_selector=labels[resource])
        except errors.Forbidden as error:
            if kind is KINDS[0]:
                raise
            print(f"{kind.words.title}s are left out: {error.message}", file=sys.stderr)
            continue
        except errors.NotFound:
            if kind is KINDS[0]:
                raise
            continue
        found += [{"apiVersion": resource.api_version, "kind": resource.kind, **each} for each in items]
    return found


def ours(jobs: Sequence[Json]) -> list[Json]:
    """The workloads that these objects are, without those that Atoll leaves alone."""
    from atoll.kinds import assembled, kind_of, known

    taken = [(kind, job) for job in jobs if (kind := kind_of(job)) is not None and kind.takes(job)]
    return [job for kind in known() for job in assembled(kind, (job for each, job in taken if each is kind))]


def parts_of(resource: ApiResource, workload: Json) -> list[Json]:
    """Metadata of the objects that a workload is made of: most often its own."""
    from atoll.kinds import BY_RESOURCE, objects_of

    kind = BY_RESOURCE.get(resource)
    return [each["metadata"] for each in ((workload,) if kind is None else objects_of(kind, workload))]


def title(resource: ApiResource, name: str) -> str:
    """As kubectl names it: `job.batch.volcano.sh/train`; as atollctl does what kubectl has no name for."""
    from atoll.kinds import BY_RESOURCE

    if (kind := BY_RESOURCE.get(resource)) is not None and kind.assembly is not None:
        return f"{kind.words.prefix}{name}"
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
