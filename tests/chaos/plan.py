"""What is submitted, when, and what its user does to it on the way. Pure, and the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from atoll.local.layout import FederationConfig, Member
from atoll.model import keys, quantity
from atoll.model.apiresource import BATCH_JOBS, DEPLOYMENTS, JOBS, POLICIES, QUEUES, ApiResource
from atoll.model.vector import Vector
from tests.integration.federation import member

Json = dict[str, Any]

NAMESPACE = "chaos"
"""The audit policy keeps whole objects of this namespace."""
GPU = "nvidia.com/gpu"
LAYOUT = FederationConfig(members=[member("alpha", 8), member("beta", 4), member("gamma", 4)])
QUEUES_GPUS = {"research": 48, "nightly": 32, "shared": 24}
"""Queue -> its capability in GPUs; the members hold 128, so that some wait for quota and others for room."""
_RACK_GPUS = 16
"""Of the two nodes of a rack."""
_NODE_GPUS = _RACK_GPUS // 2
_WAVE_S = 40.0
"""From one wave of gangs in racks to the next."""
PROBES = "probes"
"""The queue of the probes, without limit."""
_SPREAD = "chaos.atoll.sh/spread"
"""Label: run in at least that many members."""
_MEMBER = "chaos.atoll.sh/member"
"""Label: run in this member."""
_LONG = "1h"
"""How long a busy machine keeps an agent silent is not what is tried."""
_FICKLE = "chaos.atoll.sh/fickle"
"""Label: selected by the policy that changes all the time."""
FICKLE = "fickle"
"""The policy whose placement changes all the time."""
CONFIG = "chaos-config"
"""The ConfigMap that some workloads refer to."""
SERVICES = {"service-1": 2, "service-2": 4}
"""Deployment -> its replicas. They ask for no GPU, so that what needs all GPUs fits beside them."""


class Act(StrEnum):
    """What a user does to a workload."""

    DELETE = "delete"
    HOLD = "hold"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Submission:
    """One workload."""

    name: str
    queue: str
    pods: int
    gpus: int
    """Of each pod."""
    seconds: float
    """How long each pod runs."""
    offset: float = 0.0
    """Seconds after the start at which it is submitted."""
    minimum: int = 0
    """minAvailable; all pods where it is 0."""
    batch: bool = False
    """A batch/v1 Job rather than a Volcano Job."""
    completions: int = 0
    """Of a batch/v1 Job; as many as pods where it is 0."""
    spread: int = 1
    """Least members to run in."""
    place: str = ""
    """The only member to run in."""
    held: bool = False
    """Created held."""
    exclusive: bool = False
    """It is elsewhere soon once its member is cut off, and never runs twice; its pods may be made again."""
    moves: bool = False
    """It is elsewhere as soon as its member is lost, while what it left there may still run."""
    waits: bool = False
    """It waits for a lost member however long that is away."""
    fickle: bool = False
    """Its policy changes all the time."""
    rack: bool = False
    """All of its pods in one rack."""
    config: bool = False
    """Its pods refer to a ConfigMap of the host."""
    acts: tuple[tuple[float, Act], ...] = ()
    """(seconds after its creation, what its user does then), in order."""

    @property
    def resource(self) -> ApiResource:
        return BATCH_JOBS if self.batch else JOBS

    @property
    def needed(self) -> int:
        """Pods that must start together."""
        return self.minimum or self.pods

    @property
    def runs(self) -> int:
        """Pods that must succeed."""
        return (self.completions or self.pods) if self.batch else self.pods

    @property
    def deleted(self) -> bool:
        """Its user deletes it."""
        return any(act is Act.DELETE for _, act in self.acts)

    @property
    def stays_held(self) -> bool:
        """Its user never releases it."""
        last = self.acts[-1][1] if self.acts else None
        return last is Act.HOLD or (last is None and self.held)


def generate(seed: int, seconds: float, *, every: float = 0.8) -> list[Submission]:
    """A stream of so many seconds, a workload `every` seconds on average, in order of time."""
    rng = random.Random(f"plan {seed}")
    found: list[Submission] = []
    offset = 0.0
    while True:
        offset += rng.expovariate(1 / every)
        if offset >= seconds:
            return found
        found.append(_one(rng, len(found), offset))


def _one(rng: random.Random, number: int, offset: float) -> Submission:
    batch = rng.random() < 0.25
    spread = rng.choice((2, 2, 3)) if rng.random() < 0.2 else 1
    pods = rng.randint(max(spread, 3), 9) if spread > 1 else rng.choice((1, 2, 2, 3, 4, 6, 8))
    gpus = rng.choice((1, 1, 2, 2, 4)) if pods > 4 else rng.choice((1, 2, 4, 8) if pods < 3 else (1, 2, 4))
    held, acts = _wishes(rng)
    return Submission(
        name=f"{'batch' if batch else 'gang'}-{number}",
        queue=rng.choice([queue for queue, limit in sorted(QUEUES_GPUS.items()) if pods * gpus <= limit]),
        pods=pods,
        gpus=gpus,
        seconds=round(rng.uniform(0.5, 4), 1),
        offset=round(offset, 3),
        minimum=max(pods // 2, 1) if not batch and spread == 1 and rng.random() < 0.2 else 0,
        batch=batch,
        exclusive=not batch and number % 3 == 0,
        moves=number % 7 == 1 and number % 3 != 0,
        fickle=spread == 1 and number % 5 == 2,
        config=number % 4 == 1,
        completions=pods * 2 if batch and spread == 1 and rng.random() < 0.4 else 0,
        spread=spread,
        held=held,
        acts=acts,
    )


def _wishes(rng: random.Random) -> tuple[bool, tuple[tuple[float, Act], ...]]:
    """(created held, what its user does later)."""
    draw = rng.random()
    at = round(rng.uniform(0.1, 5), 1)
    if draw < 0.1:
        return False, ((at, Act.DELETE),)
    if draw < 0.2:
        return False, ((at, Act.HOLD), (at + round(rng.uniform(1, 6), 1), Act.RELEASE))
    if draw < 0.24:
        return True, ((at, Act.RELEASE),)
    if draw < 0.26:
        return True, ()
    if draw < 0.28:
        return False, ((at, Act.HOLD),)
    return False, ()


def in_racks(wishes: Sequence[Submission], seconds: float) -> list[Submission]:
    """The same, each gang of one member in one rack if a rack can hold it, and waves of gangs that leave each rack half
    full, each followed by gangs that need a whole one.
    """
    small = [
        replace(wish, rack=not wish.batch and wish.spread == 1 and wish.pods * wish.gpus <= _RACK_GPUS)
        for wish in wishes
    ]
    waves = [wish for wave in range(max(int(seconds / _WAVE_S), 1)) for wish in _wave(wave)]
    return sorted(small + waves, key=lambda wish: wish.offset)


def _wave(wave: int) -> Iterator[Submission]:
    began = wave * _WAVE_S
    racks = len(allocatable()) * _NODE_GPUS // _RACK_GPUS
    for rack in range(racks):
        # One after the other, so that the two of a pair share a rack.
        at = began + 0.01 * _WAVE_S * rack
        yield Submission(f"stays-{wave}-{rack}", PROBES, 1, _NODE_GPUS, 0.7 * _WAVE_S, at, rack=True)
        yield Submission(f"brief-{wave}-{rack}", PROBES, 1, _NODE_GPUS, 0.15 * _WAVE_S, at + 0.005 * _WAVE_S, rack=True)
    for rack in range(racks // 2):
        yield Submission(f"whole-{wave}-{rack}", PROBES, 2, _NODE_GPUS, 2.0, began + 0.3 * _WAVE_S, rack=True)


def slower(wishes: Sequence[Submission], pace: float) -> list[Submission]:
    """The same with all its times so many times as long."""
    return [
        replace(
            wish,
            offset=wish.offset * pace,
            seconds=wish.seconds * pace,
            acts=tuple((after * pace, act) for after, act in wish.acts),
        )
        for wish in wishes
    ]


def probes() -> list[Submission]:
    """Workloads that fit only where everything was given back: each queue's whole capability, each member's all GPUs."""
    found = [
        Submission(f"probe-queue-{queue}", queue, pods=gpus // 8, gpus=8, seconds=0.2)
        for queue, gpus in QUEUES_GPUS.items()
    ]
    for each in LAYOUT.members:
        nodes = len(each.node_names())
        found.append(Submission(f"probe-member-{each.name}", PROBES, nodes, gpus=8, seconds=0.2, place=each.name))
    return found


def capabilities() -> dict[str, Vector]:
    """Queue -> its capability."""
    return {queue: {GPU: gpus} for queue, gpus in QUEUES_GPUS.items()}


def allocatable() -> dict[tuple[str, str], Vector]:
    """(member, node) -> what it has."""
    return {(each.name, node): vector for each in LAYOUT.members for node, vector in _nodes(each)}


def _nodes(layout: Member) -> Iterator[tuple[str, Vector]]:
    for group in layout.nodes:
        for number in range(group.count):
            yield f"{group.prefix}{number}", quantity.capacity(group.allocatable)


def queue_objects() -> list[Json]:
    """The queues."""
    head = {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind}
    limits: dict[str, Json] = {name: {"capability": {GPU: str(gpus)}} for name, gpus in QUEUES_GPUS.items()}
    return [
        {**head, "metadata": {"name": name}, "spec": spec}
        for name, spec in {**limits, PROBES: {"reclaimable": False}}.items()
    ]


def policy_objects() -> Iterator[tuple[ApiResource, Json]]:
    """The policies that the labels of workloads refer to."""
    for least in (2, 3):
        spread = {"spreadByField": "cluster", "minGroups": least, "maxGroups": 3}
        placement = {"replicaScheduling": {"replicaSchedulingType": "Divided"}, "spreadConstraints": [spread]}
        yield POLICIES, _policy(f"spread-{least}", {_SPREAD: str(least)}, placement)
    for each in LAYOUT.members:
        placement = {"clusterAffinity": {"clusterNames": [each.name]}}
        yield POLICIES, _policy(f"only-{each.name}", {_MEMBER: each.name}, placement)
    yield POLICIES, _policy(FICKLE, {_FICKLE: "true"}, fickle_placement(0))


def fickle_placement(turn: int) -> Json:
    """What the policy that changes says in this turn: two of the members. What runs must not move for it."""
    names = [each.name for each in LAYOUT.members]
    del names[turn % len(names)]
    return {"clusterAffinity": {"clusterNames": names}}


def config_map() -> Json:
    """What some workloads refer to."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG, "namespace": NAMESPACE},
        "data": {"a": "b"},
    }


