"""The labels by which a namespace says which Pod Security Standard its pods keep."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "pod-security.kubernetes.io/"
MODES: Final = ("enforce", "audit", "warn")
LABELS: Final = frozenset(f"{PREFIX}{mode}{suffix}" for mode in MODES for suffix in ("", "-version"))
"""`enforce`, `audit` and `warn` say the level, each with `-version` the version of the standard."""
