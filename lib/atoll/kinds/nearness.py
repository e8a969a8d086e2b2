"""How near each other pods are to be, as annotations say it: Volcano's, Kueue's and Koordinator's.

A level of Kueue's, or a layer of Koordinator's, is a tier of HyperNodes of that `tierName`, as discovery names it. What
Kueue only prefers, and a Koordinator layer with PreferGather, is mode soft without a ceiling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from atoll.model import keys, numbers
from atoll.model.gang import Partition, TopologyWish

_PODSET: Final = "kueue.x-k8s.io/podset-"
REQUIRED: Final = f"{_PODSET}required-topology"
PREFERRED: Final = f"{_PODSET}preferred-topology"
UNCONSTRAINED: Final = f"{_PODSET}unconstrained-topology"
SLICE_LEVEL: Final = f"{_PODSET}slice-required-topology"
SLICE_SIZE: Final = f"{_PODSET}slice-size"
SLICE_LAYERS: Final = f"{_PODSET}slice-required-topology-constraints"
GROUP: Final = f"{_PODSET}group-name"
"""Of a template: its pods and those of others that say the same are in one domain, such as a leader and its workers."""
KOORDINATOR: Final = "gang.scheduling.koordinator.sh/network-topology-spec"
SAID: Final = (keys.TOPOLOGY_MODE, keys.HIGHEST_TIER, REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_LEVEL, SLICE_SIZE,
               GROUP, KOORDINATOR)  # fmt: skip
"""Annotations that act."""
_HOST: Final = "kubernetes.io/hostname"


class _Layer(msgspec.Struct):
    layer: str = ""
    strategy: str = ""


class _Gathering(msgspec.Struct, rename="camel"):
    gather_strategy: list[_Layer] = []


def said_by(holder: Mapping[str, Any]) -> dict[str, str]:
    """Those annotations of an object that say how near each other pods are to be."""
    found = (holder.get("metadata") or {}).get("annotations") or {}
    return {key: str(found[key]) for key in SAID if found.get(key)}


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
    """The slices of so many pods, by Kueue's annotations; None where there are none."""
    level, size = notes.get(SLICE_LEVEL), numbers.whole(notes.get(SLICE_SIZE))
    if not level or not size or size < 2 or replicas < 2:
        return None
    return Partition(size, TopologyWish("hard", None, level))


def without_effect(holder: object, path: str = "") -> Iterator[tuple[str, str]]:
    """(path, what does not act, and why) of annotations of an object of any form."""
    about = holder.get("metadata") if isinstance(holder, Mapping) else None
    notes = about.get("annotations") if isinstance(about, Mapping) else None
    if isinstance(notes, Mapping):
        inside = f"{path}.metadata" if path else "metadata"
        found = {key: text for key, text in notes.items() if isinstance(text, str)}
        yield from ((f"{inside}.annotations[{key}]", text) for key, text in _without_effect(found))


def _without_effect(notes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if notes.get(REQUIRED) and notes.get(PREFERRED):
        yield PREFERRED, f"has no effect beside {REQUIRED}; keep one of them"
    if notes.get(SLICE_LEVEL) and numbers.whole(notes.get(SLICE_SIZE)) is None:
        yield SLICE_SIZE, "is missing or no whole number: slices have no effect without their size"
    if notes.get(SLICE_SIZE) and not notes.get(SLICE_LEVEL):
        yield SLICE_SIZE, f"has no effect without {SLICE_LEVEL}"
    if notes.get(GROUP) and wish(notes) is None:
        yield GROUP, f"has no effect without {REQUIRED} or {PREFERRED}"
    if notes.get(SLICE_LAYERS):
        yield SLICE_LAYERS, f"has no effect: slices have one layer, {SLICE_LEVEL}"
    for key in (REQUIRED, SLICE_LEVEL):
        if notes.get(key) == _HOST:
            yield key, f"{_HOST} is no tier of HyperNodes, so its pods wait for ever; ask for larger pods instead"
    if notes.get(KOORDINATOR) and not _layers(notes):
        yield KOORDINATOR, "has no gatherStrategy that can be read, so it has no effect"
    if "podCountMultiple" in notes.get(KOORDINATOR, ""):
        yield KOORDINATOR, "podCountMultiple has no effect"


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
    if groups:
        found["subGroupPolicy"] = list(groups.values())
    return found


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
