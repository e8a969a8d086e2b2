"""What annotation `atoll.sh/divided` of a workload may say."""

from __future__ import annotations


def is_most(text: str) -> bool:
    """Whether this is a number of members, or `any`."""
    return text == "any" or (text.isascii() and text.isdigit() and 0 < len(text) < 6 and int(text) > 0)
