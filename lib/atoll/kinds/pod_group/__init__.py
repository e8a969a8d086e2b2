"""The Pod group: pods that name the same group and are to start together, as Kueue's users write them; and a pod alone.

A new pod of no group and no owner is a group of one: its webhook gives it a group of its own name.

On the host the pods are gated for ever, and stand for running ones. A member runs the group as a Volcano Job with a
task for each pod, so that each keeps its template and a pod that takes a failed one's place is one task instead of
another. What members say of the Job is written to the pods of the host, one by one.

A group is complete when as many pods are there as it says. Pods that have failed count until others take their place.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from atoll.kinds import metadata, nearness
from atoll.kinds.interface import (
    NOTHING,
    Assembly,
    Guard,
    InMember,
    Json,
    LeftAlone,
    Part,
    Report,
    Scaling,
    Standing,
    Support,
    Words,
)
from atoll.kinds.volcano_job import VolcanoJob
from atoll.model import features, keys, needs, numbers
from atoll.model.apiresource import JOBS, PODS, PRIORITY_CLASSES, SERVICE_ACCOUNTS, ApiResource
from atoll.model.gang import Gang, Partition
from atoll.model.placer import MadeFor, Placer, Unplaceable

if TYPE_CHECKING:
    from atoll.admission.rules import Rules

GROUP: Final = "kueue.x-k8s.io/pod-group-name"
"""Label of a pod: its group."""
TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
"""Annotation of each pod of a group: how many it has."""
RETRIABLE: Final = "kueue.x-k8s.io/retriable-in-group"
"""Annotation of a pod: `false` says that no pod may take the place of one that failed."""
GATE: Final = "atoll.sh/group"
"""Scheduling gate of the host's pods, which is never lifted."""
FAST: Final = "kueue.x-k8s.io/pod-group-fast-admission"
"""Annotation of the oldest pod: `true` has the group admitted before all of its pods are there."""
INDEX: Final = "kueue.x-k8s.io/pod-group-pod-index"
"""Label of a pod: its index in the group, from 0."""
INDEX_LABEL: Final = "kueue.x-k8s.io/pod-group-pod-index-label"
"""Annotation of a pod: the label that has its index, instead of that one."""
MOST: Final = 256
"""Pods of a group: each is a task of the Job that runs in the member."""
TASK: Final = "main"
"""Name of the task of its gang where its pods are alike; else what the names of its tasks begin with."""

_GATES = (GATE, "kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")
_KUEUE = "kueue.x-k8s.io/"
_ENDED = ("Succeeded", "Failed")
_SERVER_FIELDS = ("nodeName", "priority", "preemptionPolicy", "serviceAccount", "schedulingGates")
_ONE_TOO_MANY = "its group has all of its pods: it takes the place of one that fails"
_TOKEN = "kube-api-access-"
"""How the volume begins that an API server adds to each pod."""


