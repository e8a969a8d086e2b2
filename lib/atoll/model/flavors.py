"""Flavors: kinds of nodes that offer one resource under one name, told apart by a label of the nodes.

A flavor of a resource is counted as one more resource, `nvidia.com/gpu@h100`: nodes with the label offer it beside the
resource itself, and pods that will be on such nodes request both. So all that holds for resources holds for flavors:
quotas, charges, fit, verdicts. Nodes without any of the labels are of flavor `other`.

Workloads that leave the flavor open get one when they are dispatched, for all of their pods that ask for the resource,
and these are kept to its nodes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from atoll.model import quantity, selectors, vector
from atoll.model.gang import Gang, Task
from atoll.model.vector import Vector

Flavors = Mapping[str, Mapping[str, tuple[str, str]]]
"""Resource -> flavor -> (key, value) of the label of its nodes, in the order in which they are tried."""
Json = dict[str, Any]

NONE: Final[Flavors] = {}
SIGN: Final = "@"
OTHER: Final = "other"
MOST_RESOURCES: Final = 8
MOST_FLAVORS: Final = 16
"""Of one resource."""
MOST_VARIANTS: Final = 16
"""Of one workload: further combinations of flavors of several resources are not tried."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_EXAMPLE: Final = '{"nvidia.com/gpu": {"h100": "nvidia.com/gpu.product=NVIDIA-H100"}}'


