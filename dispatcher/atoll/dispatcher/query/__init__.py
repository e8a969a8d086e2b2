"""The aggregated API `query.atoll.sh`: whole verdicts and what-ifs, answered by the dispatcher that leads.

It may import what the dispatcher may. What leaves: `Query`, which serves and registers while this process leads.
"""

from __future__ import annotations

from atoll.dispatcher.query.serving import Query

__all__ = ["Query"]
