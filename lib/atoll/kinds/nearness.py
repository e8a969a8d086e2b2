"""Nearness of pods, by annotations: Volcano's, Kueue's and Koordinator's.

A level of Kueue's, or a layer of Koordinator's, is a tier of HyperNodes of that `tierName`, as discovery names it. What
Kueue only prefers, and a Koordinator layer with PreferGather, is mode soft without a ceiling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from atoll.model import keys, numbers
from atoll.model.gang import HOST, Gang, Partition, TopologyWish
from atoll.model.objects import MALFORMED

_PODSET: Final = "kueue.x-k8s.io/podset-"
REQUIRED: Final = f"{_PODSET}required-topology"
PREFERRED: Final = f"{_PODSET}preferred-topology"
UNCONSTRAINED: Final = f"{_PODSET}unconstrained-topology"
SLICE_LEVEL: Final = f"{_PODSET}slice-required-topology"
SLICE_SIZE: Final = f"{_PODSET}slice-size"
SLICE_LAYERS: Final = f"{_PODSET}slice-required-topology-constraints"
GROUP: Final = f"{_PODSET}group-name"
"""Of a template: its pods and pods of others with the same value are in one domain, such as a leader and its
workers.
"""
KOORDINATOR: Final = "gang.scheduling.koordinator.sh/network-topology-spec"
_EXAMPLE: Final = '[{"topology": "block", "size": 8}, {"topology": "rack", "size": 4}]'
MOST_LAYERS: Final = 3
"""Of slices in slices, as in Kueue."""
SAID: Final = (keys.TOPOLOGY_MODE, keys.HIGHEST_TIER, REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_LEVEL, SLICE_SIZE,
               SLICE_LAYERS, GROUP, keys.BALANCED, keys.APART, keys.APART_MODE, KOORDINATOR)  # fmt: skip
"""Annotations that act."""
OF_ALL_KINDS: Final = (keys.BALANCED, keys.APART, keys.APART_MODE)
"""Annotations that a dispatch has from its first Work on (`spread_out`)."""


class _Slices(msgspec.Struct, forbid_unknown_fields=True):
    topology: str
    size: int


class _Layer(msgspec.Struct):
    layer: str = ""
    strategy: str = ""


class _Gathering(msgspec.Struct, rename="camel"):
    gather_strategy: list[_Layer] = []


def topology_of(holders: Iterable[object]) -> dict[str, str]:
    """Annotations of several objects, the first one's before the next one's; malformed ones don't count."""
    found: dict[str, str] = {}
    for notes in map(_notes, holders):
        found = {key: str(notes[key]) for key in SAID if notes.get(key)} | found
    return found


def _notes(holder: object) -> Mapping[str, Any]:
    """The annotations of an object of any form; none where there are none that could be read."""
    about = holder.get("metadata") if isinstance(holder, Mapping) else None
    notes = about.get("annotations") if isinstance(about, Mapping) else None
    return notes if isinstance(notes, Mapping) else {}


def wish(notes: Mapping[str, str]) -> TopologyWish | None:
    """The wish for all pods: Volcano's annotations before Kueue's before Koordinator's; None where there is none."""
    mode, tier = notes.get(keys.TOPOLOGY_MODE), numbers.whole(notes.get(keys.HIGHEST_TIER))
    if mode or tier is not None:
        return TopologyWish(mode or "hard", None if tier is None else min(tier, numbers.INT32))
    if level := notes.get(REQUIRED):
        return TopologyWish("hard", None, level)
    if notes.get(PREFERRED):
        return TopologyWish("soft")
    layers = _layers(notes)
    # Layers go from the top down, so that the last one that must hold all pods implies those above.
    if must := [each.layer for each in layers if each.strategy == "MustGather"]:
        return TopologyWish("hard", None, must[-1])
    return TopologyWish("soft") if layers else None


def partition(notes: Mapping[str, str], replicas: int) -> Partition | None:
    """The slices of so many pods, by Kueue's annotations; None for none, or for wrong ones."""
    level, size = notes.get(SLICE_LEVEL), numbers.whole(notes.get(SLICE_SIZE))
    layers, problems = ([_Slices(level, size)], []) if level and size else _slices(notes)
    found = None
    for each in reversed(layers if replicas > 1 and not problems else ()):
        # One pod is in one domain anyhow.
        if each.size > 1:
            found = Partition(each.size, TopologyWish("hard", None, each.topology), inside=found)
    return found


