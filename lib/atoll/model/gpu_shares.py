"""Parts of GPUs under the names of several systems, in one arithmetic: thousandths and bytes of cards.

HAMi, Volcano and Koordinator name resources of containers, KAI annotations of pods. Requests keep the names that a pod
uses, which its nodes advertise. Where Atoll's placer can hand cards over, the same amount in `SHARE` and `MEMORY` comes
beside them, for queues and for placing card by card; HAMi's and Volcano's own schedulers have to place the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from atoll.model import hami
from atoll.model.cards import ANY, CARD, IMPOSSIBLE, MEMORY, SHARE, number
from atoll.model.needs import HAMI, VOLCANO, VOLCANO_CARDS

_MIB: Final = 2**20
_WHOLE: Final = "nvidia.com/gpu"
KOORDINATOR: Final = "koordinator.sh/gpu"
CORE, BYTES, RATIO, _SHARED = (
    f"{KOORDINATOR}-core",
    f"{KOORDINATOR}-memory",
    f"{KOORDINATOR}-memory-ratio",
    f"{KOORDINATOR}.shared",
)
CARD_MEMORY: Final = "nvidia.com/gpu.memory"
"""Node label: MiB of each card."""
_REGISTERED: Final = {hami.REGISTER: "HAMi", "volcano.sh/node-vgpu-register": "Volcano"}
"""Node annotation -> system whose device plug-in writes it."""
_MIG: Final = "nvidia.com/mig-"
_PROFILE: Final = re.compile(r"nvidia\.com/mig-(?:(\d)g\.)?[\w.+-]*", re.ASCII)
_CARDS: Final = re.compile(r"gpu\.intel\.com/[\w.-]+|[\w.-]+/gpu(?:\.shared)?", re.ASCII)
"""Names of whole cards and their time slices; a name with a flavor is none, since the resource is there beside it."""
_STRATEGY: Final = "nvidia.com/gpu.sharing-strategy"
_STRATEGIES: Final = {"mps": "MPS", "time-slicing": "none: NVIDIA's plug-in slices time"}
_MOST_READ: Final = 10_000
_MOST_NAMES: Final = 1024
KAI_FRACTION: Final = "gpu-fraction"
KAI_MEMORY: Final = "gpu-memory"
_KAI_CARDS: Final = "gpu-fraction-num-devices"
_FRACTION = re.compile(r"0?\.\d{1,9}|1(?:\.0{1,9})?", re.ASCII)
_WHOLE_NUMBER = re.compile(r"\d{1,9}", re.ASCII)

Share = tuple[int, int]
"""(thousandths of cards, bytes of their memory)."""


class BadShare(ValueError):
    """No node gives such a part of a GPU; the message has the legal combinations."""


def of_container(requests: Mapping[str, int]) -> dict[str, int]:
    """`SHARE` and `MEMORY` that a container asks for by other names; more than any node has for a bad combination."""
    if _NAMES.isdisjoint(requests):
        return {}
    try:
        _check(requests)
        share = _of_koordinator(requests)
    except BadShare:
        share = IMPOSSIBLE, 0
    if share == (0, 0) and requests.get(MEMORY) and not requests.get(SHARE):
        share = 1, 0
    return {name: amount for name, amount in zip((SHARE, MEMORY), share, strict=True) if amount}


def charge(requests: Mapping[str, int]) -> dict[str, int]:
    """`ANY` of a pod: GPUs under all names that are known here, so that no other name leaves a quota.

    Bytes count as a whole card, since the size of the card is not known before the pod has one; so does a replica of
    NVIDIA's time slicing. So does a card of HAMi or Volcano: requests of a pod add up its containers, and a percentage
    of one would lower the charge of another. A MIG profile of N slices is N sevenths.
    """
    found = 0
    for name, amount in requests.items():
        if name == SHARE:
            cards = -(-amount // CARD)
            found += cards * CARD if requests.get(MEMORY) else amount
        else:
            found += amount * _thousandths(name)
    return {ANY: found} if found else {}


def is_gpu(name: str) -> bool:
    """Whether a resource is GPUs or parts of them, under the name of any system."""
    return name in _NAMES or _thousandths(name) > 0


@lru_cache(_MOST_NAMES)
def _thousandths(name: str) -> int:
    """Of a card, for one unit of a resource other than `SHARE`; 0 where it is no GPU."""
    if profile := _PROFILE.fullmatch(name):
        return min(-(-int(profile[1] or 7) * CARD // 7), CARD)
    whole = name == VOLCANO_CARDS or (_CARDS.fullmatch(name) and not name.startswith(KOORDINATOR))
    return CARD if whole else 0


def of_annotations(annotations: Mapping[str, Any]) -> dict[str, int]:
    """The same of the annotations of a pod (KAI's).

    Raises:
        BadShare: they can't be read, or say too much.
    """
    fraction, memory = (str(annotations.get(name) or "") for name in (KAI_FRACTION, KAI_MEMORY))
    if not fraction and not memory:
        return {}
    legal = f"; use {KAI_FRACTION} (such as 0.5) or {KAI_MEMORY} (MiB), one of them, of one card"
    if (fraction and memory) or str(annotations.get(_KAI_CARDS) or "1") != "1":
        raise BadShare(f"annotations {KAI_FRACTION}, {KAI_MEMORY}, {_KAI_CARDS}: no node gives that{legal}")
    if memory:
        if not _WHOLE_NUMBER.fullmatch(memory) or not int(memory):
            raise BadShare(f"annotation {KAI_MEMORY}: {memory[:20]!r} is no number of MiB{legal}")
        return {SHARE: 1, MEMORY: int(memory) * _MIB}
    if not _FRACTION.fullmatch(fraction) or not Fraction(fraction):
        raise BadShare(f"annotation {KAI_FRACTION}: {fraction[:20]!r} is no part of one card{legal}")
    return {SHARE: math.ceil(Fraction(fraction) * CARD)}


def check(containers: Iterable[Mapping[str, int]], annotations: Mapping[str, Any]) -> None:
    """Refuse combinations of names that mean nothing, or nothing that a node could give.

    Args:
        containers: requests of each container of a pod.
        annotations: of the pod.

    Raises:
        BadShare: it is such.
    """
    kai, containers = of_annotations(annotations), [*containers]
    if hami.mixed(map(hami.container, containers)):
        text = f"some containers ask for parts of {_WHOLE} and others for whole ones"
        raise BadShare(f"{text}; say {HAMI[0]} or {HAMI[1]} in each, or in none")
    for requests in containers:
        others = _check(requests) or requests.get(_WHOLE)
        if kai and (others or requests.get(SHARE, kai[SHARE]) != kai[SHARE]):
            text = f"annotations {KAI_FRACTION} and {KAI_MEMORY} come without other requests for GPUs"
            raise BadShare(f"{text}; use them, or the resources, alone")


def spelled(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """A pod template whose first container asks for the part of a GPU that its annotations mean."""
    head, pod = template.get("metadata") or {}, template.get("spec") or {}
    try:
        share = of_annotations(head.get("annotations") or {})
    except BadShare:
        # No such workload is admitted, or has a gang.
        share = {}
    if not share or not pod.get("containers"):
        return template
    first, *others = pod["containers"]
    amounts = {name: str(amount) for name, amount in share.items()}
    resources = first.get("resources") or {}
    asked = {field: {**(resources.get(field) or {}), **amounts} for field in ("requests", "limits")}
    return {**template, "spec": {**pod, "containers": [{**first, "resources": {**resources, **asked}}, *others]}}


def memory_offered(offered: Mapping[str, int], labels: Mapping[str, str]) -> dict[str, int]:
    """`MEMORY` of a node with cards that does not offer it itself, by NVIDIA's label; empty where that is not known."""
    mebibytes = labels.get(CARD_MEMORY, "")
    if MEMORY in offered or SHARE not in offered or not _WHOLE_NUMBER.fullmatch(mebibytes):
        return {}
    return {MEMORY: number(offered) * int(mebibytes) * _MIB}


def isolation(node: Mapping[str, Any], *, koordlet: bool) -> str:
    """Who keeps pods on one GPU of a node apart, by its object; empty where it has no parts of GPUs.

    Args:
        node: its JSON.
        koordlet: whether Koordinator reports its devices.
    """
    head, offered = node.get("metadata") or {}, (node.get("status") or {}).get("allocatable") or {}
    notes, labels = head.get("annotations") or {}, head.get("labels") or {}
    found = [f"{who} ({_mode(name, notes[name])})" for name, who in _REGISTERED.items() if name in notes]
    if koordlet:
        found.append("koordlet shows each pod its GPU; HAMi-core bounds pods that ask for it by label")
    if any(name.startswith(_MIG) for name in offered):
        found.append("MIG")
    if (strategy := labels.get(_STRATEGY)) in _STRATEGIES:
        found.append(_STRATEGIES[strategy])
    if not found and SHARE in offered:
        found.append(f"not known: the device plug-in that offers {SHARE}")
    return "; ".join(found)


def _mode(name: str, register: object) -> str:
    """How the cards of a node are divided; HAMi's records say it since 2.5, and divide by hami-core before."""
    if name == hami.REGISTER:
        words = {each.mode for each in hami.registered(str(register)).values()}
    else:
        words = set(re.findall(r"hami-core|mig|mps", str(register)[:_MOST_READ]))
    return ", ".join(sorted(words)) or "unknown"


def asks_for(pod: Mapping[str, Any], names: Collection[str]) -> bool:
    """Whether a pod asks for any of these resources."""
    containers = [each for field in ("initContainers", "containers") for each in pod.get(field) or ()]
    return any(name in names for each in containers for name in (each.get("resources") or {}).get("limits") or ())


def _check(requests: Mapping[str, int]) -> bool:
    """Whether a container uses a name of another system."""
    systems = [
        _of_each_card(requests, HAMI, _WHOLE),
        _of_each_card(requests, VOLCANO, VOLCANO_CARDS),
        _of_koordinator(requests) != (0, 0),
    ]
    share, memory = requests.get(SHARE, 0), requests.get(MEMORY, 0)
    if sum(systems) + bool(share or memory) > 1:
        raise BadShare("parts of GPUs are asked for under the names of several systems; use the names of one")
    if share > CARD and (share % CARD or memory):
        text = f"{SHARE}: {share} is no part of one card, and no number of whole ones"
        raise BadShare(f"{text}; use 1 to {CARD}, {MEMORY} beside it or alone, or a multiple of {CARD} alone")
    return any(systems)


def _of_each_card(requests: Mapping[str, int], names: tuple[str, str, str], number: str) -> bool:
    """Whether a container uses such names: MiB of each card, percent of its memory, percent of its cores."""
    memory, percent, cores = (requests.get(name, 0) for name in names)
    legal = f"; use {number} with {names[0]} or {names[1]}, and {names[2]}, percentages up to 100"
    if memory and percent:
        raise BadShare(f"{names[0]} and {names[1]} both say how much memory{legal}")
    if max(percent, cores) > 100:
        raise BadShare(f"{names[1] if percent > 100 else names[2]} is more than all of a card{legal}")
    part = bool(memory or percent or cores)
    if part and not requests.get(number):
        # HAMi's webhook would add a card.
        raise BadShare(f"{names[0]}, {names[1]} or {names[2]} is there without {number}{legal}")
    return part or (number != _WHOLE and bool(requests.get(number)))


def _of_koordinator(requests: Mapping[str, int]) -> Share:
    core, memory, ratio, shared = (requests.get(name, 0) for name in (CORE, BYTES, RATIO, _SHARED))
    if whole := requests.get(KOORDINATOR, 0):
        if core or memory or ratio or shared:
            raise BadShare(f"{KOORDINATOR} comes without {CORE}, {BYTES}, {RATIO}, {_SHARED}{_LEGAL}")
        core = ratio = whole
    if not (core or memory or ratio or shared):
        return 0, 0
    if requests.get(_WHOLE):
        raise BadShare(f"{_WHOLE} and {KOORDINATOR}-* are there together{_LEGAL}")
    if bool(memory) == bool(ratio):
        raise BadShare(f"{BYTES} or {RATIO} must be there, and not both{_LEGAL}")
    if any(each > 100 and each % 100 for each in (core, ratio)):
        raise BadShare(f"{CORE} or {RATIO} is above 100 and no multiple of it{_LEGAL}")
    count = shared or max(ratio // 100, 1)
    if core % count or ratio % count or max(core, ratio) > 100 * count:
        raise BadShare(f"{CORE} and {RATIO} are no equal parts, up to 100, of {count} cards{_LEGAL}")
    part = max(core, ratio) // count
    if count > 1 and (memory or part < 100):
        raise BadShare(f"parts of {count} cards: Atoll's placer gives a part of one card, or whole ones{_LEGAL}")
    return max(part * CARD // 100, 1) * count, memory


_LEGAL: Final = (
    f"; legal are {KOORDINATOR}, or {RATIO}, or {BYTES} alone, each of the last two with {CORE}, with {_SHARED}: 1;"
    " 100 is a card, more only in multiples of 100"
)
KOORDINATOR_GPUS: Final = (KOORDINATOR, CORE, BYTES, RATIO, _SHARED)
_NAMES: Final = frozenset((SHARE, MEMORY, *HAMI, *VOLCANO, VOLCANO_CARDS, *KOORDINATOR_GPUS))