class PodGroup(VolcanoJob):
    """Pods with label `kueue.x-k8s.io/pod-group-name`, which the webhook gives to a pod of no owner as well.

    Reports of members are reports of a Volcano Job.
    """

    resource = PODS
    words = Words(
        title="Pod group",
        held=f"scheduling gate `{GATE}`",
        names=("pod-group", "pod-groups", "pod", "pods"),
        prefix="pod-group/",
        runs_as="a Volcano Job with a task for each pod",
    )
    support = Support(
        components="the pods of the group",
        minimum="all, as many as their annotation says",
        order="all at once",
        division="one member",
        scaling="-",
        end="when all pods have ended; one that failed may be replaced, unless the group says otherwise",
        released="those that have ended",
        status="the phase of each pod",
    )
    guard = Guard(
        ours=f'"{GROUP}" in dyn(oldObject).metadata.?labels.orValue({{}})',
        charged='dyn(oldObject).?status.?phase.orValue("") == "Running"',
    )
    in_member: InMember | None = None
    commands: Collection[str] = ()
    scaling: Scaling | None = None
    assembly: Assembly | None = Assembly(
        selector=GROUP,
        name=lambda pod: _group_of(pod),
        workload=lambda pods, uid: _workload(pods, uid),
        waits=lambda group: _waits(group),
        objects=lambda group: group["spec"]["pods"],
        statuses=lambda group, status: list(_statuses(group, status)),
    )

    def takes(self, obj: Mapping[str, Any]) -> bool:
        """A group that is complete and can be run; a pod that names one."""
        if _is_whole(obj):
            return _waits(obj) is None
        about = obj.get("metadata")
        labels = about.get("labels") if isinstance(about, dict) else None
        return isinstance(labels, dict) and GROUP in labels

    def left_alone(self, obj: Mapping[str, Any]) -> LeftAlone | None:
        """It is not complete, or can't be run; a pod of no group is no workload."""
        if not _is_whole(obj) and not self.takes(obj):
            text = "it has an owner or a node, or came before its namespace opted in"
            return LeftAlone("NotOfGroup", f"Atoll does not run this pod: {text}", "create it anew, or use a Job")
        if not _is_whole(obj) or (waits := _waits(obj)) is None:
            return None
        if waits[0] != "GroupIncomplete":
            return LeftAlone(*waits, "delete its pods and create them anew")
        missing = (total_of(obj) or 0) - len(_members(obj))
        return LeftAlone(*waits, f"create {missing} more")

    def admission(self) -> Rules:
        """The rules of the module beside this one."""
        from atoll.kinds.pod_group.admission import ADMISSION

        return ADMISSION

    def queue_of(self, obj: Mapping[str, Any], *, default: str = keys.DEFAULT_QUEUE) -> str:
        """That of its first pod."""
        return metadata.queue_of(obj, default=default)

    def priority_class_of(self, obj: Mapping[str, Any]) -> str:
        """That of its first pod."""
        return next((_spec(pod).get("priorityClassName") or "" for pod in _members(obj)), "")

    def gang(
        self,
        obj: Mapping[str, Any],
        *,
        priority: int,
        default_class: str = "",
        default_queue: str = keys.DEFAULT_QUEUE,
        carried: Mapping[str, int] = NOTHING,
    ) -> Gang:
        """All of its pods that have not ended before it was dispatched, in one member."""
        if not _is_whole(obj):
            raise ValueError("a pod alone says nothing of its group")
        members = _members(obj)
        pods = [_spec(pod) for pod in members]
        count = sum(task_of(pod) not in carried for pod in members)
        # Of a group that is admitted before all of its pods are there, the others are taken to be like the oldest one.
        missing, eldest = (total_of(obj) or 0) - len(members), task_of(members[0])
        tasks = []
        for name, sort in _sorts(obj).items():
            here = sum(task_of(pod) not in carried for pod in sort)
            task = metadata.task_of(
                name,
                _spec(sort[0]),
                replicas=here + (missing if eldest in map(task_of, sort) else 0),
                min_available=here,
                default_class=default_class,
                labels=(sort[0].get("metadata") or {}).get("labels"),
                annotations=(sort[0].get("metadata") or {}).get("annotations"),
                namespace=obj["metadata"].get("namespace", ""),
            )
            tasks.append(task)
        tasks = [task for task in tasks if task.replicas] or tasks[:1]
        if (part := _slices(obj)) is not None and count > 1:
            tasks = [msgspec.structs.replace(task, partition=part) for task in tasks]
        gang = Gang(
            queue=self.queue_of(obj, default=default_queue),
            tasks=tasks,
            min_available=count,
            priority=priority,
            submitted=obj["metadata"].get("creationTimestamp") or "",
            network_topology=metadata.topology_wish(obj, *members[:1]),
            running_estimate=metadata.running_estimate(obj),
            patience=metadata.patience(obj),
            ready_timeout=metadata.ready_timeout(obj),
            preemptable=metadata.preemptable(*members),
            hold=any(metadata.held(pod) for pod in members) or count == 0,
            attempt=metadata.attempt(obj),
            whole=True,
            needs=needs.of(pods),
            features=features.of(JOBS, pods),
        )
        return metadata.spread_out(gang, obj, *members[:1])

    def namespaced_needs(self, obj: Mapping[str, Any]) -> Sequence[tuple[ApiResource, str]]:
        """The PriorityClasses and ServiceAccounts of its pods; the default account is everywhere."""
        found: dict[tuple[ApiResource, str], None] = {}
        for pod in map(_spec, _members(obj)):
            if name := pod.get("priorityClassName"):
                found[PRIORITY_CLASSES, name] = None
            if (name := pod.get("serviceAccountName")) and name != "default":
                found[SERVICE_ACCOUNTS, name] = None
        return list(found)

    def makes_claims(self, obj: Mapping[str, Any]) -> bool:
        """Never: its pods name claims that are there."""
        return False

    def rewrite(self, obj: Mapping[str, Any], part: Part) -> Json:
        """A Volcano Job with a task for each pod that has not ended before this dispatch."""
        tasks, slices = [], _slices(obj)
        sorts = {task_of(pod): sort for sort, pods in _sorts(obj).items() for pod in pods}
        for pod in _members(obj):
            if (name := task_of(pod)) in part.carried:
                continue
            template = metadata.template_for_member(_template(pod, part), sorts[name], part.flavors)
            template = metadata.ending_in_time(template, part.grace)
            template["metadata"]["annotations"][keys.GANG_TASK] = sorts[name]
            if slices is None:
                # Each pod is a task there, and none a group.
                template["metadata"]["annotations"].pop(keys.APART, None)
            else:
                template["metadata"]["labels"] |= _slice_labels(slices, index_of(pod) or 0)
            tasks.append({"name": name, "replicas": 1, "minAvailable": 1, "maxRetry": 1, "template": template})
        return {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "metadata": {
                **metadata.for_member(obj),
                "name": name_in_member(obj["metadata"]["namespace"], obj["metadata"]["name"]),
                "labels": {keys.MANAGED: "true"},
                "annotations": {keys.TOPOLOGY: _sub_groups(slices)} if slices is not None else {},
            },
            "spec": {
                "minAvailable": len(tasks),
                "maxRetry": 1,
                "schedulerName": keys.SCHEDULER_NAME,
                "queue": keys.DEFAULT_QUEUE,
                "tasks": tasks,
                **({"networkTopology": _topology(obj)} if metadata.topology_wish(obj, *_members(obj)[:1]) else {}),
            },
        }

    def placed(self, manifest: Json, how: MadeFor) -> Json:
        """As a Volcano Job, whose own controller knows no slices of pods of several tasks."""
        if how.placer is Placer.VOLCANO and keys.TOPOLOGY in manifest["metadata"]["annotations"]:
            raise Unplaceable("the member's placer is volcano, which knows no slices of pods: send it elsewhere")
        return super().placed(manifest, how)

    def suspension(self, obj: Mapping[str, Any], *, suspended: bool) -> Sequence[Json]:
        """Nothing: the gates of its pods stay."""
        return ()

    def carried(self, status: Mapping[str, Any]) -> dict[str, int]:
        """The tasks of pods that have ended."""
        return dict.fromkeys(status.get("ended") or (), 1)

    def standing(self, obj: Mapping[str, Any]) -> Standing:
        """How many of its pods are there, while it is not complete."""
        state, *counts = super().standing(obj)
        waits = _waits(obj) if _is_whole(obj) else None
        return Standing(waits[0] if waits else state, *counts)

    def pods_selector(self, namespace: str, name: str) -> str:
        """That of the Volcano Job that they are in members."""
        return super().pods_selector(namespace, name_in_member(namespace, name))

    def moved(self, obj: Mapping[str, Any], queue: str) -> Json:
        """By the label that counts."""
        return metadata.moved_by_label(obj, queue)

    def aggregate(
        self, obj: Mapping[str, Any], reports: Sequence[Report], *, waiting: tuple[str, str], now: str
    ) -> Json:
        """The phase of each pod by its task; an end is not taken back, and pods without a report stay."""
        phases = {}
        for report in reports:
            for task, counts in (report.status.get("taskStatusCount") or {}).items():
                phases[task] = next((phase for phase, pods in (counts.get("phase") or {}).items() if pods), "")
        pods = {}
        for pod in obj["spec"]["pods"]:
            said, old = phases.get(task_of(pod), ""), _phase(pod)
            phase = said if said in ("Running", *_ENDED) else "Pending"
            if old in _ENDED or not (reports or any(waiting)):
                phase = old
            pods[pod["metadata"]["uid"]] = phase
        reason, message = waiting
        if reports and not message:
            message = f"in {', '.join(sorted(report.cluster for report in reports))}"
        return {"pods": pods, "reason": reason, "message": message}


