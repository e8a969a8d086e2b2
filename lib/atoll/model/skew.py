"""Which versions of Atoll's processes go together.

The host's processes are of one minor version. An agent may be of the same, or of the one before: the host is upgraded
first. The members of others go on with what they run and get nothing new. CRDs are never of an older version than
what reads them, and are never replaced by older ones.
"""

from __future__ import annotations

import re

from atoll.model.release import VERSION

OLDEST_AGENT = 1
"""Minor versions by which an agent may be older than the host's processes."""
_RELEASE = re.compile(r"(\d{1,5})\.(\d{1,5})(?:\D.*)?")


def minor_of(version: str) -> tuple[int, int] | None:
    """(major, minor); None where it is no version."""
    found = _RELEASE.fullmatch(version)
    return (int(found[1]), int(found[2])) if found else None


def wrong_with_agent(version: str, host: str = VERSION) -> tuple[str, str] | None:
    """Why an agent of this version gets no new work: (AgentTooOld or AgentTooNew, the sentence); None where it does.

    What says no version, as before there were any, is taken.

    Args:
        version: of the agent.
        host: of the process that asks.
    """
    own, other = minor_of(host), minor_of(version)
    if own is None or other is None:
        return None
    said = f"its agent is Atoll {version}, and the host's processes are {host}"
    if other > own:
        return "AgentTooNew", f"{said}: upgrade the host first"
    if other[0] != own[0] or other[1] < own[1] - OLDEST_AGENT:
        return "AgentTooOld", f"{said}: upgrade the agent"
    return None


def is_newer(version: str, than: str = VERSION) -> bool:
    """Whether a version is of a later minor version than another; not where one of them is no version."""
    one, other = minor_of(version), minor_of(than)
    return one is not None and other is not None and one > other
