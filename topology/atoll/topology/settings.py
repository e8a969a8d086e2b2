"""Settings of `atoll-topology`."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec

from atoll.kube.settings import Health, ProcessSettings
from atoll.model import quantity
from atoll.model.settings import Section, number, seconds, words
from atoll.model.vector import Vector

_SERVICE: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class AdmissionSettings(Section, frozen=True):
    """Admission of HyperNodes."""

    port: Annotated[
        int,
        number(
            "Serve it here and keep webhook configuration topology.atoll.sh; 0: off.",
            least=0,
            most=65535,
            flag="--admission-port",
        ),
    ] = 0
    address: Annotated[
        str,
        words("Address to listen on; the API server calls it where no Service is named.", flag="--admission-address"),
    ] = "127.0.0.1"
    service: Annotated[
        str,
        words(
            "The Service through whose port 443 the API server calls it, as NAMESPACE/NAME.",
            flag="--admission-service",
        ),
    ] = ""

    def __post_init__(self) -> None:
        if self.service and not self.port:
            raise ValueError("service (--admission-service) means nothing without port (--admission-port)")
        if self.service and not _SERVICE.fullmatch(self.service):
            raise ValueError(f"service (--admission-service): {self.service!r} is not NAMESPACE/NAME")


class DiscoverySettings(Section, frozen=True):
    """Discovery that goes on."""

    sources: Annotated[
        str,
        words(
            "A YAML file with a list of sources, read at each round (docs/topology.md); empty: nothing is discovered.",
            flag="--discovery-sources",
        ),
    ] = ""
    every: Annotated[
        float,
        seconds(
            "Between two rounds. Racks change seldom, and each round lists the HyperNodes.",
            least=1.0,
            flag="--discovery-seconds",
        ),
    ] = 60.0


class TopologySettings(ProcessSettings, frozen=True):
    """All of `atoll-topology`; its kubeconfig is for the cluster that it looks after."""

    health: Health = Health(port=8085)
    slot: Annotated[
        str,
        words(
            "What one slot takes of a node, as RESOURCE=AMOUNT,...; status says how many are free.",
            flag="--slot",
        ),
    ] = "nvidia.com/gpu=1"
    lost_share: Annotated[
        float,
        msgspec.Meta(
            title="",
            description="Share of a domain's own nodes, two at least, that must be lost for the domain to be lost.",
            gt=0,
            le=1,
            extra={"flag": "--lost-share"},
        ),
    ] = 0.5
    recovery: Annotated[
        float,
        seconds(
            "That a node must be Ready without a break before it counts again.",
            flag="--recovery-seconds",
        ),
    ] = 60.0
    counts: Annotated[
        float,
        seconds("Least time between two writes of one status when only counts differ.", flag="--counts-seconds"),
    ] = 5.0
    admission: AdmissionSettings = AdmissionSettings()
    discovery: DiscoverySettings = DiscoverySettings()

    def __post_init__(self) -> None:
        slot_of(self.slot)


def slot_of(text: str) -> Vector:
    """What one slot takes.

    Raises:
        ValueError: it can't be read, or takes nothing.
    """
    slot = quantity.requests(quantity.resource_list(text))
    if not slot or min(slot.values()) <= 0:
        raise ValueError(f"slot (--slot): {text!r} takes nothing; write RESOURCE=AMOUNT, as nvidia.com/gpu=1")
    return slot
