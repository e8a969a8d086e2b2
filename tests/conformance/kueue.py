"""Cases of Kueue's topology-aware scheduling: an assignment wherever Kueue finds one, at least as near together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from atoll.fit import Nodes, Placement, Profile, place
from atoll.model import quantity, selectors
from atoll.model.gang import Gang, Partition, Task, TopologyWish
from atoll.model.topology import NO_DOMAIN, Domain, Tree
from atoll.model.vector import Vector, pod_requests

Json = dict[str, Any]
HOST = "kubernetes.io/hostname"
WORKERS, LEADER = 0, 1
"""Task indices of the gang."""
DIFFERENT = {
    f"tas-{number}"
    for number in (
        *("0297", "0308", "0496", "0511", "1072", "1078", "1103", "1120", "1127", "1237"),
        *("1416", "1436", "1462", "1488", "1577", "1601", "1656", "1783"),
        "1319",
        "1541",
    )
}
"""Cases that DIFFERENCES.md explains: whole domains from the top, a soft taint, a leader after slices."""


def topology(case: Json) -> list[str]:
    """Cases of `kueue-tas`, replayed on the placer of members; a case of `DIFFERENT` must differ."""
    differing = _differing(case)
    if case["id"] not in DIFFERENT:
        return differing
    return [] if differing else ["as upstream: take it from DIFFERENT and DIFFERENCES.md"]


def _differing(case: Json) -> list[str]:
    """Problems per pod set; Kueue's assignments of earlier pod sets are used, so that each is compared by itself."""
    differing = []
    site = _Site(case)
    for members in _groups(case["podSets"]):
        names = [each["name"] for each in members]
        expected = [case["expect"]["podSets"].get(name) for name in names]
        if expected[0] is None:
            break
        try:
            found = site.place(members)
        except ValueError as error:
            found = None
            if "failureReason" not in expected[0]:
                differing.append(f"{names}: {error}, expected {expected}")
        if "failureReason" in expected[0]:
            if found is not None and case["tags"][0] == "invalid":
                differing.append(f"{names}: placed, expected {expected[0]['failureReason']}")
            break
        if found is None:
            differing.append(f"{names}: no room, expected {expected}")
        else:
            wanted = [each["topologyAssignment"]["domains"] for each in expected if each]
            differing += [f"{names}: {problem}" for problem in site.compare(members, found, wanted)]
        for each, answer in zip(members, expected, strict=True):
            site.use_assigned(each, answer["topologyAssignment"]["domains"])
    return differing


def _groups(pod_sets: Sequence[Json]) -> list[list[Json]]:
    """Pod sets of one group together: the workers first, then their leader."""
    groups: dict[str, list[Json]] = {}
    for number, each in enumerate(pod_sets):
        groups.setdefault(each.get("podSetGroupName") or f"#{number}", []).append(each)
    return [sorted(members, key=lambda each: -each["count"]) for members in groups.values()]


