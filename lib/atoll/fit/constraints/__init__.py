"""What decides whether a pod may be on a node, one constraint a file.

A *filter* says it of a task and a profile of nodes: `accepts(task, profile, name)`, and `refusal(task, profile)` in
kube-scheduler's words. An *exact* constraint knows what of each node is taken piece by piece, where amounts of a
resource don't say enough: it says how many pods of a task a node holds, and counts pods put there.
"""

from __future__ import annotations

from atoll.fit.constraints.attachments import Attachments
from atoll.fit.constraints.cards import Cards
from atoll.fit.constraints.devices import Devices
from atoll.fit.constraints.exact import Exact
from atoll.fit.constraints.host_ports import HostPorts
from atoll.fit.constraints.numa import Numa
from atoll.fit.constraints.profile import Profile

__all__ = ["Attachments", "Cards", "Devices", "Exact", "HostPorts", "Numa", "Profile"]
