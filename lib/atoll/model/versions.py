"""resourceVersions. As texts they have no order: "999" is greater than "1001"."""

from __future__ import annotations

_MOST_DIGITS = 39
"""Converting very long numbers is slow, and refused by Python."""


def number(version: str) -> int:
    """The version as a number, comparable within one resource of one API server (KEP-5504); -1 for any other text."""
    comparable = version.isdigit() and version.isascii() and len(version) <= _MOST_DIGITS and version[0] != "0"
    return int(version) if comparable else -1


def older(version: str, than: str) -> bool:
    """Whether a resourceVersion is certainly older than another of the same resource."""
    return 0 <= number(version) < number(than)
