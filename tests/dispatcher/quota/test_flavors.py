"""Flavors: two kinds of nodes offer one resource, and quotas are for one of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.dispatcher import flavoring
from atoll.dispatcher.core import BindingView, CapacitySet, CapacityView, Dispatch, QueueSet
from atoll.dispatcher.core.events import NodeClass
from atoll.dispatcher.explain import verdicts
from atoll.model import flavors
from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    GPU,
    START,
    BindingBuilder,
    Scene,
    dispatched,
    explained,
    make_cluster,
    make_queue,
)
from tests.dispatcher.virtual import Town

FLAVORS = flavors.parse('{"nvidia.com/gpu": {"h100": "gpu=h100", "a100": "gpu=a100"}}')
H100, A100, OTHER = f"{GPU}@h100", f"{GPU}@a100", f"{GPU}@other"


class Flavored(BindingBuilder):
    """A binding as the core is told it."""

    def build(self) -> BindingView:
        return flavoring.binding(super().build(), FLAVORS)

    def on(self, flavor: str, replicas: int = 1, gpu: int = 1) -> Flavored:
        """Pods that say their flavor."""
        self.tasks(replicas, gpu=gpu, node_selector={"gpu": flavor})
        return self


def queue(name: str = "q", **limits: int) -> QueueSet:
    names = {"h100": H100, "a100": A100, "other": OTHER, "gpu": GPU}
    amounts: dict[str, Any] = {names[key]: amount for key, amount in limits.items()}
    return make_queue(name, **amounts)


def capacity(cluster: str, generation: int = 1, **free: int) -> CapacitySet:
    """A node of each flavor with so many GPUs."""
    classes = tuple(
        NodeClass("", {"gpu": flavor}, (), 1, {GPU: gpus, "pods": 100}, devices={GPU: gpus})
        for flavor, gpus in free.items()
    )
    total = {GPU: sum(free.values()), "pods": 100 * len(free)}
    return CapacitySet(flavoring.capacity(CapacityView(cluster, "", generation, (), classes, total), FLAVORS))


def member(name: str = "m", **free: int) -> list[Any]:
    return [make_cluster(name), capacity(name, **free)]


def got(s: Scene) -> dict[str, list[str]]:
    """Name -> flavors of what is dispatched now."""
    return {
        each.name: [found.flavor for found in each.decision.flavors] for each in s.run() if isinstance(each, Dispatch)
    }


def test_a_limit_is_of_one_flavor() -> None:
    s = Scene(queue(h100=2, a100=1), *member(h100=8, a100=8))
    s.submit(*(Flavored(f"h{n}").on("h100") for n in range(3)), *(Flavored(f"a{n}").on("a100") for n in range(2)))
    commands = s.run()
    assert sorted(name for name, _ in dispatched(commands)) == ["a0", "h0", "h1"]
    blockers = {name: each.decision.blocker for name, each in explained(commands).items()}
    assert {name: block.resource for name, block in blockers.items() if block is not None} == {"h2": H100, "a1": A100}
    assert s.verdict("h2") is s.verdict("a1") is Reason.QUOTA_EXCEEDED


def test_what_leaves_it_open_goes_where_its_queue_may() -> None:
    s = Scene(queue(h100=2, a100=1), *member(h100=8, a100=8))
    s.submit(*(Flavored(f"w{n}") for n in range(4)))
    assert got(s) == {"w0": ["h100"], "w1": ["h100"], "w2": ["a100"]}
    assert s.verdict("w3") is Reason.QUOTA_EXCEEDED


def test_what_leaves_it_open_goes_where_there_is_room() -> None:
    s = Scene(queue(), *member(h100=1, a100=2), *member("n", other=1))
    s.submit(*(Flavored(f"w{n}") for n in range(5)))
    assert got(s) == {"w0": ["h100"], "w1": ["a100"], "w2": ["a100"], "w3": ["other"]}
    assert s.verdict("w4") is Reason.INSUFFICIENT_RESOURCES


def test_a_gang_is_of_one_flavor() -> None:
    s = Scene(queue(), *member(h100=3, a100=4))
    s.submit(Flavored("w").tasks(4))
    assert got(s) == {"w": ["a100"]}
    s.submit(Flavored("v").tasks(4))
    assert got(s) == {}, "three of one kind and none of the other"


def test_it_waits_for_the_first_flavor_that_its_queue_may_have_as_much_of() -> None:
    s = Scene(queue(h100=0, a100=2), *member(h100=8, a100=8))
    s.submit(Flavored("a").tasks(2), Flavored("b"))
    assert got(s) == {"a": ["a100"]}
    [limit] = verdicts.account(s.core, "uid-b").limits  # type: ignore[union-attr]
    assert (limit.resource, limit.requested, limit.available) == (A100, "1", "0")


def test_it_is_woken_by_whatever_becomes_free_first() -> None:
    """The first flavor lacks room, the second one quota; each alone must wake it."""
    for freed in ("room", "quota"):
        s = Scene(queue(a100=1), queue("p"), *member(h100=1, a100=2))
        s.submit(Flavored("h").on("h100").queue("p"), Flavored("a").on("a100"))
        s.run()
        s.submit(Flavored("w"))
        assert got(s) == {}, freed
        s.gone("h" if freed == "room" else "a")
        if freed == "room":
            s.tell(capacity("m", 2, h100=1, a100=1))
        assert got(s) == {"w": ["h100" if freed == "room" else "a100"]}, freed


def test_a_limit_that_is_raised_wakes_it() -> None:
    s = Scene(queue(h100=1, a100=0, other=0), *member(h100=8, a100=8))
    s.submit(Flavored("w0"), Flavored("w1"))
    assert got(s) == {"w0": ["h100"]}
    s.tell(queue(h100=1, a100=1, other=0))
    assert got(s) == {"w1": ["a100"]}


def test_another_leader_charges_what_was_written() -> None:
    s = Scene(queue(h100=1, a100=1, other=0), *member(h100=8, a100=8))
    s.submit(Flavored("w0"), Flavored("w1"))
    s.run()
    s.restart()
    s.submit(Flavored("w2"))
    assert got(s) == {}
    used = s.core.tree.queue("q").used
    assert (used[H100], used[A100], used[GPU]) == (1, 1, 2)


def test_a_write_that_is_refused_leaves_the_flavor_open_again() -> None:
    s = Scene(queue(), *member(h100=1, a100=1))
    s.submit(Flavored("w"))
    [command] = s.decide()
    s.refuse(command)
    assert H100 not in s.core.tree.queue("q").used
    s.submit(Flavored("v").on("h100").priority(1))
    assert got(s) == {"v": [], "w": ["a100"]}


def test_a_guarantee_is_of_one_flavor() -> None:
    sure = make_queue("sure", view={"guarantee": {H100: 2}})
    s = Scene(sure, queue(), *member(h100=3, a100=1))
    s.submit(*(Flavored(f"w{n}") for n in range(4)), *(Flavored(f"v{n}").on("h100").queue("sure") for n in range(2)))
    assert got(s) == {"v0": [], "v1": [], "w0": ["h100"], "w1": ["a100"]}


def test_flavors_that_are_not_named_divide_nothing() -> None:
    """Both queues deserve four GPUs of eight; which kind the first one uses is its own affair."""
    s = Scene(
        make_queue("p", view={"deserved": {GPU: 4}}), make_queue("q", view={"deserved": {GPU: 4}}), *member(h100=4, a100=4)
    )  # fmt: skip
    s.submit(*(Flavored(f"w{n}").on("h100").queue("p") for n in range(4)))
    s.run()
    node = s.core.tree.queue("p")
    assert H100 not in node.deserved
    assert node.current_rank()[2] == 1.0


def test_what_if_tries_the_other_flavors() -> None:
    s = Scene(queue(h100=2, a100=2, other=0), *member(h100=1, a100=8))
    s.run()
    found = verdicts.what_if(s.core, Flavored("w").tasks(2).build(), START)
    assert (found.starts, found.flavors) == (True, [A100])
    found = verdicts.what_if(s.core, Flavored("w").tasks(3).build(), START)
    assert not found.starts


def test_nodes_of_which_the_label_is_not_told_are_of_no_flavor() -> None:
    view = capacity("m", other=4).capacity
    bare = dataclasses.replace(view, left_out=("gpu",), classes=(NodeClass("", {}, (), 4, {GPU: 1, "pods": 9}),))
    told = flavoring.capacity(bare, FLAVORS)
    assert told.classes[0].free == {GPU: 1, "pods": 9}


LIMITS = st.integers(0, 6)


@settings(max_examples=40)
@given(data=st.data())
def test_nothing_runs_beyond_the_limit_of_a_flavor(data: st.DataObject) -> None:
    """Random histories, refused writes and new leaders included."""
    limits = {name: {"h100": data.draw(LIMITS), "a100": data.draw(LIMITS)} for name in ("p", "q")}
    refused = set(data.draw(st.lists(st.integers(0, 30), max_size=5)))
    written: list[object] = []

    def refuses(command: object) -> bool:
        written.append(command)
        return len(written) in refused

    nodes = [(H100, 4), (A100, 4), (A100, 2), (OTHER, 2)]
    t = Town(
        *(queue(name, **each) for name, each in limits.items()),
        refuses=refuses,
        check=True,
        m=[{GPU: n, each: n, "pods": 100, **{o: 0 for o in (H100, A100, OTHER) if o != each}} for each, n in nodes],
        n=[{GPU: 2, H100: 2, A100: 0, OTHER: 0, "pods": 100}],
    )
    for number in range(data.draw(st.integers(1, 14))):
        wish = Flavored(f"w{number}").queue(data.draw(st.sampled_from("pq"))).priority(data.draw(st.integers(0, 1)))
        flavor = data.draw(st.sampled_from(["h100", "a100", "", ""]))
        pods = data.draw(st.integers(1, 4))
        if flavor:
            wish.on(flavor, pods)
        else:
            wish.tasks(pods, minimum=data.draw(st.integers(1, pods)))
        t.submit(wish, runs=data.draw(st.sampled_from([1.0, 5.0, 20.0])))
        if data.draw(st.integers(0, 6)) == 0:
            t.lead_anew()
        t.run(data.draw(st.sampled_from([0.0, 0.5, 3.0])))
        for name, each in limits.items():
            for flavor, limit in each.items():
                running = sum(
                    task.requests.get(f"{GPU}@{flavor}", 0) * task.replicas
                    for site in t.sites.values()
                    for uid, (gang, _) in site.pods.items()
                    if gang.queue == name
                    for task in gang.tasks
                )
                assert running <= limit, f"{name} runs {running} {flavor} of {limit}"
    t.run(200)
    assert not any(site.pods for site in t.sites.values()), "all has ended"


def test_a_replayed_decision_says_its_flavors() -> None:
    [variant, *_] = flavors.variants(Flavored("w").build().gang, FLAVORS)  # type: ignore[arg-type]
    assigned = [*variant.assigned]
    assert msgspec.json.decode(msgspec.json.encode(assigned), type=list[flavors.Assigned]) == assigned


@pytest.mark.parametrize("order", [("h100", "a100"), ("a100", "h100")])
def test_they_are_tried_in_the_order_in_which_they_are_named(order: tuple[str, str]) -> None:
    named = flavors.parse(flavors.text({GPU: {each: ("gpu", each) for each in order}}))
    s = Scene(make_queue("q"), *member(h100=8, a100=8))
    s.see(flavoring.binding(BindingBuilder("w").build(), named))
    assert got(s) == {"w": [order[0]]}
