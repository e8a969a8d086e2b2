"""Shards of control: each namespace is in one of them, and each shard has a lease of its own."""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

MOST: Final = 8
"""Roles name each lease."""


class Shard(NamedTuple):
    """One of several."""

    number: int = 0
    of: int = 1

    def owns(self, namespace: str) -> bool:
        """Whether the namespace is in it, which is so for one shard of all."""
        return self.of == 1 or zlib.crc32(namespace.encode()) % self.of == self.number


WHOLE: Final = Shard()
"""All namespaces."""


def lease(number: int) -> str:
    """Name of the lease of a shard."""
    return f"atoll-control-{number}" if number else "atoll-control"


NAMES: Final = tuple(map(lease, range(MOST)))
"""Of all leases that control may have."""
