"""Devices of ResourceClaims: a gang gets all of its claims' devices with its nodes, or waits with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import orjson

from atoll.agent.objects import Pod, decode_pod
from atoll.agent.scheduler.core import Bind, Deallocate, MemberCore, Pass, Reserve
from atoll.agent.scheduler.core.events import (
    Again,
    HoldAsked,
    NotBound,
    PodGone,
    PodSet,
    Released,
    ResourceClaimGone,
    TaintRuleGone,
    Whose,
)
from atoll.agent.scheduler.notices import refusals
from atoll.model.device_claims import class_resource
from atoll.model.gang import Gang, Task
from tests.agent.builders import make_node, make_pod
from tests.agent.claiming import (
    GPU,
    PAIR,
    allocation,
    claim,
    named,
    publish,
    reserved,
    taint,
    two_nodes,
    with_classes,
)
from tests.agent.telling import core_of, gang, of, settle

Json = dict[str, Any]


def using(name: str, claim: str, **more: Any) -> Pod:
    return make_pod(name, spec={"resourceClaims": [{"name": "devices", "resourceClaimName": claim}]}, **more)


def pairs(core: MemberCore, count: int, prefix: str = "p") -> list[Pod]:
    """Pods with a claim each for a GPU and a NIC of one root."""
    found = []
    for number in range(count):
        claim(core, f"c-{prefix}{number}", PAIR)
        found.append(using(f"{prefix}{number}", f"c-{prefix}{number}", group="g", index=number))
    return found


def got(reserves: tuple[Reserve, ...]) -> list[tuple[str, str]]:
    """(pool, device) of all results."""
    return [
        (each["pool"], each["device"])
        for reserve in reserves
        for each in (reserve.allocation or {})["devices"]["results"]
    ]


def test_a_gang_gets_a_gpu_and_a_nic_of_one_root_for_each_pod() -> None:
    """Four pods on two nodes of two pairs each: each device once, and every pair of one root."""
    core = two_nodes()
    gang(core, "g", *pairs(core, 4))
    [bind] = of(Bind, settle(core))
    assert sorted(node for _, _, node in bind.pods) == ["a", "a", "b", "b"]
    devices = got(bind.reserves)
    assert len(set(devices)) == len(devices) == 8
    nodes = {key: node for key, _, node in bind.pods}
    for each in bind.reserves:
        assert each.allocation is not None
        assert each.allocation["nodeSelector"] == named(nodes[each.pod])
        pools = {result["pool"] for result in each.allocation["devices"]["results"]}
        assert pools == {nodes[each.pod]}


def test_a_gang_that_devices_are_too_few_for_waits_whole_with_the_reason() -> None:
    """Five pods, four pairs; the reason names devices, and the pod's condition is kube-scheduler's."""
    core = two_nodes()
    gang(core, "g", *pairs(core, 5))
    assert of(Bind, settle(core)) == []
    wait = core.waits["default/g"]
    assert wait.reason == "NotEnoughResources"
    claim(core, "c-tpu", {"requests": [{"name": "tpu", "exactly": {"deviceClassName": "tpu"}}]})
    core.handle(PodSet(using("alone", "c-tpu"), Whose.OURS))
    settle(core)
    wait = core.waits["pod/default/alone"]
    assert "devices: on 2 of 2 nodes: claim devices, request tpu: no device class tpu" in wait.message
    [pod] = wait.gang.waiting
    assert refusals(core.room, pod) == "0/2 nodes are available: 2 cannot allocate all claims."


def test_devices_that_another_claim_got_meanwhile_are_not_given_again() -> None:
    """kube-scheduler allocates on node a; the gang of two goes to node b, and starts at once where the claim ends."""
    core = two_nodes()
    claim(core, "theirs", GPU, allocation=allocation("a", "gpu-0", "gpu-2"), reservedFor=reserved("other"))
    gang(core, "g", *pairs(core, 3))
    assert of(Bind, settle(core)) == []
    core.handle(ResourceClaimGone("default/theirs"))
    [bind] = of(Bind, settle(core))
    assert len(bind.pods) == 3


def test_devices_of_a_failed_try_are_taken_back_and_given_again() -> None:
    """1. The pod's claim gets its allocation, the pod is refused. 2. The claim is cleared first. 3. The pod is bound."""
    core = with_classes(core_of())
    publish(core, "n", ("gpu", "0"))
    claim(core, "c", GPU)
    pod = using("p", "c")
    core.handle(PodSet(pod, Whose.OURS))
    [bind] = of(Bind, settle(core))
    [reserve] = bind.reserves
    claim(core, "c", GPU, allocation=reserve.allocation, reservedFor=reserved("p"))
    core.handle(NotBound((("default/p", "uid-p"),)))
    core.handle(Again("pod/default/p"))
    commands = settle(core)
    assert of(Bind, commands) == []
    assert [(each.claim, each.version) for each in of(Deallocate, commands)] == [("default/c", "1")]
    assert "an earlier try" in core.waits["pod/default/p"].message
    claim(core, "c", GPU)
    assert len(of(Bind, settle(core))) == 1


