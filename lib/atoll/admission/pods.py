"""Pod templates: the mistakes that would otherwise show only in a member, when the user has left.

Not the whole of Kubernetes' own validation, which the member's API server does; the part that people get wrong.
"""

from __future__ import annotations

import re
from fractions import Fraction

import msgspec

from atoll.admission import pod_fields
from atoll.admission.pod_resources import pod_resource_problems
from atoll.admission.problems import (
    LABEL_RULE,
    Json,
    Problem,
    amount,
    amounts,
    is_label,
    mapping,
    sequence,
)
from atoll.model import colocation, flavors, hami, keys, needs, numa, quantity
from atoll.model.selectors import NodeSelectorTerm


class _Resources(msgspec.Struct):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _Container(msgspec.Struct, rename="camel"):
    resources: _Resources | None = None
    restart_policy: str | None = None


class _Terms(msgspec.Struct, rename="camel"):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class _NodeAffinity(msgspec.Struct, rename="camel"):
    required_during_scheduling_ignored_during_execution: _Terms | None = None


class _Affinity(msgspec.Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _Toleration(msgspec.Struct):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    overhead: dict[str, str | int | float] | None = None
    resources: _Resources | None = None
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    tolerations: list[_Toleration] | None = None
    priority_class_name: str | None = None
    service_account_name: str | None = None


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Template(msgspec.Struct):
    """Fields read of a template on the host, in the types that the member's API server will insist on."""

    metadata: _Metadata | None = None
    spec: _Spec | None = None


_PLACE = re.compile(r" - at `(?:key in )?\$(.*)`$")


def validate_template(template: object, path: str) -> list[Problem]:
    """Problems of a pod template.

    Args:
        template: a PodTemplateSpec.
        path: where it is in the object.
    """
    problems = _type_problems(template, path)
    problems += [each.problem for each in pod_fields.unknown_fields(template, path) if each.resource]
    spec = mapping(mapping(template).get("spec"))
    amounts(spec.get("overhead"), f"{path}.spec.overhead", problems)
    problems += pod_resource_problems(spec, f"{path}.spec")
    if not sequence(spec.get("containers")):
        problems.append(Problem(f"{path}.spec.containers", "is empty; a pod needs at least one container"))
    names: set[str] = set()
    for key in ("initContainers", "containers"):
        for index, container in enumerate(sequence(spec.get(key))):
            problems += _container_problems(mapping(container), f"{path}.spec.{key}[{index}]", names)
    return problems


def template_warnings(template: object, path: str) -> list[Problem]:
    """What of a pod template has no effect.

    Args:
        template: a PodTemplateSpec.
        path: where it is in the object.
    """
    found = [each.problem for each in pod_fields.unknown_fields(template, path) if not each.resource]
    spec = mapping(mapping(template).get("spec"))
    found += (
        Problem(f"{path}.spec.{each.field}", _CLAIM if each.need in needs.OF_A_MEMBER else _NEED)
        for each in needs.asked(spec)
        if each.need not in needs.HONOURED
    )
    if spec.get("schedulingGroup") is not None:
        found.append(Problem(f"{path}.spec.schedulingGroup", _GROUP))
    metadata = mapping(mapping(template).get("metadata"))
    notes = mapping(metadata.get("annotations"))
    if colocation.qos(mapping(metadata.get("labels")), notes) == colocation.BEST_EFFORT:
        found += _offline(spec, path)
    if (together := notes.get(keys.DEVICES_IN)) and together not in list(numa.Together):
        text = f"has no effect: {together!r} is none of {', '.join(numa.Together)}"
        found.append(Problem(f"{path}.metadata.annotations[{keys.DEVICES_IN}]", text))
    found += (Problem(f"{path}.metadata.annotations[{name}]", _WISH) for name in hami.WISHES if name in notes)
    name = spec.get("runtimeClassName")
    if isinstance(name, str) and name and not mapping(spec.get("overhead")):
        found.append(Problem(f"{path}.spec.runtimeClassName", _RUNTIME_CLASS))
    return found


def _offline(spec: Json, path: str) -> list[Problem]:
    """Plain requests of an offline pod, container by container."""
    return [
        Problem(
            f"{path}.spec.containers[{index}].resources",
            f"of an offline pod (BE) name plain {name}, on which it is charged and placed; reclaimed capacity is"
            f" {colocation.BATCH[name]} (docs/colocation.md)",
        )
        for index, container in enumerate(sequence(spec.get("containers")))
        for name in colocation.BATCH
        for resources in [mapping(mapping(container).get("resources"))]
        if name in mapping(resources.get("requests")) or name in mapping(resources.get("limits"))
    ]


_NEED = "Atoll's own placer does not look at it: it runs only where another one places (reason NoPlacerHonours)"
_WISH = "Atoll's own placer does not look at it: it has an effect only where HAMi's scheduler places"
_GROUP = (
    "has no effect: what starts together is the whole workload; say a minimum by its own fields or annotation"
    " scheduling.volcano.sh/group-min-member"
)
_CLAIM = (
    "whether the claim is there, and which nodes reach its volume, is looked at in the member only: pods wait there"
)
_RUNTIME_CLASS = (
    "the overhead of a RuntimeClass is known in members only: it is charged once pods are there, and not looked for"
    " before; write it into spec.overhead to have it counted from the start"
)


def _type_problems(template: object, path: str) -> list[Problem]:
    """The first value of a wrong type: the schema of a Volcano Job does not look into its templates."""
    try:
        msgspec.convert(template, _Template | None)
    except msgspec.ValidationError as error:
        place = _PLACE.search(str(error))
        said = str(error)[: place.start()] if place else str(error)
        return [Problem(path + (place[1] if place else ""), f"can't be read as part of a pod: {said}")]
    return []


def size(template: object) -> int:
    """How much of a template is checked: containers and their resources."""
    spec = mapping(mapping(template).get("spec"))
    count = 0
    for key in ("initContainers", "containers"):
        containers = sequence(spec.get(key))
        count += len(containers)
        for container in containers:
            resources = mapping(mapping(container).get("resources"))
            count += len(mapping(resources.get("requests"))) + len(mapping(resources.get("limits")))
    return count


def cpus_not_whole(template: object, path: str) -> list[Problem]:
    """The containers without a whole number of CPUs, which can't be pinned to cores."""
    problems = []
    spec = mapping(mapping(template).get("spec"))
    for key in ("initContainers", "containers"):
        for index, container in enumerate(sequence(spec.get(key))):
            resources = mapping(mapping(container).get("resources"))
            text = mapping(resources.get("requests")).get("cpu", mapping(resources.get("limits")).get("cpu"))
            value = amount(text)
            if value is None or value <= 0 or value.denominator != 1:
                problems.append(
                    Problem(
                        f"{path}.spec.{key}[{index}].resources.requests.cpu",
                        f"is {text or 'absent'}; the task's topologyPolicy needs a whole number of CPUs, such as 4",
                    )
                )
    return problems


def _container_problems(container: Json, path: str, names: set[str]) -> list[Problem]:
    problems: list[Problem] = []
    name = container.get("name")
    if name is None or name == "":
        problems.append(Problem(f"{path}.name", "is missing; give the container a name, such as main"))
    elif not is_label(name):
        problems.append(Problem(f"{path}.name", f"{name!r} can't name a container; {LABEL_RULE}"))
    elif name in names:
        problems.append(
            Problem(
                f"{path}.name",
                f"{name!r} is there twice in this pod; give each container its own name",
            )
        )
    else:
        names.add(str(name))
    image = container.get("image")
    if not isinstance(image, str) or not image.strip():
        problems.append(Problem(f"{path}.image", "is missing; name the container image to run"))
    resources = mapping(container.get("resources"))
    requests = amounts(resources.get("requests"), f"{path}.resources.requests", problems)
    limits = amounts(resources.get("limits"), f"{path}.resources.limits", problems)
    for resource, value in {**limits, **requests}.items():
        section = "requests" if resource in requests else "limits"
        problems += _resource_problems(
            resource,
            value,
            requests,
            limits,
            f"{path}.resources.{section}.{resource}",
            mapping(resources.get("limits")),
        )
    return problems


def _resource_problems(
    resource: str,
    value: Fraction,
    requests: dict[str, Fraction],
    limits: dict[str, Fraction],
    path: str,
    shown_limits: Json,
) -> list[Problem]:
    if flavors.SIGN in resource:
        return [
            Problem(path, "names a flavor, which pods can't: ask for the resource, and select nodes by their label")
        ]
    if quantity.is_device(resource):
        if value.denominator != 1:
            return [Problem(path, "devices are counted in whole numbers; use 1, 2, ...")]
        if resource in requests and requests[resource] != limits.get(resource):
            limit = shown_limits.get(resource, "absent")
            return [
                Problem(
                    path,
                    f"devices can't be overcommitted: request and limit ({limit}) must be equal",
                )
            ]
    elif resource in requests and resource in limits and value > limits[resource]:
        return [
            Problem(
                path,
                f"requests more than the limit of {shown_limits[resource]}; lower it, or raise the limit",
            )
        ]
    return []
