"""Devices for the claims of a pod on a node: complete, deterministic, in the order in which Kubernetes tries them.

`prepare` tells which devices could serve which request, `solve` searches for a combination of free ones,
`allocation_results` writes it as the status of the claims; `Fleet` does the first two for a gang. It may import
`atoll.model`; cluster objects come in through `model.resource_slices` and `model.device_claims`.
"""

from __future__ import annotations

from atoll.fit.devices.gangs import Answers, Fleet, OnNode, Prepared, held_of
from atoll.fit.devices.problem import ClaimError, Problem, SelectionError, prepare
from atoll.fit.devices.results import allocation_results
from atoll.fit.devices.search import Pick, Refused, Undecided, solve

__all__ = [
    "Answers",
    "ClaimError",
    "Fleet",
    "OnNode",
    "Pick",
    "Prepared",
    "Problem",
    "Refused",
    "SelectionError",
    "Undecided",
    "allocation_results",
    "held_of",
    "prepare",
    "solve",
]