def services() -> Iterator[Json]:
    """Deployments that run all the time; they leave members gracefully."""
    for name, replicas in SERVICES.items():
        labels = {"app": name}
        container = {"name": "serve", "image": "serve", "resources": {"requests": {"cpu": "100m"}}}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        notes = {keys.LOST_TOLERATION: _LONG}
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {keys.QUEUE_LABEL: PROBES}, "annotations": notes}
        yield {"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind, "metadata": metadata, "spec": spec}


def _policy(name: str, labels: dict[str, str], placement: Json) -> Json:
    selectors = [
        {"apiVersion": kind.api_version, "kind": kind.kind, "labelSelector": {"matchLabels": labels}}
        for kind in (JOBS, BATCH_JOBS)
    ]
    return {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"resourceSelectors": selectors, "placement": placement},
    }


def workload(wish: Submission) -> Json:
    """The object that its user applies."""
    labels = {keys.QUEUE_LABEL: wish.queue}
    if wish.spread > 1:
        labels[_SPREAD] = str(wish.spread)
    if wish.place:
        labels[_MEMBER] = wish.place
    if wish.fickle and not wish.place:
        labels[_FICKLE] = "true"
    annotations = {keys.LOST_TOLERATION: "1s" if wish.exclusive or wish.moves or wish.waits else _LONG}
    annotations |= {keys.HOLD: "true"} if wish.held else {}
    if wish.exclusive or wish.waits:
        annotations |= {keys.ON_LOST: "exclusive" if wish.exclusive else "wait"}
    metadata = {"name": wish.name, "namespace": NAMESPACE, "labels": labels, "annotations": annotations}
    share = {"requests": {"cpu": "100m", GPU: str(wish.gpus)}, "limits": {GPU: str(wish.gpus)}}
    template = {
        "metadata": {"annotations": {keys.RUN_TIME: f"{int(wish.seconds * 1000)}ms"}},
        "spec": {
            "restartPolicy": "Never",
            **({"terminationGracePeriodSeconds": 1} if wish.exclusive else {}),
            "containers": [{"name": "train", "image": "train", "resources": share}],
            **({"volumes": [{"name": "config", "configMap": {"name": CONFIG}}]} if wish.config else {}),
        },
    }
    head = {"apiVersion": wish.resource.api_version, "kind": wish.resource.kind, "metadata": metadata}
    if wish.batch:
        return {**head, "spec": {"parallelism": wish.pods, "completions": wish.runs, "template": template}}
    task = {"name": "worker", "replicas": wish.pods, "template": template}
    spec: Json = {"queue": wish.queue, "minAvailable": wish.needed, "tasks": [task]}
    if wish.rack:
        spec["networkTopology"] = {"mode": "hard", "highestTierAllowed": 1}
    return {**head, "spec": spec}


def resources(wish: Submission) -> Vector:
    """What one of its pods asks for, as far as the checks count it."""
    return {GPU: wish.gpus}


def by_name(wishes: Sequence[Submission]) -> dict[str, Submission]:
    """Name -> submission."""
    return {wish.name: wish for wish in wishes}
