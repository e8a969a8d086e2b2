"""Override policies: which apply to an object in a member, and what they make of it.

As in Karmada: those of the cluster first, then those of the object's namespace; of each the less exact selectors first,
then by name; within one images, commands, arguments, labels, annotations, documents in fields, and the JSON patch last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from atoll.model import affinity, images, json_patch
from atoll.model.apiresource import ApiResource
from atoll.model.json_patch import Operation, PatchError
from atoll.model.objects import Meta, Slim
from atoll.model.policies import exactness

Json = dict[str, Any]
_LARGEST: Final = 65536
"""Characters of a document in a field: reading 64 KiB of YAML takes half a second."""


class OverrideSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """spec of an OverridePolicy."""

    resource_selectors: list[Json] = []
    override_rules: list[Json] = []
    target_cluster: Json | None = None
    overriders: Json | None = None

    @property
    def rules(self) -> Sequence[Json]:
        """Its rules, also where it is of the older form."""
        return self.override_rules or [{"targetCluster": self.target_cluster, "overriders": self.overriders or {}}]


class OverrideObject(Slim, frozen=True, rename="camel"):
    """An OverridePolicy or a ClusterOverridePolicy."""

    spec: OverrideSpec = OverrideSpec()


decode_override = msgspec.json.Decoder(OverrideObject).decode


class Target(NamedTuple):
    """A member."""

    name: str
    labels: Mapping[str, str]
    fields: Mapping[str, Sequence[str]]
    """Its `provider`, `region` and `zone`, each with all of its values."""


class Applied(NamedTuple):
    """The overriders of one rule that apply."""

    policy: str
    overriders: Json

    def record(self) -> Json:
        """As Karmada writes it on Works."""
        return {"policyName": self.policy, "overriders": self.overriders}


class Failed(Exception):
    """An override can't be carried out on the object."""

    def __init__(self, policy: str, why: str) -> None:
        """Say which and why."""
        super().__init__(why)
        self.policy, self.why = policy, why


def chosen(policies: Iterable[OverrideObject], resource: ApiResource, metadata: Meta, target: Target) -> list[Applied]:
    """What applies to an object in a member, in order.

    Args:
        policies: of the cluster, or of the object's namespace.
        resource: of the object on the host.
        metadata: of the object on the host.
        target: the member.
    """
    found = []
    for policy in policies:
        selectors = policy.spec.resource_selectors
        exact = max((exactness(each, resource, metadata) for each in selectors), default=0) if selectors else 1
        if exact:
            found.append((exact, policy.metadata.name, policy))
    return [
        Applied(name, rule["overriders"])
        for _, name, policy in sorted(found, key=lambda each: each[:2])
        for rule in policy.spec.rules
        if rule.get("overriders")
        and affinity.matches(rule.get("targetCluster") or {}, target.name, target.labels, target.fields)
    ]


def apply(manifest: Json, applied: Iterable[Applied], containers: Callable[[Json], Sequence[str]]) -> Json:
    """The object as the member gets it; the manifest itself is not changed.

    Args:
        manifest: the object.
        applied: what applies to it, in order.
        containers: JSON pointers of the lists of containers of an object.

    Raises:
        Failed: one of them can't be carried out.
    """
    for each in applied:
        try:
            for step in _STEPS:
                for overrider in each.overriders.get(step) or ():
                    manifest = _STEPS[step](manifest, overrider, containers)
            patch = [
                Operation(item["operator"], item["path"], item.get("value"))
                for item in each.overriders.get("plaintext") or ()
            ]
            manifest = json_patch.apply(manifest, patch) if patch else manifest
        except (ValueError, yaml.YAMLError) as error:
            raise Failed(each.policy, " ".join(str(error).split())) from error
    return manifest


Containers = Callable[[Json], Sequence[str]]


def _image(manifest: Json, overrider: Json, containers: Containers) -> Json:
    predicate = overrider.get("predicate")
    if predicate:
        places = [predicate["path"]]
    else:
        places = [f"{pointer}/image" for pointer, _ in _each_container(manifest, containers, "imageOverrider")]
    patch = []
    for place in places:
        image = json_patch.get(manifest, place)
        if not isinstance(image, str):
            raise PatchError(f"path {place}: no image is there")
        now = images.changed(image, overrider["component"], overrider["operator"], overrider.get("value") or "")
        patch.append(Operation("replace", place, now))
    return dict(json_patch.apply(manifest, patch))


def _words(field: str) -> Callable[[Json, Json, Containers], Json]:
    def change(manifest: Json, overrider: Json, containers: Containers) -> Json:
        patch, values = [], list(overrider.get("value") or ())
        for pointer, container in _each_container(manifest, containers, f"{field}Overrider"):
            if container.get("name") == overrider["containerName"]:
                there = list(container.get(field) or ())
                adds = overrider["operator"] == "add"
                now = [*there, *values] if adds else [word for word in there if word not in values]
                patch.append(Operation("add", f"{pointer}/{field}", now))
        return dict(json_patch.apply(manifest, patch))

    return change


def _each_container(manifest: Json, containers: Containers, what: str) -> Iterator[tuple[str, Json]]:
    places = containers(manifest)
    if not places:
        hint = "; name the image by predicate.path" if what == "imageOverrider" else "; use plaintext"
        raise PatchError(f"{what}: a {manifest.get('kind')} has no containers of pod templates{hint}")
    for place in places:
        for index, container in enumerate(json_patch.get(manifest, place)):
            yield f"{place}/{index}", container


def _named(field: str) -> Callable[[Json, Json, Containers], Json]:
    def change(manifest: Json, overrider: Json, _: Containers) -> Json:
        operator, metadata = overrider["operator"], dict(manifest.get("metadata") or {})
        there = dict(metadata.get(field) or {})
        for key, value in (overrider.get("value") or {}).items():
            if operator == "add" or (operator == "replace" and key in there):
                there[key] = value
            elif operator == "remove":
                there.pop(key, None)
        return {**manifest, "metadata": {**metadata, field: there}}

    return change


def _document(manifest: Json, overrider: Json, _: Containers) -> Json:
    place = overrider["fieldPath"]
    text = json_patch.get(manifest, place)
    if not isinstance(text, str):
        raise PatchError(f"path {place}: what is there is no text")
    if len(text) > _LARGEST:
        raise PatchError(f"path {place}: the document is larger than {_LARGEST} characters")
    is_yaml = bool(overrider.get("yaml"))
    document = yaml.safe_load(text) if is_yaml else _decode(text, place)
    patch = [
        Operation(item["operator"], item["subPath"], item.get("value"))
        for item in overrider.get("yaml" if is_yaml else "json") or ()
    ]
    now = json_patch.apply(document, patch)
    written = yaml.safe_dump(now, sort_keys=True) if is_yaml else msgspec.json.encode(now, order="sorted").decode()
    return dict(json_patch.apply(manifest, [Operation("replace", place, written)]))


def _decode(text: str, place: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise PatchError(f"path {place}: the text is no JSON: {error}") from error


_STEPS: Final[Mapping[str, Callable[[Json, Json, Containers], Json]]] = {
    "imageOverrider": _image,
    "commandOverrider": _words("command"),
    "argsOverrider": _words("args"),
    "labelsOverrider": _named("labels"),
    "annotationsOverrider": _named("annotations"),
    "fieldOverrider": _document,
}
