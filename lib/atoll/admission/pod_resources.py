"""Resources of a whole pod (`spec.resources`), refused as Kubernetes' API server refuses them in a member."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from atoll.admission.problems import Json, Problem, amounts, mapping, sequence
from atoll.model import cards, gpu_shares, joint, quantity, vector
from atoll.model.vector import Vector

_HUGE = "hugepages-"
_SHARES = (cards.SHARE, cards.MEMORY)


def pod_resource_problems(spec: Json, path: str) -> list[Problem]:
    """Problems of the requests of a pod as a whole.

    Args:
        spec: of the pod template.
        path: of the spec.
    """
    resources, here = mapping(spec.get("resources")), f"{path}.resources"
    if not resources:
        return []
    if mapping(spec.get("os")).get("name") == "windows":
        return [Problem(here, "pods of Windows have no resources as a whole; set those of its containers")]
    problems: list[Problem] = []
    if resources.get("claims"):
        problems.append(Problem(f"{here}.claims", "a pod as a whole has none; name them in its containers"))
    requests = amounts(resources.get("requests"), f"{here}.requests", problems)
    limits = amounts(resources.get("limits"), f"{here}.limits", problems)
    if len(requests) < len(mapping(resources.get("requests"))) or len(limits) < len(mapping(resources.get("limits"))):
        # What can't be read can't be compared.
        return problems
    for kind, known in (("requests", requests), ("limits", limits)):
        problems += (
            Problem(f"{here}.{kind}.{name}", "pods as a whole can't ask for it; use cpu, memory or hugepages-*")
            for name in known
            if name not in vector.OF_WHOLE_PODS and not name.startswith(_HUGE)
        )
    problems += _above_limits(requests, limits, resources, here)
    problems += _below_containers(spec, requests, limits, resources, here)
    problems += _container_limits(spec, limits, resources, path)
    return problems


def gpu_share_problems(template: object, path: str) -> Iterator[Problem]:
    """Problems of parts of GPUs, under any name, in a pod template."""
    pod = mapping(mapping(template).get("spec"))
    notes = mapping(mapping(mapping(template).get("metadata")).get("annotations"))
    containers = [
        mapping(mapping(each).get("resources"))
        for field in ("initContainers", "containers")
        for each in sequence(pod.get(field))
    ]
    try:
        asked = [{**mapping(each.get("limits")), **mapping(each.get("requests"))} for each in containers]
        together = {name: each for name, each in vector.container_requests(pod).items() if name in _SHARES and each}
        gpu_shares.check([*map(quantity.requests, asked), together], notes)
        joint.of(notes, vector.container_requests(pod) | gpu_shares.of_annotations(notes))
    except (gpu_shares.BadShare, joint.BadWish) as error:
        yield Problem(f"{path}.spec", str(error))
    except (quantity.QuantityError, AttributeError, TypeError):
        # Reported where the containers are checked, or by the member.
        return


def _above_limits(
    requests: dict[str, Fraction], limits: dict[str, Fraction], shown: Json, path: str
) -> Iterator[Problem]:
    for name, value in requests.items():
        limit = mapping(shown.get("limits")).get(name, "absent")
        where = f"{path}.requests.{name}"
        if name.startswith(_HUGE):
            if limits.get(name) != value:
                yield Problem(where, f"request and limit ({limit}) must be equal; huge pages can't be overcommitted")
        elif name in limits and value > limits[name]:
            yield Problem(where, f"requests more than the limit of {limit}; lower it, or raise the limit")


def _below_containers(
    spec: Json, requests: dict[str, Fraction], limits: dict[str, Fraction], shown: Json, path: str
) -> Iterator[Problem]:
    together = _of_containers(spec)
    for name in sorted(together):
        # Without a request of its own a pod gets that of its containers, which must be within its limit.
        kind, known = ("requests", requests) if name in requests else ("limits", limits)
        if name in known and together[name] > known[name] * quantity.scale_of(name):
            needed = quantity.format_units(name, together[name])
            text = f"{mapping(shown.get(kind))[name]} is below the {needed} that its containers request together"
            yield Problem(f"{path}.{kind}.{name}", f"{text}; raise it")


def _of_containers(spec: Json) -> Vector:
    try:
        found = vector.container_requests(spec)
    except (quantity.QuantityError, AttributeError, TypeError):
        # Reported where the containers are checked.
        return {}
    return found


def _container_limits(spec: Json, limits: dict[str, Fraction], shown: Json, path: str) -> Iterator[Problem]:
    for index, container in enumerate(sequence(spec.get("containers"))):
        wanted = mapping(mapping(mapping(container).get("resources")).get("limits"))
        for name, value in amounts(wanted, "", []).items():
            if name in limits and value > limits[name]:
                text = f"{wanted[name]} is above the limit of the whole pod, {mapping(shown.get('limits'))[name]}"
                yield Problem(f"{path}.containers[{index}].resources.limits.{name}", f"{text}; lower it")
