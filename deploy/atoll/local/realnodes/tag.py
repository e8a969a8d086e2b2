"""What tells the bridges and cgroups of one federation from all others of the machine."""

from __future__ import annotations

import hashlib
from pathlib import Path


def tag(directory: Path) -> str:
    """Eight characters that belong to the federation in this folder: an interface's name has room for few."""
    return hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:8]
