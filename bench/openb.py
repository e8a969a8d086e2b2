"""Shared GPUs of a real cluster filled by its own pods, as the authors of fragmentation gradient descent measured it.

Weng et al., USENIX ATC 2023: pods of the trace come in random order, and more are drawn from it until they ask for so
many times the GPUs of the cluster; none leaves, none is tried twice. What counts is the part of all GPUs that is
allocated in the end. The member's core decides, as in an agent and in the simulator.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from atoll.agent.objects import Node, Pod, decode_node
from atoll.agent.scheduler.core import Bind, MemberCore, Pass
from atoll.agent.scheduler.core.events import Configured, NodeSet, PodGone, PodSet, Whose
from atoll.agent.scheduler.core.settings import MemberCoreSettings, PreemptionSettings
from atoll.model.cards import CARD, SHARE
from atoll.model.gang import Task
from atoll.model.objects import Meta
from atoll.model.scoring import parse
from atoll.sim.inputs import Fields, rows, whole
from bench.report import Progress, Report, median, progress, rate, run, sizes

NAME = "openb"
DESCRIPTION = "GPUs that are allocated in a cluster of shared GPUs, by scoring: openb, FGD's protocol."
_BEST = f"fragmentation=50,most;{SHARE}=1"
BOUND = "for the allocated part: all GPUs of the nodes"
FULL: dict[str, Any] = {
    "seeds": list(range(42, 52)), "load": 1.3, "scorings": [_BEST, "fragmentation", "binpack", ""],
    "nodes": "", "pods": "",
}  # fmt: skip
QUICK: dict[str, Any] = {"seeds": [42], "load": 1.3, "scorings": ["fragmentation", ""], "nodes": "", "pods": ""}
_MODEL = "gpu-model"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a pod asks for."""

    requests: dict[str, int]
    terms: list[dict[str, Any]]

    @property
    def gpu(self) -> int:
        """Thousandths."""
        return self.requests.get(SHARE, 0)


def options(parser: argparse.ArgumentParser) -> None:
    """The inputs."""
    parser.add_argument("--nodes", help="openb's node list (CSV, or .xz); a made-up cluster without it")
    parser.add_argument("--pods", help="openb's pod list, likewise")
    parser.add_argument("--seeds", type=int, nargs="+", help="of the order and the draws; a run for each")
    parser.add_argument("--load", type=float, help="GPUs that are asked for, in parts of those that there are")
    parser.add_argument("--scorings", nargs="+", help="node scorings; '' for the tightest gap")


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    params = sizes(chosen, QUICK, FULL)
    if bool(params["nodes"]) != bool(params["pods"]):
        raise ValueError("give both --nodes and --pods, or none of them")
    report = Report(NAME, {**params, "bound": BOUND})
    nodes = read_nodes(Path(params["nodes"])) if params["nodes"] else made_up_nodes()
    pods = read_pods(Path(params["pods"])) if params["pods"] else made_up_pods()
    for scoring in params["scorings"]:
        found, speeds = [], []
        for seed in params["seeds"]:
            began = time.perf_counter()
            allocated, number = fill(nodes, pods, scoring, seed, params["load"])
            speeds.append(rate(number, time.perf_counter() - began))
            found.append(100 * allocated)
            told(f"{scoring or 'tightest gap'}, seed {seed}: {found[-1]:.2f} % in {time.perf_counter() - began:.0f} s")
        case = scoring or "tightest gap"
        report.add(case, "allocated", sum(found) / len(found), "%", 100.0)
        report.add(case, "allocated_worst", min(found), "%", 100.0)
        report.add(case, "decisions_per_s", median(speeds), "1/s")
    return report


