"""Where a topology is found out: labels of nodes, a Topology of Kueue, links of a fabric from a file or from UFM.

`atollctl topology discover` and the process `atoll-topology` read the same sources; `discovery` makes domains of what
was read, and `plan` says what to write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import documents
from atoll.model.apiresource import HYPER_NODES, KUEUE_TOPOLOGIES
from atoll.topology import ufm
from atoll.topology.discovery import fabric, labels
from atoll.topology.discovery.domains import Found, hyper_nodes
from atoll.topology.discovery.plan import Changes
from atoll.topology.ufm import Ufm, UfmError

Json = dict[str, Any]
_TREE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?")
_OPTIONS: Final = ("labels", "preset", "kueue", "ibnetdiscover", "ufmPorts", "ufm")


class SourceError(Exception):
    """A source is not well-formed, or can't be read now; the message says which and why."""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """One source; of the fields `labels` to `ufm` one is given."""

    labels: tuple[str, ...] = ()
    """Labels of nodes from the top down."""
    split: str = ""
    """Values of the one label say the whole path, with this between."""
    preset: str = ""
    """Labels that a cloud or a device plugin sets: a key of `labels.PRESETS`."""
    kueue: str = ""
    """Name of a Topology of Kueue whose levels are the labels."""
    ibnetdiscover: str = ""
    """A file with the output of `ibnetdiscover`."""
    ufm_ports: str = ""
    """A file with what UFM's `/ufmRest/resources/ports` gives."""
    ufm: Ufm | None = None
    """A UFM that is asked for its ports."""
    tree: str = ""
    """Name of the tree that it is, where nodes are in several."""

    def __post_init__(self) -> None:
        given = [name for name, value in zip(_OPTIONS, self._given(), strict=True) if value]
        if len(given) != 1:
            raise ValueError(f"give one of {', '.join(_OPTIONS)}; there is {' and '.join(given) or 'none'}")
        if self.split and len(self.labels) != 1:
            raise ValueError("split goes with one label")
        if self.preset and self.preset not in labels.PRESETS:
            raise ValueError(f"no preset {self.preset!r}; there are {', '.join(sorted(labels.PRESETS))}")
        if self.tree and not _TREE.fullmatch(self.tree):
            raise ValueError(f"tree {self.tree!r}: use at most 20 small letters, digits and -")

    def _given(self) -> tuple[object, ...]:
        return self.labels, self.preset, self.kueue, self.ibnetdiscover, self.ufm_ports, self.ufm

    @property
    def title(self) -> str:
        """Its name in logs and messages."""
        [(name, value)] = [(n, v) for n, v in zip(_OPTIONS, self._given(), strict=True) if v]
        text = value.url if isinstance(value, Ufm) else ",".join(value) if isinstance(value, tuple) else value
        return f"{name} {text}"


def parsed(text: str) -> list[Source]:
    """The sources of a YAML file: a list.

    Raises:
        SourceError: it is none; the message says where.
    """
    try:
        return msgspec.convert(documents.read_yaml(text), list[Source])
    except (msgspec.ValidationError, documents.BadDocument) as error:
        raise SourceError(str(error)) from error


def _text(file: str) -> str:
    return Path(file).read_text("utf-8")


async def read(source: Source, cluster: ApiServer, nodes: Mapping[str, Mapping[str, str]]) -> list[Found]:
    """The domains that it says.

    Args:
        source: to read.
        cluster: for Kueue's Topology.
        nodes: name -> labels.

    Raises:
        SourceError: it can't be read.
    """
    try:
        if source.ufm is not None:
            return fabric.domains(fabric.of_ufm(await ufm.ports(source.ufm)), nodes)
        if source.ufm_ports:
            return fabric.domains(fabric.of_ufm(orjson.loads(_text(source.ufm_ports))), nodes)
        if source.ibnetdiscover:
            return fabric.domains(fabric.of_ibnetdiscover(_text(source.ibnetdiscover)), nodes)
        if source.kueue:
            topology = await cluster.get(KUEUE_TOPOLOGIES, source.kueue)
            levels = [str(level["nodeLabel"]) for level in topology["spec"].get("levels") or ()]
            return labels.by_levels(nodes, levels)
    except (OSError, ValueError, AttributeError, TypeError, KeyError, UfmError, errors.ApiError) as error:
        raise SourceError(f"{source.title}: {error}") from error
    if source.split:
        return labels.by_path(nodes, source.labels[0], source.split)
    return labels.by_levels(nodes, source.labels or labels.PRESETS[source.preset])


async def wanted(
    sources: Sequence[Source], cluster: ApiServer, nodes: Mapping[str, Mapping[str, str]], author: str
) -> dict[str, list[Json]]:
    """The HyperNodes of each tree that sources say, by the tree's name.

    Args:
        sources: of one tree there may be several, as for racks of different makes.
        cluster: whose nodes they are about.
        nodes: name -> labels.
        author: is written on them as their source.

    Raises:
        SourceError: one can't be read, or two say the same name.
    """
    found: dict[str, list[Json]] = {}
    for source in sources:
        made = hyper_nodes(await read(source, cluster, nodes), author, source.tree)
        present = found.setdefault(source.tree, [])
        twice = {each["metadata"]["name"] for each in present} & {each["metadata"]["name"] for each in made}
        if twice:
            raise SourceError(f"{source.title}: another source has {', '.join(sorted(twice))} as well; give it a tree")
        present.extend(made)
    return found


async def write(cluster: ApiServer, todo: Changes, author: str) -> None:
    """Make the changes; what another program changed meanwhile ends it.

    Raises:
        errors.ApiError: a write was refused; those before it are done.
    """
    for obj in todo.create:
        await cluster.create(HYPER_NODES, obj, field_manager=author)
    for old, new in todo.update:
        patch = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "spec": new["spec"]}
        await cluster.merge_patch(HYPER_NODES, new["metadata"]["name"], patch, field_manager=author)
    for obj in todo.delete:
        await cluster.delete(HYPER_NODES, obj["metadata"]["name"])
