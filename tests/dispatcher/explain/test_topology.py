"""What is said of a workload that waits for a topology: that it is missing, wrong, full, or never large enough."""

from __future__ import annotations

import dataclasses

from atoll.dispatcher.core import CapacitySet
from atoll.dispatcher.explain.verdicts import account
from atoll.model.query import Account
from atoll.model.verdict import Blocker, Reason
from tests.dispatcher.builders import GPU, Scene, make_binding, make_capacity, make_cluster, make_queue

WRONG = (("rack-9", "HyperNode rack-1 is a member of both a and rack-9: it counts for a alone, keep one"),)


def told(s: Scene, name: str = "a") -> Account:
    s.run()
    s.decide()
    found = account(s.core, s.view(name).uid)
    assert found is not None
    return found


def with_problems(capacity: CapacitySet) -> CapacitySet:
    return CapacitySet(dataclasses.replace(capacity.capacity, problems=WRONG))


def test_a_topology_that_is_missing_is_called_that() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("a").tasks(1).hard(1))
    found = told(s)
    assert (found.reason, found.blocker) == (Reason.NO_TOPOLOGY, Blocker("Cluster", "m"))
    assert "no topology domain (HyperNode)" in found.clusters[0].message
    assert found.changes[0].message.startswith("no networkTopology")
    assert "more pod" not in " ".join(change.message for change in found.changes)


def test_hyper_nodes_that_are_wrong_are_named() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), with_problems(make_capacity("m", [8])))
    s.submit(make_binding("a").tasks(1).hard(1))
    found = told(s)
    assert (found.reason, found.blocker) == (Reason.TOPOLOGY_INVALID, Blocker("HyperNode", "m/rack-9"))
    assert "keep one" in found.clusters[0].message
    assert "rack-9" in found.changes[0].message


def test_they_are_named_too_where_the_rest_of_the_tree_is_full() -> None:
    room = with_problems(make_capacity("m", {"r1": [1], "r2": [2]}))
    s = Scene(make_queue("q"), make_cluster("m"), room)
    s.submit(make_binding("a").tasks(3).hard(1))
    found = told(s)
    assert found.reason == Reason.NO_DOMAIN_FITS
    assert "HyperNode rack-9 is wrong" in found.clusters[0].message


def test_groups_that_find_no_domains_of_their_own_are_told_what_would_help() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", {"r1": [4], "r2": [0]}))
    s.submit(make_binding("a").tasks(2).tasks(2).apart(1))
    found = told(s)
    assert found.reason == Reason.INSUFFICIENT_RESOURCES
    assert found.blocker is not None
    assert "not for each of its groups in domains of tier 1 of its own" in found.blocker.message
    assert "atoll.sh/groups-apart-mode: soft; cluster m has room for it then" in [
        each.message for each in found.changes
    ]


def test_the_member_with_a_topology_is_the_nearest_even_if_it_is_full() -> None:
    s = Scene(make_queue("q"), make_cluster("flat"), make_capacity("flat", [8]))
    s.tell(make_cluster("m"), make_capacity("m", {"r1": [1]}))
    s.submit(make_binding("a").tasks(2).hard(1))
    found = told(s)
    assert (found.reason, found.blocker) == (Reason.NO_DOMAIN_FITS, Blocker("Domain", "m/r1", "pods", "2", "1"))


def test_a_domain_that_is_never_large_enough_is_told_from_one_that_is_full() -> None:
    racks = make_capacity("m", {"r1": [4], "r2": [4]}).capacity
    total = {GPU: 8, "pods": 200}
    s = Scene(make_queue("q"), make_cluster("m"), CapacitySet(dataclasses.replace(racks, total=total)))
    found = told(s.submit(make_binding("a").tasks(5).hard(1)))
    assert "even if all of them were empty" in found.clusters[0].message
    assert found.changes[0].message.startswith("a highestTierAllowed of 2")
    assert found.changes[1].message.startswith("larger domains in cluster m")
    s.submit(make_binding("b").tasks(4).hard(1), make_binding("c").tasks(4).hard(1), make_binding("d").tasks(4).hard(1))
    found = told(s, "d")
    assert "even if" not in found.clusters[0].message
    assert found.changes[0].message.startswith("room for 4 more pods in cluster m, domain r1")
