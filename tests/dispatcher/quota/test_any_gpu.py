"""A quota of GPUs under any name: no spelling leaves it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from atoll.dispatcher.core import BindingView
from atoll.dispatcher.core.quota.namespaces import by_scopes
from atoll.dispatcher.explain.figures import figures
from atoll.dispatcher.objects import BindingObject, binding_view
from atoll.model import gang, keys
from atoll.model.cards import ANY
from atoll.model.objects import Meta
from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    GPU,
    BindingBuilder,
    Scene,
    explained,
    make_capacity,
    make_cluster,
    make_queue,
)
from tests.dispatcher.elastic.scenes import resized, runs

SPELLINGS = {
    "a card": {GPU: 1},
    "HAMi": {GPU: 1, "nvidia.com/gpumem": 100},
    "Volcano": {"volcano.sh/vgpu-number": 1},
    "ours": {"atoll.sh/gpu-milli": 501},
    "ours, by memory": {"atoll.sh/gpu-milli": 1, "atoll.sh/gpu-memory": 2**30},
    "MIG": {"nvidia.com/mig-4g.20gb": 1},
}


class Read(BindingBuilder):
    """A binding as the dispatcher reads it."""

    def build(self) -> BindingView:
        view = super().build()
        assert view.gang is not None
        return replace(view, gang=view.gang.with_any_gpu())


def test_a_binding_is_read_with_its_charge() -> None:
    wish = BindingBuilder("w").tasks(2, gpu=4).build().gang
    assert wish is not None
    read = binding_view(BindingObject(Meta(name="w", uid="u", annotations={keys.GANG: gang.encode(wish)})))
    assert read is not None
    assert read.gang is not None
    assert read.gang.total() == {"pods": 2, GPU: 8, ANY: 8000}


@pytest.mark.parametrize("name", SPELLINGS)
def test_no_spelling_leaves_a_quota_of_gpus(name: str) -> None:
    """The queue may use a card and a half, of which a card runs: all other names wait for the queue, not for nodes."""
    bound: dict[str, Any] = {ANY: 1500}
    s = Scene(make_queue("q", **bound), make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(Read("runs").queue("q").tasks(1, gpu=1))
    s.run()
    s.submit(Read("other").queue("q").tasks(1, gpu=0, requests=SPELLINGS[name]))
    verdict = explained(s.run())["other"].decision
    assert verdict.reason is Reason.QUOTA_EXCEEDED
    assert verdict.blocker is not None
    assert verdict.blocker.resource == ANY


def test_without_such_a_quota_names_are_charged_as_before() -> None:
    s = Scene(make_queue("q", gpu=2), make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(Read("runs").queue("q").tasks(1, gpu=2))
    s.run()
    s.submit(Read("other").queue("q").tasks(1, gpu=1))
    verdict = explained(s.run())["other"].decision
    assert verdict.blocker is not None
    assert verdict.blocker.resource == GPU


@pytest.mark.parametrize("bounded", [False, True])
def test_figures_show_it_only_where_it_is_bounded(bounded: bool) -> None:
    bound: dict[str, Any] = {ANY: 8000} if bounded else {}
    s = Scene(make_queue("q", **bound), make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(Read("runs").queue("q").tasks(1, gpu=1))
    s.run()
    assert (ANY in [each.resource for each in figures(s.core.tree.queues["q"])]) == bounded


def test_growth_stays_within_the_quota() -> None:
    """It starts with one pod; the queue may use a card more, and members have seven."""
    one: dict[str, Any] = {ANY: 1000}
    two: dict[str, Any] = {ANY: 2000}
    s = Scene(make_queue("q", **one), make_cluster("m"), make_capacity("m", [8]))
    s.submit(Read("a").queue("q").tasks(4, minimum=1, gpu=1))
    s.run()
    runs(s, "a", generation=2)
    s.tell(make_capacity("m", [7], generation=2), make_queue("q", **two))
    assert resized(s.run()) == {"a": 2}


def test_quotas_with_scopes_count_gpus_under_any_name() -> None:
    wish = Read("w").tasks(2, gpu=1).build().gang
    assert wish is not None
    scoped = [msgspec.structs.replace(wish.tasks[0], scopes=each) for each in (["BestEffort"], ["NotBestEffort"])]
    several = msgspec.structs.replace(wish, tasks=scoped)
    assert [each[ANY] for each in by_scopes([several], several.total()).values()] == [2000, 2000]
