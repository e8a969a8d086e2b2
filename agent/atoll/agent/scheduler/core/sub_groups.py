"""Pods of a gang that must be near each other, as the `subGroupPolicy` of its PodGroup says.

A pod is in a sub-group of the first policy that chooses it. One after that with the same selector and labels, perhaps
further ones, and a size that divides the first one's, divides its sub-groups (`atoll.kinds.nearness.layers_below`): by
the further labels, else by the index of pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from atoll.agent.objects import Pod, PodGroup
from atoll.model import keys, numbers, selectors
from atoll.model.gang import TopologyWish

_INDICES = (
    keys.TASK_INDEX,
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
    "training.kubeflow.org/replica-index",
)
_JOB_INDEX = "jobset.sigs.k8s.io/job-index"


@dataclass(frozen=True)
class SubGroup:
    """Pods that are near each other."""

    policy: int
    """Position of its policy in the PodGroup."""
    values: tuple[str, ...]
    """Of the labels that its pods have in common."""


@dataclass
class Joined:
    """What of a gang's sub-groups has a node, or has ended."""

    #: nodes of the pods of each; empty for a pod that has ended without one
    nodes: dict[SubGroup, list[str]] = field(default_factory=dict)

    #: likewise of those inside other sub-groups
    inner: dict[SubGroup, list[str]] = field(default_factory=dict)

    #: likewise of the pods of each task without a sub-group, where groups must be apart
    tasks: dict[str, list[str]] = field(default_factory=dict)

    def add(self, around: Sequence[SubGroup], node: str) -> None:
        """A pod has this node that is in these sub-groups, the outermost first."""
        for number, sub_group in enumerate(around):
            of = self.inner if number else self.nodes
            of.setdefault(sub_group, []).append(node)


def sub_group_of(group: PodGroup | None, pod: Pod) -> SubGroup | None:
    """The sub-group of a pod, by the first policy that chooses it; None for none."""
    if group is None:
        return None
    labels = {**pod.metadata.labels, keys.TASK_SPEC: pod.task}
    for number, policy in enumerate(group.spec.sub_group_policy):
        selector = policy.get("labelSelector")
        if selector is not None and not selectors.label_selector_matches(selector, labels):
            continue
        named = policy.get("matchLabelKeys") or ()
        if any(key not in labels for key in named):
            continue
        if named:
            return SubGroup(number, tuple(labels[key] for key in named))
        # An index tells pods of one task apart, not which of several tasks belong together.
        return SubGroup(number, () if _of_tasks(selector) else (_by_index(pod, size_of(group, number)),))
    return None


def inner_of(group: PodGroup, pod: Pod, sub_group: SubGroup) -> list[SubGroup]:
    """The sub-groups inside this one, which is of its first policy, that a pod is in, the outermost first."""
    found: list[SubGroup] = []
    policies, around = group.spec.sub_group_policy, sub_group
    for number in range(sub_group.policy + 1, len(policies)):
        outer, inner = policies[around.policy], policies[number]
        known, named = outer.get("matchLabelKeys") or [], inner.get("matchLabelKeys") or []
        divides = size_of(group, around.policy) % size_of(group, number) == 0 and named[: len(known)] == known
        if not divides or inner.get("labelSelector") != outer.get("labelSelector"):
            continue
        further = named[len(known) :]
        values = [pod.metadata.labels.get(key, "") for key in further] or [_by_index(pod, size_of(group, number))]
        around = SubGroup(number, (*around.values, *values))
        found.append(around)
    return found


def _of_tasks(selector: Mapping[str, Any] | None) -> bool:
    """Whether a selector names several tasks."""
    terms = (selector or {}).get("matchExpressions") or ()
    return any(term.get("key") == keys.TASK_SPEC and len(term.get("values") or ()) > 1 for term in terms)


def index_of(pod: Pod) -> int | None:
    """The pod's number in its task; None where none is known."""
    return next((found for key in _INDICES if (found := numbers.whole(pod.metadata.labels.get(key))) is not None), None)


def _by_index(pod: Pod, size: int) -> str:
    """Without labels that tell sub-groups apart, pods follow each other by their index."""
    index = index_of(pod) or 0
    job, ranks = pod.metadata.labels.get(_JOB_INDEX, ""), numbers.whole(pod.metadata.annotations.get(keys.RANKS))
    if ranks and (number := numbers.whole(job)) is not None:
        job, index = "", number * ranks + index
    return f"{pod.task}/{job}/{index // size}"


def size_of(group: PodGroup, policy: int) -> int:
    """Pods of a whole sub-group."""
    return max(1, int(group.spec.sub_group_policy[policy].get("subGroupSize") or 1))


def needed(group: PodGroup, policy: int) -> int:
    """Whole sub-groups without which the gang does not start."""
    return max(0, int(group.spec.sub_group_policy[policy].get("minSubGroups") or 0))


def wish_of(group: PodGroup, policy: int) -> TopologyWish | None:
    """Required nearness of the pods of a sub-group.

    Raises:
        msgspec.ValidationError: it can't be read.
    """
    said = group.spec.sub_group_policy[policy].get("networkTopology")
    return msgspec.convert(said, TopologyWish) if said else None


def missing(group: PodGroup | None, waiting: Iterable[Pod], joined: Joined) -> Iterator[str]:
    """A sentence for each policy of which fewer whole sub-groups exist than the gang needs."""
    if group is None or not any(needed(group, number) for number in range(len(group.spec.sub_group_policy))):
        return
    count = {sub_group: len(nodes) for sub_group, nodes in joined.nodes.items()}
    for pod in waiting:
        if (sub_group := sub_group_of(group, pod)) is not None:
            count[sub_group] = count.get(sub_group, 0) + 1
    for number, policy in enumerate(group.spec.sub_group_policy):
        size, least = size_of(group, number), needed(group, number)
        whole = sum(each.policy == number and pods >= size for each, pods in count.items())
        if whole < least:
            yield f"{whole} of at least {least} whole groups of {size} pods of {policy.get('name') or number} exist"