def task_of(pod: Mapping[str, Any]) -> str:
    """Name of the pod's task in the member: one that takes its place has another one, under any name."""
    about = pod["metadata"]
    digest = hashlib.sha256(about.get("uid", "").encode()).hexdigest()[:8]
    return f"{about['name'][:30].replace('.', '-').rstrip('-')}-{digest}"


def name_in_member(namespace: str, name: str) -> str:
    """Name of the Volcano Job that a group is in members: none of the host's has it."""
    digest = hashlib.sha256(f"Pod/{namespace}/{name}".encode()).hexdigest()[:8]
    return f"{name[:40].rstrip('-')}-{digest}"


def total_of(pod: Mapping[str, Any]) -> int | None:
    """How many pods its group has, as it says; None where that can't be read."""
    about = pod.get("metadata")
    annotations = about.get("annotations") if isinstance(about, dict) else None
    return numbers.whole(annotations.get(TOTAL)) if isinstance(annotations, dict) else None


def index_of(pod: Mapping[str, Any]) -> int | None:
    """The pod's index in its group, by its label; None where that is missing or no number."""
    about = pod.get("metadata") or {}
    label = str((about.get("annotations") or {}).get(INDEX_LABEL) or INDEX)
    return numbers.whole((about.get("labels") or {}).get(label))


