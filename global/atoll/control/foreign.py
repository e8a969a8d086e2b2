"""Who besides Atoll runs workloads on the host: whoever writes their status there.

On the host of Atoll no other controller does. A controller that nevertheless runs there (an operator that was installed
later, a controller manager that was started with its deployment controller) would make pods that no queue is charged
for, or contradict what members say.
"""

from __future__ import annotations

from typing import Final

from atoll.kinds import Kind
from atoll.model.objects import Full

RUN_BY_ANOTHER: Final = "RunByAnother"
_OWN = "atoll"


def writer(kind: Kind, obj: Full) -> str:
    """Field manager of the status that is not Atoll's; empty where there is none.

    Pods of a group are left out: their status is the scheduler's and kubelets' of a host that has nodes.
    """
    if kind.assembly is not None:
        return ""
    for each in obj.body["metadata"].get("managedFields") or ():
        name = str(each.get("manager") or "")
        if each.get("subresource") == "status" and not name.startswith(_OWN):
            return name or "another program"
    return ""


def note(kind: Kind, who: str, *, sent: bool) -> str:
    """Message for users.

    Args:
        kind: of the workload.
        who: writes its status.
        sent: it has a binding, so that members may have it.
    """
    text = f"{who} writes the status of this {kind.words.title} on the host, where Atoll alone may run it"
    if not kind.dedicated:
        return f"{text}: stop that controller, or have it leave out this namespace; what members say is overwritten"
    if sent:
        return f"{text}: it may run there as well as in a member; stop that controller"
    return f"{text}: no member gets it; stop that controller, then delete the {kind.words.title} and create it again"
