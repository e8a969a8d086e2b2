"""Pods on their own, one after the other: what is kept from pod to pod changes no decision."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from hypothesis import example, given, settings
from hypothesis import strategies as st

from atoll.agent.objects import Node, Pod, decode_node
from atoll.agent.scheduler.core import Bind, Command, Event, MemberCore, Pass
from atoll.agent.scheduler.core.events import (
    Configured,
    HyperNodeSet,
    NodeGone,
    NodeSet,
    NotBound,
    NumaSet,
    PodGone,
    PodGroupSet,
    PodSet,
    Whose,
)
from atoll.fit import Placement
from atoll.fit.singles import Singles
from atoll.model.gang import Gang
from atoll.model.scoring import Scoring, parse
from tests.agent.builders import make_domain, make_group, make_numa, make_pod
from tests.agent.telling import of

NODES = 6
GANG = "g"


class Never(Singles):
    """Has every pod placed by looking at all nodes."""

    def place(self, gang: Gang) -> Placement | None:
        """Not at all."""
        return None


def make_site(at: int, form: str = "") -> Node:
    """One of four or eight CPUs, in a zone with others."""
    taints = {"soft": "PreferNoSchedule", "hard": "NoSchedule"}
    offer = {"cpu": "8" if at // 2 % 2 else "4", "memory": "16Gi", "atoll.sh/gpu-milli": "2000", "pods": "110"}
    offer |= {"full": {"pods": "2"}, "small": {"cpu": "2"}}.get(form, {})
    status: dict[str, Any] = {"allocatable": offer, "conditions": [{"type": "Ready", "status": "True"}]}
    if form == "image":
        status["images"] = [{"names": ["i:2"], "sizeBytes": 900 << 20}]
    labels = {"zone": f"z{at % 3}", "kubernetes.io/hostname": f"n{at}"}
    spec = {"taints": [{"key": "t", "effect": taints[form]}]} if form in taints else {}
    meta = {"name": f"n{at}", "uid": f"n{at}", "labels": labels}
    return decode_node(orjson.dumps({"metadata": meta, "spec": spec, "status": status}))


FORMS = ["", "soft", "hard", "image", "full", "small", "gone"]
BESIDE = {"labelSelector": {"matchLabels": {"volcano.sh/task-index": "0"}}, "topologyKey": "zone"}
SHAPES: dict[str, dict[str, Any]] = {
    "one": {},
    "two": {"cpu": "2"},
    "more than most nodes have": {"cpu": "8"},
    "of a zone": {"nodeSelector": {"zone": "z1"}},
    "tolerant": {"tolerations": [{"key": "t", "operator": "Exists"}]},
    "with an image": {"image": "i:2"},
    "with CPUs of its own": {"cpu": "2", "limits": True},
    "with a part of a card": {"atoll.sh/gpu-milli": "600"},
    "with a port": {"ports": [{"containerPort": 80, "hostPort": 80}]},
    "alone": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [BESIDE]}}},
    "spread": {"topologySpreadConstraints": [{**BESIDE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
    "with a preference": {
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
                ]
            }
        }
    },
}
OF_CONTAINERS = {"cpu", "limits", "image", "ports", "atoll.sh/gpu-milli"}


def pod(name: str, shape: str, *, group: str = "", node: str = "") -> Pod:
    said = SHAPES[shape]
    amounts: dict[str, str] = {
        "cpu": "1",
        "memory": "1Gi",
        **{key: said[key] for key in ("cpu", "atoll.sh/gpu-milli") if key in said},
    }
    resources = {"requests": amounts, **({"limits": amounts} if "limits" in said else {})}
    container: dict[str, Any] = {
        "name": "c",
        "resources": resources,
        **{key: said[key] for key in ("image", "ports") if key in said},
    }
    spec = {"containers": [container], **{key: said[key] for key in said.keys() - OF_CONTAINERS}}
    return make_pod(name, group=group, node=node, spec=spec)


class Told:
    """One member, told what happens by steps."""

    def __init__(self, *, keeps: bool) -> None:
        self.core = MemberCore()
        if not keeps:
            self.core.room.arrays.singles = Never()
        self.said: list[Command] = []
        #: bound, in the order of that
        self.bound: list[Pod] = []
        self._pods: dict[str, Pod] = {}
        for at in range(NODES):
            self._tell(NodeSet(make_site(at)))
        leaves = [[f"n{at}" for at in range(NODES) if at // 2 == leaf] for leaf in range(NODES // 2)]
        for leaf, names in enumerate(leaves):
            self._tell(HyperNodeSet(make_domain(f"leaf{leaf}", 1, names)))
        self._tell(HyperNodeSet(make_domain("all", 2, [f"leaf{leaf}" for leaf in range(len(leaves))], of="HyperNode")))

    def _tell(self, event: Event) -> None:
        commands = self.core.handle(event)
        self.said += commands
        for bind in of(Bind, commands):
            self.bound += [self._pods[key] for key, _, _ in bind.pods]

    def step(self, number: int, step: tuple[Any, ...]) -> None:
        match step:
            case ("pods", *shapes):
                self._come([pod(f"p{number}-{each}", shape) for each, shape in enumerate(shapes)])
            case ("gang", shape, count):
                self._tell(PodGroupSet(make_group(f"g{number}", count)))
                self._come([pod(f"g{number}-{each}", shape, group=f"g{number}") for each in range(count)])
            case ("others", at, shape):
                self._tell(PodSet(pod(f"o{number}", shape, node=f"n{at}"), Whose.OTHERS))
            case ("ends", at) if self.bound:
                self._tell(PodGone(self.bound.pop(at % len(self.bound)).metadata.key))
            case ("is refused", at) if self.bound:
                gone = self.bound.pop(at % len(self.bound)).metadata
                self._tell(NotBound(((gone.key, gone.uid),)))
            case ("node", at, "gone"):
                self._tell(NodeGone(f"n{at}"))
            case ("node", at, form):
                self._tell(NodeSet(make_site(at, form)))
            case ("numa", at):
                self._tell(NumaSet(make_numa(f"n{at}", "single-numa-node", "0-1")))
            case ("scoring", text):
                self._tell(Configured(parse(text) if text else Scoring(), True, None))
        while self.core.due:
            self._tell(Pass(float(number)))

    def _come(self, pods: list[Pod]) -> None:
        for each in pods:
            self._pods[each.metadata.key] = each
            self._tell(PodSet(each, Whose.OURS))


PLAIN = ["one", "two", "of a zone", "tolerant", "with an image"]


def batches(shapes: Iterable[str]) -> st.SearchStrategy[tuple[str, ...]]:
    """Pods on their own that come at once."""
    return st.lists(st.sampled_from(sorted(shapes)), min_size=1, max_size=6).map(lambda found: ("pods", *found))


_at = st.integers(0, NODES - 1)
_shapes = st.sampled_from(sorted(SHAPES))
_steps = st.one_of(
    batches(PLAIN),
    batches(PLAIN),
    batches(SHAPES),
    st.tuples(st.just("gang"), _shapes, st.integers(1, 3)),
    st.tuples(st.just("others"), _at, _shapes),
    st.tuples(st.just("ends"), st.integers(0, 20)),
    st.tuples(st.just("is refused"), st.integers(0, 20)),
    st.tuples(st.just("node"), _at, st.sampled_from(FORMS)),
    st.tuples(st.just("numa"), _at),
    st.tuples(st.just("scoring"), st.sampled_from(["", "spread", "binpack"])),
)


@settings(max_examples=60, deadline=None)
@example([("pods", *["with a part of a card"] * 4)])
@example([("numa", 0), ("pods", *["with CPUs of its own"] * 3)])
@example([("node", 1, "image"), ("pods", "with an image")])
@example([("node", 0, "soft"), ("others", 2, "one"), ("pods", "one", "one", "tolerant", "one", "tolerant")])
@given(st.lists(_steps, min_size=4, max_size=16))
def test_every_decision_is_that_of_a_look_at_all_nodes(steps: list[tuple[Any, ...]]) -> None:
    kept, whole = Told(keeps=True), Told(keeps=False)
    for number, step in enumerate(steps):
        kept.step(number, step)
        whole.step(number, step)
        assert kept.said == whole.said
