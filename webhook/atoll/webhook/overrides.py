"""Override policies: what Karmada refuses of them, and what would change a decision.

A path says most of it; what only the object shows is refused when the override is applied (`atoll.control.overrides`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import msgspec

from atoll.admission.problems import Json, Problem, mapping, sequence
from atoll.kinds import BY_GVK
from atoll.kinds.overriding import DECIDED, is_decided
from atoll.kube.reflector import Reflector
from atoll.model import documents, json_patch
from atoll.model.apiresource import CONFIGMAPS, SECRETS, SERVICE_ACCOUNTS, ApiResource
from atoll.model.objects import Meta
from atoll.model.overrides import MOST_RECORD, Failed, OverrideObject, candidates, document_fields, read_document
from atoll.model.policies import selected
from atoll.webhook.placements import affinity_problems, selector_problems

_OTHERS = frozenset((each.api_version, each.kind) for each in (CONFIGMAPS, SECRETS, SERVICE_ACCOUNTS))
_OVERRIDERS = (
    "plaintext", "imageOverrider", "commandOverrider", "argsOverrider", "labelsOverrider", "annotationsOverrider",
    "fieldOverrider",
)  # fmt: skip


_MOST_SELECTORS = 100
"""Of one policy: all of them are compared with each object that it may select."""
_MOST_READ = 4 * documents.LARGEST
"""Bytes of all documents of one workload, which are read while an API server waits."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The override policies that a workload may meet."""

    own: Reflector[OverrideObject]
    """OverridePolicies."""
    common: Reflector[OverrideObject]
    """ClusterOverridePolicies."""

    def __post_init__(self) -> None:
        """Add an index to the caches, so call this before they run."""
        for each in (self.own, self.common):
            each.add_index("selected", selected)

    def problems(self, resource: ApiResource, workload: Json, namespace: str) -> Iterator[Problem]:
        """Why members could not get a workload as the policies say; what only a member's copy shows is not here.

        Args:
            resource: of the workload.
            workload: the object.
            namespace: its namespace.
        """
        metadata = mapping(workload.get("metadata"))
        labels = {str(key): str(text) for key, text in mapping(metadata.get("labels")).items()}
        left = _MOST_READ
        meta = Meta(name=str(metadata.get("name") or ""), namespace=namespace, labels=labels)
        for cache, scope in ((self.common, ""), (self.own, namespace)):
            try:
                found = candidates(partial(cache.by_index, "selected"), scope, resource, meta.name)
            except Failed as error:
                yield Problem("metadata.name", error.why)
                continue
            for place, is_yaml in document_fields(found, resource, meta).items():
                try:
                    left -= len(str(json_patch.get(workload, place)))
                    if left < 0:
                        text = f"override policies change documents in it of more than {_MOST_READ} bytes together"
                        yield Problem("spec", f"{text}: use fewer or shorter ones")
                        return
                    read_document(workload, place, is_yaml=is_yaml)
                except documents.BadDocument as error:
                    yield Problem("spec", f"an override policy changes a document in it: {error}")
                except json_patch.PatchError:
                    continue


def override_problems(policy: Json, namespace: str) -> list[Problem]:
    """All that is wrong with an OverridePolicy, or with a ClusterOverridePolicy where `namespace` is empty."""
    spec = mapping(policy.get("spec"))
    problems = list(selector_problems(spec.get("resourceSelectors"), namespace))
    if (count := len(sequence(spec.get("resourceSelectors")))) > _MOST_SELECTORS:
        problems.append(Problem("spec.resourceSelectors", f"has {count}; {_MOST_SELECTORS} are the most"))
    if (size := len(msgspec.json.encode(spec))) > MOST_RECORD:
        text = f"takes {size} bytes; what applies is written on each Work, which holds {MOST_RECORD}: make it smaller"
        problems.append(Problem("spec", text))
    if sequence(spec.get("overrideRules")):
        older = [field for field in ("targetCluster", "overriders") if mapping(spec.get(field))]
        text = "is the older form of overrideRules; set one of them, not both"
        problems += [Problem(f"spec.{field}", text) for field in older]
    for path, rule in _rules(spec):
        problems += affinity_problems(rule.get("targetCluster"), f"{path}.targetCluster")
        problems += _overriders(mapping(rule.get("overriders")), f"{path}.overriders")
    return problems