def fill(nodes: list[Node], pods: list[Shape], scoring: str, seed: int, load: float) -> tuple[float, int]:
    """(part of the GPUs that is allocated in the end, pods that came)."""
    core = MemberCore(MemberCoreSettings(preemption=PreemptionSettings(enabled=False)))
    total = 0
    for node in nodes:
        core.handle(NodeSet(node))
        total += int(node.status.allocatable.get(SHARE, 0))
    if scoring:
        core.handle(Configured(parse(scoring)))
    for shape in pods:
        # The authors' scheduler knows the workload beforehand.
        core.room.gpus.typical.see(Task("", 1, 1, shape.requests, node_terms=shape.terms))
    rng = random.Random(seed)
    coming = list(pods)
    asked = sum(each.gpu for each in coming)
    while coming and asked > total * load:
        asked -= coming.pop(rng.randrange(len(coming))).gpu
    while asked < total * load:
        coming.append(rng.choice(pods))
        asked += coming[-1].gpu
    rng.shuffle(coming)
    allocated = 0
    for number, shape in enumerate(coming):
        name = f"p{number:06}"
        meta = Meta(name=name, namespace="d", uid=name, creation_timestamp="2026-01-01T00:00:00Z")
        pod = Pod(meta, scheduler="atoll", requests=shape.requests, node_terms=shape.terms)
        core.handle(PodSet(pod, Whose.OURS))
        commands = core.handle(Pass(float(number)))
        if any(isinstance(each, Bind) for each in commands):
            allocated += shape.gpu
        else:
            core.handle(PodGone(meta.key))
    return allocated / total, len(coming)


def read_nodes(path: Path) -> list[Node]:
    """Those of openb's list that have GPUs, as the authors do."""
    found = []
    for place, row in rows(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model")):
        fields = Fields(row, place)
        cpu, memory, gpus = (fields.take(name, whole) for name in ("cpu_milli", "memory_mib", "gpu"))
        if gpus:
            found.append(make_node(row["sn"], cpu, memory, gpus, row["model"]))
    return found


def read_pods(path: Path) -> list[Shape]:
    """Of openb's list."""
    found = []
    for place, row in rows(path, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")):
        fields = Fields(row, place)
        cpu, memory, count = (fields.take(name, whole) for name in ("cpu_milli", "memory_mib", "num_gpu"))
        share = fields.take("gpu_milli", whole, 0) if count == 1 else count * CARD
        found.append(shape_of(cpu, memory, share, row["gpu_spec"].split("|") if row["gpu_spec"] else []))
    return found


def make_node(name: str, cpu: int, memory: int, gpus: int, model: str) -> Node:
    """A node; `memory` in MiB."""
    offers = {"cpu": f"{cpu}m", "memory": f"{memory}Mi", "pods": "4096"}
    offers |= {SHARE: str(gpus * CARD)} if gpus else {}
    ready = [{"type": "Ready", "status": "True"}]
    meta = {"name": name, "uid": name, "labels": {_MODEL: model} if model else {}}
    return decode_node(orjson.dumps({"metadata": meta, "status": {"allocatable": offers, "conditions": ready}}))


def shape_of(cpu: int, memory: int, share: int, models: list[str]) -> Shape:
    """A pod's wish; `memory` in MiB."""
    requests = {"cpu": cpu, "memory": memory << 20, "pods": 1, **({SHARE: share} if share else {})}
    terms = [{"matchExpressions": [{"key": _MODEL, "operator": "In", "values": models}]}] if models and share else []
    return Shape({name: amount for name, amount in requests.items() if amount}, terms)


def made_up_nodes() -> list[Node]:
    """Thirty nodes of 2, 4 and 8 cards."""
    return [make_node(f"n{number:02}", 96_000, 393_216, (2, 4, 8)[number % 3], "x") for number in range(30)]


def made_up_pods() -> list[Shape]:
    """Shares, single cards and a few whole nodes."""
    rng = random.Random(1)
    sizes_ = rng.choices((200, 500, 800, 1000, 2000, 8000), (3, 3, 2, 4, 1, 1), k=200)
    return [shape_of(rng.choice((2, 4, 8, 12)) * 1000, 8192, share, []) for share in sizes_]


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
