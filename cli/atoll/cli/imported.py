"""Objects of another queueing system, read as they come: every field has a place here, or is named as unknown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec

from atoll.cli.errors import USAGE, CommandError
from atoll.model import keys, quantity
from atoll.model.apiresource import PRIORITY_CLASSES, QUEUES, ApiResource

Json = dict[str, Any]
Amount = str | int | float
_T = TypeVar("_T")

LARGEST_PRIORITY: Final = 1_000_000_000
"""Of a PriorityClass that Kubernetes does not bring itself."""
_SERVER_FIELDS: Final = {"apiVersion", "kind", "metadata", "status"}
MOST_OBJECTS: Final = 10_000


class Metadata(msgspec.Struct, frozen=True):
    """The part of an object's metadata that a Queue may take over."""

    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


@dataclass(slots=True)
class Imported:
    """The objects for Atoll, parents first, and a line for each thing without a counterpart."""

    objects: list[Json] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def flattened(documents: Sequence[Any]) -> list[Json]:
    """The objects of the documents and of the Lists among them.

    Raises:
        CommandError: one is no object of Kubernetes, or there are too many.
    """
    found: list[Json] = []
    for each in documents:
        listed = isinstance(each, dict) and str(each.get("kind")).endswith("List") and "items" in each
        items = each["items"] if listed else [each]
        if not isinstance(items, list) or not all(map(_is_object, items)):
            raise CommandError("every document needs apiVersion, kind and metadata.name of an object", USAGE)
        found += items
    if len(found) > MOST_OBJECTS:
        raise CommandError(f"{len(found)} objects; at most {MOST_OBJECTS}: import them in parts", USAGE)
    return found


def _is_object(found: Any) -> bool:
    meta = found.get("metadata") if isinstance(found, dict) else None
    return isinstance(meta, dict) and isinstance(meta.get("name"), str) and isinstance(found.get("kind"), str)


def read(obj: Json, into: type[_T], content: Any, notes: list[str]) -> _T:
    """The content of an object, with a note for each field that the type lacks.

    Raises:
        CommandError: a field has another type.
    """
    try:
        found = msgspec.convert({} if content is None else content, into)
    except msgspec.ValidationError as error:
        raise CommandError(f"{title(obj)}: {error}", USAGE) from error
    notes.extend(
        f"{title(obj)}: field {path} is not known to this version of atollctl and is left out"
        for path in _unknown(content, into)
    )
    return found


def metadata(obj: Json, notes: list[str]) -> Metadata:
    """The name, labels and annotations; annotations go, with a note, as Atoll reads none of them."""
    try:
        found = msgspec.convert(obj["metadata"], Metadata)
    except msgspec.ValidationError as error:
        raise CommandError(f"{title(obj)}: metadata: {error}", USAGE) from error
    notes.extend(
        f"{title(obj)}: annotation {key} is left out; set annotations of Atoll's once it is applied"
        for key in found.annotations or {}
        if key != keys.LAST_APPLIED
    )
    return found


def rest(obj: Json, *known: str) -> Iterator[str]:
    """A note for each top-level field beside those that are known and those of the API server."""
    for name in obj.keys() - _SERVER_FIELDS - {*known}:
        yield f"{title(obj)}: field {name} is not known to this version of atollctl and is left out"


def title(obj: Json) -> str:
    """Kind and name, as notes and errors call an object."""
    meta = obj["metadata"]
    namespace = f"{meta['namespace']}/" if meta.get("namespace") else ""
    return f"{obj['kind']} {namespace}{meta.get('name')}"


def new_queue(name: str, spec: Json, labels: Mapping[str, str] | None = None) -> Json:
    """A Queue of Atoll."""
    return {**_object(QUEUES, name, labels), "spec": spec}


def _object(resource: ApiResource, name: str, labels: Mapping[str, str] | None) -> Json:
    meta = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}


def priority_class(obj: Json, notes: list[str]) -> Json | None:
    """A PriorityClass of Kubernetes from one, or from Kueue's WorkloadPriorityClass; None where it can't be."""
    meta = metadata(obj, notes)
    notes.extend(rest(obj, "value", "description", "globalDefault", "preemptionPolicy"))
    value = obj.get("value", 0)
    if not isinstance(value, int) or value > LARGEST_PRIORITY or value < -(2**31):
        text = f"value {value!r} is not possible for a PriorityClass; choose one up to {LARGEST_PRIORITY}"
        notes.append(f"{title(obj)}: {text}, it is left out")
        return None
    if meta.name.startswith("system-"):
        notes.append(f"{title(obj)}: Kubernetes keeps names with system- for itself; it is left out")
        return None
    result = {**_object(PRIORITY_CLASSES, meta.name, meta.labels), "value": value}
    for name in ("description", "globalDefault", "preemptionPolicy"):
        if obj.get(name) not in (None, "", False):
            result[name] = obj[name]
    return result


def amount(obj: Json, path: str, text: Amount) -> Fraction:
    """The value of a quantity.

    Raises:
        CommandError: it is none, or negative.
    """
    try:
        value = quantity.parse(text)
    except quantity.QuantityError as error:
        raise CommandError(f"{title(obj)}: {path}: {error}", USAGE) from error
    if value < 0:
        raise CommandError(f"{title(obj)}: {path}: {text} is negative", USAGE)
    return value


def resources(amounts: Mapping[str, Fraction]) -> dict[str, str]:
    """A ResourceList; CPU in thousandths, all else in whole units, rounded down."""
    units = {name: int(value * quantity.scale_of(name)) for name, value in amounts.items()}
    return {name: quantity.format_units(name, value) for name, value in units.items()}


def by_parents(queues: Iterable[Json]) -> list[Json]:
    """Parents first, since admission refuses a queue whose parent does not exist.

    Raises:
        CommandError: the queues form a circle.
    """
    waiting = {each["metadata"]["name"]: each for each in queues}
    found: list[Json] = []
    while waiting:
        ready = [name for name, each in waiting.items() if each["spec"].get("parent") not in waiting]
        if not ready:
            raise CommandError(f"these are below each other in a circle: {', '.join(sorted(waiting))}", USAGE)
        found += [waiting.pop(name) for name in ready]
    return found


def _unknown(value: Any, kind: Any, path: str = "") -> Iterator[str]:
    """Paths of fields that a type does not have, inside lists and structs as well."""
    kind = next((each for each in get_args(kind) if get_origin(kind) is UnionType and each is not NoneType), kind)
    if isinstance(value, list) and get_origin(kind) is list:
        for index, each in enumerate(value):
            yield from _unknown(each, get_args(kind)[0], f"{path}[{index}]")
    elif isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        known = {each.encode_name: each.type for each in msgspec.structs.fields(kind)}
        for name, each in value.items():
            place = f"{path}.{name}" if path else name
            if name in known:
                yield from _unknown(each, known[name], place)
            else:
                yield place
