"""NUMA nodes: what the kubelet's topology manager would take is planned, and nothing else."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from atoll.agent.capacity import MemberCapacity
from atoll.agent.numa import NumaTopology, cpus, decode_zones
from atoll.agent.objects import Pod, decode_pod
from atoll.agent.scheduler.core import Bind, MemberCore, Pass
from atoll.agent.scheduler.core.events import NodeSet, NumaGone, NumaSet, PodGroupSet, PodSet, Whose
from atoll.agent.scheduler.core.gangs import task_of
from atoll.model import keys
from atoll.model.numa import Cells, Policy, aligned, asks_of
from tests.agent.builders import make_group, make_node, make_numa, make_pod, make_zones
from tests.agent.telling import of, settle


def pinned(name: str, cpu: int, *, group: str = "", policy: str = "", node: str = "") -> Pod:
    """A pod of class Guaranteed with so many CPUs."""
    amounts = {"cpu": str(cpu), "memory": "1Gi"}
    spec = {"containers": [{"resources": {"requests": amounts, "limits": amounts}}]}
    pod = make_pod(name, group=group, spec=spec, node=node)
    pod.metadata.annotations.update({"volcano.sh/numa-topology-policy": policy} if policy else {})
    return pod


def member(*told: NumaTopology) -> MemberCore:
    core = MemberCore()
    for each in told:
        core.handle(NodeSet(make_node(each.metadata.name, cpu="16", pods="50")))
        core.handle(NumaSet(each))
    return core


def placed(core: MemberCore, *pods: Pod) -> dict[str, str]:
    for pod in pods:
        core.handle(PodSet(pod, Whose.OURS))
    commands = core.handle(Pass(0.0))
    return {key.removeprefix("default/"): node for each in of(Bind, commands) for key, _, node in each.pods}


CELLS = Cells(Policy.SINGLE, ("cpu",), ((8,), (8,)), ((8,), (8,)))


@pytest.mark.parametrize(
    ("policy", "free", "asks", "room"),
    [
        pytest.param("single-numa-node", (8, 8), [4], 4, id="two in each"),
        pytest.param("single-numa-node", (6, 6), [4], 2, id="12 are free, but in two halves"),
        pytest.param("single-numa-node", (8, 8), [10], 0, id="larger than a NUMA node"),
        pytest.param("restricted", (8, 8), [10], 1, id="no smaller set could hold it"),
        pytest.param("restricted", (6, 6), [8], 0, id="one NUMA node could hold it, none does"),
        pytest.param("restricted", (6, 6), [10], 1, id="two are the fewest that ever could"),
        pytest.param("single-numa-node", (4, 4), [4, 4], 1, id="containers one by one"),
        pytest.param("single-numa-node", (3, 5), [4, 4], 0, id="the second container has none"),
    ],
)
def test_as_many_pods_as_the_kubelet_would_take(policy: str, free: tuple[int, int], asks: list[int], room: int) -> None:
    cells = CELLS._replace(policy=Policy(policy)).with_free([[each] for each in free])
    assert cells.room(asks_of([{"cpu": each} for each in asks])) == room


def test_cpus_and_devices_of_a_container_prefer_the_same_numa_node() -> None:
    """GPUs are free on the second NUMA node alone, CPUs on the first."""
    cells = Cells(Policy.RESTRICTED, ("cpu", "gpu"), ((8, 0), (2, 4)), ((8, 4), (8, 4)))
    assert cells.room(asks_of([{"cpu": 4, "gpu": 1}])) == 0
    assert cells.room(asks_of([{"cpu": 2, "gpu": 1}])) == 1
    assert cells.room(asks_of([{"gpu": 2}])) == 2
    together = cells._replace(by_pod=True, free=((8, 4), (8, 4)))
    assert (together.room(asks_of([{"cpu": 8}, {"gpu": 4}])), together.after(asks_of([{"cpu": 8}])).free) == (
        2,
        ((0, 4), (8, 4)),
    )


def test_what_of_a_pod_is_aligned() -> None:
    def pod(*amounts: dict[str, str], **more: Any) -> dict[str, Any]:
        return {"containers": [{"resources": {"limits": each, **more}} for each in amounts]}

    whole = {"cpu": "2", "memory": "1Gi"}
    assert aligned(pod(whole, whole | {"nvidia.com/gpu": "1"})) == [{"cpu": 2}, {"cpu": 2, "nvidia.com/gpu": 1}]
    assert aligned(pod(whole | {"cpu": "1500m"})) == [], "shares of CPUs are of the common ones"
    assert aligned(pod(whole, requests={"cpu": "1"})) == [], "it is not of class Guaranteed"


def test_a_gang_goes_only_where_kubelets_can_align_it() -> None:
    """Each node has 8 free CPUs; one has them in one NUMA node, the other in two halves."""
    core = member(make_numa("halves", "single-numa-node", "0-3,8-11"), make_numa("one", "single-numa-node", "0-7"))
    for name in ("halves", "one"):
        core.handle(PodSet(pinned(f"there-{name}", 8, node=name), Whose.OTHERS))
    assert placed(core, pinned("a", 6)) == {"a": "one"}
    assert placed(core, pinned("b", 6)) == {}
    settle(core)
    assert "NUMA" in core.waits["pod/default/b"].message
    for name in ("halves", "one"):
        core.handle(NumaGone(name))
    assert placed(core) == {"b": "halves"}, "nothing is known of NUMA nodes any more"


def test_pods_that_came_since_the_figures_were_written_count() -> None:
    """Two of 6 are in no figure yet: one in each NUMA node. There are 4 CPUs left, in two halves."""
    core = member(make_numa("n", "single-numa-node"))
    assert len(placed(core, pinned("a", 6), pinned("b", 6))) == 2
    assert placed(core, pinned("c", 4)) == {}
    core.handle(NumaSet(make_numa("n", "single-numa-node", "6-7,14-15")))
    settle(core)
    assert placed(core, pinned("d", 2)) == {"d": "n"}, "the figures contain both by now, which take nothing twice"


def test_figures_that_count_more_than_pods_have_leave_later_pods_nothing_twice() -> None:
    """Two CPUs of the second NUMA node are taken by what is no pod, or by one that is gone."""
    core = member(make_numa("n", "single-numa-node", "0-7,10-15"))
    for name, cpu in (("a", 2), ("b", 6), ("c", 6)):
        assert placed(core, pinned(name, cpu)) == {name: "n"}
    assert placed(core, pinned("d", 2)) == {}


def test_pods_with_a_policy_go_to_nodes_of_that_policy() -> None:
    core = member(make_numa("a", "none"), make_numa("b", "best-effort"), make_numa("c", "restricted", manager="none"))
    assert placed(core, pinned("x", 2, policy="best-effort")) == {"x": "b"}
    assert placed(core, pinned("y", 2, policy="restricted")) == {}


def test_a_gang_gets_the_fewest_numa_nodes_where_policies_leave_it_open() -> None:
    """The first node has less room, and would be the tightest gap."""
    core = member(make_numa("a", "best-effort", "0-3,8-11"), make_numa("b", "best-effort"))
    core.handle(PodSet(pinned("there", 8, node="a"), Whose.OTHERS))
    core.handle(PodGroupSet(make_group("g", 1)))
    assert placed(core, pinned("g-0", 8, group="g")) == {"g-0": "b"}


def test_what_goes_gives_back_what_the_figures_tell_of_it() -> None:
    told = {"uid": "uid-v", "containerAllocations": [{"allocations": {"cpu": "8-15"}}]}
    core = member(make_numa("n", "single-numa-node", "0-3", podAllocations=[told]))
    core.handle(PodSet(pinned("v", 8, node="n"), Whose.OTHERS))
    core.handle(PodSet(pinned("w", 4, node="n"), Whose.OTHERS))
    pod = task_of(pinned("x", 8), None)
    assert (
        core.room.arrays.nodes().room_for(pod).tolist(),
        core.room.nodes_but(["default/v"]).room_for(pod).tolist(),
    ) == (
        [0],
        [1],
    )


def with_gpus(name: str, gpus: int, cpu: int = 2, containers: int = 1) -> Pod:
    amounts = {"cpu": str(cpu), "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
    return make_pod(name, spec={"containers": [{"resources": {"requests": amounts, "limits": amounts}}] * containers})


def test_gpus_and_cpus_are_of_one_numa_node_where_zones_say_where_they_are() -> None:
    """1. GPUs are free on the first alone, CPUs on both: two pods fit. 2. Zones come before a Numatopology, while there
    are both. 3. The old form of a policy, and the scope of whole pods.
    """
    core = member(make_numa("n", "single-numa-node", ""))
    core.handle(NumaSet(make_zones("single-numa-node", "container", gpus=(4, 0)), zones=True))
    assert len(placed(core, *(with_gpus(f"p{number}", 2) for number in range(3)))) == 2
    core.handle(NumaGone("n", zones=True))
    settle(core)
    assert placed(core) == {}, "by the Numatopology no CPU is free"
    old = {"metadata": {"name": "n"}, "topologyPolicies": ["RestrictedPodLevel"], "zones": []}
    cells = decode_zones(orjson.dumps(old)).cells
    assert (cells.policy, cells.by_pod) == (Policy.RESTRICTED, True)
    cells = make_zones("single-numa-node", "pod").cells
    asks = asks_of([{"nvidia.com/gpu": 3}, {"nvidia.com/gpu": 3}])
    assert (cells.room(asks), cells._replace(by_pod=False).room(asks)) == (0, 1)


def together(pod: Pod, what: str) -> Pod:
    spec = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": str(pod.requests["nvidia.com/gpu"])}}}]}
    meta = {
        "name": pod.metadata.name,
        "namespace": "default",
        "uid": pod.metadata.uid,
        "annotations": {keys.DEVICES_IN: what},
    }
    return decode_pod(orjson.dumps({"metadata": meta, "spec": {**spec, "schedulerName": "atoll"}}))


@pytest.mark.parametrize(
    ("zones", "what", "gpus", "runs"),
    [
        pytest.param({"gpus": (1, 1)}, "", 2, True, id="no wish"),
        pytest.param({"gpus": (1, 1)}, "numa-node", 2, False, id="two NUMA nodes have one each"),
        pytest.param({"gpus": (1, 2)}, "numa-node", 2, True, id="one NUMA node has two"),
        pytest.param({"gpus": (2, 2), "islands": (1, 1, 1, 1)}, "nvlink-island", 2, False, id="islands have one each"),
        pytest.param({"gpus": (2, 2), "islands": (0, 2, 1, 1)}, "nvlink-island", 2, True, id="one island has two"),
        pytest.param({"gpus": (4, 4), "islands": (2,) * 4}, "nvlink-island", 3, False, id="larger than an island"),
        pytest.param({"gpus": (4, 4), "islands": (2,) * 4}, "unheard-of", 3, True, id="what is no wish"),
    ],
)
def test_devices_are_together_where_a_pod_asks_for_it(zones: dict[str, Any], what: str, gpus: int, runs: bool) -> None:
    core = member(make_zones("best-effort", **zones))
    assert bool(placed(core, together(with_gpus("a", gpus), what))) == runs
    if not runs:
        settle(core)
        assert "devices together" in core.waits["pod/default/a"].message


def test_pods_that_take_an_island_leave_it_to_no_other() -> None:
    core = member(make_zones("none", islands=(2, 1, 2, 2)))
    pods = (together(with_gpus(f"p{number}", 2), "nvlink-island") for number in range(4))
    assert len(placed(core, *pods)) == 3


def test_a_wish_that_nothing_in_the_cluster_can_tell_of_waits_with_that_reason() -> None:
    """Zones tell of NUMA nodes alone, and of a kubelet that does not look at them."""
    core = member(make_zones("none"))
    assert placed(core, together(with_gpus("a", 1), "nvlink-island"), together(with_gpus("b", 1), "numa-node")) == {}
    settle(core)
    text = "no NodeResourceTopology tells which devices are in one nvlink-island"
    assert text in core.waits["pod/default/a"].message
    assert "devices together" in core.waits["pod/default/b"].message


def test_the_host_is_told_that_kubelets_align() -> None:
    core = member(make_numa("n", "best-effort"))
    capacity = MemberCapacity("m", core.room)
    assert "aligns" not in capacity.specs()["nodes"]
    core.handle(NumaSet(make_numa("n", "restricted")))
    assert capacity.specs()["nodes"]["aligns"] is True


def test_the_host_is_told_what_numa_nodes_have_when_that_changes_and_not_when_it_is_taken() -> None:
    core = member(make_numa("n", "restricted"))
    capacity = MemberCapacity("m", core.room)
    first = capacity.specs()["nodes"]
    [profile] = first["profiles"]
    assert profile["numa"] == {"policy": "restricted", "byPod": False, "nodes": [{"cpu": 8}, {"cpu": 8}]}
    core.handle(NumaSet(make_numa("n", "restricted", "0-3")))
    assert capacity.specs()["nodes"] is first
    core.handle(NumaSet(make_numa("n", "single-numa-node", "0-3")))
    assert capacity.specs()["nodes"]["profiles"][0]["numa"]["policy"] == "single-numa-node"
    core.handle(NumaGone("n"))
    assert "numa" not in capacity.specs()["nodes"]["profiles"][0]


def test_what_a_kubelet_keeps_of_its_cpus_is_not_told_to_the_host() -> None:
    """No pod that needs it would ever get it."""
    core = member(make_zones("single-numa-node", cpus=(7, 7), kept=1))
    [profile] = MemberCapacity("m", core.room).specs()["nodes"]["profiles"]
    assert [each["cpu"] for each in profile["numa"]["nodes"]] == [7, 7]


def test_a_topology_that_names_no_numa_node_keeps_no_pod_away() -> None:
    core = member(make_numa("n", "single-numa-node", cpuDetail={}))
    assert placed(core, pinned("a", 2)) == {"a": "n"}


def test_zones_are_in_the_order_of_their_numbers() -> None:
    zones = [
        {"name": f"node-{at}", "type": "Node", "resources": [{"name": "cpu", "available": at, "capacity": at}]}
        for at in (10, 2, 1)
    ]
    cells = decode_zones(orjson.dumps({"metadata": {"name": "n"}, "zones": zones})).cells
    assert cells.free == ((1,), (2,), (10,))


def test_lists_of_cpus_are_the_kernels() -> None:
    assert cpus("0-2,5") == {0, 1, 2, 5}
    assert cpus("") == set()
    with pytest.raises(ValueError, match="invalid literal"):
        cpus("a-b")