# -- the group of its pods ---------------------------------------------------------------------------------------------


def _workload(pods: Sequence[Json], uid: str) -> Json:
    """One object of all pods of a group; the oldest speaks for all.

    Args:
        pods: at least one.
        uid: of the group; empty: that of its oldest pod.
    """
    ordered = sorted(pods, key=_age)
    first = ordered[0]["metadata"]
    seen = [(each["metadata"].get("labels"), each["metadata"].get("annotations"), each.get("spec")) for each in ordered]
    leaving = [each["metadata"].get("deletionTimestamp") for each in ordered]
    about = {
        "name": first["labels"][GROUP],
        "namespace": first["namespace"],
        "uid": uid or first["uid"],
        "labels": first.get("labels") or {},
        "annotations": first.get("annotations") or {},
        "creationTimestamp": first.get("creationTimestamp") or "",
        "resourceVersion": first.get("resourceVersion") or "",
        # Changes with each change of any of them.
        "generation": zlib.crc32(orjson.dumps([*map(_uid, ordered), seen])),
    }
    if all(leaving):
        about["deletionTimestamp"] = leaving[0]
    group: Json = {"apiVersion": PODS.api_version, "kind": PODS.kind, "metadata": about, "spec": {"pods": ordered}}
    return {**group, "status": _status(group)}


def _group_of(pod: Mapping[str, Any]) -> str:
    """Its group; empty for a pod that came before its namespace opted in, which others may run on the host."""
    spec = pod.get("spec")
    if spec is not None and not any(gate.get("name") == GATE for gate in spec.get("schedulingGates") or ()):
        return ""
    return ((pod.get("metadata") or {}).get("labels") or {}).get(GROUP) or ""


