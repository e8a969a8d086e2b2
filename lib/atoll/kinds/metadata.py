"""What every kind does alike with an object's metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from atoll.kinds import nearness
from atoll.model import duration, keys, needs, numa, pod_rules, ports, selectors
from atoll.model.flavors import Assigned, pinned, required
from atoll.model.gang import Gang, Task, TopologyWish, scopes_of
from atoll.model.placer import SCHEDULER_OF, SCHEDULERS, TOLERATION, MadeFor, Placer, Unplaceable
from atoll.model.vector import pod_requests

_HOST_ANNOTATIONS = (
    keys.LAST_APPLIED, keys.HOLD, keys.ABORTED, keys.RETRIES, keys.AT_ONCE, keys.RETRY,
)  # fmt: skip
QUEUE_PLACES: Final = (
    ("labels", keys.KUEUE_QUEUE_LABEL), ("labels", keys.QUEUE_LABEL), ("annotations", keys.QUEUE_ANNOTATION),
)  # fmt: skip
"""Where the metadata of a workload may name its queue, the first that does counts. A queue system of the member would
take them for its own.
"""
_HOST_KEYS = frozenset((*(key for _, key in QUEUE_PLACES), keys.GANG_TASK))
MOST_OF_ATTEMPT = 64
"""Characters of the annotation that count."""


def for_member(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Name, namespace, labels and annotations: what of the metadata a member gets."""
    metadata = obj["metadata"]
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k not in _HOST_ANNOTATIONS}
    return {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "labels": {**without_queues(metadata.get("labels")), keys.MANAGED: "true"},
        "annotations": without_queues(annotations),
    }


