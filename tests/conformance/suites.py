"""The suites by name, and the cases of a file."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.conformance import allocator, devices, interpreter, karmada, kubernetes, kueue, volcano

Json = dict[str, Any]
SUITES: Mapping[str, Callable[[Json], list[str]]] = {
    "karmada-division": karmada.division,
    "webster": karmada.webster_seats,
    "karmada-select": karmada.select,
    "karmada-interpret": interpreter.interpret,
    "quantity": kubernetes.quantities,
    "matching": kubernetes.matching,
    "dra": allocator.allocation,
    "dra-cel": devices.selector,
    "kueue-tas": kueue.topology,
    "volcano-hypernode": volcano.hyper_node,
}
"""Each gives what differs in a case, nothing where all is as upstream has it."""


def cases(file: Path) -> Iterator[Json]:
    """The cases of a file without those whose upstream answer is known to be wrong, unless on named nodes alone.

    Raises:
        OSError: it can't be read.
        ValueError: a line is no JSON object with an id; the message names the line.
    """
    with lzma.open(file, "rt") if file.suffix == ".xz" else file.open() as lines:
        for number, line in enumerate(lines, 1):
            try:
                case = json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error
            if not isinstance(case, dict) or "id" not in case:
                raise ValueError(f"line {number}: not a case, an object with an id")
            if "upstreamBug" not in case or case["upstreamBug"].get("nodes"):
                yield case