def _status(group: Json) -> Json:
    """As a Volcano Job would say it: what the phases of its pods add up to."""
    members = _members(group)
    counts = Counter(map(_phase, members))
    total = total_of(group) or 0
    ended = counts["Succeeded"] + counts["Failed"]
    phase = "Running" if counts["Running"] or ended else "Pending"
    if total and ended >= total:
        phase = "Failed" if counts["Failed"] else "Completed"
    status: Json = {"state": {"phase": phase}, "ended": sorted(task_of(pod) for pod in members if _ended(pod))}
    return status | {name.lower(): counts[name] for name in ("Pending", "Running", *_ENDED)}


def _waits(group: Mapping[str, Any]) -> tuple[str, str] | None:
    """Reason and message of a group that can't be run yet; None for one that can."""
    there, total = len(_members(group)), total_of(group)
    if not total:
        return "GroupInvalid", f"annotation {TOTAL} of its oldest pod is no whole number of 1 or more"
    if there < total and not (there and _is_fast(group)):
        # Without their number: each pod that comes would change what all the others say.
        return "GroupIncomplete", f"not all of the {total} pods of group {group['metadata']['name']} are there"
    if len({_spec(pod).get("priorityClassName") or "" for pod in _members(group)}) > 1:
        return "GroupInvalid", "its pods name different priority classes, and a group has one priority"
    if len(_sorts(group)) > 1 and _slices(group) is not None:
        return "GroupInvalid", "its pods ask for different resources or nodes, and slices are of equal pods"
    return None


def _is_fast(group: Mapping[str, Any]) -> bool:
    """Whether it is admitted with its first pod; the others come later."""
    return (group["metadata"].get("annotations") or {}).get(FAST) == "true"


def _sorts(group: Mapping[str, Any]) -> dict[str, list[Json]]:
    """Task of its gang -> the pods that ask for the same, in order of age.

    A task is named for its pods' requests, so it keeps its name while pods come and go.
    """
    found: dict[str, list[Json]] = {}
    for pod in _members(group):
        said = (pod.get("metadata") or {}).get("annotations")
        task = metadata.task_of(TASK, _spec(pod), replicas=1, min_available=1, annotations=said)
        digest = hashlib.sha256(msgspec.json.encode(task, order="deterministic")).hexdigest()[:8]
        found.setdefault(f"{TASK}-{digest}", []).append(pod)
    if len(found) == 1 and not _is_fast(group):
        return {TASK: next(iter(found.values()))}
    return dict(sorted(found.items()))


def _members(group: Mapping[str, Any]) -> list[Json]:
    """The pods that count: the oldest ones, after them failed ones without a replacement."""
    pods = group["spec"]["pods"]
    fixed = any((pod["metadata"].get("annotations") or {}).get(RETRIABLE) == "false" for pod in pods)
    ordered = sorted(pods, key=lambda pod: (not fixed and _phase(pod) == "Failed", *_age(pod)))
    return ordered[: total_of(group) or 0]


def _statuses(group: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[tuple[Json, Json]]:
    """(pod, its status) of pods whose status is another one now."""
    members, phases = {_uid(pod) for pod in _members(group)}, status["pods"]
    for pod in group["spec"]["pods"]:
        if _ended(pod):
            continue
        said = {"phase": phases.get(_uid(pod), "Pending"), "reason": status["reason"], "message": status["message"]}
        if _uid(pod) not in members:
            said |= {"reason": "NotOfGroup", "message": _ONE_TOO_MANY}
        old = pod.get("status") or {}
        wanted = {**old, **said}
        wanted = {key: value for key, value in wanted.items() if value or key not in said}
        if said["phase"] != "Pending" and "conditions" in old:
            # kubectl prints this reason instead of the phase, and the gate stays on the host.
            wanted["conditions"] = [each for each in old["conditions"] if each.get("reason") != "SchedulingGated"]
        if wanted != old:
            yield pod, wanted


def _is_whole(obj: Mapping[str, Any]) -> bool:
    spec = obj.get("spec")
    return isinstance(spec, dict) and isinstance(spec.get("pods"), list)


def _age(pod: Mapping[str, Any]) -> tuple[str, str]:
    return pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]