def test_a_promise_ends_where_the_pod_is_not_bound() -> None:
    """The only GPU is promised to a pod, which is given up and goes: the next one gets it."""
    core = with_classes(core_of())
    publish(core, "n", ("gpu", "0"))
    for name in ("p", "q"):
        claim(core, f"c-{name}", GPU)
        core.handle(PodSet(using(name, f"c-{name}"), Whose.OURS))
    [first] = of(Bind, settle(core))
    assert first.gang == "pod/default/p"
    core.handle(NotBound((("default/p", "uid-p"),)))
    core.handle(PodGone("default/p"))
    [second] = of(Bind, settle(core))
    assert second.gang == "pod/default/q"


def test_pods_of_an_allocated_claim_go_where_its_devices_are() -> None:
    """Another pod's claim, on node b: the pod joins it there, and no new allocation is written."""
    core = two_nodes()
    claim(core, "c", GPU, allocation=allocation("b", "gpu-0"), reservedFor=reserved("other"))
    core.handle(PodSet(using("p", "c"), Whose.OURS))
    [bind] = of(Bind, settle(core))
    assert [node for _, _, node in bind.pods] == ["b"]
    assert [each.allocation for each in bind.reserves] == [None]


def test_what_a_pod_waits_for_is_its_claim() -> None:
    """Not made yet, not there: each with its sentence."""
    core = two_nodes()
    templated = {"resourceClaims": [{"name": "devices", "resourceClaimTemplateName": "t"}]}
    core.handle(PodSet(make_pod("made", spec=templated), Whose.OURS))
    core.handle(PodSet(using("lost", "nowhere"), Whose.OURS))
    assert of(Bind, settle(core)) == []
    said = {key: (wait.reason, wait.message) for key, wait in core.waits.items()}
    assert {reason for reason, _ in said.values()} == {"DevicesNotReady"}
    assert 'waiting for the resource claim controller to create the claim "devices"' in said["pod/default/made"][1]
    assert 'resourceclaim "nowhere" not found' in said["pod/default/lost"][1]


def sharing(core: MemberCore, claims: Sequence[str], cpu: str = "1") -> None:
    """A gang with a pod for each of these claims."""
    pods = [using(f"s{number}", each, group="g", index=number, cpu=cpu) for number, each in enumerate(claims)]
    gang(core, "g", *pods)


