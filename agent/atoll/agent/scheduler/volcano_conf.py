"""Volcano's scheduler.conf, as far as the agent has a counterpart; parts without one are named. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from atoll.model import documents, duration
from atoll.model.scoring import MOST_WEIGHT, Scoring

_ACTIONS: Final = {
    "allocate": "",
    "backfill": "",
    "preempt": "",
    "gangpreempt": "",
    "enqueue": "queues of the host admit work",
    "reclaim": "queues are served on the host, which reclaims between them",
    "gangreclaim": "queues are served on the host, which reclaims between them",
    "shuffle": "use a descheduler",
}
"""Action -> why it does nothing here; empty where it does."""
_QUEUES: Final = "queues of the host are served there, those of the member always by share of what they deserve"
_PLUGINS: Final = {
    "priority": "", "gang": "", "predicates": "", "pdb": "", "nodeorder": "", "binpack": "", "usage": "",
    "network-topology-aware": "", "sla": "",
    "conformance": "work of kube-system is never evicted anyway",
    "proportion": _QUEUES, "capacity": _QUEUES, "drf": _QUEUES, "overcommit": _QUEUES, "resourcequota": _QUEUES,
    "nodegroup": "use spec.affinity of the Queue on the host",
}  # fmt: skip
"""Plug-in -> why it does nothing here; empty where it is looked at or always on."""
_NODE_ORDER: Final = {
    "leastrequested.weight": ("least", 1),
    "mostrequested.weight": ("most", 0),
    "balancedresource.weight": ("balanced", 1),
}
_PREFERENCES: Final = {
    "nodeaffinity.weight": "nodeAffinity",
    "podaffinity.weight": "podAffinity",
    "tainttoleration.weight": "taintToleration",
    "imagelocality.weight": "imageLocality",
    "podtopologyspread.weight": "podTopologySpread",
}
_USAGE_WEIGHT, _THRESHOLD = 5, 80
_WAITING_TIME: Final = "sla-waiting-time"
_MEASURED: Final = {"cpu": "cpu", "mem": "memory"}


class ConfError(ValueError):
    """It is no scheduler.conf."""


@dataclass(frozen=True, slots=True)
class Conf:
    """What of a scheduler.conf acts here."""

    scoring: Scoring
    preempts: bool
    """Whether work in the member is evicted for work of a higher priority there."""
    waiting_time: float | None
    """Seconds after which work that entered in the member has waited too long; None for never."""
    without_effect: tuple[str, ...]
    """Sentences that name what does not act, and why."""


@dataclass
class _Reading:
    terms: dict[str, int] = field(default_factory=dict)
    resources: dict[str, dict[str, int]] = field(default_factory=dict)
    preferences: dict[str, int] = field(default_factory=dict)
    thresholds: dict[str, int] = field(default_factory=dict)
    waiting_time: float | None = None
    idle: list[str] = field(default_factory=list)


def read(text: str) -> Conf:
    """Read one.

    Raises:
        ConfError: it is not YAML, or of another form.
    """
    try:
        found = documents.read_yaml(text)
    except documents.BadDocument as error:
        raise ConfError(f"can't be read: {error}") from error
    if not isinstance(found, Mapping):
        raise ConfError("is no mapping with actions and tiers")
    reading = _Reading()
    actions = [each.strip() for each in str(found.get("actions") or "").split(",") if each.strip()]
    for action in actions:
        if why := _ACTIONS.get(action, "there is no such action here"):
            reading.idle.append(f"action {action}: {why}")
    for plugin in _plugins(found.get("tiers")):
        _plugin(plugin, reading)
    if isinstance(found.get("metrics"), Mapping):
        reading.idle.append("metrics: use is read from the metrics API of the member (metrics.k8s.io)")
    reading.idle += [
        f"configurations of action {each.get('name', '')}: actions have none here"
        for each in found.get("configurations") or ()
        if isinstance(each, Mapping)
    ]
    known = {"actions", "tiers", "configurations", "metrics"}
    reading.idle += [f"{name}: there is no such field" for name in sorted(map(str, found)) if name not in known]
    terms = {name: weight for name, weight in reading.terms.items() if weight}
    scoring = Scoring(terms, reading.resources, reading.preferences, reading.thresholds)
    preempts = not actions or bool({"preempt", "gangpreempt"} & set(actions))
    return Conf(scoring, preempts, reading.waiting_time, tuple(reading.idle))


def _plugins(tiers: Any) -> Iterator[Mapping[str, Any]]:
    if tiers is not None and not isinstance(tiers, list):
        raise ConfError("has tiers that are no list")
    for tier in tiers or ():
        plugins = tier.get("plugins") if isinstance(tier, Mapping) else None
        if not isinstance(plugins, list) or not all(isinstance(each, Mapping) for each in plugins):
            raise ConfError("has a tier without a list of plugins")
        yield from plugins


def _plugin(plugin: Mapping[str, Any], reading: _Reading) -> None:
    name = str(plugin.get("name") or "")
    said = plugin.get("arguments") or {}
    arguments = {str(key): value for key, value in said.items()} if isinstance(said, Mapping) else {}
    if why := _PLUGINS.get(name, "there is no such plug-in here"):
        reading.idle.append(f"plug-in {name}: {why}")
        return
    flags = {str(key): value for key, value in plugin.items() if key not in ("name", "arguments")}
    off = flags.pop("enableNodeOrder", True) is False and name in ("nodeorder", "binpack", "usage")
    reading.idle += [f"plug-in {name}, {flag}: parts are not switched one by one" for flag in sorted(flags)]
    if off:
        return
    known = {"nodeorder": _nodeorder, "binpack": _binpack, "usage": _usage, "sla": _sla}.get(name)
    if known is not None:
        known(arguments, reading)
    reading.idle += [f"plug-in {name}, argument {each}: it does nothing here" for each in sorted(arguments)]


def _nodeorder(arguments: dict[str, Any], reading: _Reading) -> None:
    for argument, (term, usual) in _NODE_ORDER.items():
        reading.terms[term] = _weight("nodeorder", argument, arguments.pop(argument, usual))
    for argument, preference in _PREFERENCES.items():
        if argument in arguments:
            reading.preferences[preference] = _weight("nodeorder", argument, arguments.pop(argument))


def _binpack(arguments: dict[str, Any], reading: _Reading) -> None:
    def take(argument: str) -> int:
        return _weight("binpack", argument, arguments.pop(argument, 1))

    reading.terms["binpack"] = take("binpack.weight")
    names = [each.strip() for each in str(arguments.pop("binpack.resources", "")).split(",") if each.strip()]
    weights = {"cpu": take("binpack.cpu"), "memory": take("binpack.memory")}
    weights |= {name: take(f"binpack.resources.{name}") for name in names}
    reading.resources["binpack"] = {name: weight for name, weight in weights.items() if weight}


def _usage(arguments: dict[str, Any], reading: _Reading) -> None:
    reading.terms["usage"] = _weight("usage", "usage.weight", arguments.pop("usage.weight", _USAGE_WEIGHT))
    said = arguments.pop("thresholds", {})
    said = said if isinstance(said, Mapping) else {}
    for name, resource in _MEASURED.items():
        reading.thresholds[resource] = _weight("usage", f"thresholds.{name}", said.get(name, _THRESHOLD))


def _sla(arguments: dict[str, Any], reading: _Reading) -> None:
    if (said := arguments.pop(_WAITING_TIME, None)) is None:
        return
    try:
        reading.waiting_time = duration.parse(str(said))
    except duration.DurationError as error:
        raise ConfError(f"has {_WAITING_TIME}: {said!r} of plug-in sla, which is no duration: {error}") from error


def _weight(plugin: str, argument: str, value: Any) -> int:
    try:
        found = int(str(value))
    except ValueError:
        found = -1
    if not 0 <= found <= MOST_WEIGHT:
        raise ConfError(f"has {argument}: {value!r} of plug-in {plugin}, which is not from 0 to {MOST_WEIGHT}")
    return found
