"""Work → member and status back: one loop per member, wherever it runs.

May import everything up to `atoll.kube`. Push and pull members differ only in the process that runs the loop.
"""

from __future__ import annotations

from atoll.delivery.delivery import Delivery
from atoll.delivery.reports import decode_reported
from atoll.delivery.work import WorkObject, decode_work, work_name

__all__ = ["Delivery", "WorkObject", "decode_reported", "decode_work", "work_name"]
