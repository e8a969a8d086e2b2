"""Cases of Volcano's allocate action with HyperNodes: one gang of equal pods, one cycle."""

from __future__ import annotations

from collections import Counter
from typing import Any

from atoll.fit import Nodes, Placement, Profile, place
from atoll.model import quantity, topology
from atoll.model.gang import Gang, Task, TopologyWish
from atoll.model.topology import NO_DOMAIN
from atoll.model.vector import Vector, pod_requests

Json = dict[str, Any]


def hyper_node(case: Json) -> list[str]:
    """Cases of `volcano-hypernode`: whether it starts, with how many pods, and the tier that covers them."""
    nodes, gang = _nodes(case), _gang(case)
    found = place(nodes, gang)
    expect = case["expect"]
    if not isinstance(found, Placement):
        return [f"{found.sentence()}, expected {expect}"] if expect["schedulable"] else []
    if not expect["schedulable"]:
        return [f"placed {found.counts}, expected that it is not"]
    bound = sum(found.counts)
    differing = []
    if bound < gang.min_available or ("bound" in expect and bound < expect["bound"]):
        differing.append(f"bound {bound}, expected {expect}")
    if "coveringTiers" in expect:
        top = nodes.tree.tiers[-1] + 1 if nodes.tree.tiers else 1
        tier = top if found.tier is None else found.tier
        if tier > min(expect["coveringTiers"]):
            differing.append(f"tier {tier}, expected {expect['coveringTiers']}")
    return differing


def _nodes(case: Json) -> Nodes:
    free: dict[str, Vector] = {node["name"]: quantity.capacity(node["allocatable"]) for node in case["nodes"]}
    for pod in case["runningPods"]:
        used = Counter(pod_requests({"containers": [{"resources": {"requests": pod["requests"]}}]}))
        free[pod["nodeName"]] = {name: amount - used[name] for name, amount in free[pod["nodeName"]].items()}
    built = topology.build([_object(each) for each in case["hyperNodes"]], {name: {} for name in free})
    lowest = [built.lowest.get(name, NO_DOMAIN) for name in free]
    return Nodes(built.tree, lowest, list(free), [Profile()], [0] * len(free), list(free.values()))


def _object(hyper_node: Json) -> Json:
    members = [
        {"type": member["type"], "selector": {"exactMatch": {"name": member["name"]}}}
        for member in hyper_node["members"]
    ]
    return {"metadata": {"name": hyper_node["name"]}, "spec": {"tier": hyper_node["tier"], "members": members}}


def _gang(case: Json) -> Gang:
    tasks, group = case["tasks"], case["podGroup"]
    wish = group.get("networkTopology")
    requests = pod_requests({"containers": [{"resources": {"requests": tasks["requests"]}}]})
    topology_wish = None
    if wish:
        topology_wish = TopologyWish(wish.get("mode", "hard"), wish.get("highestTierAllowed"))
    least = group["minMember"]
    task = Task("main", tasks["replicas"], least, requests)
    return Gang(queue="", tasks=[task], min_available=least, network_topology=topology_wish)
