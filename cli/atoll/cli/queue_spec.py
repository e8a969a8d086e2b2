"""From options to Queue objects, and from an existing queue to the patch that makes it what the options say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from atoll.cli.errors import USAGE, CommandError

Json = dict[str, Any]

_LISTS = ("capability", "deserved", "guarantee")
_KEY = r"(?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_TERMS = (
    (re.compile(rf"!\s*(?P<key>{_KEY})"), "DoesNotExist"),
    (re.compile(rf"(?P<key>{_KEY})\s+in\s*\((?P<values>[^()]*)\)"), "In"),
    (re.compile(rf"(?P<key>{_KEY})\s+notin\s*\((?P<values>[^()]*)\)"), "NotIn"),
    (re.compile(rf"(?P<key>{_KEY})\s*!=\s*(?P<values>[-A-Za-z0-9_.]*)"), "NotIn"),
    (re.compile(rf"(?P<key>{_KEY})\s*==?\s*(?P<values>[-A-Za-z0-9_.]*)"), "Equals"),
    (re.compile(rf"(?P<key>{_KEY})"), "Exists"),
)


def resources(text: str | None, option: str) -> dict[str, str]:
    """`cpu=64,nvidia.com/gpu=16` as a ResourceList.

    Raises:
        CommandError: not of that form, or not a quantity.
    """
    from atoll.model.quantity import QuantityError, parse

    result: dict[str, str] = {}
    for part in (text or "").split(","):
        if not part.strip():
            continue
        name, equals, amount = (piece.strip() for piece in part.partition("="))
        if not (name and equals and amount):
            raise CommandError(f"{option} {part.strip()!r}: write resource=quantity, such as cpu=64,memory=1Ti", USAGE)
        if name in result:
            raise CommandError(f"{option}: {name} is given twice", USAGE)
        try:
            if parse(amount) < 0:
                raise CommandError(f"{option} {name}={amount}: must not be negative", USAGE)
        except QuantityError as error:
            raise CommandError(f"{option} {name}: {error}", USAGE) from error
        result[name] = amount
    return result


def selector(text: str) -> Json:
    """A label selector as kubectl takes it, `team=a,env in (dev,test),!old`, as a LabelSelector.

    Raises:
        CommandError: it can't be read.
    """
    labels: dict[str, str] = {}
    expressions: list[Json] = []
    for part in re.split(r",(?![^()]*\))", text):
        for pattern, operator in _TERMS:
            found = pattern.fullmatch(part.strip())
            if found is None:
                continue
            key, values = found["key"], [each.strip() for each in (found.groupdict().get("values") or "").split(",")]
            if operator == "Equals" and labels.get(key, values[0]) == values[0]:
                labels[key] = values[0]
            elif operator in ("Exists", "DoesNotExist"):
                expressions.append({"key": key, "operator": operator})
            else:
                expressions.append({"key": key, "operator": operator.replace("Equals", "In"), "values": values})
            break
        else:
            raise CommandError(
                f"--namespaces {part.strip()!r}: write a label selector, such as team=a or 'env in (dev,test)'", USAGE
            )
    result: Json = {}
    if labels:
        result["matchLabels"] = labels
    if expressions:
        result["matchExpressions"] = expressions
    return result


def queue_object(name: str, *, namespaces: str | None = None, **options: Any) -> Json:
    """The Queue that these options ask for; what is not given is left out.

    Args:
        name: of the queue.
        namespaces: label selector of the namespaces that may use it.
        options: `capability`, `deserved` and `guarantee` as text; the rest as the fields of the spec.
    """
    from atoll.model import keys

    metadata: Json = {"name": name}
    if namespaces:
        metadata["annotations"] = {keys.NAMESPACE_SELECTOR: json.dumps(selector(namespaces))}
    spec: Json = {}
    for key, value in options.items():
        if value is None or value == "":
            continue
        spec[_field(key)] = _wrapped(key, resources(value, f"--{key}")) if key in _LISTS else value
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": metadata, "spec": spec}


def update(queue: Json, *, namespaces: str | None = None, **options: Any) -> Json:
    """The merge patch that changes a queue; an empty text removes the field, a list replaces the whole list.

    Args:
        queue: as it is.
        namespaces: as in `queue_object`; empty opens the queue to all namespaces.
        options: as in `queue_object`.

    Raises:
        CommandError: nothing is to be changed, or an option can't be read.
    """
    from atoll.model import keys

    patch: Json = {"metadata": {"uid": queue["metadata"]["uid"]}}
    if namespaces is not None:
        text = json.dumps(selector(namespaces)) if namespaces else None
        patch["metadata"]["annotations"] = {keys.NAMESPACE_SELECTOR: text}
    spec: Json = {}
    for key, value in options.items():
        if value is None:
            continue
        if value == "":
            spec[_field(key)] = None
        elif key in _LISTS:
            before = (queue.get("spec") or {}).get(key) or {}
            before = (before.get("resource") or {}) if key == "guarantee" else before
            after: Json = {**dict.fromkeys(before), **resources(value, f"--{key}")}
            spec[key] = _wrapped(key, after)
        else:
            spec[_field(key)] = value
    if spec:
        patch["spec"] = spec
    if not spec and namespaces is None:
        raise CommandError("nothing to change: give an option, such as --capability cpu=64", USAGE)
    return patch


def _field(option: str) -> str:
    return {"strategy": "dequeueStrategy"}.get(option, option)


def _wrapped(key: str, amounts: Mapping[str, Any]) -> Json:
    return {"resource": dict(amounts)} if key == "guarantee" else dict(amounts)
