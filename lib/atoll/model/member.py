"""What an agent says of itself and its member: annotations of its Lease on the host, checked before they are believed.

Features say what may be sent to a member. Those of kinds are the agent's, `batch/v1/Job`; those of Kubernetes follow
from the version as which the member behaves, `kubernetes/1.34`: a member that is older drops fields in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import orjson

from atoll.model import keys, quantity
from atoll.model.apiresource import BATCH_JOBS, JOBS, ApiResource
from atoll.model.reports import RESOURCE, BadReport, items, matching, number, record, table, text
from atoll.model.vector import Vector

Json = dict[str, Any]

OLDEST_KUBERNETES: Final = (1, 33)
"""Of host and members."""
_MOST_FEATURES: Final = 256
_MOST_RESOURCES: Final = 128
_FEATURE: Final = re.compile(r"[a-z0-9][-a-zA-Z0-9./]{0,127}")
_NUMBER: Final = re.compile(r"\d{1,2}\.\d{1,3}")
_AMOUNT: Final = 2**62


class AgentFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What changes with an upgrade."""

    version: str = ""
    """Of the agent."""
    kubernetes: str = ""
    """Of the member's API server, such as `v1.36.3`."""
    behaves: str = ""
    """As which it behaves, such as `1.33`."""
    kinds: tuple[str, ...] = ()
    """What the agent can bring there and report on, see `kind_feature`."""
    unserved: dict[str, str] = {}
    """Declared kinds that it can't bring there -> missing rights."""
    tokens: dict[str, int] = {}
    """When the agent's tokens end, seconds since the epoch: `host` and `member`."""
    credentials: str = ""
    """Why one of them was not renewed although it is time."""


class Figures(msgspec.Struct, frozen=True):
    """What changes all the time."""

    nodes: int = 0
    ready: int = 0
    """Nodes."""
    allocatable: Vector = {}
    """Of all nodes."""
    allocated: Vector = {}
    """Requests of pods that have a node and have not ended."""
    allocating: Vector = {}
    """Requests of pods that have none yet."""


def kind_feature(resource: ApiResource) -> str:
    """The feature of agents that know this kind of workload."""
    return f"{resource.api_version}/{resource.kind}"


UNSAID: Final = frozenset({kind_feature(JOBS), kind_feature(BATCH_JOBS)})
"""The features of an agent that is older than these annotations."""


def kubernetes_feature(version: tuple[int, int]) -> str:
    """The feature of members that behave as this version or a newer one."""
    return f"kubernetes/{version[0]}.{version[1]}"


def features_of(facts: AgentFacts | None) -> frozenset[str]:
    """All that may be sent to a member whose agent says this."""
    if facts is None or not facts.kinds:
        return UNSAID
    found = set(facts.kinds)
    if facts.behaves:
        major, minor = map(int, facts.behaves.split("."))
        if major == OLDEST_KUBERNETES[0]:
            found |= {kubernetes_feature((major, each)) for each in range(OLDEST_KUBERNETES[1], minor + 1)}
    return frozenset(found)


def facts_annotation(facts: AgentFacts) -> dict[str, str]:
    """As the Lease carries it."""
    return {keys.AGENT_FACTS: msgspec.json.encode(facts).decode()}


def figures_annotation(figures: Figures) -> dict[str, str]:
    """As the Lease carries it."""
    return {keys.FIGURES: msgspec.json.encode(figures).decode()}


_amounts = table(number(_AMOUNT), matching(RESOURCE), _MOST_RESOURCES)
_facts = record(
    version=text(40),
    kubernetes=text(60),
    behaves=matching(_NUMBER),
    kinds=items(matching(_FEATURE), _MOST_FEATURES),
    unserved=table(text(), matching(_FEATURE), _MOST_FEATURES),
    tokens=table(number(2**33), matching(re.compile("host|member")), 2),
    credentials=text(),
)
_figures = record(nodes=number(), ready=number(), allocatable=_amounts, allocated=_amounts, allocating=_amounts)


def read_facts(said: Mapping[str, str]) -> AgentFacts | None:
    """What the annotations of a Lease say; None where the agent says nothing.

    Raises:
        BadReport: it says what can't be; the message names the field.
    """
    if (found := said.get(keys.AGENT_FACTS)) is None:
        return None
    checked = _facts(_json(found, keys.AGENT_FACTS), keys.AGENT_FACTS)
    return AgentFacts(**{**checked, "kinds": tuple(checked.get("kinds", ()))})


def read_figures(said: Mapping[str, str]) -> Figures | None:
    """What the annotations of a Lease say; None where the agent says nothing.

    Raises:
        BadReport: it says what can't be; the message names the field.
    """
    if (found := said.get(keys.FIGURES)) is None:
        return None
    return Figures(**_figures(_json(found, keys.FIGURES), keys.FIGURES))


def _json(found: str, field: str) -> Any:
    try:
        return orjson.loads(found)
    except orjson.JSONDecodeError as error:
        raise BadReport(f"{field}: it is no JSON") from error


def enablements(features: Iterable[str], kinds: Iterable[ApiResource]) -> list[Json]:
    """`status.apiEnablements` of a Cluster: of these kinds those that may be sent there."""
    known = set(features)
    found: dict[str, list[Json]] = {}
    for each in kinds:
        if kind_feature(each) in known:
            found.setdefault(each.api_version, []).append({"name": each.plural, "kind": each.kind})
    return [{"groupVersion": group, "resources": found[group]} for group in sorted(found)]


def resource_list(amounts: Mapping[str, int]) -> dict[str, str]:
    """Integer units as Kubernetes writes them."""
    return {name: quantity.format_units(name, amount) for name, amount in sorted(amounts.items())}
