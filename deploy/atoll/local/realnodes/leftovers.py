"""What real nodes leave outside of their namespaces, removed whether they were stopped or killed."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from atoll.local.realnodes import cgroups, network

FOLDER = "nodes"
"""Below the federation's folder, while it has or had real nodes."""
_AT_ONCE = 16
"""Removals: images are ten thousands of files, and a disk writes many removals at once in one go."""


def reap() -> None:
    """Remove what real nodes left whose federation was killed, and which nobody has taken down since."""
    for directory in network.orphans():
        cgroups.remove(directory)
        network.remove(directory)
        remove_tree(directory / FOLDER)


def remove(directory: Path) -> None:
    """Remove bridges, cgroups and files of the real nodes of a federation that is not running. Safe to repeat."""
    folder = directory / FOLDER
    if folder.exists():
        # Processes first: a bridge that is gone would only make them complain.
        cgroups.remove(directory)
        network.remove(directory)
        remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is below it, many files at a time. What links lead to stays; safe to repeat."""
    levels: defaultdict[int, list[str]] = defaultdict(list)
    for path, _, _ in os.walk(folder):
        levels[path.count(os.sep)].append(path)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(_empty, [path for level in levels.values() for path in level]))
        for depth in sorted(levels, reverse=True):
            list(pool.map(_remove, levels[depth]))


def _empty(path: str) -> None:
    # Another federation that starts may remove the same.
    with contextlib.suppress(FileNotFoundError), os.scandir(path) as entries:
        for each in entries:
            if not each.is_dir(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(each.path)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(path)
