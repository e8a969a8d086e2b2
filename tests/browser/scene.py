"""A host with 3 members of 72 nodes, 40 queues and 500 workloads, for the browser and for the pictures of the docs."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import msgspec

from atoll.model import gang, keys
from atoll.model.apiresource import AVAILABILITIES, BINDINGS, CAPACITIES, CLUSTERS, JOBS, LEASES, QUEUES
from atoll.model.decision import Line, Phase
from atoll.model.timestamps import rfc3339
from atoll.model.verdict import Blocker, Reason
from tests.cli.web_host import Host
from tests.cli.web_pages import availability, filled, member, ran, waiting
from tests.view.made import job, queue, told

Json = dict[str, Any]

GPU = "nvidia.com/gpu"
RACKED = "train-70b"
"""A workload whose pods fill a rack and a part of the next one."""
_LARGE = "research-language"
"""Its queue."""
_RACKS = {"east": 4, "north": 3, "west": 2}
_NODES, _GPUS = 8, 8
"""Nodes of a rack, GPUs of a node."""
_TEAMS = {
    "research": ("language", "speech", "vision", "audio", "theory", "safety", "data", "eval"),
    "serving": ("search", "ads", "maps", "mail", "shop", "chat", "video", "photos", "games"),
    "robotics": ("arm", "drive", "grasp", "sim", "fleet", "lidar", "walk", "dock"),
    "services": ("ci", "batch", "etl", "index", "logs", "bench", "nightly", "backup"),
}
"""Below each queue; with queues research and night of every played host they are 40."""


def played(text: str = "") -> Host:
    """The host.

    Args:
        text: of a tenant, put wherever tenants write.
    """
    host, now = filled(), time.time()
    teams = [f"{above}-{name}" for above, names in _TEAMS.items() for name in names]
    nodes = [
        (cluster, f"{cluster}-rack-{rack + 1}", f"{cluster}-r{rack + 1}n{number + 1}")
        for cluster, racks in _RACKS.items()
        for rack in range(racks)
        for number in range(_NODES)
    ]
    used: Counter[str] = Counter()
    bindings = [_running(RACKED, _LARGE, nodes[:12], 8, used, now - 9000, text)]
    rest = nodes[12:-7]
    while rest:
        number = len(bindings)
        mine, rest = rest[: number % 2 + 1], rest[number % 2 + 1 :]
        team = teams[number * 7 % len(teams)]
        bindings.append(_running(f"fit-{number:02}", team, mine, (8, 8, 4)[number % 3], used, now - 300 * number))
    bindings += [
        _waiting(f"{('tune', 'eval', 'sweep')[number % 3]}-{number:03}", teams[number % 11 * 3], number, now)
        for number in range(438 - len(bindings))
    ]
    host.put(QUEUES, *_queues(teams, bindings))
    host.put(BINDINGS, *bindings)
    evicted = {"outcome": "Evicted", "reason": "Preempted", "evicted_for": "team/vip", "message": text}
    host.put(BINDINGS, *(ran(f"ended-{number:02}", **(evicted if number % 5 == 0 else {})) for number in range(60)))
    for cluster in _RACKS:
        described, capacity = member(cluster)
        described["metadata"]["creationTimestamp"] = rfc3339(now - 86_400 * 40)
        capacity["spec"] |= _capacity(cluster, used)
        described["status"]["conditions"].append({"type": "Placer", "status": "True", "reason": "Atoll"})
        host.put(CLUSTERS, described)
        lease = {"name": "atoll-agent", "namespace": keys.execution_namespace(cluster)}
        host.put(LEASES, {"metadata": lease, "spec": {"renewTime": rfc3339(now - 4)}})
        host.put(CAPACITIES, capacity)
    racked = job(RACKED, state={"phase": "Running"})
    racked["metadata"]["creationTimestamp"] = bindings[0]["metadata"]["creationTimestamp"]
    host.put(JOBS, job("train", state={"phase": text}), racked)
    host.put(AVAILABILITIES, *(availability(name, message=text) for name in _RACKS))
    control = {"name": "atoll-control", "namespace": keys.SYSTEM_NAMESPACE}
    host.put(
        LEASES, {"metadata": control, "spec": {"holderIdentity": "atoll-control-0", "renewTime": rfc3339(now - 1)}}
    )
    return host


def _running(
    name: str,
    queue_name: str,
    places: list[tuple[str, str, str]],
    gpus: int,
    used: Counter[str],
    since: float,
    text: str = "",
) -> Json:
    """A gang of one pod on each of these nodes."""
    cluster = places[0][0]
    places = [place for place in places if place[0] == cluster]
    used.update({node: gpus for _, _, node in places})
    placement: Json = {"nodes": {node: 1 for _, _, node in places}}
    if len({rack for _, rack, _ in places}) == 1:
        placement["domain"] = places[0][1]
    report = {
        "clusterName": cluster,
        "status": {"state": {"phase": "Running"}, "running": len(places), "placement": placement},
    }
    story = [
        Line(rfc3339(since + 1), Phase.SUSPENDED, Reason.QUOTA_EXCEEDED, text or f"queue {queue_name}: 96 more {GPU} are wanted, 64 are left"),
        Line(rfc3339(since + 640), Phase.DISPATCHED, Reason.DISPATCHED, f"dispatched to {cluster}: {len(places)} pods"),
    ]  # fmt: skip
    made = waiting(
        name,
        phase=Phase.DISPATCHED,
        reason=Reason.DISPATCHED,
        blocker=None,
        clusters=(cluster,),
        conditions=("Bound", "Running"),
        reports=(report,),
        story=tuple(story),
    )
    return _asking(made, queue_name, len(places), gpus, since)


def _waiting(name: str, queue_name: str, number: int, now: float) -> Json:
    limit = Blocker("Queue", queue_name, GPU, "16", "8")
    full = Blocker("Cluster", ("east", "north", "west")[number % 3], GPU, "64", "24")
    reason, blocker = ((Reason.QUOTA_EXCEEDED, limit), (Reason.INSUFFICIENT_RESOURCES, full))[number % 5 == 0]
    made = waiting(name, reason=reason, blocker=blocker, priority=10 if number % 17 == 0 else 0)
    return _asking(made, queue_name, (2, 4, 1)[number % 3], 8, now - 60 * (number % 90) - 30)


def _asking(binding: Json, queue_name: str, pods: int, gpus: int, since: float) -> Json:
    """The binding in that queue, with so many pods, as submitted at that time."""
    meta = binding["metadata"]
    wish = gang.decode(meta["annotations"][keys.GANG])
    tasks = [gang.Task("worker", pods, pods, {"cpu": 16000, GPU: gpus, "pods": 1})]
    wish = msgspec.structs.replace(wish, queue=queue_name, tasks=tasks, min_available=pods, submitted=rfc3339(since))
    meta["annotations"][keys.GANG] = gang.encode(wish)
    meta["creationTimestamp"] = rfc3339(since)
    for each in binding["spec"]["clusters"]:
        each["replicas"] = pods
    for each in binding["status"]["conditions"]:
        each["lastTransitionTime"] = rfc3339(since + 655)
    return binding


def _queues(teams: list[str], bindings: list[Json]) -> list[Json]:
    counts: Counter[tuple[str, str]] = Counter()
    for each in bindings:
        name = gang.decode(each["metadata"]["annotations"][keys.GANG]).queue
        state = "running" if each["spec"]["clusters"] else "pending"
        counts.update({(above, state): 1 for above in (name, name.partition("-")[0])})

    def made(name: str, capability: int, deserved: int, **spec: Any) -> Json:
        shares = {"capability": {GPU: f"{capability}"}, "deserved": {GPU: f"{deserved}"}}
        return told(queue(name, **shares, **spec), running=counts[name, "running"], pending=counts[name, "pending"])

    return [made(name, 288, 144, guarantee={"resource": {GPU: "64"}}) for name in _TEAMS] + [
        made(name, 128 if name == _LARGE else 64, 48 if name == _LARGE else 16, parent=name.partition("-")[0])
        for name in teams
    ]


def _capacity(cluster: str, used: Counter[str]) -> Json:
    """Racks in blocks of two, their nodes by free GPUs; one node of north is lost."""
    racks = range(1, _RACKS[cluster] + 1)
    blocks = [
        {"name": f"{cluster}-block-{each}", "tier": 2, "tierName": "block"}
        for each in sorted({(r + 1) // 2 for r in racks})
    ]
    domains = [
        {
            "name": f"{cluster}-rack-{each}",
            "tier": 1,
            "tierName": "rack",
            "parent": f"{cluster}-block-{(each + 1) // 2}",
        }
        for each in racks
    ]
    lost = {"north-r2n5"} if cluster == "north" else set()
    groups: dict[tuple[str, int], list[str]] = {}
    for rack in racks:
        for number in range(1, _NODES + 1):
            name = f"{cluster}-r{rack}n{number}"
            if name not in lost:
                groups.setdefault((f"{cluster}-rack-{rack}", max(_GPUS - used[name], 0)), []).append(name)
    classes: list[Json] = [
        {
            "domain": rack,
            "profile": 0,
            "nodes": len(names),
            "names": names,
            "free": {"cpu": 8000 + 16000 * free, GPU: free},
        }
        for (rack, free), names in groups.items()
    ]
    count = sum(each["nodes"] for each in classes)
    return {
        "total": {"cpu": 192_000 * count, GPU: _GPUS * count, "pods": 110 * count},
        "domains": [*blocks, *domains],
        "profiles": [{"allocatable": {"cpu": "192", GPU: "8", "pods": "110"}}],
        "classes": classes,
        "lost": [{"domain": f"{cluster}-rack-2", "nodes": 1, "names": [*lost]}] if lost else [],
    }  # fmt: skip