class Assigned(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The flavor of a resource that a workload got."""

    resource: str
    flavor: str
    tasks: list[str]
    """That ask for the resource and left the flavor open."""
    nodes: list[Json] = []
    """Requirements on labels that exactly its nodes meet, as in matchExpressions of a node affinity."""


class Variant(NamedTuple):
    """A workload with a flavor for each resource that has some."""

    gang: Gang
    assigned: tuple[Assigned, ...] = ()


class FlavorError(ValueError):
    """No such flavors can be."""


def parse(text: str) -> Flavors:
    """From the annotation of the root queue: JSON, resource -> flavor -> `key=value`.

    Raises:
        FlavorError: it is not of that form.
    """
    try:
        found = msgspec.json.decode(text, type=dict[str, dict[str, str]])
    except msgspec.MsgspecError as error:
        raise FlavorError(f"is not of the form {_EXAMPLE}: {error}") from error
    if len(found) > MOST_RESOURCES:
        raise FlavorError(f"has flavors of {len(found)} resources; at most {MOST_RESOURCES}")
    return {resource: _of_resource(resource, named) for resource, named in found.items()}


def _of_resource(resource: str, named: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    if not quantity.is_device(resource) or SIGN in resource:
        raise FlavorError(f"{resource!r} is no extended resource, such as nvidia.com/gpu")
    if len(named) > MOST_FLAVORS:
        raise FlavorError(f"{resource} has {len(named)} flavors; at most {MOST_FLAVORS}")
    result: dict[str, tuple[str, str]] = {}
    for flavor, label in named.items():
        if not _NAME.fullmatch(flavor) or flavor == OTHER:
            raise FlavorError(
                f"{flavor!r} can't name a flavor; use lower-case letters, digits and '-', and not {OTHER!r}, which are"
                " the nodes without any of the labels"
            )
        key, equals, value = label.partition("=")
        if not (key and equals and value):
            raise FlavorError(f"{flavor}: {label!r} is no label of nodes; write key=value")
        if (key, value) in result.values():
            raise FlavorError(f"{flavor}: another flavor of {resource} has label {label} as well")
        result[flavor] = (key, value)
    return result


def text(flavors: Flavors) -> str:
    """The annotation that says so."""
    said = {name: {each: "=".join(label) for each, label in named.items()} for name, named in flavors.items()}
    return orjson.dumps(said).decode()


def split(name: str) -> tuple[str, str]:
    """(resource, flavor) of the name of a resource; the flavor is empty where it names none."""
    resource, _, flavor = name.partition(SIGN)
    return resource, flavor


def requesting(gang: Gang, more: Mapping[str, Vector]) -> Gang:
    """The gang with what its pods request where that is more than it says: task -> resources of a pod of it."""
    tasks = []
    for task in gang.tasks:
        told = more.get(task.name, {})
        # A flavor of a resource is counted beside it.
        flavored = {name: told[split(name)[0]] for name in task.requests if split(name)[1] and split(name)[0] in told}
        requests = vector.larger(task.requests, {**told, **flavored})
        tasks.append(msgspec.structs.replace(task, requests=requests))
    return msgspec.structs.replace(gang, tasks=tasks)


def offered(flavors: Flavors, labels: Mapping[str, str], unknown: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """(resource, its name with the flavor) for nodes with these labels.

    Args:
        flavors: that there are.
        labels: of the nodes.
        unknown: keys of labels that are not told: of nodes that may have one of these, nobody knows the flavor.
    """
    for resource, named in flavors.items():
        found = next((flavor for flavor, (key, value) in named.items() if labels.get(key) == value), "")
        if found or not any(key in unknown for key, _ in named.values()):
            yield resource, f"{resource}{SIGN}{found or OTHER}"


def of(flavors: Flavors, resource: str) -> list[str]:
    """The flavors of a resource; empty where it has none."""
    return [*flavors[resource], OTHER] if resource in flavors else []


def names(flavors: Flavors) -> list[str]:
    """Of all flavors, as resources."""
    return [f"{resource}{SIGN}{each}" for resource in flavors for each in of(flavors, resource)]


def variants(gang: Gang, flavors: Flavors) -> list[Variant]:
    """The workload with each flavor that it may get, the first to be tried first; one where it leaves nothing open."""
    open_: list[list[Assigned]] = []
    tasks = list(gang.tasks)
    for resource, named in flavors.items():
        undecided: dict[str, list[str]] = {}
        for index, task in enumerate(tasks):
            if not task.requests.get(resource):
                continue
            choice = [each for each in (*named, OTHER) if _may_be(task, each, named)]
            if len(choice) == 1:
                tasks[index] = _flavored(task, resource, choice[0])
            else:
                undecided[task.name] = choice or [*named, OTHER]
        common = [each for each in (*named, OTHER) if all(each in choice for choice in undecided.values())]
        if undecided:
            # Where no flavor suits all of these, none suits the workload.
            found = [Assigned(resource, each, [*undecided], _requirements(each, named)) for each in common or [OTHER]]
            open_.append(found)
    decided = msgspec.structs.replace(gang, tasks=tasks)
    combined = itertools.islice(itertools.product(*open_), MOST_VARIANTS)
    return [Variant(with_flavors(decided, assigned), assigned) for assigned in combined]


def with_flavors(gang: Gang, assigned: Sequence[Assigned]) -> Gang:
    """The gang with what these flavors request."""
    if not assigned:
        return gang
    tasks = list(gang.tasks)
    for each in assigned:
        tasks = [_flavored(task, each.resource, each.flavor) if task.name in each.tasks else task for task in tasks]
    return msgspec.structs.replace(gang, tasks=tasks)


def pinned(terms: Sequence[Mapping[str, Any]], requirements: Sequence[Json]) -> list[Json]:
    """The nodeSelectorTerms of a required node affinity, kept to nodes that meet these requirements as well."""
    if not requirements:
        return [dict(term) for term in terms]
    # An empty term matches nothing, and must not begin to match.
    full = [term for term in terms if term.get("matchExpressions") or term.get("matchFields")]
    if terms and not full:
        return [dict(term) for term in terms]
    return [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *requirements]} for term in full or [{}]
    ]


def kept_to_nodes(gang: Gang, assigned: Sequence[Assigned]) -> Gang:
    """The gang whose pods select the nodes of the flavors that they got, as members are sent it."""
    if not assigned:
        return gang
    tasks = [
        msgspec.structs.replace(task, node_terms=pinned(task.node_terms, required(assigned, task.name)))
        for task in gang.tasks
    ]
    return msgspec.structs.replace(gang, tasks=tasks)


def required(assigned: Sequence[Assigned], task: str) -> list[Json]:
    """What the nodes of a task's pods must meet for the flavors that it got."""
    return [requirement for each in assigned if task in each.tasks for requirement in each.nodes]


def _flavored(task: Task, resource: str, flavor: str) -> Task:
    name = f"{resource}{SIGN}{flavor}"
    return msgspec.structs.replace(task, requests={**task.requests, name: task.requests.get(resource, 0)})


def _requirements(flavor: str, named: Mapping[str, tuple[str, str]]) -> list[Json]:
    if flavor != OTHER:
        key, value = named[flavor]
        return [{"key": key, "operator": "In", "values": [value]}]
    values: dict[str, list[str]] = {}
    for key, value in named.values():
        values.setdefault(key, []).append(value)
    return [{"key": key, "operator": "NotIn", "values": found} for key, found in values.items()]


def _may_be(task: Task, flavor: str, named: Mapping[str, tuple[str, str]]) -> bool:
    """Whether nodes of the flavor meet what the task asks of the flavors' own labels; of others nothing is known."""
    keys = {key for key, _ in named.values()} if flavor == OTHER else {named[flavor][0]}

    def may(key: str, operator: str, values: Sequence[str]) -> bool:
        if flavor == OTHER:
            own = [value for each, value in named.values() if each == key]
            return operator != "In" or any(value not in own for value in values)
        have = {key: named[flavor][1]}
        return selectors.node_affinity_matches(
            [{"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}], have, ""
        )

    if not all(may(key, "In", [value]) for key, value in task.node_selector.items() if key in keys):
        return False
    return not task.node_terms or any(
        all(
            may(each["key"], each["operator"], each.get("values") or ())
            for each in term.get("matchExpressions") or ()
            if each.get("key") in keys
        )
        for term in task.node_terms
    )
