"""Where a pod can run for its claims, as kube-scheduler would say; pure."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest

from atoll.agent.objects import Pod, PodClaim, decode_pod
from atoll.agent.volumes import Reach, Storage, decode_claim, decode_class, decode_volume, narrowed
from atoll.model.selectors import node_affinity_matches
from tests.agent.builders import make_pod

Json = dict[str, Any]
DONE = {"pv.kubernetes.io/bind-completed": "yes"}
EAST = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["east"]}]}
WEST = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["west"]}]}
FIRST = {"provisioner": "example.com/disk", "volumeBindingMode": "WaitForFirstConsumer"}


def pod(*claims: PodClaim, **fields: Any) -> Pod:
    return msgspec.structs.replace(make_pod("p"), claims=claims or (PodClaim("data"),), **fields)


def reach(asks: Pod, claim: Json | None = None, volume: Json | None = None, storage_class: Json | None = None) -> Reach:
    """Where it can run with this claim `data` (or the ephemeral one), volume and class, and no others."""

    def of(decode: Any, found: Json | None) -> Any:
        return lambda _: None if found is None else decode(orjson.dumps(found))

    named = {"metadata": {"name": "data", "namespace": "default", **(claim or {}).pop("metadata", {})}, **(claim or {})}
    return Storage(
        of(decode_claim, None if claim is None else named), of(decode_volume, volume), of(decode_class, storage_class)
    ).reach(asks)


@pytest.mark.parametrize(
    ("claim", "volume", "storage_class", "words"),
    [
        pytest.param(None, None, None, 'persistentvolumeclaim "data" not found', id="none is there"),
        pytest.param({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, None, None, "is being deleted", id="it goes"),
        pytest.param({"spec": {"volumeName": "v"}, "status": {"phase": "Lost"}}, None, None, 'bound to non-existent persistentvolume "v"', id="its volume is lost"),
        pytest.param({"spec": {"volumeName": "v"}, "metadata": {"annotations": DONE}}, None, None, 'persistentvolume "v" of', id="its volume is not there"),
        pytest.param({}, None, None, "unbound immediate", id="of no class"),
        pytest.param({"spec": {"storageClassName": "c"}}, None, None, 'storageclass "c" not found', id="of a class that is not there"),
        pytest.param({"spec": {"storageClassName": "c"}}, None, {"provisioner": "x"}, "unbound immediate", id="its class binds at once, and has not"),
        pytest.param({"spec": {"storageClassName": "c", "volumeName": "v"}}, {}, FIRST, "unbound immediate", id="it is being bound"),
        pytest.param({"spec": {"storageClassName": "c"}}, None, {**FIRST, "provisioner": "kubernetes.io/no-provisioner"}, "makes no volumes", id="its class makes none"),
    ],
)  # fmt: skip
def test_a_pod_waits_when(claim: Json | None, volume: Json | None, storage_class: Json | None, words: str) -> None:
    assert words in reach(pod(), claim, volume, storage_class).problem


def test_a_bound_volume_says_which_nodes_reach_it() -> None:
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": [EAST, WEST]}}}
    bound = {"spec": {"volumeName": "v"}, "metadata": {"annotations": DONE}}
    assert reach(pod(), dict(bound), {"spec": spec}) == Reach("", [[EAST, WEST]])
    labels = {"topology.kubernetes.io/zone": "a__b"}
    among = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]}
    [[in_zones, nowhere]] = reach(pod(), dict(bound), {"metadata": {"labels": labels}}).terms
    assert in_zones == {"matchExpressions": [among]}
    for there, met in (
        ({}, True),
        ({"topology.kubernetes.io/zone": "c"}, False),
        ({"topology.kubernetes.io/region": "r"}, False),
    ):
        assert node_affinity_matches([nowhere], there, "n") is met
    assert reach(pod(), dict(bound), {}) == Reach()


def test_a_claim_that_waits_for_its_first_pod_allows_the_nodes_of_its_class() -> None:
    allowed = [{"matchLabelExpressions": [{"key": "zone", "values": ["east"]}]}]
    claim = {"spec": {"storageClassName": "c"}}
    found = reach(pod(), dict(claim), None, {**FIRST, "allowedTopologies": allowed})
    assert found == Reach("", [[EAST]], ("default/data",))
    # Another scheduler that binds the pod makes its volume, too.
    assert reach(pod(held=True), dict(claim), None, FIRST) == Reach()


def test_an_ephemeral_claim_is_the_pods_own() -> None:
    asks = pod(PodClaim("p-scratch", ephemeral=True))
    assert "ephemeral volume controller" in reach(asks).problem
    assert "not made for the pod" in reach(asks, {"metadata": {"name": "p-scratch"}}).problem
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    meta = {"name": "p-scratch", "ownerReferences": [owner]}
    assert "unbound" in reach(asks, {"metadata": meta}).problem


def test_a_pod_says_which_claims_it_mounts() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "b", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "c", "emptyDir": {}},
    ]
    raw = {"metadata": {"name": "p", "namespace": "d"}, "spec": {"volumes": volumes}}
    assert decode_pod(orjson.dumps(raw)).claims == (PodClaim("data"), PodClaim("p-b", ephemeral=True))


def test_alternatives_are_met_together() -> None:
    fast = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    own = pod(node_terms=[fast])
    found = narrowed(own, [[EAST, WEST]])
    assert found is not None
    assert found.node_terms == [{**EAST, **fast}, {**WEST, **fast}]
    assert found.own_terms == [fast]
    assert narrowed(own, []) is own
    # A term without requirements matches nothing.
    none = narrowed(own, [[{}]])
    assert none is not None
    assert none.node_terms == [{}]
    assert narrowed(own, [[EAST, WEST]] * 7) is None
