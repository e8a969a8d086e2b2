"""Order of the workloads of one queue; `fair_order.py` has the order by fair share."""

from __future__ import annotations

from atoll.dispatcher.core.backlog.backlog import Key
from atoll.dispatcher.core.events import BindingView


def order_key(view: BindingView) -> Key:
    """Priority first, then the original age, then the order of arrival at the API server, then the UID."""
    gang = view.gang
    if gang is None:
        return 0, view.created, view.uid
    age = submitted(view)
    return -gang.priority, f"{age}#{gang.arrival:020d}" if gang.arrival else age, view.uid


def submitted(view: BindingView) -> str:
    """Time of the first submission: RFC 3339, with seconds."""
    return (view.gang.submitted if view.gang is not None else "") or view.created
