"""The same federation on kind's clusters, for those who have Docker: a cluster for the host and one for each member.

`render.py` says what that is, as files and shell commands, without any I/O; `run.py` writes and runs them. Nodes are
kind's, so containers are real ones; nothing is simulated.
"""

from atoll.local.kind.render import KIND_NODES, Machine, NotOnKind, render
from atoll.local.kind.run import KindError, directory, down, up, write

__all__ = ["KIND_NODES", "KindError", "Machine", "NotOnKind", "directory", "down", "render", "up", "write"]