def test_pods_that_share_a_claim_without_devices_start_on_one_node() -> None:
    """Only node c has GPUs: all pods go there, with one allocation for all, and the GPU is in use until the last of
    them has gone.
    """
    core = with_classes(core_of(make_node("a"), make_node("b"), make_node("c")))
    publish(core, "a", ("nic", "0"))
    publish(core, "c", ("gpu", "0"), ("gpu", "1"))
    claim(core, "c", GPU)
    sharing(core, ["c", "c", "c"])
    [bind] = of(Bind, settle(core))
    assert [node for _, _, node in bind.pods] == ["c"] * 3
    [written] = {repr(each.allocation) for each in bind.reserves}
    assert got(bind.reserves[:1]) == [("c", "gpu-0")]
    assert "None" not in written
    claim(core, "d", GPU)
    core.handle(PodSet(using("p", "d"), Whose.OURS))
    [other] = of(Bind, settle(core))
    assert got(other.reserves) == [("c", "gpu-1")]
    claim(core, "e", GPU)
    core.handle(PodSet(using("q", "e"), Whose.OURS))
    for number in range(3):
        assert of(Bind, settle(core)) == []
        core.handle(PodGone(f"default/s{number}"))
    [last] = of(Bind, settle(core))
    assert got(last.reserves) == [("c", "gpu-0")]


def test_pods_that_share_a_claim_wait_where_no_node_holds_all_of_them() -> None:
    core = two_nodes()
    claim(core, "c", GPU)
    sharing(core, ["c", "c"], cpu="5")
    assert of(Bind, settle(core)) == []
    assert "2 pods share default/c" in core.waits["default/g"].message
    assert "no node with such devices has capacity for all of them" in core.waits["default/g"].message


def test_devices_that_all_nodes_reach_are_given_once() -> None:
    """One GPU in the network: of two pods one is bound, the other waits."""
    core = with_classes(core_of(make_node("a"), make_node("b")))
    publish(core, "net", ("gpu", "0"), everywhere=True)
    for name in ("p", "q"):
        claim(core, f"c-{name}", GPU)
    gang(core, "g", using("p", "c-p", group="g"), using("q", "c-q", group="g", index=1))
    assert of(Bind, settle(core)) == []
    assert "devices for pod q" in core.waits["default/g"].message


def test_a_pod_of_higher_priority_evicts_for_devices() -> None:
    """The GPU is held by a pod of lower priority."""
    core = with_classes(core_of())
    publish(core, "n", ("gpu", "0"))
    claim(core, "c-low", GPU, allocation=allocation("n", "gpu-0"), reservedFor=reserved("low"))
    core.handle(PodSet(using("low", "c-low", node="n", phase="Running"), Whose.OURS))
    claim(core, "c-high", GPU)
    core.handle(PodSet(using("high", "c-high", priority=10), Whose.OURS))
    settle(core)
    assert "1 of 1 victims have not ended yet" in core.waits["pod/default/high"].message


def test_a_part_keeps_its_devices_until_its_pods_are_there() -> None:
    """1. The host asks for three pairs: they are kept, and figures say so. 2. A fourth pod gets the last pair, a fifth
    none. 3. The part is released: the fifth gets one.
    """
    core = two_nodes()
    gpus = class_resource("gpu")
    free = [core.room.amounts.free(node)[gpus] for node in "ab"]
    assert free == [2, 2]
    task = Task(
        "w",
        3,
        3,
        {"cpu": 1000, "pods": 1, gpus: 1, class_resource("nic"): 1},
        claims=[{"name": "t", "spec": {"devices": PAIR}}],
    )
    core.handle(HoldAsked("b", 1, Gang("q", [task], 3), "w", "default", 0.0))
    settle(core)
    hold = core.holds.get("b")
    assert hold is not None
    assert hold.answer().state == "Reserved"
    assert sum(core.room.amounts.free(node)[gpus] for node in "ab") == 1
    for name in ("p", "q"):
        claim(core, f"c-{name}", PAIR)
        core.handle(PodSet(using(name, f"c-{name}"), Whose.OURS))
    assert [each.gang for each in of(Bind, settle(core))] == ["pod/default/p"]
    assert sum(core.room.amounts.free(node)[gpus] for node in "ab") == 0
    core.handle(Released("b"))
    assert [each.gang for each in of(Bind, settle(core))] == ["pod/default/q"]
    assert sum(core.room.amounts.free(node)[gpus] for node in "ab") == 2


