"""Which pods may go: DefaultEvictor's rules and Atoll's own, each refusal a sentence. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from atoll.agent.descheduler.policy import Evictor
from atoll.agent.descheduler.world import Subject, World
from atoll.agent.objects import SERVICES, Budget
from atoll.model import keys, selectors
from atoll.model.needs import HONOURED
from atoll.model.timestamps import to_seconds

SYSTEM_CRITICAL: Final = 2_000_000_000
"""Least priority of Kubernetes' own classes."""
EVICT: Final = "descheduler.alpha.kubernetes.io/evict"
PREFER_NO_EVICTION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"


def threshold(world: World, evictor: Evictor) -> int | None:
    """The policy's priorityThreshold; None where it has none.

    Raises:
        ValueError: it names a PriorityClass that is not there.
    """
    named = evictor.priority_threshold
    if named.name and named.name not in world.priorities:
        raise ValueError(f"priorityThreshold names PriorityClass {named.name}, which is not there")
    return world.priorities[named.name] if named.name else named.value


def kept_off(world: World, evictor: Evictor) -> int | None:
    """Priority below which pods do not start on hot nodes: of the policy's threshold, else of the lowest class alone;
    None where all pods are of one class.
    """
    if (named := threshold(world, evictor)) is not None:
        return named
    classes = sorted({world.default_priority, *world.priorities.values()})
    return classes[1] if len(classes) > 1 and classes[1] < SYSTEM_CRITICAL else None


