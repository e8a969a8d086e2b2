"""The one arithmetic of "does this gang fit there", used by the dispatcher on summaries and by the agent on nodes.

It may import `atoll.api` and `atoll.model`. Integers only; every order is total, so equal input gives equal
placements.
"""

from __future__ import annotations

from atoll.fit.constraints import Profile
from atoll.fit.nodes import Nodes
from atoll.fit.place import Miss, fill, find, find_in, find_one, fits, place, weights
from atoll.fit.placement import Placement

__all__ = ["Miss", "Nodes", "Placement", "Profile", "fill", "find", "find_in", "find_one", "fits", "place", "weights"]
