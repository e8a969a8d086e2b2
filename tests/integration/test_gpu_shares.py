"""Parts of GPUs: nodes on which Koordinator reports cards give them, under its own, KAI's and Atoll's names."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Set
from typing import Any

import pytest

from atoll.install.member import AGENT
from atoll.install.rights import ensure_rights, remove_rights
from atoll.install.roles import LOCKS_IN_MEMBER
from atoll.model import hami, keys
from atoll.model.apiresource import CAPACITIES, CRDS, KOORDINATOR_DEVICES, NODES
from tests.atollctl import atollctl
from tests.integration.federation import Site, job, until
from tests.integration.foreign_crds import bring

pytestmark = pytest.mark.integration
MEMBER = "alpha"
NODE = f"{MEMBER}-n0"
SHARE = "atoll.sh/gpu-milli"
NAMES = {"koordinator.sh/gpu-core": "200", "koordinator.sh/gpu-memory-ratio": "200", "koordinator.sh/rdma": "200"}
HALF = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
MEMORY = 80 * 2**30


@pytest.fixture
async def gpus(site: Site) -> AsyncIterator[None]:
    """Two GPUs of one node of one member, and NICs beside them, as koordlet and koord-manager report them."""
    member = site.members[MEMBER]
    await bring([member], [KOORDINATOR_DEVICES])
    there = [
        {"type": "gpu", "minor": minor, "id": f"GPU-{minor}", "health": True,
         "topology": {"nodeID": 0, "pcieID": str(minor)}, "resources": {"koordinator.sh/gpu-memory": str(MEMORY)}}
        for minor in range(2)
    ] + [
        {"type": "rdma", "minor": minor, "id": f"0000:{minor}f:00.0", "health": True,
         "topology": {"nodeID": 0, "pcieID": str(minor)}}
        for minor in range(2)
    ]  # fmt: skip
    about = {"apiVersion": KOORDINATOR_DEVICES.api_version, "kind": KOORDINATOR_DEVICES.kind}
    await member.create(KOORDINATOR_DEVICES, {**about, "metadata": {"name": NODE}, "spec": {"devices": there}})
    await member.merge_patch(NODES, NODE, {"status": {"allocatable": NAMES, "capacity": NAMES}}, subresource="status")
    await until(lambda: _published(site), what="the host knows the cards")
    try:
        yield
    finally:
        await member.delete(CRDS, f"{KOORDINATOR_DEVICES.plural}.{KOORDINATOR_DEVICES.group}")
        gone = dict.fromkeys(NAMES)
        await member.merge_patch(NODES, NODE, {"status": {"allocatable": gone, "capacity": gone}}, subresource="status")


async def _published(site: Site, names: Set[str] = frozenset({SHARE, *NAMES})) -> bool:
    found = [each["spec"] for each in await site.host.list(CAPACITIES, f"karmada-es-{MEMBER}")]
    return any(names <= profile["allocatable"].keys() for each in found for profile in each["profiles"])


def asking(name: str, limits: dict[str, str], *, annotations: dict[str, str] | None = None, **more: Any) -> Any:
    made = job(name, seconds=None, **more)
    template = made["spec"]["tasks"][0]["template"]
    template["metadata"]["annotations"] |= annotations or {}
    template["spec"]["containers"][0]["resources"]["limits"] = limits
    return made


async def given(site: Site, name: str, kind: str = "gpu") -> list[dict[str, Any]]:
    """The entries for a type of devices of the annotation that koordlet reads, of all pods of a Job."""
    pods = [pod for pod in await site.pods(MEMBER) if pod["metadata"]["name"].startswith(f"{name}-")]
    notes = [pod["metadata"]["annotations"]["scheduling.koordinator.sh/device-allocated"] for pod in pods]
    return [entry for note in notes for entry in json.loads(note)[kind]]


async def test_cards_are_handed_over_under_every_name_and_charged(site: Site, gpus: None) -> None:
    """1. Two halves by Koordinator's names fill card 0. 2. KAI's half and Atoll's bytes fill card 1, each with the
    annotation of koordlet. 3. A queue of 500 thousandths holds one of two pods of 300. 4. The next pod waits.
    """
    await site.submit(asking("koord", HALF, replicas=2))
    await site.phase("koord", "Running")
    entries = await given(site, "koord")
    assert [(each["minor"], each["id"]) for each in entries] == [(0, "GPU-0")] * 2
    amounts = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
    assert entries[0]["resources"] == amounts | {"koordinator.sh/gpu-memory": str(MEMORY // 2)}

    queue = await site.queue("shares", capability={SHARE: "500"})
    await site.submit(asking("kai", {}, annotations={"gpu-fraction": "0.3"}, queue=queue))
    await site.phase("kai", "Running")
    [entry] = await given(site, "kai")
    assert (entry["minor"], entry["resources"]["koordinator.sh/gpu-memory-ratio"]) == (1, "30")
    await site.submit(asking("more", {}, annotations={"gpu-fraction": "0.3"}, queue=queue))
    assert SHARE in str(await site.decided("more"))

    await site.submit(asking("bytes", {"atoll.sh/gpu-memory": "50Gi"}))
    await site.phase("bytes", "Running")
    [entry] = await given(site, "bytes")
    assert (entry["minor"], entry["resources"]["koordinator.sh/gpu-memory"]) == (1, str(50 * 2**30))
    await site.submit(asking("late", {SHARE: "100"}))
    # Bytes count as their part of a card: 75 thousandths are left.
    await site.reason("late", "InsufficientResources")
    site.kubectl("delete", "-n", site.namespace, "vcjob", "bytes")
    await site.phase("late", "Running")


async def test_gpus_get_the_nics_under_their_roots(site: Site, gpus: None) -> None:
    """The second pod for a whole NIC gets the other root; a third one is told what it lacks by its member."""
    wish = {
        "scheduling.koordinator.sh/device-joint-allocate": '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}'
    }
    await site.submit(asking("pair", {**HALF, "koordinator.sh/rdma": "100"}, annotations=wish, replicas=2))
    await site.phase("pair", "Running")
    cards, nics = [await given(site, "pair", kind) for kind in ("gpu", "rdma")]
    assert sorted(each["minor"] for each in cards) == sorted(each["minor"] for each in nics) == [0, 1]
    assert nics[0]["resources"] == {"koordinator.sh/rdma": "100"}
    bad = {name: value.replace("SamePCIe", "SameRack") for name, value in wish.items()}
    made = asking("bad", {**HALF, "koordinator.sh/rdma": "100"}, annotations=bad)
    assert "SamePCIe" in site.kubectl("create", "-f", "-", "-n", site.namespace, stdin=json.dumps(made), ok=False)


async def test_whole_gpus_are_a_partition_of_the_node(site: Site, gpus: None) -> None:
    """The node honours a table of GPU 1 alone: the second pod waits, though GPU 0 is free, until the label goes."""
    about = {
        "annotations": {"scheduling.koordinator.sh/gpu-partitions": '{"1": [{"minors": [1]}]}'},
        "labels": {"node.koordinator.sh/gpu-partition-policy": "Honor"},
    }
    await site.members[MEMBER].merge_patch(KOORDINATOR_DEVICES, NODE, {"metadata": about})
    whole = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
    spec = {"scheduling.koordinator.sh/gpu-partition-spec": '{"allocatePolicy": "Restricted"}'}
    await site.submit(asking("first", whole, annotations=spec))
    await site.phase("first", "Running")
    assert [each["minor"] for each in await given(site, "first")] == [1]
    await site.submit(asking("second", whole))
    await site.reason("second", "InsufficientResources")
    policy = {"labels": {"node.koordinator.sh/gpu-partition-policy": "Prefer"}}
    await site.members[MEMBER].merge_patch(KOORDINATOR_DEVICES, NODE, {"metadata": policy})
    await site.phase("second", "Running")
    assert [each["minor"] for each in await given(site, "second")] == [0]


async def test_a_bad_combination_is_refused_and_what_nobody_hands_over_waits(site: Site, gpus: None) -> None:
    forged = {"scheduling.koordinator.sh/device-allocated": '{"gpu":[{"minor":0}]}'}
    for made, words in (
        (asking("bad", {"koordinator.sh/gpu-core": "50"}), "legal are koordinator.sh/gpu"),
        (asking("forged", {}, annotations=forged), "the placer writes which devices pods get"),
    ):
        said = site.kubectl("create", "-f", "-", "-n", site.namespace, stdin=json.dumps(made), ok=False)
        assert words in said
    await site.only(MEMBER)
    await site.submit(asking("volcano", {"volcano.sh/vgpu-number": "1"}))
    decision = await site.decided("volcano")
    assert decision["reason"] == "NoPlacerHonours", decision
    assert "volcano-vgpu" in str(decision)


@pytest.fixture
async def of_hami(site: Site) -> AsyncIterator[None]:
    """A node of two GPUs as HAMi's device plug-in registers them, and the agent's right to lock it."""
    member = site.members[MEMBER]
    cards = [
        {"id": f"GPU-{at}", "index": at, "count": 10, "devmem": 24_000, "devcore": 100, "mode": "hami-core",
         "type": "NVIDIA-L4", "health": True}
        for at in range(2)
    ]  # fmt: skip
    account = keys.SYSTEM_NAMESPACE, AGENT
    await ensure_rights(member, "atoll-agent-hami", account, LOCKS_IN_MEMBER)
    await member.merge_patch(NODES, NODE, {"metadata": {"annotations": {hami.REGISTER: json.dumps(cards)}}})
    await until(lambda: _published(site, {"nvidia.com/gpumem"}), what="the host knows the cards")
    try:
        yield
    finally:
        await member.merge_patch(NODES, NODE, {"metadata": {"annotations": {hami.REGISTER: None, hami.LOCK: None}}})
        await remove_rights(member, "atoll-agent-hami", LOCKS_IN_MEMBER)


async def test_hamis_device_plugin_gets_one_pod_after_the_other(site: Site, of_hami: None) -> None:
    """1. Of a gang of two, one pod is bound, and the lock of the node names it. 2. The device plug-in serves that pod
    and removes the lock. 3. The other pod is bound, with a lock of its own. 4. A whole GPU is on no card of the node.
    """
    member = site.members[MEMBER]
    await site.only(MEMBER)
    await site.submit(asking("hami", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "14000"}, replicas=2))
    served: list[str] = []

    async def next_one() -> bool:
        bound = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod for pod in await site.pods(MEMBER)}
        node = await member.get(NODES, NODE)
        _, owner = hami.locked(node["metadata"]["annotations"].get(hami.LOCK, ""))
        there = {key for key, pod in bound.items() if "hami-" in key and pod["spec"].get("nodeName")}
        assert there <= {*served, owner}, "no pod is bound without the lock"
        if owner not in there:
            return False
        notes = bound[owner]["metadata"]["annotations"]
        assert notes["hami.io/vgpu-node"] == NODE
        assert notes["hami.io/bind-phase"] == "allocating"
        assert int(notes["hami.io/bind-time"]) > 0
        handed.append(notes[hami.TO_ALLOCATE])
        served.append(owner)
        return True

    handed: list[str] = []
    for _ in range(2):
        await until(next_one, what="a pod with the lock")
        await member.merge_patch(NODES, NODE, {"metadata": {"annotations": {hami.LOCK: None}}})
    assert sorted(handed) == ["GPU-0,NVIDIA,14000,0:;", "GPU-1,NVIDIA,14000,0:;"]
    await site.phase("hami", "Running")
    whole = asking("whole", {"nvidia.com/gpu": "1"})
    whole["spec"]["tasks"][0]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    await site.submit(whole)
    # The node has vGPUs, and no whole card: the host asked the member before it sent the pod.
    await site.reason("whole", "ClustersAvoided")


async def test_the_command_line_says_who_keeps_pods_apart(site: Site, gpus: None) -> None:
    ran = await atollctl("devices", "shares", f"--kubeconfig={site.federation.members[MEMBER].kubeconfig}")
    [header, row] = ran.out.splitlines()
    assert header.split() == ["NODE", "OFFERS", "ISOLATION"]
    assert row.startswith(NODE)
    assert "koordlet" in row
