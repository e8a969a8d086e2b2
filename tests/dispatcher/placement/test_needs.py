"""Workloads go only where who places looks at what their pods insist on."""

from __future__ import annotations

import dataclasses

import msgspec

from atoll.dispatcher import objects
from atoll.dispatcher.core import BindingView, ClusterSet, Dispatch
from atoll.dispatcher.explain.verdicts import account
from atoll.dispatcher.writes import patch_of
from atoll.model.decision import Phase
from atoll.model.verdict import Blocker, Reason
from tests.dispatcher.builders import Scene, dispatched, make_binding, make_capacity, make_cluster, make_queue


def insisting(name: str) -> BindingView:
    view = make_binding(name).tasks(1).build()
    assert view.gang is not None
    return dataclasses.replace(view, gang=msgspec.structs.replace(view.gang, needs=["host-ports", "a-later-need"]))


def placed_by_another(name: str) -> ClusterSet:
    return ClusterSet(dataclasses.replace(make_cluster(name).cluster, honours_needs=True))


def test_where_only_our_own_scheduler_places_it_waits_and_says_for_what() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [8]))
    s.submit(insisting("a"), make_binding("b").tasks(1))
    assert dispatched(s.run()) == [("b", "m")]
    s.decide()
    found = account(s.core, s.view("a").uid)
    assert found is not None
    assert (found.reason, found.blocker) == (Reason.NO_PLACER, Blocker("Need", "a-later-need")), "ports it knows"
    assert "does not look at a-later-need" in found.clusters[0].message


def test_what_only_the_member_can_say_is_asked_of_it_first() -> None:
    """Its ports are not among the figures of a member: nodes are reserved before it goes."""
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [8]), placed_by_another("other"))
    view = make_binding("a").tasks(1).build()
    assert view.gang is not None
    [task] = view.gang.tasks
    gang = msgspec.structs.replace(
        view.gang, needs=["host-ports"], tasks=[msgspec.structs.replace(task, ports=[("", "TCP", 80)])]
    )
    [command] = s.submit(dataclasses.replace(view, gang=gang)).run()
    assert isinstance(command, Dispatch)
    assert ([part.cluster for part in command.parts], command.decision.phase) == (["m"], Phase.RESERVING)
    operations = {each["path"]: each.get("value") for each in patch_of(command)}
    assert operations["/spec/suspension/dispatching"] is True, "else it would start at once and no answer would come"


def test_it_goes_where_another_one_places_though_others_would_suit_it_better() -> None:
    s = Scene(make_queue("q"), make_cluster("m1"), make_capacity("m1", [1]), placed_by_another("m2"))
    s.tell(make_capacity("m2", [8]))
    assert dispatched(s.submit(insisting("a")).run()) == [("a", "m2")]


def test_it_goes_as_soon_as_another_one_places() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [8]))
    assert dispatched(s.submit(insisting("a")).run()) == []
    s.tell(placed_by_another("m"))
    assert dispatched(s.run()) == [("a", "m")]


def test_who_places_is_read_off_the_cluster() -> None:
    def honours(*conditions: dict[str, str]) -> bool:
        cluster = {"metadata": {"name": "m"}, "status": {"conditions": conditions}}
        return objects.cluster_view(msgspec.convert(cluster, objects.ClusterObject)).honours_needs

    assert honours({"type": "Placer", "status": "True", "reason": "KubeScheduler"})
    assert not honours({"type": "Placer", "status": "True", "reason": "Atoll"})
    assert not honours()