class _Site:
    """The leaves of the topology as nodes: real ones where hosts are the lowest level, else what each domain has."""

    def __init__(self, case: Json) -> None:
        self.levels: list[str] = case["levels"]
        self.by_host = self.levels[-1] == HOST
        self._flavor = case["flavor"]
        leaves = self._leaves(case)
        paths = {path[:depth] for path in leaves for depth in range(1, len(self.levels) + 1)}
        ordered = sorted(paths, key=lambda path: (len(path), path))
        index = {path: number for number, path in enumerate(ordered)}
        depth = len(self.levels)
        domains = [Domain("/".join(path), depth - len(path) + 1, index.get(path[:-1], NO_DOMAIN)) for path in ordered]
        self.paths = list(leaves)
        self.nodes = Nodes(
            Tree(domains),
            [index[path] for path in leaves],
            [path[-1] for path in leaves],
            [Profile(labels, tuple(taints)) for labels, taints, _ in leaves.values()],
            range(len(leaves)),
            [free for _, _, free in leaves.values()],
        )

    def _leaves(self, case: Json) -> dict[tuple[str, ...], tuple[Json, list[Json], Vector]]:
        """Path -> labels, taints, free, sorted by path."""
        used: dict[str, Counter[str]] = {}
        for pod in case["nonTASPods"]:
            used.setdefault(pod["nodeName"], Counter()).update(_requests(pod["requests"]))
        found: dict[tuple[str, ...], tuple[Json, list[Json], Vector]] = {}
        wanted = self._flavor.get("nodeLabels") or {}
        for node in case["nodes"]:
            labels = node["labels"]
            if node.get("unschedulable") or node.get("ready") is False or any(
                labels.get(key) != value for key, value in wanted.items()
            ):  # fmt: skip
                continue
            if any(level not in labels for level in self.levels):
                continue
            path = tuple(labels[level] for level in self.levels)
            free: Counter[str] = Counter(quantity.capacity(node["allocatable"]))
            free.subtract(used.get(node["name"], Counter()))
            if path in found:
                free.update(found[path][2])
            taints = node.get("taints") or []
            found[path] = (labels, taints, dict(free)) if self.by_host else ({}, [], dict(free))
        for each in case["usage"]:
            values = tuple(each["values"])
            for path, (_, _, left) in found.items():
                if (path[-1:] if self.by_host else path) == values:
                    for name, amount in _requests(each["singlePodRequests"]).items():
                        left[name] = left.get(name, 0) - amount * each["count"]
        return dict(sorted(found.items()))

    def _tier(self, key: str) -> int:
        """The tier of a level: 1 for the lowest."""
        if key not in self.levels:
            raise ValueError(f"no level {key}")
        return len(self.levels) - self.levels.index(key)

    def gang(self, members: Sequence[Json]) -> Gang:
        """The workers in their slices, and their leader where there is one."""
        asked = members[0].get("topologyRequest") or {}
        required = self._tier(asked["required"]) if asked.get("required") else None
        wish = TopologyWish("soft") if required is None else TopologyWish("hard", required)
        tasks = [self._task(str(number), each) for number, each in enumerate(members)]
        if key := asked.get("podSetSliceRequiredTopology"):
            if not asked.get("podSetSliceSize"):
                raise ValueError("the size of a slice is missing")
            tier = self._tier(key)
            preferred = self._tier(asked["preferred"]) if asked.get("preferred") else None
            if any(each is not None and tier > each for each in (required, preferred)):
                raise ValueError("slices of a level above that of their pod set")
            part = Partition(asked["podSetSliceSize"], TopologyWish("hard", tier))
            tasks[WORKERS] = msgspec.structs.replace(tasks[WORKERS], partition=part)
        return Gang("", tasks, sum(task.replicas for task in tasks), network_topology=wish)

    def _task(self, name: str, pod_set: Json) -> Task:
        affinity, count = pod_set.get("affinity"), pod_set["count"]
        task = Task(name, count, count, _requests(pod_set["requests"]))
        if not self.by_host:
            return task
        return msgspec.structs.replace(
            task,
            node_selector=pod_set.get("nodeSelector") or {},
            node_terms=selectors.required_node_terms({"affinity": affinity} if affinity else {}),
            tolerations=[*(pod_set.get("tolerations") or ()), *(self._flavor.get("tolerations") or ())],
        )

    def place(self, members: Sequence[Json]) -> Placement | None:
        """The workers, and their leader where there is one."""
        return place(self.nodes, self.gang(members), explain=False)

    def use_assigned(self, pod_set: Json, domains: Sequence[Json]) -> None:
        """Take what was assigned to a pod set."""
        for each in domains:
            place = next(
                number
                for number, path in enumerate(self.paths)
                if (path[-1:] if self.by_host else path) == tuple(each["values"])
            )
            self.nodes.free[:, place] -= self.nodes.column(_requests(pod_set["requests"])) * each["count"]

    def compare(self, members: Sequence[Json], found: Placement, wanted: Sequence[Sequence[Json]]) -> list[str]:
        """What is wrong with a placement, or worse than Kueue's."""
        problems = []
        counts: Counter[int] = Counter()
        for task, node, count in found.pods:
            if task == WORKERS:
                counts[node] += count
        asked = members[0].get("topologyRequest") or {}
        if counts.total() != members[0]["count"] or [c for t, _, c in found.pods if t == LEADER] != [1] * (
            len(members) - 1
        ):
            problems.append(f"placed {found.pods}")
        free = self.nodes.copy()
        free.take([_requests(each["requests"]) for each in members], found)
        taken = [node for _, node, _ in found.pods]
        if (free.free[:, taken] < np.minimum(self.nodes.free[:, taken], 0)).any():
            problems.append(f"more than there is on {taken}")
        depth = len(self.levels)
        part = self.gang(members).tasks[WORKERS].partition
        size, tier = (part.size, self._tier(asked["podSetSliceRequiredTopology"])) if part is not None else (1, 1)
        per_slice = Counter[tuple[str, ...]]()
        for node, count in counts.items():
            per_slice[self.paths[node][: depth + 1 - tier]] += count
        if any(count % size for count in per_slice.values()):
            problems.append(f"torn slices {per_slice}")
        ours = {self.paths[node] for node in taken}
        by_end = {(path[-1:] if self.by_host else path): path for path in self.paths}
        theirs = {by_end[tuple(each["values"])] for domains in wanted for each in domains}
        if _common(ours) < _common(theirs):
            problems.append(f"farther: {sorted(ours)}, expected {sorted(theirs)}")
        if asked.get("preferred") and "balanced" not in members[0].get("tags", ()):
            cut = depth + 1 - self._tier(asked["preferred"])
            mine, other = {path[:cut] for path in ours}, {path[:cut] for path in theirs}
            if len(mine) > len(other):
                problems.append(f"{len(mine)} domains, expected {sorted(other)}")
        return problems


def _common(paths: set[tuple[str, ...]]) -> int:
    """Levels that all paths share."""
    shared = 0
    for values in zip(*paths, strict=True):
        if len(set(values)) > 1:
            break
        shared += 1
    return shared


def _requests(quantities: Json) -> Vector:
    return pod_requests({"containers": [{"resources": {"requests": quantities}}]})
