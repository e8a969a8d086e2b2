"""`nodeSelector`: every label has the value that is asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping

REFUSAL = "node(s) didn't match Pod's node affinity/selector"


def accepts(selector: Mapping[str, str], labels: Mapping[str, str], unknown: Collection[str]) -> bool:
    """Whether these labels match; unknown ones count as matching."""
    return not any(labels.get(key) != value for key, value in selector.items() if key not in unknown)