def _uid(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["uid"])


def _phase(pod: Mapping[str, Any]) -> str:
    return (pod.get("status") or {}).get("phase") or "Pending"


def _ended(pod: Mapping[str, Any]) -> bool:
    return _phase(pod) in _ENDED


def _spec(pod: Mapping[str, Any]) -> Json:
    return pod.get("spec") or {}


# -- in the member -----------------------------------------------------------------------------------------------------


def _topology(obj: Mapping[str, Any]) -> Json:
    wish = metadata.topology_wish(obj, *_members(obj)[:1])
    assert wish is not None, "asked only where there is one"
    found: Json = nearness.as_pod_group(wish, {}, {})["networkTopology"]
    return found


def _slices(obj: Mapping[str, Any]) -> Partition | None:
    """Slices of its pods; None where its oldest pod asks for none, or some pod has no index."""
    members = _members(obj)
    part = nearness.partition(metadata.topology_annotations(obj, *members[:1]), len(members))
    return part if part is not None and all(index_of(pod) is not None for pod in members) else None


def _sub_groups(slices: Partition) -> str:
    policy = {"name": TASK, "subGroupSize": slices.size, "matchLabelKeys": [keys.PARTITION]}
    policy |= nearness.as_pod_group(slices.wish, {}, {})
    below = nearness.layers_below(policy, slices.inside, keys.INNER_SLICES)
    return orjson.dumps({"subGroupPolicy": [policy, *below]}).decode()


def _slice_labels(slices: Partition, index: int) -> dict[str, str]:
    """Labels with the slice of each layer of a pod."""
    found = {keys.PARTITION: str(index // slices.size)}
    for key in keys.INNER_SLICES:
        if slices.inside is None:
            break
        slices = slices.inside
        found[key] = str(index // slices.size)
    return found


def _template(pod: Mapping[str, Any], part: Part) -> Json:
    """The pod as its user wrote it, without what the host's API server and webhook added."""
    about, spec = pod["metadata"], {key: value for key, value in _spec(pod).items() if key not in _SERVER_FIELDS}
    labels = {key: value for key, value in (about.get("labels") or {}).items() if not key.startswith(_KUEUE)}
    notes = metadata.for_member(pod)["annotations"]
    notes = {key: value for key, value in notes.items() if not key.startswith(_KUEUE)} | dict(part.identity)
    gates = [gate for gate in _spec(pod).get("schedulingGates") or () if gate.get("name") not in _GATES]
    if gates:
        spec["schedulingGates"] = gates
    if spec.get("serviceAccountName") == "default":
        del spec["serviceAccountName"]
    if spec.get("schedulerName") in (None, "", "default-scheduler"):
        spec["schedulerName"] = keys.SCHEDULER_NAME
    spec["volumes"] = [each for each in spec.get("volumes") or () if not each["name"].startswith(_TOKEN)]
    for field in ("initContainers", "containers"):
        if field in spec:
            spec[field] = [_without_token(container) for container in spec[field]]
    if not spec.get("hostname") and len(about["name"]) <= 63 and "." not in about["name"]:
        # The pod is called otherwise there.
        spec["hostname"] = about["name"]
    return {"metadata": {"labels": labels, "annotations": notes}, "spec": spec}


def _without_token(container: Json) -> Json:
    mounts = [each for each in container.get("volumeMounts") or () if not each["name"].startswith(_TOKEN)]
    rest = {key: value for key, value in container.items() if key != "volumeMounts"}
    return {**rest, "volumeMounts": mounts} if mounts else rest


KIND = PodGroup()