def override_warnings(policy: Json) -> list[Problem]:
    """What of it has no effect."""
    spec, warnings = mapping(policy.get("spec")), []
    for index, each in enumerate(map(mapping, sequence(spec.get("resourceSelectors")))):
        field, gvk = f"spec.resourceSelectors[{index}]", (str(each.get("apiVersion")), str(each.get("kind")))
        if gvk in _OTHERS:
            if each.get("labelSelector") and not each.get("name"):
                text = "selects none: what goes along with workloads is selected by name or kind"
                warnings.append(Problem(f"{field}.labelSelector", text))
        elif gvk not in BY_GVK:
            text = f"has no effect: Atoll sends members no {gvk[1]} ({gvk[0]}) that an override can change"
            warnings.append(Problem(field, text))
    if not any(mapping(rule.get("overriders")).get(each) for _, rule in _rules(spec) for each in _OVERRIDERS):
        warnings.append(Problem("spec.overrideRules", "has no effect: nothing is overridden"))
    return warnings


def _rules(spec: Json) -> Iterator[tuple[str, Json]]:
    rules = sequence(spec.get("overrideRules"))
    for index, rule in enumerate(rules):
        yield f"spec.overrideRules[{index}]", mapping(rule)
    if not rules:
        yield "spec", spec


def _overriders(overriders: Json, path: str) -> Iterator[Problem]:
    for field, each in _items(overriders, "plaintext", path):
        yield from _operation(each, field, "path")
        yield from _decided(each, field)
    for field, each in _items(overriders, "imageOverrider", path):
        if each.get("predicate") is not None:
            yield from _pointer(mapping(each["predicate"]).get("path"), f"{field}.predicate.path")
        if each.get("operator") in ("add", "replace") and not each.get("value"):
            yield Problem(f"{field}.value", f"is needed to {each['operator']}")
    for name in ("labelsOverrider", "annotationsOverrider"):
        for field, each in _items(overriders, name, path):
            for key in mapping(each.get("value")):
                if is_decided(str(key)):
                    text = "connects the object with what was decided about it and can't be overridden"
                    yield Problem(f"{field}.value[{key}]", text)
    for field, each in _items(overriders, "fieldOverrider", path):
        yield from _pointer(each.get("fieldPath"), f"{field}.fieldPath")
        if bool(each.get("json")) == bool(each.get("yaml")):
            yield Problem(field, "set json or yaml, one of them")
        for name in ("json", "yaml"):
            for inner, operation in _items(each, name, field):
                yield from _operation(operation, inner, "subPath")


def _items(holder: Json, name: str, path: str) -> Iterator[tuple[str, Json]]:
    return ((f"{path}.{name}[{index}]", mapping(each)) for index, each in enumerate(sequence(holder.get(name))))


def _operation(operation: Json, field: str, name: str) -> Iterator[Problem]:
    yield from _pointer(operation.get(name), f"{field}.{name}")
    operator, has = operation.get("operator"), operation.get("value") is not None
    if operator in ("add", "replace") and not has:
        yield Problem(f"{field}.value", f"is needed to {operator}")
    if operator == "remove" and has:
        yield Problem(f"{field}.value", "is not used to remove; leave it out")


def _pointer(path: object, field: str) -> Iterator[Problem]:
    try:
        json_patch.steps(str(path or ""))
    except json_patch.PatchError as error:
        yield Problem(field, f"{error}: use a JSON pointer, such as /spec/template/spec/containers/0/image")


def _decided(operation: Json, field: str) -> Iterator[Problem]:
    """Refuse paths and values that would change decisions."""
    try:
        parts = json_patch.steps(str(operation.get("path") or ""))
    except json_patch.PatchError:
        return
    if not parts or (parts[0] in ("apiVersion", "kind", "status")):
        yield Problem(f"{field}.path", "would make it another object; override fields of spec, data or metadata")
    elif parts[0] == "metadata":
        key = parts[2] if len(parts) > 2 else ""
        if len(parts) < 3 or parts[1] not in ("labels", "annotations") or is_decided(key):
            text = (
                "names and what connects the object with its decision can't be overridden; labels and annotations can"
            )
            yield Problem(f"{field}.path", f"{text}, one by one")
    elif parts[0] == "spec" and (name := next(_named(parts, operation.get("value")), "")):
        text = f"would change {name}: {DECIDED[name]}, which is decided once, before the member is known"
        yield Problem(f"{field}.path", f"{text}; change the workload instead")


def _named(parts: list[str], value: object) -> Iterator[str]:
    """Decided fields on the way to a place and in values written there; names of variables are no fields."""
    if "env" in parts:
        return
    yield from (part for part in parts if part in DECIDED)
    if isinstance(value, dict):
        for key, inner in value.items():
            if key != "env":
                yield from _named([str(key)], inner)
    elif isinstance(value, list):
        for item in value:
            yield from _named([], item)
