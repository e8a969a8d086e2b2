"""What real nodes leave outside of their namespaces, removed whether they were stopped or killed."""

from __future__ import annotations

import shutil
from pathlib import Path

from atoll.local.realnodes import cgroups, network

FOLDER = "nodes"
"""Below the federation's folder, while it has or had real nodes."""


def reap() -> None:
    """Remove what real nodes left whose federation was killed, and which nobody has taken down since."""
    for directory in network.orphans():
        cgroups.remove(directory)
        network.remove(directory)
        shutil.rmtree(directory / FOLDER, ignore_errors=True)


def remove(directory: Path) -> None:
    """Remove bridges, cgroups and files of the real nodes of a federation that is not running. Safe to repeat."""
    folder = directory / FOLDER
    if folder.exists():
        # Processes first: a bridge that is gone would only make them complain.
        cgroups.remove(directory)
        network.remove(directory)
        shutil.rmtree(folder)
