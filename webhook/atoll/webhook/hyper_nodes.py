"""HyperNodes on the host: refused, for no process reads them there.

The topology of a member comes from its own HyperNodes about its own nodes; its agent reports it to the host.
"""

from __future__ import annotations

from atoll.admission.problems import Problem


def validate_hyper_node() -> list[Problem]:
    """Why no HyperNode is made on the host."""
    text = (
        "HyperNodes belong in the member cluster whose nodes they name, where its agent reads them; on the host they"
        " have no effect: kubectl --context MEMBER apply -f FILE (or --kubeconfig)"
    )
    return [Problem("kind", text)]
