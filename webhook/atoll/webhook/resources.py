"""Resources by name: resources counted in whole numbers, and unknown ones, most often misspelt."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction

import msgspec

from atoll.admission.problems import Json, Problem, mapping, sequence
from atoll.model import cards, flavors, keys, quantity, spelling
from atoll.model.objects import Slim

Named = tuple[str, str]
"""(field, resource) of an object."""

_BUILT_IN = ("cpu", "memory", "ephemeral-storage", "pods")
_QUOTAS = ("capability", "deserved")


class _Summary(msgspec.Struct, frozen=True, gc=False):
    allocatable: dict[str, str | int | float] = {}


class _Status(msgspec.Struct, frozen=True, rename="camel", gc=False):
    resource_summary: _Summary | None = None


class Cluster(Slim, frozen=True, rename="camel", gc=False):
    """What admission reads of a member: the resources of its nodes."""

    status: _Status = _Status()

    @property
    def resources(self) -> Collection[str]:
        """Names; empty while it has not reported."""
        summary = self.status.resource_summary
        return summary.allocatable if summary is not None else ()


decode_cluster = msgspec.json.Decoder(Cluster).decode


def fractions(amounts: Mapping[str, Fraction], path: str) -> Iterator[Problem]:
    """Fractions of resources counted in whole numbers: Kubernetes takes no pod that asks for one."""
    for resource, value in amounts.items():
        if not quantity.is_whole(resource, value):
            yield Problem(f"{path}.{resource}", "is a fraction of what is counted in whole numbers; use 1, 2, ...")


def unknown(names: Iterable[Named], members: Iterable[Cluster], others: Iterable[str] = ()) -> Iterator[Problem]:
    """Extended resources that no member has, to warn of: nodes that have them may come.

    Args:
        names: of the object.
        members: without any that has reported, nothing is known.
        others: resources that other objects of the kind name, which are known as well.
    """
    there = {each for member in members for each in member.resources}
    if not there:
        return
    known = sorted({*there, *others, *_BUILT_IN})
    for field, resource in names:
        if resource in known or resource.startswith("hugepages-"):
            continue
        vendors = [each for each in known if each.endswith(f"/{resource}")]
        near = vendors or spelling.near(resource, known)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        yield Problem(field, f"no member has {resource}; {hint}")


def of_queue(queue: Json) -> Iterator[Named]:
    """(field, resource) of a queue's quotas, for any flavor; without `ANY`, which no member offers."""
    names = ((path, name) for path, amounts in _quotas(queue) for name in amounts if name != cards.ANY)
    return ((f"{path}.{name}", flavors.split(name)[0]) for path, name in names)


def _quotas(queue: Json) -> Iterator[tuple[str, Json]]:
    spec = mapping(queue.get("spec"))
    yield from ((f"spec.{key}", mapping(spec.get(key))) for key in _QUOTAS)
    yield "spec.guarantee.resource", mapping(mapping(spec.get("guarantee")).get("resource"))
    for index, each in enumerate(sequence(spec.get("extendClusters"))):
        yield f"spec.extendClusters[{index}].capacity", mapping(mapping(each).get("capacity"))


def flavored(queue: Json) -> Iterator[tuple[str, str, str]]:
    """(field, resource, flavor) of a queue's quotas that are of one flavor."""
    for path, amounts in _quotas(queue):
        for name in amounts:
            resource, flavor = flavors.split(name)
            if flavors.SIGN in name:
                yield f"{path}.{name}", resource, flavor


def unknown_flavors(queue: Json, known: flavors.Flavors) -> Iterator[Problem]:
    """Quotas of flavors that there are not."""
    for field, resource, flavor in flavored(queue):
        there = flavors.of(known, resource)
        if flavor not in there:
            what = f"there are {', '.join(there)}" if there else f"{resource} has none"
            how = f"annotation {keys.FLAVORS} of queue {keys.ROOT_QUEUE} names them"
            yield Problem(field, f"there is no flavor {flavor!r} of {resource}: {what} ({how})")


def of_templates(templates: Iterable[tuple[str, object]]) -> Iterator[Named]:
    """(field, resource) of the containers of a workload's (path, PodTemplateSpec)."""
    for path, template in templates:
        yield from _of_template(template, path)


def _of_template(template: object, path: str) -> Iterator[Named]:
    spec = mapping(mapping(template).get("spec"))
    for key in ("initContainers", "containers"):
        for index, container in enumerate(sequence(spec.get(key))):
            resources = mapping(mapping(container).get("resources"))
            # A request is a limit as well, and a limit alone is a request.
            for name in {**mapping(resources.get("limits")), **mapping(resources.get("requests"))}:
                yield f"{path}.spec.{key}[{index}].resources.limits.{name}", name
