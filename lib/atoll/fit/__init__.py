"""The one arithmetic of "does this gang fit there", used by the dispatcher on summaries and by the agent on nodes.

There are two questions: `place` puts a gang on nodes, whole or not at all; `fill` says how much of it fits, and where.

It may import `atoll.api` and `atoll.model`. Integers only; every order is total, so equal input gives equal
placements.
"""

from __future__ import annotations

from atoll.fit.constraints import Profile
from atoll.fit.nodes import Nodes
from atoll.fit.place import Miss, OneRoom, fill, place, weights
from atoll.fit.placement import Placement

__all__ = ["Miss", "Nodes", "OneRoom", "Placement", "Profile", "fill", "place", "weights"]