def test_a_part_that_devices_are_too_few_for_is_refused() -> None:
    """Four pairs by number, but the free NICs are under other roots than the free GPUs: the member's figures don't tell,
    its answer does.
    """
    core = with_classes(core_of(make_node("a")))
    publish(core, "a", ("gpu", "0"), ("gpu", "0"), ("nic", "1"), ("nic", "1"))
    task = Task("w", 2, 2, {"cpu": 1000, "pods": 1}, claims=[{"name": "t", "spec": {"devices": PAIR}}])
    core.handle(HoldAsked("b", 1, Gang("q", [task], 2), "w", "default", 0.0))
    settle(core)
    hold = core.holds.get("b")
    assert hold is not None
    assert hold.answer().state == "Refused"


DEAR = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(a, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(b, a * b > 0))"


def test_dear_selectors_take_a_part_of_a_pass_and_slow_nobody_else() -> None:
    """1. The claims of five tenants have selectors of 500 units, over 20 nodes of 16 devices. 2. No pass takes more than
    its effort and one evaluation. 3. A pod without claims starts within three passes, and all others in the end.
    """
    names = [f"n{number}" for number in range(20)]
    core = with_classes(core_of(*(make_node(name) for name in names)))
    for name in names:
        publish(core, name, *[("gpu", f"{name}-{number}") for number in range(16)])
    for number in range(5):
        selector = {"cel": {"expression": f"{DEAR} && {number} == {number}"}}
        exactly = {"deviceClassName": "gpu", "selectors": [selector]}
        claim(core, f"c{number}", {"requests": [{"name": "gpu", "exactly": exactly}]})
        core.handle(PodSet(using(f"p{number}", f"c{number}", priority=1), Whose.OURS))
    core.handle(PodSet(make_pod("plain"), Whose.OURS))
    book, bound, passes = core.room.devices, list[str](), 0
    while core.due:
        before = book.spent
        bound += [each.gang for each in of(Bind, core.handle(Pass(0.0)))]
        assert book.spent - before < 100_000 + 16 * 10_000
        passes += 1
        assert passes < 3 or "pod/default/plain" in bound
    assert len(bound) == 6
    assert passes > 5


def test_a_selector_that_costs_too_much_selects_nothing_and_says_so() -> None:
    """Kubernetes' limit is a hundred times as high: here it would hold up everybody."""
    core = with_classes(core_of())
    publish(core, "n", ("gpu", "0"))
    expression = f"{DEAR} && " + " && ".join([DEAR] * 30)
    exactly = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}]}
    claim(core, "c", {"requests": [{"name": "gpu", "exactly": exactly}]})
    core.handle(PodSet(using("p", "c"), Whose.OURS))
    assert of(Bind, settle(core)) == []
    assert "cost" in core.waits["pod/default/p"].message


def test_a_rule_keeps_devices_from_claims_until_it_goes() -> None:
    """Of two GPUs of each node one is tainted on b and both on a: the host counts one, and the third pod waits."""
    core = two_nodes()
    taint(core, "all-of-a", pool="a")
    taint(core, "one-of-b", pool="b", device="gpu-0")
    assert [core.room.devices.offered(node).get(class_resource("gpu"), 0) for node in "ab"] == [0, 1]
    claims = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}
    for name in ("one", "two"):
        claim(core, f"c-{name}", claims)
        core.handle(PodSet(using(name, f"c-{name}"), Whose.OURS))
    [bind] = of(Bind, settle(core))
    assert got(bind.reserves) == [("b", "gpu-2")]
    core.handle(TaintRuleGone("all-of-a"))
    [bind] = of(Bind, settle(core))
    assert got(bind.reserves) == [("a", "gpu-0")]
    tolerating = {"deviceClassName": "gpu", "tolerations": [{"key": "broken", "operator": "Exists"}]}
    claim(core, "c-three", {"requests": [{"name": "gpu", "exactly": {**tolerating, "count": 2}}]})
    core.handle(PodSet(using("three", "c-three"), Whose.OURS))
    assert of(Bind, settle(core)) == [], "a has one GPU left, and b one"
    claim(core, "c-four", {"requests": [{"name": "gpu", "exactly": tolerating}]})
    core.handle(PodSet(using("four", "c-four"), Whose.OURS))
    assert len(of(Bind, settle(core))) == 1


