"""Workloads that start together or not at all, each a gang by itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.dispatcher.core import Commit, Evict, MemberAnswer
from atoll.model.decision import Phase
from atoll.model.together import BadTogether, Together, parse, read, write
from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    BACKFILL,
    GPU,
    NEVER,
    BindingBuilder,
    Scene,
    dispatched,
    evicted,
    explained,
    let_go,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
    scene,
)
from tests.dispatcher.explain.questions import account

YES, NO = MemberAnswer(True, generation=NEVER), MemberAnswer(False, 4, 2)


def of_group(
    name: str, pods: int = 4, *, least: int = 2, weight: int = 1, domains: int = 0, **fields: Any
) -> BindingBuilder:
    return make_binding(name).tasks(pods).gang(together=Together("s", least, weight, domains), **fields)


def reserved(s: Scene, *names: str) -> None:
    """Their members have reserved them."""
    for name in names:
        s.change(name, reserved={member: YES for member, _ in s.view(name).parts})


def committed(commands: list[Any]) -> list[str]:
    return [each.name for each in commands if isinstance(each, Commit)]


def started(s: Scene, *names: str) -> None:
    """They run."""
    reserved(s, *names)
    assert committed(s.run()) == list(names)
    for name in names:
        s.bound(name, generation=NEVER)
    s.run()


def test_all_are_dispatched_in_one_pass_and_start_once_all_are_reserved() -> None:
    s = scene()
    s.submit(of_group("a"), of_group("b"))
    assert dispatched(s.run()) == [("a", "m"), ("b", "m")]
    assert s.view("a").decision.phase is s.view("b").decision.phase is Phase.RESERVING
    reserved(s, "a")
    assert not s.run()
    reserved(s, "b")
    assert committed(s.run()) == ["a", "b"]


def test_none_is_dispatched_where_one_does_not_fit() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [7])))
    s.submit(of_group("a"), of_group("b"), make_binding("single").tasks(3))
    told = s.run()
    assert names(told) == ["single"]
    assert s.verdict("a") is s.verdict("b") is Reason.GANG_GROUP_INCOMPLETE
    said = explained(told)["a"].decision.blocker
    assert said is not None
    assert said.name == "b"
    assert s.used("q") == 3
    s.tell(make_capacity("m", [8], generation=2))
    assert names(s.run()) == []
    s.gone("single")
    s.tell(make_capacity("m", [8], generation=3))
    assert names(s.run()) == ["a", "b"]


def test_one_that_comes_before_the_others_waits_for_them() -> None:
    s = scene()
    s.submit(of_group("a", 1, least=3))
    assert not names(s.run())
    s.submit(of_group("b", 1, least=3))
    assert not names(s.run())
    assert s.verdict("a") is Reason.GANG_GROUP_INCOMPLETE
    s.submit(of_group("c", 1, least=3))
    assert names(s.run()) == ["a", "b", "c"]


def test_their_quota_is_of_all_of_them() -> None:
    s = Scene(make_queue("q", gpu=7), make_cluster("m"), make_capacity("m", [16]))
    s.submit(of_group("a"), of_group("b"))
    assert not names(s.run())
    assert not s.run()
    s.tell(make_queue("q", gpu=8))
    assert names(s.run()) == ["a", "b"]


def test_they_may_be_of_several_queues_and_shapes_and_in_several_members() -> None:
    s = Scene(
        make_queue("q", gpu=4), make_queue("r", gpu=3), make_cluster("m1"), make_cluster("m2"),
        make_capacity("m1", [4]), make_capacity("m2", [2, 2]),
    )  # fmt: skip
    s.submit(of_group("a"), of_group("b").queue("r"), make_binding("x").queue("r"))
    assert names(s.run()) == ["x"]
    s.gone("x")
    s.tell(make_queue("r", gpu=4))
    assert dict(dispatched(s.run())) == {"a": "m1", "b": "m2"}


def test_more_than_must_start_together_start_as_they_fit() -> None:
    s = scene()
    s.submit(*(of_group(name) for name in "abc"))
    assert names(s.run()) == ["a", "b"]
    assert s.verdict("c") is Reason.INSUFFICIENT_RESOURCES
    started(s, "a", "b")
    s.tell(make_capacity("m", [12], generation=2))
    assert names(s.run()) == ["c"]
    assert s.view("c").decision.phase is Phase.DISPATCHED


def test_a_later_one_does_not_start_before_the_others_are_reserved() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [12])))
    s.submit(of_group("a"), of_group("b"))
    s.run()
    s.submit(of_group("c"))
    assert names(s.run()) == ["c"]
    assert s.view("c").decision.phase is Phase.RESERVING
    reserved(s, "c")
    assert not s.run()
    reserved(s, "a")
    assert committed(s.run()) == ["a", "c"]
    reserved(s, "b")
    assert committed(s.run()) == ["b"]


def test_one_that_is_divided_counts_once_all_of_its_parts_are_reserved() -> None:
    s = Scene(make_queue("q"), *(make_cluster(m) for m in ("m1", "m2")), *(make_capacity(m, [4]) for m in ("m1", "m2")))
    s.submit(of_group("a", 6).divided(), of_group("b", 2))
    assert names(s.run()) == ["a", "b"]
    first, second = [member for member, _ in s.view("a").parts]
    s.change("a", reserved={first: YES})
    reserved(s, "b")
    assert not s.run()
    s.change("a", reserved={first: YES, second: YES})
    assert committed(s.run()) == ["a", "b"]


def test_one_counts_for_as_much_as_it_weighs() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [4])))
    s.submit(of_group("a", least=3), of_group("b", least=3, weight=3))
    assert names(s.run()) == []
    s.tell(make_capacity("m", [8], generation=2))
    assert names(s.run()) == ["a", "b"]


@pytest.mark.parametrize("silent", [False, True])
def test_where_one_is_not_reserved_the_others_are_released(silent: bool) -> None:
    s = scene()
    s.submit(of_group("a"), of_group("b"))
    s.run()
    reserved(s, "a")
    if silent:
        assert set(evicted(s.run(after=60.0))) == {"a", "b"}
    else:
        s.change("b", reserved={"m": NO})
        assert evicted(s.run()) == ["b", "a"]
    assert s.view("a").decision.reason is Reason.GANG_GROUP_INCOMPLETE
    let_go(s, "a", "b")
    s.run()
    assert s.used("q") == 0


def test_where_one_is_evicted_the_others_go_and_start_again_with_it() -> None:
    s = Scene(make_queue("q"), *(each for n in "12" for each in (make_cluster(f"m{n}"), make_capacity(f"m{n}", [4]))))
    s.submit(of_group("a"), of_group("b"))
    s.run()
    started(s, "a", "b")
    s.change("b", gang=of_group("b", hold=True).build().gang)
    assert evicted(s.run()) == ["b", "a"]
    let_go(s, "b", "a")
    assert not names(s.run())
    s.change("b", gang=of_group("b").build().gang)
    s.tell(make_capacity("m1", [4], generation=NEVER + 1), make_capacity("m2", [4], generation=NEVER + 1))
    assert names(s.run()) == ["a", "b"]


def test_where_enough_are_left_they_go_on() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [12])))
    s.submit(*(of_group(name) for name in "abc"))
    s.run()
    started(s, "a", "b", "c")
    s.change("c", gang=of_group("c", hold=True).build().gang)
    assert evicted(s.run()) == ["c"]
    assert not s.run()


def test_what_has_ended_counts_also_once_it_is_deleted() -> None:
    s = scene()
    s.submit(of_group("a"), of_group("b"))
    s.run()
    started(s, "a", "b")
    s.change("a", finished=True)
    assert not evicted(s.run())
    s.gone("a")
    assert not evicted(s.run())
    assert s.used("q") == 4


def test_a_decision_that_was_not_written_takes_the_others_back() -> None:
    s = scene()
    s.submit(of_group("a"), of_group("b"))
    a, b = s.decide()
    s.write(a)
    s.refuse(b)
    assert evicted(s.run()) == ["a"]


def test_another_leader_goes_on() -> None:
    s = scene()
    s.submit(of_group("a"), of_group("b"))
    s.run()
    s.restart()
    reserved(s, "a", "b")
    assert committed(s.run()) == ["a", "b"]
    s.restart()
    assert not s.run()


def test_another_leader_releases_what_was_written_alone() -> None:
    s = scene()
    s.submit(of_group("a"), of_group("b"))
    a, _ = s.decide()
    s.write(a)
    s.restart()
    commands = s.run()
    assert [type(each) for each in commands][:1] == [Evict]
    assert evicted(commands) == ["a"]
    assert not names(commands)


def test_no_capacity_is_reserved_for_one_of_them_and_nothing_is_evicted() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("low").tasks(1).runs(60))
    s.run()
    s.submit(of_group("a").priority(5), of_group("b").priority(5), make_binding("later").tasks(4))
    s.bound("low", generation=NEVER)
    assert names(s.run()) == ["later"]
    s.bound("later", generation=NEVER)
    for _ in range(5):
        assert not evicted(s.run(after=30.0))
    assert s.core.reservations.empty


def test_one_that_would_delay_a_workload_with_a_reservation_starts_once_a_member_has_more() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("runs").tasks(4).runs(100))
    s.run()
    s.bound("runs", generation=NEVER)
    s.submit(make_binding("head").tasks(8).priority(1))
    s.run()
    s.submit(of_group("a", 2), of_group("b", 2))
    told = s.run()
    assert not names(told)
    blocker = explained(told)["a"].decision.blocker
    assert blocker is not None
    assert "it would delay a workload with a reservation" in blocker.message
    s.tell(make_cluster("n"), make_capacity("n", [1]))
    assert not names(s.run())
    s.tell(make_capacity("n", [4], generation=2))
    assert dict(dispatched(s.run())) == {"a": "n", "b": "n"}


def rooms(**free: int) -> list[Any]:
    return [each for name, gpu in free.items() for each in (make_cluster(name), make_capacity(name, [gpu]))]


def test_they_keep_to_so_many_members_as_they_may_use() -> None:
    """That with the best place for the first one holds too few of them."""
    s = Scene(make_queue("q"), *rooms(tight=5, other=5, wide=16))
    s.submit(*(of_group(name, least=3, domains=1) for name in "abc"))
    assert {member for _, member in dispatched(s.run())} == {"wide"}
    two = Scene(make_queue("q"), *rooms(a=4, b=4, c=4, wide=8))
    two.submit(*(of_group(name, least=3, domains=2) for name in "abc"))
    found = {member for _, member in dispatched(two.run())}
    assert len(found) == 2
    assert "wide" in found


def test_they_wait_where_so_many_members_do_not_hold_them() -> None:
    s = Scene(make_queue("q"), *rooms(m=4, n=4))
    s.submit(*(of_group(name, domains=1) for name in "ab"))
    said = explained(s.run())["a"].decision.blocker
    assert said is not None
    assert "its gang group may use 1 member" in said.message
    s.tell(make_capacity("n", [8], generation=2))
    assert dict(dispatched(s.run())) == {"a": "n", "b": "n"}


def test_one_by_one_they_go_where_others_of_them_run() -> None:
    s = Scene(make_queue("q"), *rooms(m=4, n=8))
    s.submit(of_group("a", least=1, domains=1), of_group("b", 3, least=1, domains=1))
    assert dispatched(s.run()) == [("a", "m")]
    assert s.verdict("b") is Reason.INSUFFICIENT_RESOURCES
    s.bound("a", generation=NEVER)
    s.change("a", finished=True)
    s.tell(make_capacity("m", [4], generation=NEVER + 1))
    assert names(s.run()) == ["b"]


@pytest.mark.parametrize(
    ("wish", "hint"),
    [
        ({"together": Together("s", 1, domains=1)}, "more members for its gang group (maxDomains of its HyperJob)"),
        ({"follows": "app=web"}, "a policy without that workloadAffinity"),
    ],
)
def test_what_would_open_another_member_is_told(wish: dict[str, Any], hint: str) -> None:
    s = Scene(make_queue("q"), *rooms(m=4, n=8))
    s.submit(make_binding("a").tasks(4).gang(**wish), make_binding("b").tasks(3).gang(**wish))
    assert dispatched(s.run()) == [("a", "m")]
    assert f"{hint}: cluster n has room for it" in [each.message for each in account(s, "b").changes]


def test_another_leader_keeps_to_the_members_that_are_used() -> None:
    s = Scene(make_queue("q"), *rooms(m=4, n=8))
    s.submit(of_group("a", least=1, domains=1))
    assert dispatched(s.run()) == [("a", "m")]
    s.restart()
    s.submit(of_group("b", least=1, domains=1))
    assert not names(s.run())
    s.gone("a")
    s.tell(make_capacity("m", [4], generation=NEVER))
    assert names(s.run()) == ["b"]


def test_one_that_ended_before_its_eviction_completes_the_group_for_the_rest() -> None:
    s = scene()
    s.submit(of_group("a", 1), of_group("b", 1))
    s.run()
    started(s, "a", "b")
    view = s.view("a")
    decision = msgspec.structs.replace(view.decision, epoch=view.epoch + 1, phase=Phase.EVICTING)
    s.change(
        "a", suspended=True, parts=(), epoch=view.epoch + 1, generation=view.generation + 1,
        released=view.generation + 1, placed={}, reserved={}, decision=decision,
    )  # fmt: skip
    assert evicted(s.run()) == ["b"]
    s.change("b", finished=True)
    assert names(s.run(after=60)) == ["a"]


def test_what_waits_costs_nothing_until_something_changed() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [7])))
    s.submit(of_group("a"), of_group("b"))
    s.run()
    before = s.core.admission.examined
    for _ in range(5):
        assert not s.run()
    assert s.core.admission.examined == before
    assert s.core.members.by_name["m"].nodes.free.max() >= 7


def test_the_annotation() -> None:
    wish = Together("s", 2)
    assert parse(write(wish)) == wish
    assert read(None) is read("{") is None
    for text in (
        "{",
        '{"group":"","least":1}',
        '{"group":"s","least":0}',
        '{"group":"s","least":1,"weight":0}',
        '{"group":"s","least":1,"domains":-1}',
    ):
        with pytest.raises(BadTogether):
            parse(text)


def test_members_with_the_resource_alone_count() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [4]), make_cluster("n"), make_capacity("n", [3])))
    s.submit(of_group("a"), of_group("b"))
    assert not names(s.run())
    s.tell(make_capacity("n", [4], generation=2))
    assert dict(dispatched(s.run())) == {"a": "m", "b": "n"}
    assert s.core.tree.queue("q").used[GPU] == 8
