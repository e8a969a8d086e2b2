"""ResourceQuotas that are for some of a namespace's pods."""

from __future__ import annotations

import msgspec

from atoll.dispatcher.core import NamespaceGone, NamespaceSet, NamespaceView
from atoll.model.quotas import Quota, Scope
from atoll.model.verdict import Blocker
from tests.dispatcher.builders import (
    EARLY,
    GPU,
    LATE,
    NEVER,
    BindingBuilder,
    Scene,
    explained,
    make_binding,
    names,
    scene,
)
from tests.dispatcher.elastic.scenes import resized
from tests.dispatcher.explain.questions import account

HIGH = ["PriorityClass=high"]


def limited(gpus: int, whole: int | None = None) -> NamespaceSet:
    """Pods of class high may use so many GPUs, and all pods together so many."""
    quota = Quota("dear", {GPU: gpus}, (Scope("PriorityClass", "In", ("high",)),))
    return NamespaceSet(NamespaceView("default", {} if whole is None else {GPU: whole}, scoped=(quota,)))


def high(name: str, pods: int = 1) -> BindingBuilder:
    return make_binding(name).tasks(pods, scopes=HIGH)


def blocked(s: Scene, name: str) -> Blocker | None:
    return explained(s.run())[name].decision.blocker


def test_only_the_pods_that_it_is_for_count_against_it() -> None:
    s = scene(limited(1))
    s.submit(high("a").submitted(EARLY), high("b").submitted(LATE), make_binding("c").tasks(3))
    commands = s.run()
    assert sorted(names(commands)) == ["a", "c"]
    told = explained(commands)["b"].decision.blocker
    assert told == Blocker("ResourceQuota", "dear", GPU, "1", "0")
    s.change("a", finished=True)
    assert names(s.run()) == ["b"]


def test_the_tasks_of_a_gang_count_each_for_themselves() -> None:
    s = scene(limited(2)).submit(make_binding("a").tasks(2, scopes=HIGH).tasks(3))
    assert names(s.run()) == ["a"]
    s.submit(make_binding("b").tasks(1).tasks(1, scopes=HIGH))
    assert blocked(s, "b") == Blocker("ResourceQuota", "dear", GPU, "1", "0")
    assert s.core.namespaces.used == {
        "default": {("PriorityClass=high",): {GPU: 2, "pods": 2}, (): {GPU: 3, "pods": 3}}
    }


def test_all_quotas_are_named_that_are_exceeded() -> None:
    s = scene(limited(2, whole=3)).submit(high("a", 5))
    s.run()
    found = [(each.kind, each.name, each.shortage) for each in account(s, "a").limits]
    assert found == [("Namespace", "default", "2"), ("ResourceQuota", "dear", "3")]
    assert account(s, "a").never == f"it asks for 5 {GPU}, and namespace default may use 3 at most"
    s.tell(limited(2, whole=5))
    s.run()
    assert account(s, "a").never == f"it asks for 5 {GPU}, and ResourceQuota dear may use 2 at most"


def test_what_runs_is_charged_to_a_quota_that_comes_later() -> None:
    s = scene().submit(high("a", 2))
    assert names(s.run()) == ["a"]
    s.tell(limited(2)).submit(high("b"))
    assert blocked(s, "b") == Blocker("ResourceQuota", "dear", GPU, "1", "0")
    s.tell(NamespaceGone("default"))
    assert names(s.run()) == ["b"]


def test_a_workload_grows_within_it() -> None:
    s = scene(limited(2)).submit(make_binding("a").tasks(4, minimum=1, scopes=HIGH))
    s.run()
    s.bound("a", generation=NEVER, pods=2)
    assert s.used("q") == 2
    s.tell(limited(3))
    assert resized(s.run()) == {"a": 3}


def test_a_running_workload_of_which_the_scopes_become_known_stays_charged_once() -> None:
    """Its binding was written by a version that knew nothing of scopes."""
    s = scene(limited(1)).submit(make_binding("a"))
    assert names(s.run()) == ["a"]
    gang = s.view("a").gang
    assert gang is not None
    [task] = gang.tasks
    s.change("a", gang=msgspec.structs.replace(gang, tasks=[msgspec.structs.replace(task, scopes=HIGH)]))
    s.run()
    assert s.core.namespaces.used == {"default": {("PriorityClass=high",): {GPU: 1, "pods": 1}}}
    s.change("a", finished=True)
    s.run()
    assert s.core.namespaces.used == {}
