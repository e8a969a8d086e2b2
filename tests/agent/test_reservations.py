"""Nodes kept for parts of gangs: from the question to the pods, or back."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import msgspec
import pytest

from atoll.agent.cache import MemberCache
from atoll.agent.objects import Node, Pod, PodGroup, decode_group
from atoll.agent.scheduler.core import Answer, Event, MemberCore, Pass
from atoll.agent.scheduler.core.events import HoldAsked, NodeGone, NodeSet
from atoll.agent.scheduler.core.holds import Holds, decode_plan, describe, encode_plan
from atoll.agent.scheduler.core.planner import Plan, Wait, plan
from atoll.agent.scheduler.core.settings import MemberCoreSettings
from atoll.agent.scheduler.reservations import Reservations, hold_group
from atoll.delivery import reservations as interface
from atoll.delivery.reservations import Asked
from atoll.kube.config import Connection
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.gang import Gang
from tests.agent.builders import make_node, make_pod, make_room
from tests.agent.holding import GPU, assert_refused, assert_reserved, free, held, part, pods, racks, view

TTL = MemberCoreSettings().holds.ttl


def _plan_of(slots: str, *, requests: str = '{"cpu": 1}', terms: str = "[]") -> str:
    """A plan of binding `b` as anybody may have written it."""
    task = f'{{"name": "w", "replicas": 4, "minAvailable": 4, "requests": {requests}, "nodeTerms": {terms}}}'
    gang = f'{{"queue": "q", "minAvailable": 4, "tasks": [{task}]}}'
    return f'{{"uid": "b", "epoch": 1, "nodes": {{}}, "expires": "", "name": "n", "gang": {gang}, "slots": {slots}}}'


# -- asking ----------------------------------------------------------------------------------------------------------


def test_a_part_that_fits_takes_its_nodes_in_the_room() -> None:
    room = racks()
    holds = Holds(room)
    holds.hold("b", 1, part(4), "train", "default", 0.0)
    assert set(assert_reserved(holds, 4)) in ({"r0n0", "r0n1"}, {"r1n0", "r1n1"})
    assert sum(free(room).values()) == 16
    assert (held(holds).domain, held(holds).tier) in (("rack0", 1), ("rack1", 1))
    assert holds.changed == {"b"}


def test_a_part_that_does_not_fit_is_refused_with_the_nearest_miss_and_takes_nothing() -> None:
    room = racks()
    holds = Holds(room)
    holds.hold("b", 1, part(5, tier=1), "train", "default", 0.0)
    hold = assert_refused(holds, "domain rack0 holds 4 of the 5")
    assert (hold.requested, hold.available) == (5, 4)
    assert free(room) == dict.fromkeys(("r0n0", "r0n1", "r1n0", "r1n1"), 8)


def test_an_elastic_part_takes_what_there_is_above_its_floor() -> None:
    holds = Holds(racks(domains=False))
    holds.hold("b", 1, part(20, minimum=3), "train", "default", 0.0)
    assert_reserved(holds, 8)


def test_a_part_of_which_nothing_can_start_is_refused_though_it_has_no_minimum() -> None:
    holds = Holds(make_room())
    holds.hold("b", 1, part(2, minimum=0), "train", "default", 0.0)
    assert_refused(holds)


@pytest.mark.parametrize(
    "terms",
    [
        [{"matchExpressions": "x"}],
        [{"matchFields": [{"operator": "In", "values": 1}]}],
        [{"matchExpressions": [{"operator": "DoesNotExist"}]}],
    ],
)
def test_a_part_that_asks_for_nodes_in_the_wrong_form_is_refused_for_good(terms: list[dict[str, object]]) -> None:
    holds, gang = Holds(racks()), part(1)
    task = msgspec.structs.replace(gang.tasks[0], node_terms=terms)
    holds.hold("b", 1, msgspec.structs.replace(gang, tasks=[task]), "train", "default", 0.0)
    holds.retry()
    assert_refused(holds, "can't be read")


def test_asking_again_changes_nothing() -> None:
    room = racks()
    holds = Holds(room)
    holds.hold("b", 1, part(4), "train", "default", 0.0)
    holds.changed.clear()
    before = (free(room), assert_reserved(holds, 4), room.version)
    holds.hold("b", 1, part(4), "train", "default", 1.0)
    assert (free(room), assert_reserved(holds, 4), room.version) == before
    assert not holds.changed


def test_a_newer_epoch_replaces_an_older_one_which_is_ignored_from_then_on() -> None:
    room = racks()
    holds = Holds(room)
    holds.hold("b", 1, part(4), "train", "default", 0.0)
    holds.hold("b", 2, part(2), "train", "default", 0.0)
    assert_reserved(holds, 2)
    holds.hold("b", 1, part(4), "train", "default", 0.0)
    assert held(holds).epoch == 2
    assert sum(free(room).values()) == 24


def test_releasing_gives_everything_back_and_says_that_room_grew() -> None:
    room = racks()
    holds = Holds(room)
    before = free(room)
    holds.hold("b", 1, part(4), "train", "default", 0.0)
    room.grew = False
    holds.release("b")
    assert free(room) == before
    assert room.grew
    assert holds.get("b") is None


def test_a_hold_lasts_as_long_as_it_is_renewed() -> None:
    room = racks()
    holds = Holds(room)
    for now in (0.0, 50.0, 100.0):
        holds.expire(now)
        holds.hold("b", 1, part(4), "train", "default", now)
    holds.expire(100.0 + TTL - 1)
    assert_reserved(holds, 4)
    holds.expire(100.0 + TTL)
    assert holds.get("b") is None
    assert sum(free(room).values()) == 32


def test_renewals_are_told_seldom_and_never_later_than_they_are_true() -> None:
    holds = Holds(racks())
    told = set()
    for now in range(0, 300, 5):
        holds.expire(now)
        holds.hold("b", 1, part(4), "train", "default", now)
        hold = held(holds)
        assert now < hold.told <= hold.deadline
        told.add(hold.told)
    assert len(told) == 10


# -- the member changes ----------------------------------------------------------------------------------------------


def test_a_refused_part_gets_its_nodes_once_there_is_room() -> None:
    room = racks()
    running = make_pod("other", gpu=8, node="r0n0")
    room.pod_changed(None, running)
    holds = Holds(room)
    holds.hold("b", 1, part(8), "train", "default", 0.0)
    assert_refused(holds, "room for 6 of the 8")
    room.pod_changed(running, None)
    holds.changed.clear()
    holds.retry()
    assert_reserved(holds, 8)
    assert holds.changed == {"b"}


def test_the_refused_are_tried_again_by_priority_then_age() -> None:
    room = racks()
    running = [make_pod(f"p{i}", gpu=8, node=node) for i, node in enumerate(free(room))]
    for pod in running:
        room.pod_changed(None, pod)
    holds = Holds(room)
    replace = msgspec.structs.replace
    holds.hold("young", 1, replace(part(2), submitted="2026-01-02T00:00:00Z"), "c", "default", 0.0)
    holds.hold("old", 1, replace(part(2), submitted="2026-01-01T00:00:00Z"), "b", "default", 0.0)
    holds.hold("high", 1, replace(part(2), priority=5, submitted="2026-01-03T00:00:00Z"), "a", "default", 0.0)
    winners = []
    for pod in running[:3]:
        room.pod_changed(pod, None)
        holds.retry()
        winners += [u for u in ("young", "old", "high") if u not in winners and held(holds, u).slots]
    assert winners == ["high", "old", "young"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        pytest.param(lambda room, old: room.node_changed("n0", None), "gone", id="a node that is deleted"),
        pytest.param(
            lambda room, old: room.node_changed("n0", make_node("n0", ready=False)),
            "not ready",
            id="a node that fails",
        ),
        pytest.param(
            lambda room, old: room.node_changed(
                "n0", msgspec.structs.replace(old, spec=msgspec.structs.replace(old.spec, unschedulable=True))
            ),
            "no longer accepts",
            id="a node that is cordoned",
        ),
        pytest.param(
            lambda room, _: room.pod_changed(None, make_pod("x", gpu=1, node="n0")),
            "others took",
            id="a pod that somebody else binds",
        ),
    ],
)
def test_a_hold_ends_with(change: object, word: str) -> None:
    old = make_node("n0")
    room = make_room(old, make_node("n1"))
    holds = Holds(room)
    holds.hold("b", 1, part(4), "train", "default", 0.0)
    holds.changed.clear()
    holds.check()
    assert_reserved(holds, 4)
    change(room, old)  # type: ignore[operator]
    holds.check()
    hold = assert_refused(holds, "n0", word)
    assert (hold.requested, hold.available) == (4, 2)
    assert holds.changed == {"b"}
    assert room.amounts.free("n1")[GPU] == 8


def test_a_hold_ends_when_its_domain_falls_apart() -> None:
    room = racks()
    holds = Holds(room)
    holds.hold("b", 1, part(4, tier=1), "train", "default", 0.0)
    rack = held(holds).domain
    room.hyper_node_changed(rack, None)
    holds.check()
    assert_refused(holds, "no longer in one domain")


def test_the_younger_of_two_gives_way_on_a_node_that_is_overbooked() -> None:
    room = make_room(make_node("n0"))
    holds = Holds(room)
    holds.hold("old", 1, part(1), "a", "default", 0.0)
    holds.hold("young", 1, part(1), "b", "default", 0.0)
    room.pod_changed(None, make_pod("x", gpu=4, node="n0"))
    holds.check()
    assert_reserved(holds, 1, "old")
    assert_refused(holds, "others took", uid="young")


# -- the pods come ---------------------------------------------------------------------------------------------------


def test_the_pods_get_the_nodes_that_were_kept_for_them() -> None:
    room = racks()
    holds = Holds(room)
    holds.hold("b", 1, part(4), "train", "default", 0.0)
    kept, before = assert_reserved(holds, 4), free(room)
    room.grew = False
    [outcome] = plan(room, [view(room, 4, pods(4))], holds=holds)
    assert isinstance(outcome, Plan)
    assert Counter(node for _, node in outcome.nodes) == kept
    assert free(room) == before
    assert not room.grew
    assert holds.get("b") is None


def test_a_gang_of_higher_rank_does_not_get_them() -> None:
    room = racks()
    holds = Holds(room)
    holds.hold("b", 1, part(8), "train", "default", 0.0)
    first = view(room, 1, [make_pod("x-0", group="x", gpu=4, priority=9)], "x")
    outcomes = {o.gang.key: o for o in plan(room, [first, view(room, 8, pods(8))], holds=holds)}
    assert isinstance(outcomes["default/x"], Wait)
    assert isinstance(outcomes["default/b"], Plan)


def test_each_task_gets_its_own_nodes_and_neighbours_share_them() -> None:
    room = racks()
    holds = Holds(room)
    holds.hold("b", 1, part(4, ps=3), "train", "default", 0.0)
    slots = dict(held(holds).slots)
    [outcome] = plan(room, [view(room, 7, [*pods(3, task="ps", gpu=0), *pods(4)])], holds=holds)
    assert isinstance(outcome, Plan)
    numbers = {"w": 0, "ps": 1}
    assert Counter((numbers[pod.task], node) for pod, node in outcome.nodes) == slots
    workers = [node for pod, node in outcome.nodes if pod.task == "w"]
    assert workers == sorted(workers)


def test_nothing_is_handed_over_before_the_gang_can_start() -> None:
    room = racks()
    holds = Holds(room)
    holds.hold("b", 1, part(4), "train", "default", 0.0)
    [outcome] = plan(room, [view(room, 4, pods(3))], holds=holds)
    assert isinstance(outcome, Wait)
    assert_reserved(holds, 4)


def test_late_pods_of_an_elastic_part_find_their_nodes_still_kept() -> None:
    room = racks()
    holds = Holds(room)
    holds.hold("b", 1, part(4, minimum=3), "train", "default", 0.0)
    before, everyone = free(room), pods(4)
    [outcome] = plan(room, [view(room, 3, everyone[:3])], holds=holds)
    assert isinstance(outcome, Plan)
    assert_reserved(holds, 1)
    assert free(room) == before
    [outcome] = plan(room, [view(room, 3, everyone)], holds=holds)
    assert isinstance(outcome, Plan)
    assert free(room) == before
    assert holds.get("b") is None


def test_pods_beyond_what_was_kept_are_planned_like_any_others() -> None:
    room = make_room(make_node("n0"))
    holds = Holds(room)
    holds.hold("b", 1, part(4, minimum=2), "train", "default", 0.0)
    assert_reserved(holds, 2)
    room.node_changed("n1", make_node("n1"))
    everyone = pods(4)
    [first] = plan(room, [view(room, 2, everyone)], holds=holds)
    [second] = plan(room, [view(room, 2, everyone)], holds=holds)
    assert isinstance(first, Plan)
    assert isinstance(second, Plan)
    assert {node for _, node in first.nodes} == {"n0"}
    assert {node for _, node in second.nodes} == {"n1"}


@pytest.mark.parametrize(
    ("epoch", "gpu"),
    [
        pytest.param(2, 4, id="of a newer epoch"),
        pytest.param(1, 8, id="that ask for more than was kept"),
    ],
)
def test_the_room_is_given_back_to_pods(epoch: int, gpu: int) -> None:
    room = racks()
    holds = Holds(room)
    holds.hold("b", 1, part(4), "train", "default", 0.0)
    [outcome] = plan(room, [view(room, 4, pods(4, epoch=epoch, gpu=gpu))], holds=holds)
    assert isinstance(outcome, Plan)
    assert holds.get("b") is None
    assert sum(free(room).values()) == 32 - 4 * gpu
    assert min(free(room).values()) >= 0


def test_pods_of_an_older_epoch_get_nothing_that_is_kept() -> None:
    room = racks()
    holds = Holds(room)
    holds.hold("b", 2, part(8), "train", "default", 0.0)
    [outcome] = plan(room, [view(room, 1, pods(1, epoch=1))], holds=holds)
    assert isinstance(outcome, Wait)
    assert_reserved(holds, 8)


def test_what_was_refused_is_not_reserved_beside_its_own_pods() -> None:
    room = racks()
    holds = Holds(room)
    holds.hold("b", 1, part(5, tier=1), "train", "default", 0.0)
    list(plan(room, [view(room, 5, pods(5))], holds=holds))
    holds.retry()
    holds.hold("b", 1, part(5, tier=1), "train", "default", 0.0)
    assert holds.get("b") is None
    assert sum(free(room).values()) == 32 - 5 * 4


# -- restart ---------------------------------------------------------------------------------------------------------


def test_a_plan_survives_its_process() -> None:
    room = racks()
    holds = Holds(room)
    holds.hold("b", 3, part(4, ps=2), "train", "ns", 0.0)
    text = encode_plan(held(holds), "2026-01-01T00:00:00.000Z")
    after = racks()
    adopted = Holds(after)
    adopted.adopt(decode_plan(text), "ns", [], 1000.0)
    assert describe(held(adopted), "") == describe(held(holds), "")
    assert free(after) == free(room)
    assert held(adopted).deadline == 1000.0 + TTL
    version = after.version
    adopted.hold("b", 3, part(4, ps=2), "train", "ns", 1000.0)
    assert after.version == version


def test_an_adopted_plan_is_without_the_pods_that_were_bound() -> None:
    room = make_room(make_node("n0"))
    holds = Holds(room)
    holds.hold("b", 1, part(2), "train", "default", 0.0)
    stored = decode_plan(encode_plan(held(holds), ""))
    for bound, left in ((1, 0), (2, 0)):
        after = make_room(make_node("n0"), pods=[_bound(pod, "n0") for pod in pods(bound)])
        adopted = Holds(after)
        adopted.adopt(stored, "default", [("w", "n0")] * bound, 0.0)
        assert after.amounts.free("n0")[GPU] == left
        assert (adopted.get("b") is None) == (bound == 2)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"uid": 1}', id="no plan"),
        pytest.param(_plan_of('[[-3, "n0", 1]]'), id="a task before the first"),
        pytest.param(_plan_of('[[7, "n0", 1]]'), id="a task after the last"),
        pytest.param(_plan_of('[[0, "n0", -1]]'), id="fewer pods than none"),
        pytest.param(_plan_of('[[0, "n0", 1]]', requests='{"cpu": -1}'), id="a negative request"),
        pytest.param('{"more": ' + "[" * 100_000, id="nested without end"),
    ],
)
def test_a_plan_that_was_made_up_is_not_adopted(text: str) -> None:
    with pytest.raises(ValueError):
        decode_plan(text)


@pytest.mark.parametrize("terms", ['[{"matchExpressions": ["x"]}]', '[{"matchExpressions": [{"key": ["x"]}]}]'])
@pytest.mark.parametrize("amount", [1, 2**63])
def test_an_adopted_plan_of_the_wrong_form_is_refused_and_ends_nothing(terms: str, amount: int) -> None:
    room = make_room(make_node("n0"))
    adopted = Holds(room)
    text = _plan_of('[[0, "n0", 4]]', requests=f'{{"cpu": {amount}}}', terms=terms)
    adopted.adopt(decode_plan(text), "default", [], 0.0)
    room.arrays.nodes()
    adopted.check()
    adopted.retry()
    assert_refused(adopted, "can't be read")
    assert free(room) == {"n0": 8}


def test_an_adopted_plan_whose_nodes_are_gone_is_refused() -> None:
    holds = Holds(racks())
    holds.hold("b", 1, part(4), "train", "default", 0.0)
    adopted = Holds(make_room(make_node("other")))
    adopted.adopt(decode_plan(encode_plan(held(holds), "")), "default", [], 0.0)
    adopted.check()
    assert_refused(adopted, "gone")


def _bound(pod: Pod, node: str) -> Pod:
    return msgspec.structs.replace(pod, node=node)


def test_the_memory_of_a_hold_is_named_after_the_workload() -> None:
    holds = Holds(racks())
    holds.hold("b", 1, part(4), "train", "ns", 0.0)
    body = hold_group(held(holds), "2026-01-01T00:00:00.000Z")
    assert body["metadata"]["name"] == "train-hold"
    plan = decode_plan(body["metadata"]["annotations"]["atoll.sh/plan"])
    assert (plan.uid, plan.epoch, plan.nodes) == ("b", 1, held(holds).nodes)


# -- the shell -------------------------------------------------------------------------------------------------------


class Bench:
    """A shell over a core; nothing runs that would talk to a server."""

    def __init__(self, core: MemberCore) -> None:
        async def nobody() -> None:
            return None

        api = ApiServer(Connection("http://127.0.0.1:9", None, nobody))
        self.promised = 0
        self.changes: list[str] = []
        self.core = core
        self.cache = MemberCache(api)
        self.shell = Reservations(api, self.cache, core, promise=self._promise, handle=self.handle)
        self.delivery: interface.Reservations = self.shell
        self.delivery.on_change(self.changes.append)

    def handle(self, event: Event) -> None:
        for command in self.core.handle(event):
            if isinstance(command, Answer):
                self.shell.answered(command)

    def refresh(self) -> None:
        self.handle(Pass(asyncio.get_running_loop().time()))

    def _promise(self) -> int:
        self.promised += 1
        return self.promised + 6


def core_of(*nodes: Node) -> MemberCore:
    core = MemberCore()
    for node in nodes or [make_node(name) for name in ("n0", "n1", "n2", "n3")]:
        core.handle(NodeSet(node))
    return core


def kept(name: str = "train", *, epoch: int = 1, gang: Gang | None = None, node: str = "n0") -> PodGroup:
    """The memory of an earlier process, of binding `b`."""
    holds = Holds(make_room(make_node(node)))
    holds.hold("b", epoch, gang or part(2), name, "default", 0.0)
    return decode_group(json.dumps(hold_group(held(holds), "")))


ASKED = Asked("b", 1, part(2), "train", "default")


@pytest.mark.parametrize(
    ("group", "asked", "nodes"),
    [
        pytest.param(kept(), [ASKED], {"n0": 2}, id="what the host asks for counts"),
        pytest.param(kept(), [], {}, id="a binding that has no Work"),
        pytest.param(kept(epoch=9), [ASKED], {}, id="an epoch that no Work has"),
        pytest.param(kept(gang=part(1)), [ASKED], {}, id="another gang"),
        pytest.param(kept("other"), [ASKED], {}, id="another workload"),
    ],
)
async def test_what_an_earlier_process_kept_counts_where_the_host_asks_for_that_very_part(
    group: PodGroup, asked: list[Asked], nodes: dict[str, int]
) -> None:
    bench = Bench(core_of(make_node("n0")))
    bench.cache.pod_groups.put(group.metadata.key, group)
    bench.delivery.recall(asked)
    bench.shell.start()
    state = bench.delivery.state("b")
    assert (state["nodes"] if state is not None else {}) == nodes


async def test_a_plan_for_more_pods_than_its_gang_has_keeps_nothing() -> None:
    group = kept()
    plan = json.loads(group.metadata.annotations[keys.PLAN])
    plan["slots"] = [[0, "n0", 1], [0, "n1", 2]]
    group.metadata.annotations[keys.PLAN] = json.dumps(plan)
    bench = Bench(core_of())
    bench.cache.pod_groups.put(group.metadata.key, group)
    bench.delivery.recall([ASKED])
    bench.shell.start()
    assert bench.delivery.state("b") is None


async def test_a_question_from_before_the_start_is_answered_at_the_start() -> None:
    bench = Bench(core_of())
    bench.delivery.hold("b", 1, part(4), "train", "default")
    assert bench.delivery.state("b") is None
    bench.shell.start()
    state = bench.delivery.state("b")
    assert state is not None
    assert (state["state"], state["generation"], state["epoch"], state["message"]) == ("Reserved", 7, 1, "")
    assert sum(state["nodes"].values()) == 4
    assert bench.changes == ["b"]


async def test_answers_stay_equal_until_something_changes() -> None:
    bench = Bench(core_of())
    bench.shell.start()
    bench.delivery.hold("b", 1, part(4), "train", "default")
    state = bench.delivery.state("b")
    await asyncio.sleep(0)
    bench.delivery.hold("b", 1, part(4), "train", "default")
    bench.refresh()
    assert bench.delivery.state("b") == state
    assert bench.changes == ["b"]


async def test_a_lost_hold_is_said_to_be_refused_before_it_is_tried_again() -> None:
    bench = Bench(core_of(make_node("n0")))
    bench.shell.start()
    bench.delivery.hold("b", 1, part(2), "train", "default")
    bench.handle(NodeGone("n0"))
    bench.handle(NodeSet(make_node("n1")))
    bench.refresh()
    lost = bench.delivery.state("b")
    bench.refresh()
    found = bench.delivery.state("b")
    assert lost is not None
    assert found is not None
    assert (lost["state"], lost["generation"], lost["nodes"]) == ("Refused", 0, {})
    assert (found["state"], found["generation"], found["nodes"]) == ("Reserved", 8, {"n1": 2})
    assert bench.changes == ["b"] * 3


async def test_what_a_hold_leaves_when_it_ends_goes_to_one_that_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(core_of(make_node("n0")))
    bench.shell.start()
    bench.delivery.hold("b", 1, part(2), "train", "default")
    later = asyncio.get_running_loop().time() + TTL
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: later)
    bench.delivery.hold("c", 1, part(2), "other", "default")
    bench.refresh()
    state = bench.delivery.state("c")
    assert bench.delivery.state("b") is None
    assert state is not None
    assert state["state"] == "Reserved"


async def test_a_hold_that_is_not_renewed_ends_at_its_deadline() -> None:
    core = core_of()
    core.handle(HoldAsked("b", 1, part(4), "train", "default", 1000.0))
    core.handle(HoldAsked("b", 1, part(4), "train", "default", 1020.0))
    core.handle(Pass(1020.0))
    assert (core.deadline, core.due) == (1020.0 + TTL, False)
    assert core.handle(Pass(1020.0 + TTL)) == [Answer("b", -1, "Over")]
    assert core.deadline is None