def template_for_member(
    template: Mapping[str, Any], task: str = "", flavors: Sequence[Assigned] = ()
) -> dict[str, Any]:
    """A pod template without queues and tasks of the host, kept to the nodes of the flavors that its task got."""
    from atoll.model import gpu_shares

    head = template.get("metadata") or {}
    named = {field: without_queues(head[field]) for field in ("labels", "annotations") if head.get(field)}
    made = dict(gpu_shares.spelled({**template, "metadata": {**head, **named}} if named else template))
    if nodes := required(flavors, task):
        pod = made.get("spec") or {}
        affinity = pod.get("affinity") or {}
        by_node = affinity.get("nodeAffinity") or {}
        terms = pinned(selectors.required_node_terms(pod), nodes)
        by_node = {**by_node, "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        made["spec"] = {**pod, "affinity": {**affinity, "nodeAffinity": by_node}}
    return made


def ending_in_time(template: Mapping[str, Any], grace: int | None) -> dict[str, Any]:
    """A pod template whose pods end in time.

    Args:
        template: of pods.
        grace: seconds that a pod may take to end, without finalizers; None leaves both as they are.
    """
    made, head, pod = dict(template), template.get("metadata") or {}, template.get("spec") or {}
    if grace is not None and head.get("finalizers"):
        made["metadata"] = {key: value for key, value in head.items() if key != "finalizers"}
    if grace is not None and (pod.get("terminationGracePeriodSeconds") or 0) > grace:
        made["spec"] = {**pod, "terminationGracePeriodSeconds": grace}
    return made


def without_queues(named: Mapping[str, str] | None) -> dict[str, str]:
    """Labels or annotations without the ones that name a queue of the host, or a task of its gang."""
    return {name: value for name, value in (named or {}).items() if name not in _HOST_KEYS}


def template_for(template: Mapping[str, Any], how: MadeFor, *, scheduler: str = "") -> dict[str, Any]:
    """A pod template for a member with this placer; one that names a scheduler of its own keeps it.

    Args:
        template: of pods.
        how: it is made for the member.
        scheduler: schedulerName of pods whose template names none.
    """
    pod = dict(template.get("spec") or {})
    takes_shares(template, how.placer)
    if how.tolerates:
        pod["tolerations"] = [*(pod.get("tolerations") or ()), dict(TOLERATION)]
    if (pod.get("schedulerName") or scheduler) in SCHEDULERS:
        pod["schedulerName"] = SCHEDULER_OF[how.placer]
        if how.placer is Placer.KUBE_SCHEDULER:
            gates = [gate for gate in pod.get("schedulingGates") or () if gate.get("name") != keys.GANG_GATE]
            pod["schedulingGates"] = [*gates, {"name": keys.GANG_GATE}]
    return {**template, "spec": pod}


def takes_shares(template: Mapping[str, Any], who: Placer) -> None:
    """Refuse devices of Koordinator that the placer would not hand over.

    Args:
        template: of pods.
        who: the placer.

    Raises:
        Unplaceable: the pod would run without its devices.
    """
    from atoll.model import gpu_shares, joint

    pod, notes = template.get("spec") or {}, (template.get("metadata") or {}).get("annotations") or {}
    names = {*needs.KOORDINATOR_OTHERS, *(gpu_shares.KOORDINATOR_GPUS if who is not Placer.KUBE_SCHEDULER else ())}
    if who is not Placer.ATOLL and (gpu_shares.asks_for(pod, names) or any(map(notes.get, joint.WISHES))):
        text = f"the member's placer is {who}, which writes no {keys.KOORDINATOR_DEVICES}: pods get no devices there"
        raise Unplaceable(f"{text}; send it elsewhere")


def topology_wish(*holders: Mapping[str, Any]) -> TopologyWish | None:
    """The wish that annotations of these objects express, the first one's before the next one's."""
    return nearness.wish(topology_annotations(*holders))


def topology_annotations(*holders: Mapping[str, Any]) -> dict[str, str]:
    """Annotations of these objects about the nearness of pods, the first one's before the
    next one's.
    """
    return nearness.topology_of(holders)


def topology_carried(obj: Mapping[str, Any]) -> dict[str, str]:
    """Annotations of a workload for its pods in a member; others come by its dispatch."""
    return {key: text for key, text in topology_annotations(obj).items() if key not in nearness.OF_ALL_KINDS}


def spread_out(gang: Gang, *holders: Mapping[str, Any]) -> Gang:
    """The gang, balanced, its groups kept apart and devices together as annotations of these objects ask for."""
    notes = topology_annotations(*holders)
    groups = len(gang.tasks) > 1 or any(task.partition is not None for task in gang.tasks)
    # Only members know where devices of a node are: they are asked.
    said = (_said(holder, "annotations", keys.DEVICES_IN) for holder in holders)
    if together := next((str(each) for each in said if each in list(numa.Together)), ""):
        tasks = [msgspec.structs.replace(task, devices_in=together) for task in gang.tasks]
        gang = msgspec.structs.replace(gang, tasks=tasks)
    wishes = nearness.balanced(notes), nearness.apart(notes) if groups else None
    return gang if wishes == (None, None) else msgspec.structs.replace(gang, balanced=wishes[0], apart=wishes[1])


def partitioned(task: Task, *holders: Mapping[str, Any]) -> Task:
    """The task with the slices that annotations of these objects ask for."""
    part = nearness.partition(topology_annotations(*holders), task.replicas)
    return task if part is None else msgspec.structs.replace(task, partition=part)


def topology_told(gang: Gang, labels: Mapping[str, str] = {}) -> dict[str, str]:
    """The annotation for the nearness of pods in a member; none without one.

    Args:
        gang: of the workload.
        labels: task -> label of its pods that tells groups apart; their index where there is none.
    """
    said = nearness.as_pod_group(gang.network_topology, {task.name: task.partition for task in gang.tasks}, labels)
    return {keys.TOPOLOGY: msgspec.json.encode(said, order="sorted").decode()} if said else {}


def held(obj: Mapping[str, Any]) -> bool:
    """Whether its user does not want it to run now."""
    return ((obj.get("metadata") or {}).get("annotations") or {}).get(keys.HOLD) == "true"


def attempt(obj: Mapping[str, Any]) -> str:
    """What changes when its user wants it to be tried again, though members refused it too often."""
    said = ((obj.get("metadata") or {}).get("annotations") or {}).get(keys.RETRY) or ""
    return str(said)[:MOST_OF_ATTEMPT]


def running_estimate(obj: Mapping[str, Any]) -> float | None:
    """Seconds that its user expects it to run, by annotation."""
    return _seconds(obj, keys.RUNNING_ESTIMATE)


def patience(obj: Mapping[str, Any]) -> float | None:
    """Seconds after which it gets a reservation, by annotation."""
    return _seconds(obj, *keys.WAITING_TIMES)


def ready_timeout(obj: Mapping[str, Any]) -> float | None:
    """Seconds after it was bound within which its minimum must run, by annotation."""
    return _seconds(obj, keys.READY_TIMEOUT)


def preemptable(*holders: Mapping[str, Any]) -> bool:
    """Whether it may be taken back for others: unless the workload or one of its pod templates says `false`."""
    for holder in holders:
        metadata = holder.get("metadata") or {}
        said = (metadata.get("annotations") or {}).get(keys.PREEMPTABLE) or (metadata.get("labels") or {}).get(
            keys.PREEMPTABLE
        )
        if said is not None and str(said).lower() == "false":
            return False
    return True


def _seconds(obj: Mapping[str, Any], *names: str) -> float | None:
    """The first of some annotations that is a duration."""
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    found = (duration.parse_or_none(annotations.get(name)) for name in names)
    return next((seconds for seconds in found if seconds is not None), None)


def queue_of(
    obj: Mapping[str, Any], templates: Iterable[object] = (), *, first: object = None, default: str = keys.DEFAULT_QUEUE
) -> str:
    """The queue that a workload names, by the one order for all kinds.

    Args:
        obj: the workload, or a pod; a wrong type names none.
        templates: its PodTemplateSpecs, whose annotation counts after all that the workload says.
        first: what a field of its spec says, which comes before all.
        default: where it names none.
    """
    places = [first, *(_said(obj, field, key) for field, key in QUEUE_PLACES)]
    places += [_said(template, "annotations", keys.QUEUE_ANNOTATION) for template in templates]
    return next((place for place in places if isinstance(place, str) and place), default)


def names_queue(obj: Mapping[str, Any]) -> bool:
    """Whether an object names a queue in its own metadata, which is what asks for Atoll where only such is Atoll's."""
    return any(_said(obj, field, key) for field, key in QUEUE_PLACES)


def names_queue_rule(*holders: str) -> str:
    """`names_queue` of any of these as a CEL expression; an object may be null."""
    places = " || ".join(f'each.metadata.?{field}[?"{key}"].orValue("") != ""' for field, key in QUEUE_PLACES)
    return f"[{', '.join(holders)}].exists(each, each != null && ({places}))"


def moved_by_label(obj: Mapping[str, Any], queue: str) -> dict[str, Any]:
    """The merge patch by which an object goes to another queue: of the label that counts."""
    labels = (obj.get("metadata") or {}).get("labels") or {}
    key = keys.KUEUE_QUEUE_LABEL if labels.get(keys.KUEUE_QUEUE_LABEL) else keys.QUEUE_LABEL
    return {"metadata": {"labels": {key: queue}}}


def task_of(
    name: str,
    pod: Mapping[str, Any],
    *,
    replicas: int,
    min_available: int,
    default_class: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    namespace: str = "",
    later: bool = False,
    numa_policy: str = "",
) -> Task:
    """A task of a gang.

    Args:
        name: of the task.
        pod: the spec of its pods.
        replicas: how many they are.
        min_available: how many of them must start together.
        default_class: PriorityClass of pods that name none.
        labels: of its pods.
        annotations: theirs.
        namespace: theirs.
        later: whether they are made once other tasks have started.
        numa_policy: the policy of the topology manager that their nodes must have; empty, or `none`, for any.
    """
    from atoll.model import gpu_shares, joint

    guaranteed = numa.is_guaranteed(pod)
    requests = gpu_shares.of_annotations(annotations or {}) | pod_requests(pod)
    return Task(
        name=name,
        replicas=replicas,
        min_available=min_available,
        requests=requests,
        node_selector=pod.get("nodeSelector") or {},
        node_terms=selectors.required_node_terms(pod),
        tolerations=pod.get("tolerations") or [],
        scopes=scopes_of(pod, default_class),
        ports=ports.of(pod),
        rules=pod_rules.of(pod, labels or {}, namespace),
        preferences=pod_rules.node_preferences(pod),
        # Of others devices alone count, which most nodes don't align: their member looks at them when it has the pods.
        aligned=numa.aligned(pod) if guaranteed else [],
        numa=numa_policy if guaranteed and numa_policy != numa.Policy.NONE else "",
        claim_names=needs.device_claims(pod),
        joint=joint.of(annotations or {}, requests),
        later=later,
        grace=grace if isinstance(grace := pod.get("terminationGracePeriodSeconds"), int) and grace >= 0 else 30,
    )


def default_queue(namespace: Mapping[str, str] | None) -> str:
    """The queue of workloads that name none, by the annotations of their namespace."""
    return (namespace or {}).get(keys.QUEUE_ANNOTATION) or keys.DEFAULT_QUEUE


def _said(holder: object, field: str, key: str) -> object:
    for step in ("metadata", field, key):
        holder = holder.get(step) if isinstance(holder, Mapping) else None
    return holder
