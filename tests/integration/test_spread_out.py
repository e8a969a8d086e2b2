"""Groups that are apart, pods that are balanced and slices of a pod group, on real API servers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atoll.kinds import nearness
from atoll.kinds.pod_group import GROUP, INDEX, TOTAL
from atoll.kube import errors
from atoll.model import keys
from atoll.model.apiresource import CAPACITIES, HYPER_NODES, JOBS
from atoll.model.gang import HOST
from tests.integration.federation import Json, Site, batch_job, job, until
from tests.integration.gangs import gpus

pytestmark = pytest.mark.integration

MEMBER = "alpha"


async def inside(site: Site, tier: str) -> dict[str, str]:
    """Member of the HyperNodes of a tier -> the name of its HyperNode."""
    found: dict[str, str] = {}
    for each in await site.members[MEMBER].list(HYPER_NODES):
        if each["spec"].get("tierName") == tier:
            members = [member["selector"]["exactMatch"]["name"] for member in each["spec"]["members"]]
            found |= dict.fromkeys(members, each["metadata"]["name"])
    return found


async def racks_of(site: Site, prefix: str, pods: int) -> dict[str, str]:
    """Host name or name of each pod -> its rack, once all have nodes."""
    racks = await inside(site, "rack")

    async def look() -> dict[str, str] | None:
        mine = [each for each in await site.pods(MEMBER) if each["metadata"]["name"].startswith(prefix)]
        if len(mine) != pods or not all(each["spec"].get("nodeName") for each in mine):
            return None
        return {
            each["spec"].get("hostname") or each["metadata"]["name"]: racks[each["spec"]["nodeName"]] for each in mine
        }

    return await until(look, what=f"{prefix} has nodes")


def slice_of(name: str, index: int) -> Json:
    notes = {TOTAL: "4", nearness.SLICE_LEVEL: "rack", nearness.SLICE_SIZE: "2"}
    resources = {"requests": {"cpu": "1", "nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {GROUP: "sliced", INDEX: str(index)}, "annotations": notes},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "busybox", "resources": resources}],
        },
    }


async def test_tasks_apart_pods_balanced_and_slices_of_a_pod_group(site: Site) -> None:
    """1. Two small tasks would share a rack; they are apart. 2. Six pods, of which a rack holds four, are three and
    three. 3. Racks hold four pods of three GPUs, blocks eight: of slices of three in slices of six each rack has one. 4. Pods
    of a group go by their indices to racks, two by two, whatever they are called.
    """
    await site.only(MEMBER)
    apart: dict[str, Any] = job("apart", seconds=None)
    apart["metadata"]["annotations"] = {keys.APART: "rack"}
    [task] = apart["spec"]["tasks"]
    apart["spec"]["tasks"] = [{**task, "name": "a"}, {**task, "name": "b"}]
    await site.submit(apart)
    found = await racks_of(site, "apart-", 2)
    assert len(set(found.values())) == 2, found
    site.kubectl("delete", "vcjob", "apart", "-n", site.namespace)

    even = gpus("even", 6, 4, seconds=None)
    even["metadata"]["annotations"] = {keys.BALANCED: "rack"}
    await site.submit(even)
    spread = list((await racks_of(site, "even-", 6)).values())
    assert sorted(spread.count(rack) for rack in set(spread)) == [3, 3], spread
    # What runs keeps the templates that it was dispatched with.
    changed = {"labels": {"changed": "yes"}, "annotations": {keys.BALANCED: "block"}}
    await site.host.merge_patch(JOBS, "even", {"metadata": changed}, site.namespace)

    async def labelled() -> Json | None:
        found = await site.find(JOBS, "even", MEMBER)
        return found if found and found["metadata"]["labels"].get("changed") == "yes" else None

    there = await until(labelled, what="the change is in the member")
    assert there["spec"]["tasks"][0]["template"]["metadata"]["annotations"][keys.BALANCED] == "rack"
    site.kubectl("delete", "vcjob", "even", "-n", site.namespace)

    nested = batch_job("nested", parallelism=12, seconds=None, completionMode="Indexed")
    template = nested["spec"]["template"]
    resources = {"requests": {"cpu": "1", "nvidia.com/gpu": "3"}, "limits": {"nvidia.com/gpu": "3"}}
    template["spec"]["containers"][0]["resources"] = resources
    wrong = [{"topology": "block", "size": 6}, {"topology": "rack", "size": 4}]
    template["metadata"]["annotations"] = {nearness.SLICE_LAYERS: json.dumps(wrong)}
    with pytest.raises(errors.Forbidden, match=r"\[1\]\.size: slices of 4 pods do not fill the slices of 6"):
        await site.submit(nested)
    layers = [wrong[0], {"topology": "rack", "size": 3}]
    template["metadata"]["annotations"] = {nearness.SLICE_LAYERS: json.dumps(layers)}
    await site.submit(nested)
    found = await racks_of(site, "nested-", 12)
    in_order = [found[f"nested-{index}"] for index in range(12)]
    assert [in_order[start : start + 3].count(in_order[start]) for start in (0, 3, 6, 9)] == [3] * 4, in_order
    blocks = await inside(site, "block")
    assert blocks[in_order[0]] == blocks[in_order[3]] != blocks[in_order[6]] == blocks[in_order[9]], in_order
    site.kubectl("delete", "job.batch", "nested", "-n", site.namespace)

    for name, index in (("p", 2), ("q", 0), ("r", 3), ("s", 1)):
        await site.submit(slice_of(name, index))
    of = await racks_of(site, "sliced-", 4)
    assert of["q"] == of["s"] != of["p"] == of["r"], of

    alone = job("alone", seconds=None)
    alone["metadata"] |= {"annotations": {keys.APART: "rack"}, "namespace": site.namespace}
    warning = site.warned("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(alone))
    assert "has one task, whose pods are in no groups" in warning


async def test_a_second_tree_and_single_nodes_are_levels_as_racks_are(site: Site) -> None:
    """1. Feeds join a node of each of two racks. Two pods of a whole node each ask for one feed: a rack would be nearer.
    2. Four pods of two GPUs ask for one node, by Kueue's level of hosts.
    """
    await site.only(MEMBER)
    member = site.members[MEMBER]
    racks = [
        [of["selector"]["exactMatch"]["name"] for of in each["spec"]["members"]]
        for each in sorted(await member.list(HYPER_NODES), key=lambda each: each["metadata"]["name"])
        if each["spec"].get("tierName") == "rack"
    ]
    feeds = [[racks[0][0], racks[1][0]], [racks[0][1], racks[1][1]]]
    about = {"apiVersion": HYPER_NODES.api_version, "kind": HYPER_NODES.kind}
    for number, names in enumerate(feeds):
        labels = {keys.TOPOLOGY_TREE: "power"}
        members = [{"type": "Node", "selector": {"exactMatch": {"name": name}}} for name in names]
        spec = {"tier": 1, "tierName": "feed", "members": members}
        await member.create(
            HYPER_NODES, {**about, "metadata": {"name": f"feed-{number}", "labels": labels}, "spec": spec}
        )
    try:

        async def known() -> bool:
            published = await site.host.list(CAPACITIES, f"karmada-es-{MEMBER}")
            return any(each["spec"].get("trees") for each in published)

        await until(known, what="the host knows the second tree")
        topology = {"mode": "hard", "highestTierName": "feed"}
        await site.submit(gpus("fed", 2, 8, seconds=None, networkTopology=topology))
        on = await nodes_of(site, "fed-", 2)
        assert set(on) in [set(feed) for feed in feeds], on
    finally:
        for number in range(len(feeds)):
            await member.delete(HYPER_NODES, f"feed-{number}")
    hosted = batch_job("hosted", parallelism=4, seconds=None)
    template = hosted["spec"]["template"]
    template["metadata"]["annotations"] = {nearness.REQUIRED: HOST}
    resources = {"requests": {"cpu": "1", "nvidia.com/gpu": "2"}, "limits": {"nvidia.com/gpu": "2"}}
    template["spec"]["containers"][0]["resources"] = resources
    await site.submit(hosted)
    assert len(set(await nodes_of(site, "hosted-", 4))) == 1


async def nodes_of(site: Site, prefix: str, pods: int) -> list[str]:
    async def look() -> list[str] | None:
        mine = [each for each in await site.pods(MEMBER) if each["metadata"]["name"].startswith(prefix)]
        found = [each["spec"].get("nodeName") for each in mine]
        return found if len(found) == pods and all(found) else None

    return await until(look, what=f"{prefix} has nodes")
