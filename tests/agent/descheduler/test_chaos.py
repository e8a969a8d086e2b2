"""Hours in virtual time while everything fails: the source of figures, nodes, readiness; and what must hold all along.

Looks are production's, from queries to evictions. Prometheus dies, answers late, and says NaN, negative, old, half or
nothing. No pod goes without a known hot node and a place, no gang loses a pod, no budget is touched, nothing bounces.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.agent.descheduler import looks, sources
from atoll.agent.descheduler.cluster import Cluster, PolicyMap
from atoll.agent.descheduler.looks import Looks, Outcome
from atoll.agent.descheduler.rules import Rules
from atoll.agent.descheduler.settings import DeschedulerSettings
from atoll.agent.descheduler.world import Subject, World
from atoll.agent.objects import Budget, Node
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model.objects import Meta
from atoll.model.timestamps import rfc3339_seconds
from tests.agent.builders import make_group, make_node
from tests.agent.descheduler.builders import load_aware, make_subject

WALL = 1_800_000_000.0
CORES = 8.0
HIGH, MARGIN = 0.8, 0.05
NODES = tuple(f"n{number}" for number in range(6))
SERVICES = {"a": 3, "b": 4, "c": 2, "d": 1}
GUARDED = {"a": 3, "b": 2}
"""Service -> minAvailable of its budget; that of `a` never allows a disruption."""
EVERY = 60.0
RULES = Rules(looks=2, youngest=60)
TEXT = load_aware(thresholds={"cpu": 50}, targetThresholds={"cpu": 100 * HIGH}, duration="2m")


class Storm:
    """A cluster, its API server, its scheduler and its Prometheus, all by one source of chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.serial = 0
        self.policy = PolicyMap(Meta(uid="u"), {"policy.yaml": TEXT})
        self.down: set[str] = set()
        self.stress = dict.fromkeys(NODES, 0.0)
        self.subjects: dict[str, Subject] = {}
        self.cores: dict[str, float] = {}
        #: pods that are not ready yet -> when they are
        self.starts: dict[str, float] = {}
        #: what the source said of nodes in this look, in cores; ages of these
        self.said: dict[str, float] = {}
        self.ages: dict[str, float] = {}
        self.fault = ""
        #: service -> when a pod of it moved last
        self.moved: dict[str, float] = {}
        self.evicted: list[str] = []
        for service, count in SERVICES.items():
            for _ in range(count):
                self.make(service, born=-7200)
        for number, notes in enumerate([{"atoll.sh/binding-uid": "b"}, {}] * 2):
            notes["scheduling.k8s.io/group-name"] = "g"
            node = self.chance.choice(NODES)
            self.add(make_subject(f"gang{number}", node, owner="job", kind="Job", notes=notes), 1.0)

    # -- the cluster -------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Node]:
        return [make_node(name, ready=name not in self.down) for name in NODES]

    def on_policy(self, changed: Any) -> None:
        pass

    def world(self) -> World:
        return World(
            self.nodes,
            list(self.subjects.values()),
            [self.budget(each) for each in GUARDED],
            {"default/g": make_group("g", 2)},
        )

    def budget(self, service: str) -> Budget:
        import msgspec

        return msgspec.convert(
            {"metadata": {"name": service, "namespace": "default"},
             "spec": {"selector": {"matchLabels": {"app": service}}},
             "status": {"disruptionsAllowed": max(0, self.ready(service) - GUARDED[service])}}, Budget,
        )  # fmt: skip

    def ready(self, service: str) -> int:
        return sum(each.metadata.labels.get("app") == service and each.pod.ready for each in self.subjects.values())

    def add(self, subject: Subject, cores: float) -> None:
        self.subjects[subject.metadata.key] = subject
        self.cores[subject.metadata.key] = cores

    def make(self, service: str, *, born: float, ready: bool = True) -> str:
        self.serial += 1
        open_to = [name for name in NODES if name not in self.down] or list(NODES)
        subject = make_subject(
            f"{service}{self.serial}", self.chance.choice(open_to), owner=service, labels={"app": service},
            created=rfc3339_seconds(WALL + born), ready=ready,
        )  # fmt: skip
        self.add(subject, self.chance.uniform(0.2, 3))
        return subject.metadata.key

    def use(self) -> dict[str, float]:
        found = dict(self.stress)
        for key, each in self.subjects.items():
            found[each.pod.node] += self.cores[key]
        return found

    def passes(self) -> None:
        """A minute: pods start, stress comes and goes, nodes die and come back, the source gets another fault."""
        self.now += EVERY
        for key in [key for key, at in self.starts.items() if at <= self.now]:
            del self.starts[key]
            old = self.subjects[key]
            self.subjects[key] = make_subject(
                old.metadata.name, old.pod.node, owner=old.owner[1], labels=old.metadata.labels,
                created=old.metadata.creation_timestamp,
            )  # fmt: skip
        if self.chance.random() < 0.2:
            self.stress[self.chance.choice(NODES)] = self.chance.choice([0.0, 0.0, 3.0, 6.0, 9.0])
        if self.chance.random() < 0.05:
            self.down ^= {self.chance.choice(NODES)}
        if self.chance.random() < 0.3:
            self.fault = self.chance.choice(["", "", "", "", "dead", "late", "lies", "old", "half", "empty"])

    # -- Prometheus --------------------------------------------------------------------------------------------------

    async def asked(self, session: Any, address: str, query: str, trust: Any) -> list[tuple[dict[str, str], float]]:
        """In the place of a request; the words of queries tell which."""
        if self.fault == "dead":
            raise sources.SourceError("it is dead")
        if self.fault == "late":
            self.now += 100
        if self.fault == "empty":
            return []
        if query.startswith("time()"):
            ages = {name: 15.0 if self.fault != "old" or self.chance.random() < 0.5 else 400.0 for name in NODES}
            if "cpu" in query:
                self.ages = ages
            return [({"node": name}, age) for name, age in ages.items()]
        if "node_" in query:
            found = self.use() if "cpu" in query else dict.fromkeys(NODES, 1.0)
            for name in NODES:
                if self.fault == "lies" and self.chance.random() < 0.5:
                    found[name] = self.chance.choice([math.nan, math.inf, -math.inf, -3.0])
                elif self.fault == "half" and self.chance.random() < 0.5:
                    del found[name]
            if "cpu" in query:
                self.said = found
            return [({"node": name}, value) for name, value in found.items()]
        known = [(key.partition("/"), value) for key, value in self.cores.items() if key in self.subjects]
        return [({"namespace": key[0], "pod": key[2]}, value) for key, value in known]

    # -- the API server ----------------------------------------------------------------------------------------------

    async def request(self, method: str, path: str, *, body: bytes, deadline: float) -> bytes:
        key = f"default/{path.split('/')[-2]}"
        subject = self.subjects[key]
        assert orjson.loads(body)["deleteOptions"]["preconditions"]["uid"] == subject.metadata.uid
        if self.chance.random() < 0.1:
            raise errors.Busy("429")
        service = subject.metadata.labels.get("app", "")
        assert service, "a pod of a gang went"
        assert self.ready(service) - 1 >= GUARDED.get(service, 0), "a budget was touched"
        assert self.ready(service) == SERVICES[service], "another pod of the workload was not ready"
        del self.subjects[key]
        self.evicted.append(key)
        fresh = self.make(service, born=self.now, ready=False)
        self.starts[fresh] = self.now + self.chance.choice([30, 90, 600])
        return b"{}"

    async def json_patch(self, *_: Any, **__: Any) -> None:
        pass

    # -- what must hold ----------------------------------------------------------------------------------------------

    def judge(self, outcome: Outcome, before: dict[str, str], spent: Counter[str], taken_for: float) -> None:
        """After one look; `before`: pods' nodes, `spent`: cores asked for on nodes, both before it."""
        moves = outcome.done
        assert len(moves) == len(self.evicted)
        if moves:
            assert self.fault not in ("dead", "empty"), self.fault
            assert taken_for <= RULES.stale, "figures were too old"
        share = {name: value / CORES for name, value in self.said.items()}
        for move in moves:
            assert before[move.key] == move.node != move.target
            for name in (move.node, move.target):
                assert name not in self.down
                assert math.isfinite(share[name])
                assert share[name] >= 0
                assert self.ages[name] <= RULES.stale
            assert share[move.node] > HIGH
            share[move.target] += move.use["cpu"] / 1000 / CORES
            assert share[move.target] <= HIGH - MARGIN + 1e-9
            spent[move.target] += 1
            assert spent[move.target] <= CORES
            assert self.now - self.moved.get(move.workload, -math.inf) > 0
            self.moved[move.workload] = self.now


async def storm(seed: int, steps: int) -> int:
    """So many looks; gives how many pods moved."""
    made = Storm(seed)
    clock = SimpleNamespace(time=lambda: WALL + made.now, monotonic=lambda: made.now)
    ran = Looks(cast(ApiServer, made), cast(Cluster, made), DeschedulerSettings(rules=RULES), clock=lambda: made.now)
    count = 0
    with mock.patch.object(looks, "time", clock), mock.patch.object(sources, "_asked", made.asked):
        for _ in range(steps):
            made.passes()
            before = {key: each.pod.node for key, each in made.subjects.items()}
            spent = Counter(before.values())
            began = made.now
            made.evicted = []
            outcome = await ran.once()
            made.judge(outcome, before, spent, made.now - began)
            count += len(made.evicted)
    return count


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_no_fault_moves_a_pod_that_must_stay_or_one_without_a_place(seed: int) -> None:
    asyncio.run(storm(seed, 60))


def test_pods_move_all_the_same() -> None:
    """The rules above would hold of a descheduler that does nothing."""
    assert sum(asyncio.run(storm(seed, 60)) for seed in range(4)) > 5
