"""Pods that ended for no reason of their own: refused by their kubelet, pushed out, or on a node that was shut down.

They are made again. They are no failure of the Job, cost no retry and are no event for its policies; only a policy
that asks for PodEvicted hears of a pod that was pushed out after it had started.
"""

from __future__ import annotations

from atoll.agent.objects import Pod

_REFUSED = ("UnexpectedAdmissionError", "NodeAffinity", "NodeName", "NodePorts", "TopologyAffinityError")
"""Reasons of pods that kubelets rejected; reasons about missing resources begin with `OutOf`."""
_PUSHED_OUT = ("NodeShutdown", "Shutdown", "Terminated", "Preempting")
"""Reasons of pods that were ended for others, or for their node's sake."""


def refused(pod: Pod) -> bool:
    """Whether its kubelet did not let it start."""
    return pod.phase == "Failed" and (pod.reason.startswith("OutOf") or pod.reason in _REFUSED)


def pushed_out(pod: Pod) -> bool:
    """Whether it was evicted after it had started: for its node's sake, for others, or for more than it may use."""
    return pod.phase == "Failed" and not refused(pod) and (_displaced(pod) or pod.reason == "Evicted")


def blameless(pod: Pod, *, evictions_count: bool) -> bool:
    """Whether a pod that failed may be made again without any consequence.

    Args:
        pod: any.
        evictions_count: whether a policy of its Job asks about evictions of pods of its task.
    """
    return refused(pod) or (not evictions_count and pod.phase == "Failed" and _displaced(pod))


def _displaced(pod: Pod) -> bool:
    return pod.disrupted or pod.reason in _PUSHED_OUT
