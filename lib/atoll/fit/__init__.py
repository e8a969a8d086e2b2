"""The one arithmetic of "does this gang fit there", used by the dispatcher on summaries and by the agent on nodes.

There are three questions: `place` puts a gang on nodes, whole or not at all; `grow` adds pods to one that runs; `fill`
says how much of one fits, and where.

It may import `atoll.api` and `atoll.model`. Integers only; every order is total, so equal input gives equal
placements.
"""

from __future__ import annotations

from atoll.fit.constraints import Profile
from atoll.fit.nodes import Nodes
from atoll.fit.place import Miss, OneRoom, fill, grow, place, weights
from atoll.fit.placement import Placement

__all__ = ["Miss", "Nodes", "OneRoom", "Placement", "Profile", "fill", "grow", "place", "weights"]