def _slices(notes: Mapping[str, str]) -> tuple[list[_Slices], list[str]]:
    """The declared layers of slices, the outermost first, and their problems."""
    if not notes.get(SLICE_LAYERS):
        return [], []
    problems = [
        f"can't be beside {key}: make that its first entry, and leave {key} out"
        for key in (SLICE_LEVEL, SLICE_SIZE)
        if notes.get(key)
    ]
    try:
        layers = msgspec.json.decode(notes[SLICE_LAYERS], type=list[_Slices])
    except msgspec.MsgspecError as error:
        return [], [*problems, f"must be a JSON list such as {_EXAMPLE}: {error}"]
    return layers, [*problems, *_wrong_layers(layers)]


def wrong(holder: object, path: str = "", pods: int = 0) -> Iterator[tuple[str, str]]:
    """(path, problem) of annotations of an object of any form whose slices can't be made.

    Args:
        holder: of annotations.
        path: of it.
        pods: that are divided in slices; 0 where that is not known.
    """
    notes = {key: text for key, text in _notes(holder).items() if isinstance(text, str)}
    layers, problems = _slices(notes)
    if layers and not problems and (over := pods % layers[0].size):
        problems.append(
            f"the first size is {layers[0].size}, and {pods} pods are no multiple of it ({over} would be left):"
            " change the size, or the number of pods"
        )
    yield from ((field(path, SLICE_LAYERS), text) for text in problems)


def without_index(holder: object, path: str, why: str) -> Iterator[tuple[str, str]]:
    """As `without_effect`, of slices of pods that have no index, for which there is a reason."""
    for key in (SLICE_LEVEL, SLICE_LAYERS):
        if says(holder, key):
            yield field(path, key), f"has no effect, as slices follow the index of pods: {why}"


def says(holder: object, key: str) -> bool:
    """Whether an object of any form has that annotation, with a value."""
    return bool(_notes(holder).get(key))


def field(path: str, key: str) -> str:
    """Of an annotation of the object at a path."""
    return f"{path}.metadata.annotations[{key}]" if path else f"metadata.annotations[{key}]"


def _wrong_layers(layers: Sequence[_Slices]) -> Iterator[str]:
    if not 1 <= len(layers) <= MOST_LAYERS:
        yield f"has {len(layers)} layers: give 1 to {MOST_LAYERS}"
        return
    for number, each in enumerate(layers):
        outer = layers[number - 1] if number else None
        if not each.topology:
            yield f"[{number}].topology is empty: name a level, such as the tierName of HyperNodes"
        elif each.topology in [other.topology for other in layers[:number]]:
            yield f"[{number}].topology: {each.topology!r} is a level of an earlier entry; give each level once"
        elif each.topology == HOST and number + 1 < len(layers):
            yield f"[{number}].topology: below {HOST} there is no level; make it the last entry"
        if not 1 <= each.size <= numbers.INT32:
            yield f"[{number}].size: {each.size} must be a number of pods, 1 or more"
        elif outer is not None and outer.size % each.size:
            yield (
                f"[{number}].size: slices of {each.size} pods do not fill the slices of {outer.size} that they are in;"
                " use a divisor of that"
            )


def balanced(notes: Mapping[str, str]) -> TopologyWish | None:
    """The tier over whose domains pods are shared out evenly; None for none."""
    return _tier("soft", notes.get(keys.BALANCED))


def apart(notes: Mapping[str, str]) -> TopologyWish | None:
    """The tier of which no domain has pods of two groups; None for any."""
    return _tier("soft" if notes.get(keys.APART_MODE) == "soft" else "hard", notes.get(keys.APART))


def _tier(mode: str, said: str | None) -> TopologyWish | None:
    if not said:
        return None
    number = numbers.whole(said)
    return TopologyWish(mode, None, said) if number is None else TopologyWish(mode, min(number, numbers.INT32))


def spread_out(gang: Gang) -> dict[str, str]:
    """The annotations of its pods that say how a gang is balanced, and kept apart."""
    found = {}
    for key, said in ((keys.BALANCED, gang.balanced), (keys.APART, gang.apart)):
        if said is not None:
            found[key] = said.tier
    if gang.apart is not None:
        found[keys.APART_MODE] = gang.apart.mode
    return found


def without_effect(holder: object, path: str = "") -> Iterator[tuple[str, str]]:
    """(path, what does not act, and why) of annotations of an object of any form."""
    found = {key: text for key, text in _notes(holder).items() if isinstance(text, str)}
    yield from ((field(path, key), text) for key, text in _without_effect(found))


