"""Workloads beside others of their group, or apart from them."""

from __future__ import annotations

from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    BindingBuilder,
    Scene,
    dispatched,
    let_go,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
)


def three_members() -> Scene:
    return Scene(make_queue("q"), *(each for n in "mno" for each in (make_cluster(n), make_capacity(n, [4]))))


def beside(name: str, pods: int = 1) -> BindingBuilder:
    return make_binding(name).tasks(pods).gang(follows="app=web")


def apart(name: str, pods: int = 1) -> BindingBuilder:
    return make_binding(name).tasks(pods).gang(avoids="app=web")


def test_all_go_where_the_first_went_also_in_one_pass() -> None:
    s = three_members()
    s.submit(make_binding("other").tasks(3))
    s.run()
    s.submit(beside("a", 2), beside("b"), beside("c"))
    where = dict(dispatched(s.run()))
    assert len({where["a"], where["b"], where["c"]}) == 1


def test_none_goes_where_another_is_and_waits_until_that_is_gone() -> None:
    s = three_members()
    s.submit(*(apart(each) for each in "abcd"))
    where = dict(dispatched(s.run()))
    assert sorted(where.values()) == ["m", "n", "o"]
    assert s.verdict("d") is Reason.NO_CLUSTER
    verdict = s.core.verdict(s.view("d").uid)
    assert verdict is not None
    assert "b of its group app=web runs there" in verdict.sentence()
    before = s.core.admission.examined
    s.run()
    assert s.core.admission.examined == before
    s.gone("b")
    assert dispatched(s.run()) == [("d", where["b"])]


def test_what_waits_for_room_beside_others_may_go_elsewhere_once_they_are_gone() -> None:
    s = three_members()
    s.submit(beside("a", 3))
    [(_, first)] = dispatched(s.run())
    s.submit(beside("b", 4))
    assert not names(s.run())
    assert s.verdict("b") is Reason.INSUFFICIENT_RESOURCES
    s.change("a", finished=True)
    assert names(s.run()) == ["b"]
    assert first in ("m", "n", "o")


def test_groups_are_of_one_namespace_and_of_one_kind_of_wish() -> None:
    s = three_members()
    s.submit(apart("a"), apart("b").having(namespace="elsewhere"), beside("c", 4))
    where = dict(dispatched(s.run()))
    assert where["a"] == where["b"] != where["c"]


def test_another_leader_knows_where_they_run() -> None:
    s = three_members()
    s.submit(apart("a"))
    [(_, first)] = dispatched(s.run())
    s.restart()
    s.submit(apart("b"))
    assert dict(dispatched(s.run()))["b"] != first


def test_one_that_was_evicted_is_in_no_member() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [4]))
    s.submit(apart("a"), apart("b"))
    assert names(s.run()) == ["a"]
    s.change("a", gang=apart("a").held().build().gang)
    s.run()
    assert not names(s.run())
    let_go(s, "a")
    assert names(s.run()) == ["b"]
