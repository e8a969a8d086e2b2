"""Override policies: which apply to an object in a member, and the result.

As in Karmada: those of the cluster first, then those of the object's namespace; of each the less exact selectors first,
then by name; within one images, commands, arguments, labels, annotations, documents in fields, and the JSON patch last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from atoll.model import affinity, documents, images, json_patch
from atoll.model.apiresource import ApiResource
from atoll.model.json_patch import Operation, PatchError
from atoll.model.objects import Meta, Slim
from atoll.model.policies import exactness, selecting

Json = dict[str, Any]
_MOST_WORDS: Final = 100_000
"""Words of commands and arguments that one overrider may write into all containers together."""
LARGEST: Final = 1 << 20
"""Bytes of an overridden object: what goes along with it and the API server's limit of 1.5 MiB leave no more."""
MOST_POLICIES: Final = 100
"""Policies of a namespace, or of the cluster, that may select one object by kind and name."""
MOST_RECORD: Final = 64 * 1024
"""Bytes of the overriders of one part: its Work says which were applied, and all annotations together have 256 KiB."""
_DEEPEST: Final = 200
"""Levels of an overridden object; the encoder of requests gives up at 254."""
_DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


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


def apply(
    manifest: Json,
    applied: Iterable[Applied],
    containers: Callable[[Json], Sequence[str]],
    check: Callable[[], None] = lambda: None,
) -> Json:
    """The object as the member gets it; the manifest itself is not changed.

    Args:
        manifest: the object.
        applied: what applies to it, in order.
        containers: JSON pointers of the lists of containers of an object.
        check: called before each overrider; a ValueError of it ends the work.

    Raises:
        Failed: one of them can't be carried out, or the object becomes too large or too deep.
    """
    for each in applied:
        try:
            for step in _STEPS:
                for overrider in each.overriders.get(step) or ():
                    check()
                    manifest = _STEPS[step](manifest, overrider, containers)
            check()
            patch = [
                Operation(item["operator"], item["path"], item.get("value"))
                for item in each.overriders.get("plaintext") or ()
            ]
            manifest = json_patch.apply(manifest, patch) if patch else manifest
            documents.check_depth(manifest, _DEEPEST)
            if (size := len(msgspec.json.encode(manifest))) > LARGEST:
                raise PatchError(f"the {manifest.get('kind')} would have {size} bytes; the most is {LARGEST}")
        except (ValueError, yaml.YAMLError) as error:
            raise Failed(each.policy, " ".join(str(error).split())) from error
        except RecursionError:
            raise Failed(each.policy, "the object or the patch is nested too deeply") from None
    return manifest


def candidates(
    lookup: Callable[[str], Iterable[OverrideObject]], namespace: str, resource: ApiResource, name: str
) -> list[OverrideObject]:
    """The policies of a namespace, or of the cluster, that may select an object.

    Args:
        lookup: the policies under a value of the index `policies.selected`.
        namespace: of the policies; empty for the cluster's.
        resource: of the object.
        name: of the object.

    Raises:
        Failed: they are too many.
    """
    found = {each.metadata.name: each for value in selecting(namespace, resource, name) for each in lookup(value)}
    if len(found) > MOST_POLICIES:
        scope = f"of namespace {namespace}" if namespace else "of the cluster"
        text = f"{len(found)} override policies {scope} may select it; {MOST_POLICIES} are followed at most"
        raise Failed(max(found), f"{text}: select objects by name, or put rules together")
    return list(found.values())


def document_fields(policies: Iterable[OverrideObject], resource: ApiResource, metadata: Meta) -> dict[str, bool]:
    """JSON pointer -> whether it is YAML, of the documents inside an object that an override changes in some member.

    Args:
        policies: of the cluster and of the object's namespace.
        resource: of the object.
        metadata: of the object.
    """
    return {
        str(each.get("fieldPath")): bool(each.get("yaml"))
        for policy in policies
        if not policy.spec.resource_selectors
        or any(exactness(selector, resource, metadata) for selector in policy.spec.resource_selectors)
        for rule in policy.spec.rules
        for each in (rule.get("overriders") or {}).get("fieldOverrider") or ()
    }


def read_document(manifest: Json, place: str, *, is_yaml: bool) -> Any:
    """The value of a document that a field holds as text.

    Raises:
        PatchError: there is no such field, or it holds no text.
        BadDocument: the text can't be read.
    """
    text = json_patch.get(manifest, place)
    if not isinstance(text, str):
        raise PatchError(f"path {place}: what is there is no text")
    try:
        return documents.read_yaml(text) if is_yaml else documents.read_json(text)
    except documents.BadDocument as error:
        raise documents.BadDocument(f"path {place}: the document is not read: {error}") from error


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
        patch, values, written = [], list(overrider.get("value") or ()), 0
        dropped = frozenset(values)
        for pointer, container in _each_container(manifest, containers, f"{field}Overrider"):
            if container.get("name") == overrider["containerName"]:
                there = list(container.get(field) or ())
                adds = overrider["operator"] == "add"
                now = [*there, *values] if adds else [word for word in there if str(word) not in dropped]
                written += len(now)
                if written > _MOST_WORDS:
                    raise PatchError(f"{field}Overrider: it would write more than {_MOST_WORDS} words")
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
    is_yaml = bool(overrider.get("yaml"))
    document = read_document(manifest, place, is_yaml=is_yaml)
    patch = [
        Operation(item["operator"], item["subPath"], item.get("value"))
        for item in overrider.get("yaml" if is_yaml else "json") or ()
    ]
    now = json_patch.apply(document, patch)
    documents.check_depth(now)
    written = yaml.dump(now, Dumper=_DUMPER) if is_yaml else msgspec.json.encode(now, order="sorted").decode()
    return dict(json_patch.apply(manifest, [Operation("replace", place, written)]))


_STEPS: Final[Mapping[str, Callable[[Json, Json, Containers], Json]]] = {
    "imageOverrider": _image,
    "commandOverrider": _words("command"),
    "argsOverrider": _words("args"),
    "labelsOverrider": _named("labels"),
    "annotationsOverrider": _named("annotations"),
    "fieldOverrider": _document,
}