ALL = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]}
CHARGE = class_resource("gpu")


def as_charged(pod: Pod, reference: str, count: int) -> Pod:
    claims = tuple(each._replace(charged={CHARGE: count}) for each in pod.resource_claims)
    return msgspec.structs.replace(pod, resource_claims=claims)


def charged(name: str, claim: str, count: int, **more: Any) -> Pod:
    """A pod that the host sent, charged for a claim by name."""
    return as_charged(using(name, claim, **more), f"claims/{claim}", count)


def test_all_devices_of_a_node_are_given_where_they_are_as_many_as_the_claim_states() -> None:
    """Node a has one GPU more than stated: nothing is given there, and the pod that two are stated for goes to b."""
    core = with_classes(core_of(make_node("a"), make_node("b")))
    publish(core, "a", ("gpu", "0"), ("gpu", "0"), ("gpu", "1"))
    publish(core, "b", ("gpu", "0"), ("gpu", "1"))
    for name in ("first", "second"):
        claim(core, name, ALL, stated="2")
        core.handle(PodSet(charged(name, name, 2), Whose.OURS))
    [bind] = of(Bind, settle(core))
    assert got(bind.reserves) == [("b", "gpu-0"), ("b", "gpu-1")]
    reason = "claim devices, request gpu: 3 devices match, and the claim states 2"
    assert f"on 1 of 2 nodes: {reason}" in core.waits["pod/default/second"].message


def test_a_claim_for_more_devices_than_the_queue_is_charged_gets_none() -> None:
    """A claim was made anew, states more, or states nothing; one within its charge starts."""
    core = two_nodes()
    two = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 2}}]}
    claim(core, "anew", two)
    claim(core, "more", ALL, stated="2")
    claim(core, "silent", ALL)
    claim(core, "wrong", ALL, stated="two")
    claim(core, "less", GPU)
    claim(core, "given", two, allocation=allocation("a", "gpu-0", "gpu-2"), reservedFor=reserved("other"))
    for name in ("anew", "more", "silent", "wrong", "given"):
        core.handle(PodSet(charged(name, name, 1), Whose.OURS))
    core.handle(PodSet(charged("less", "less", 2), Whose.OURS))
    [bind] = of(Bind, settle(core))
    assert bind.gang == "pod/default/less"
    messages = {key: wait.message for key, wait in core.waits.items()}
    for name in ("anew", "more", "given"):
        text = f'resourceclaim "{name}" asks for 2 gpu, and the queue is charged 1'
        assert text in messages[f"pod/default/{name}"]
    assert "atoll.sh/all-devices" in messages["pod/default/silent"]
    assert "number from 1 to 32" in messages["pod/default/wrong"]


def test_charges_are_read_by_the_names_of_claims_and_templates() -> None:
    """The host writes them; what can't be read counts for none."""
    refer = [{"name": "a", "resourceClaimName": "c"}, {"name": "b", "resourceClaimTemplateName": "c"}, {"name": "d"}]
    charges = {"claims/c": {CHARGE: 1}, "templates/c": {CHARGE: 2}}

    def read(text: str) -> list[object]:
        meta = {"name": "p", "namespace": "default", "annotations": {"atoll.sh/charged-claims": text}}
        pod = decode_pod(orjson.dumps({"metadata": meta, "spec": {"resourceClaims": refer, "containers": []}}))
        return [each.charged for each in pod.resource_claims]

    assert read(orjson.dumps(charges).decode()) == [{CHARGE: 1}, {CHARGE: 2}, None]
    assert read("{") == [None, None, None]
