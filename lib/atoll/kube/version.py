"""Which Kubernetes an API server is, and as which it behaves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import orjson

from atoll.kube.transport import ApiServer

_DIGITS: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Version:
    """What an API server says that it is."""

    number: tuple[int, int]
    """As which it behaves: one that emulates an older version is taken at its word."""
    text: str
    """Its own version, such as `v1.36.3`."""

    def __str__(self) -> str:
        number = f"{self.number[0]}.{self.number[1]}"
        return self.text if self.text.startswith(f"v{number}.") else f"{self.text} emulating {number}"


async def version_of(api: ApiServer) -> Version:
    """The version of a cluster.

    Raises:
        ValueError: its answer is no version.
        ApiError: it gives no answer.
    """
    try:
        found = orjson.loads(await api.request("GET", "/version"))
        major = found.get("emulationMajor") or found["major"]
        minor = _DIGITS.match(found.get("emulationMinor") or found["minor"])
        assert minor is not None
        return Version((int(major), int(minor[0])), str(found["gitVersion"]))
    except (ValueError, KeyError, AssertionError, AttributeError, TypeError) as error:
        raise ValueError(f"the API server at {api.url} does not say its Kubernetes version (GET /version)") from error
