"""From options to Queue objects, and from an existing queue to the patch that makes it what the options say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from atoll.cli.errors import USAGE, CommandError
from atoll.model import keys

Json = dict[str, Any]

_LISTS = ("capability", "deserved", "guarantee")
_SELECTORS = {"namespaces": keys.NAMESPACE_SELECTOR, "clusters": keys.CLUSTER_AFFINITY}
_DURATIONS = {
    "estimate": keys.RUNNING_ESTIMATE,
    "sla": keys.SLA_WAITING_TIME,
    "protected_for": keys.PROTECTED_FOR,
    "ready_timeout": keys.READY_TIMEOUT,
    "evict_timeout": keys.EVICT_TIMEOUT,
    "fair_half_life": keys.FAIR_HALF_LIFE,
}
_IN_ANNOTATIONS = (
    *_SELECTORS,
    *_DURATIONS,
    "default_policy",
    "flavor",
    "reclaim_unpreemptable",
    "order",
    "node_scoring",
)
_POLICY = re.compile(r"([-a-z0-9.]+/)?[-a-z0-9.]+")
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
    from atoll.model.quantity import resource_list

    try:
        return resource_list(text or "")
    except ValueError as error:
        raise CommandError(f"{option} {error}", USAGE) from error


def _changed(text: str, option: str) -> Json:
    """`cpu=64,memory-` as what a merge patch changes of a ResourceList: others stay.

    Raises:
        CommandError: not of that form, not a quantity, or a resource given twice.
    """
    parts = [part.strip() for part in text.split(",")]
    removed = [part[:-1] for part in parts if part.endswith("-") and "=" not in part]
    found: Json = resources(",".join(part for part in parts if "=" in part or not part.endswith("-")), option)
    if twice := [name for name in removed if name in found or not name or removed.count(name) > 1]:
        raise CommandError(f"{option}: {twice[0] or '-'} is given twice, or is no resource", USAGE)
    return found | dict.fromkeys(removed)


def selector(text: str, option: str = "--namespaces") -> Json:
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
                f"{option} {part.strip()!r}: write a label selector, such as team=a or 'env in (dev,test)'", USAGE
            )
    result: Json = {}
    if labels:
        result["matchLabels"] = labels
    if expressions:
        result["matchExpressions"] = expressions
    return result


def members(items: Sequence[str]) -> list[Json]:
    """`east:cpu=64` and `west`, one per item, as extendClusters.

    Raises:
        CommandError: an item can't be read.
    """
    result: list[Json] = []
    for item in items:
        name, colon, amounts = item.partition(":")
        if not name or (colon and not amounts):
            raise CommandError(f"--member {item!r}: write a member, or member:resource=quantity", USAGE)
        result.append({"name": name, **({"capacity": resources(amounts, "--member")} if amounts else {})})
    return result


def _annotations(options: Mapping[str, Any]) -> dict[str, str | None]:
    """Annotations that options ask for; None for one to remove, nothing for an option that is not given.

    Raises:
        CommandError: an option can't be read.
    """
    from atoll.model import duration

    found: dict[str, str | None] = {}
    for option, key in _SELECTORS.items():
        if (text := options.get(option)) is not None:
            found[key] = json.dumps(selector(text, f"--{option}")) if text else None
    for option, key in _DURATIONS.items():
        if (text := options.get(option)) is not None:
            try:
                seconds = duration.parse(text or "0s")
            except duration.DurationError as error:
                raise CommandError(f"--{option.replace('_', '-')} {error}", USAGE) from error
            if option == "estimate" and text and not seconds:
                raise CommandError(f"--estimate {text!r}: must be longer than nothing, such as 2h; '' for none", USAGE)
            found[key] = text or None
    if (text := options.get("default_policy")) is not None:
        if text and not _POLICY.fullmatch(text):
            raise CommandError(
                f"--default-policy {text!r}: write NAME of a ClusterPropagationPolicy, or NAMESPACE/NAME of a"
                " PropagationPolicy",
                USAGE,
            )
        found[keys.DEFAULT_POLICY] = text or None
    if (text := options.get("node_scoring")) is not None:
        found[keys.NODE_SCORING] = _node_scoring(text) if text else None
    if (order := options.get("order")) is not None:
        found[keys.ORDER] = str(order)
    if (firm := options.get("reclaim_unpreemptable")) is not None:
        found[keys.RECLAIM_UNPREEMPTABLE] = "true" if firm else "false"
    if items := options.get("flavor"):
        found[keys.FLAVORS] = None if items == [""] else flavors(items)
    return found


def _node_scoring(text: str) -> str:
    from atoll.model import scoring

    try:
        scoring.parse(text)
    except scoring.ScoringError as error:
        raise CommandError(f"--node-scoring {error}", USAGE) from error
    return text


def flavors(items: Sequence[str]) -> str:
    """`nvidia.com/gpu@h100=KEY=VALUE`, one per item, as the annotation that names flavors.

    Raises:
        CommandError: an item can't be read.
    """
    from atoll.model import flavors as model

    named: dict[str, dict[str, str]] = {}
    for item in items:
        name, equals, label = item.partition("=")
        resource, flavor = model.split(name)
        if not (resource and flavor and equals and label):
            raise CommandError(f"--flavor {item!r}: write RESOURCE@FLAVOR=KEY=VALUE of the nodes' label", USAGE)
        if flavor in named.setdefault(resource, {}):
            raise CommandError(f"--flavor: {name} is given twice", USAGE)
        named[resource][flavor] = label
    text = json.dumps(named)
    try:
        model.parse(text)
    except model.FlavorError as error:
        raise CommandError(f"--flavor: {error}", USAGE) from error
    return text


def queue_object(name: str, **options: Any) -> Json:
    """The Queue that these options ask for; fields of others are left out.

    Args:
        name: of the queue.
        options: `capability`, `deserved` and `guarantee` as text; `namespaces` and `clusters` as label selectors;
            `estimate`, `sla`, `protected_for`, `ready_timeout`, `evict_timeout` and `fair_half_life` as durations;
            `default_policy` as a name; `member` as items of `members`, `flavor` as those of `flavors`; the rest as the
            fields of the spec.
    """
    metadata: Json = {"name": name}
    if annotations := {key: text for key, text in _annotations(options).items() if text}:
        metadata["annotations"] = annotations
    spec: Json = {}
    for key, value in options.items():
        if key in _IN_ANNOTATIONS or value is None or value in ("", []):
            continue
        spec[_field(key)] = _value(key, value)
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": metadata, "spec": spec}


def update(queue: Json, **options: Any) -> Json:
    """The merge patch that changes a queue; an empty text removes the field, resources that are not named stay.

    Args:
        queue: as it is.
        options: as in `queue_object`; an empty selector or duration removes it.

    Raises:
        CommandError: nothing is to be changed, or an option can't be read.
    """
    patch: Json = {"metadata": {"uid": queue["metadata"]["uid"]}}
    annotations = _annotations(options)
    if annotations:
        patch["metadata"]["annotations"] = annotations
    spec: Json = {}
    for key, value in options.items():
        if key in _IN_ANNOTATIONS or value is None or value == []:
            continue
        if value in ("", [""]):
            spec[_field(key)] = None
        elif key in _LISTS:
            spec[key] = _wrapped(key, _changed(value, f"--{key}"))
        else:
            spec[_field(key)] = _value(key, value)
    if spec:
        patch["spec"] = spec
    if not spec and not annotations:
        raise CommandError("nothing to change: give an option, such as --capability cpu=64", USAGE)
    return patch


def lists(queue: Json, options: Mapping[str, Any]) -> str:
    """The resource lists that options named, as they are now: `capability cpu=8,memory=1Ti`."""
    found = []
    for key in _LISTS:
        if options.get(key) is not None:
            amounts = (queue.get("spec") or {}).get(key) or {}
            amounts = (amounts.get("resource") or {}) if key == "guarantee" else amounts
            found.append(f"{key} {','.join(f'{name}={amount}' for name, amount in sorted(amounts.items())) or 'none'}")
    return "; ".join(found)


def dropped(before: Json, after: Json) -> list[str]:
    """Members and flavors that a queue had: their options replace all of them."""

    def named(queue: Json) -> tuple[set[str], set[str]]:
        from atoll.model import flavors as model

        members = {str(each.get("name")) for each in (queue.get("spec") or {}).get("extendClusters") or ()}
        text = (queue["metadata"].get("annotations") or {}).get(keys.FLAVORS)
        try:
            known = json.loads(text) if text else {}
            return members, {f"{name}{model.SIGN}{each}" for name, labels in known.items() for each in labels}
        except (ValueError, AttributeError, TypeError):
            return members, set()

    gone = [sorted(old - new) for old, new in zip(named(before), named(after), strict=True)]
    return [
        f"--{option} replaces all {option}s: {', '.join(names)} {'is' if len(names) == 1 else 'are'} removed"
        for option, names in zip(("member", "flavor"), gone, strict=True)
        if names
    ]


def _field(option: str) -> str:
    return {"strategy": "dequeueStrategy", "member": "extendClusters"}.get(option, option)


def _value(option: str, value: Any) -> Any:
    if option == "member":
        return members(value)
    return _wrapped(option, resources(value, f"--{option}")) if option in _LISTS else value


def _wrapped(key: str, amounts: Mapping[str, Any]) -> Json:
    return {"resource": dict(amounts)} if key == "guarantee" else dict(amounts)