def _without_effect(notes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if notes.get(REQUIRED) and notes.get(PREFERRED):
        yield PREFERRED, f"has no effect beside {REQUIRED}; keep one of them"
    if notes.get(SLICE_LEVEL) and numbers.whole(notes.get(SLICE_SIZE)) is None:
        yield SLICE_SIZE, "is missing or no whole number: slices have no effect without their size"
    if notes.get(SLICE_SIZE) and not notes.get(SLICE_LEVEL):
        yield SLICE_SIZE, f"has no effect without {SLICE_LEVEL}"
    if notes.get(GROUP) and wish(notes) is None:
        yield GROUP, f"has no effect without {REQUIRED} or {PREFERRED}"
    if (mode := notes.get(keys.APART_MODE)) and mode not in ("hard", "soft"):
        yield keys.APART_MODE, f"has no effect: {mode!r} is neither hard nor soft, and it is hard"
    if notes.get(keys.APART_MODE) and not notes.get(keys.APART):
        yield keys.APART_MODE, f"has no effect without {keys.APART}"
    if notes.get(KOORDINATOR) and not _layers(notes):
        yield KOORDINATOR, "has no gatherStrategy that can be read, so it has no effect"
    if "podCountMultiple" in notes.get(KOORDINATOR, ""):
        yield KOORDINATOR, "podCountMultiple has no effect"


def unread(holder: object, path: str = "") -> Iterator[tuple[str, str]]:
    """As `without_effect`, for a workload with fields for the nearness of its pods."""
    notes = _notes(holder)
    for key in SAID:
        if notes.get(key) and key not in OF_ALL_KINDS:
            yield (
                field(path, key),
                "has no effect on a Volcano Job: use networkTopology of the Job, or partitionPolicy of a task",
            )


def without_groups(holders: Sequence[object], gang: Callable[[], Gang]) -> Iterator[tuple[str, str]]:
    """As `without_effect`, of a workload that has no groups to keep apart.

    Args:
        holders: of annotations.
        gang: of the workload.
    """
    notes = topology_of(holders)
    if not notes.get(keys.APART):
        return
    try:
        idle = gang().apart is None
    except (*MALFORMED, ValueError):
        # Its problems are reported elsewhere.
        return
    if idle:
        text = "has no effect: it has one task, whose pods are in no groups; use podAntiAffinity or topology spread"
        yield f"metadata.annotations[{keys.APART}]", text


def as_pod_group(
    gang_wish: TopologyWish | None, partitions: Mapping[str, Partition | None], labels: Mapping[str, str]
) -> dict[str, Any]:
    """`networkTopology` and `subGroupPolicy` of the PodGroup of such pods.

    Args:
        gang_wish: of all of them.
        partitions: task -> its groups.
        labels: task -> label whose values tell groups apart; the index of pods where there is none.
    """
    found: dict[str, Any] = {}
    if gang_wish is not None:
        found["networkTopology"] = _topology(gang_wish)
    groups: dict[str, dict[str, Any]] = {}
    inner: dict[str, Partition] = {}
    for task, part in partitions.items():
        if part is None:
            continue
        name = part.name or task
        each = groups.setdefault(
            name,
            {
                "name": name,
                "subGroupSize": 0,
                "labelSelector": {"matchExpressions": [{"key": keys.TASK_SPEC, "operator": "In", "values": []}]},
                "matchLabelKeys": [labels[task]] if task in labels else [],
                **({"networkTopology": _topology(part.wish)} if part.wish is not None else {}),
            },
        )
        each["subGroupSize"] += part.size
        each["labelSelector"]["matchExpressions"][0]["values"].append(task)
        if part.inside is not None:
            inner[name] = part.inside
    if groups:
        found["subGroupPolicy"] = [
            policy for name, each in groups.items() for policy in (each, *layers_below(each, inner.get(name)))
        ]
    return found


def layers_below(
    policy: Mapping[str, Any], part: Partition | None, labels: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """A policy of a PodGroup for each layer of groups inside those of this policy. A layer that chooses the same pods
    as one before it divides that one's groups.

    Args:
        policy: as `subGroupPolicy` has it.
        part: the groups inside of its groups.
        labels: per layer the label whose values tell its groups apart; the index of pods where there is none.
    """
    number = 0
    while part is not None:
        number += 1
        policy = {
            **policy,
            "name": f"{str(policy['name']).partition('/')[0]}/{number}",
            "subGroupSize": part.size,
            "matchLabelKeys": [*(policy.get("matchLabelKeys") or ()), *labels[number - 1 : number]],
            "networkTopology": None if part.wish is None else _topology(part.wish),
        }
        yield {key: value for key, value in policy.items() if value is not None}
        part = part.inside


def _topology(said: TopologyWish) -> dict[str, Any]:
    tier = {} if said.highest_tier_allowed is None else {"highestTierAllowed": said.highest_tier_allowed}
    name = {} if said.highest_tier_name is None else {"highestTierName": said.highest_tier_name}
    return {"mode": said.mode, **tier, **name}


def _layers(notes: Mapping[str, str]) -> list[_Layer]:
    if not (text := notes.get(KOORDINATOR)):
        return []
    try:
        found = msgspec.json.decode(text, type=_Gathering).gather_strategy
    except msgspec.MsgspecError:
        return []
    return [each for each in found if each.layer]