class Evictable:
    """Judges pods of one world by one profile, and counts what a plan takes."""

    def __init__(self, world: World, evictor: Evictor, *, wall: float, youngest: float, lost: float = math.inf) -> None:
        """Args:
        world: at the moment of the decision.
        evictor: of the profile.
        wall: seconds since the epoch.
        youngest: seconds that any pod must have lived.
        lost: seconds that a pod which runs to completion may have run.

        Raises:
            ValueError: the policy names a PriorityClass that is not there.
        """
        self._world, self._evictor, self._wall = world, evictor, wall
        self._youngest, self._lost = max(youngest, evictor.least_age), lost
        named = threshold(world, evictor)
        self._below = named if named is not None else 2**31 if evictor.system_critical else SYSTEM_CRITICAL
        #: workload -> pods that are not finished, and how many of them are not ready
        self._replicas: Counter[str] = Counter()
        self._unready: Counter[str] = Counter()
        self._budgets: defaultdict[str, list[Budget]] = defaultdict(list)
        #: pods that a plan takes from each budget
        self._taken: Counter[str] = Counter()
        for budget in world.budgets:
            self._budgets[budget.metadata.namespace].append(budget)
        for each in world.subjects:
            if not each.pod.finished:
                workload = self.workload(each)
                self._replicas[workload] += 1
                self._unready[workload] += not each.pod.ready or each.pod.terminating

    def workload(self, subject: Subject) -> str:
        """UID of the workload above a pod: of its Deployment, not of its ReplicaSet."""
        uid = subject.owner[1]
        return self._world.workloads.get(uid, uid)

    def refusal(self, subject: Subject) -> str:
        """Why the pod stays; empty where it may go."""
        return self._never(subject) or self._by_policy(subject) or self._now(subject)

    def take(self, subject: Subject) -> None:
        """The plan evicts this pod."""
        self._unready[self.workload(subject)] += 1
        for budget in self._covering(subject):
            self._taken[budget.metadata.key] += 1

    def refusal_of_gang(self, gang: Sequence[Subject]) -> str:
        """Why a whole gang stays; empty where the host may be asked to move it."""
        if any(not each.pod.node for each in gang):
            return "some of its pods have no node"
        budgets = Counter(budget.metadata.key for each in gang for budget in self._covering(each))
        allowed = {budget.metadata.key: budget.status.disruptions_allowed for budget in self._world.budgets}
        for key, count in budgets.items():
            if count > allowed[key] - self._taken[key]:
                return f"PodDisruptionBudget {key} allows {allowed[key]} disruptions now, not {count}"
        reasons = (self._fixed(each) or self._by_policy(each) or self._young(each) for each in gang)
        return next(filter(None, reasons), "")

    def of_host(self, subject: Subject) -> str:
        """UID of the binding whose gang a pod belongs to; empty for services and for work of the member's own."""
        return "" if subject.owner[0] in SERVICES else subject.pod.named_binding

    def _never(self, subject: Subject) -> str:
        return self._fixed(subject) or ("" if subject.owner[0] in SERVICES else self._of_gang(subject))

    def _fixed(self, subject: Subject) -> str:
        """Why a pod stays in any case, gangs aside."""
        pod, kind = subject.pod, subject.owner[0]
        if pod.terminating or pod.finished:
            return "it ends already"
        if subject.of_node:
            return "its node made it"
        if not kind:
            return "nothing would make it again: it has no controller"
        if kind == "DaemonSet":
            return "a DaemonSet makes it again on the same node"
        if pod.claims:
            return "its volumes may be bound to its node"
        if subject.claims or any(need not in HONOURED for need in pod.needs):
            return "its devices are bound to its node"
        if (pod.metadata.annotations.get(keys.PREEMPTABLE) or pod.metadata.labels.get(keys.PREEMPTABLE)) == "false":
            return f"{keys.PREEMPTABLE} is false"
        return ""

    def _of_gang(self, subject: Subject) -> str:
        """A gang moves whole or not at all; pods of services are replaced one by one."""
        pod = subject.pod
        if pod.named_binding:
            return "it belongs to a gang of the host, which moves whole or not at all"
        group = self._world.groups.get(pod.group)
        if pod.group and group is None:
            return f"its PodGroup {pod.group} is not known"
        if group is not None and (group.spec.min_member > 1 or group.spec.min_task_member):
            return f"it belongs to gang {pod.group}, which would fall below its minimum or lose its work"
        return ""

    def _by_policy(self, subject: Subject) -> str:
        evictor, pod, meta = self._evictor, subject.pod, subject.metadata
        labels = self._world.namespaces.get(meta.namespace, {})
        if evictor.label_selector and not selectors.label_selector_matches(evictor.label_selector, meta.labels):
            return "labelSelector does not match it"
        if evictor.namespace_label_selector and not selectors.label_selector_matches(
            evictor.namespace_label_selector, labels
        ):
            return "namespaceLabelSelector does not match its namespace"
        if EVICT in meta.annotations:
            return ""
        if PREFER_NO_EVICTION in meta.annotations and evictor.no_eviction_policy == "Mandatory":
            return f"annotation {PREFER_NO_EVICTION}"
        if pod.priority >= self._below:
            return f"its priority {pod.priority} is not below {self._below}"
        if subject.local and not evictor.local_storage:
            return "it keeps data on its node (emptyDir or hostPath), and evictLocalStoragePods is off"
        if evictor.budget_needed and not self._covering(subject):
            return "no PodDisruptionBudget covers it"
        if evictor.min_replicas > 1 and (count := self._replicas[self.workload(subject)]) < evictor.min_replicas:
            return f"its workload has {count} pods, below minReplicas {evictor.min_replicas}"
        return ""

    def _young(self, subject: Subject) -> str:
        created = subject.metadata.creation_timestamp
        young = not created or self._wall - to_seconds(created) < self._youngest
        return f"it is younger than {self._youngest:g} s" if young else ""

    def _now(self, subject: Subject) -> str:
        """Refusals that pass with time."""
        if young := self._young(subject):
            return young
        began = subject.pod.since or subject.metadata.creation_timestamp
        if (
            subject.completes
            and EVICT not in subject.metadata.annotations
            and self._wall - to_seconds(began) > self._lost
        ):
            return "it runs to completion, and its work would be lost"
        if self._unready[self.workload(subject)]:
            return "another pod of its workload is not ready, or moves"
        for budget in self._covering(subject):
            left = budget.status.disruptions_allowed - self._taken[budget.metadata.key]
            if left < 1:
                return f"PodDisruptionBudget {budget.metadata.key} allows no disruption now"
        return ""

    def _covering(self, subject: Subject) -> list[Budget]:
        return [each for each in self._budgets[subject.metadata.namespace] if each.covers(subject.pod)]
