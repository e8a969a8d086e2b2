"""HyperNodes on the host: refused, for nobody reads them there.

The topology of a member is what its own HyperNodes say of its own nodes; its agent tells the host.
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
