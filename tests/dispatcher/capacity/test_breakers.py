"""Members that claim room and bind nothing, or never confirm a removal: they cost a few workloads, then one at a time."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest

from atoll.dispatcher.core import Dispatch
from atoll.dispatcher.core.settings import CoreSettings
from atoll.model.verdict import Reason
from tests.dispatcher.builders import make_binding, make_queue
from tests.dispatcher.virtual import Site, Town, gpus

LONGEST = CoreSettings().breakers.longest_pause


class Doubtful(Town):
    """Its member `liar` publishes other figures every few seconds, and binds nothing before it is told to be honest."""

    honest_from = math.inf
    """Seconds since the beginning."""
    lets_go_from = 0.0
    """The same: from when on it confirms removals."""

    def lie(self) -> None:
        """Publish other figures from now on, again and again."""
        self._publish("liar")
        self.after(5.0, self.lie)

    def bind_pods(self, name: str) -> None:
        if name != "liar" or self.time >= self.honest_from:
            super().bind_pods(name)

    def _gone(self, uid: str, epoch: int, names: Sequence[str]) -> None:
        if "liar" in names and self.time < self.lets_go_from:
            self.after(10.0, lambda: self._gone(uid, epoch, names))
        else:
            super()._gone(uid, epoch, names)

    def sent(self, name: str, since: float = 0.0) -> list[float]:
        """When something was dispatched to a member."""
        return [
            at
            for at, command in self.commands
            if isinstance(command, Dispatch) and at >= since and name in [part.cluster for part in command.parts]
        ]

    def work(self, count: int, *, tenants: int = 4, every: float = 10.0, runs: float = 12.0) -> None:
        """Workloads of tenants in turn, each of a shape of its own kind."""

        def submit(number: int) -> None:
            builder = make_binding(f"w{number:03}").having(namespace=f"tenant-{number % tenants}")
            self.submit(builder.tasks(1 + number % 2, gpu=1 + number // 2 % 2), runs)

        self.lie()
        for number in range(count):
            self.at(number * every, lambda number=number: submit(number))  # type: ignore[misc]


def liars() -> Doubtful:
    return Doubtful(make_queue("q"), honest=gpus(4), liar=gpus(8, 8, 8, 8))


def test_a_member_that_binds_nothing_takes_few_workloads_whatever_figures_it_publishes() -> None:
    town = liars()
    town.work(150)
    town.run(2400)
    assert len(town.sent("liar")) <= 20
    assert all(job.ended is not None for job in town.jobs.values())


def test_it_is_tried_with_one_workload_after_pauses_that_grow() -> None:
    town = liars()
    town.work(400)
    town.run(4000)
    trials = town.sent("liar", since=300)
    pauses = [later - earlier for earlier, later in itertools.pairwise(trials)]
    assert pauses
    assert min(pauses) >= 120
    assert pauses == sorted(pauses) or max(pauses) > LONGEST
    assert max(pauses) <= 1.5 * LONGEST + 60


def test_once_it_binds_again_it_is_used_as_before() -> None:
    town = liars()
    town.honest_from = 300.0
    town.work(200, every=5)
    town.run(1500)
    assert len(town.sent("liar", since=300)) > 30


@pytest.mark.parametrize("others", [0, 3], ids=["alone", "beside others"])
def test_workloads_of_one_namespace_that_fail_keep_no_other_namespace_out(others: int) -> None:
    """1. Pods of tenant x are bound nowhere. 2. The member is not tried for x for a while. 3. y comes and is bound."""
    town = Doubtful(make_queue("q"), only=gpus(8, 8))
    real = town.bind_pods

    def picky(name: str) -> None:
        site: Site = town.sites[name]
        kept = {uid: part for uid, part in site.waiting.items() if town.views[uid].namespace == "x"}
        for uid in kept:
            del site.waiting[uid]
        real(name)
        site.waiting.update({uid: part for uid, part in kept.items() if uid in town.views})

    town.bind_pods = picky  # type: ignore[method-assign]
    for number in range(6):
        town.submit(make_binding(f"x{number}").having(namespace="x").tasks(1 + number % 2, gpu=1))
    town.run(200)
    tried = len(town.sent("only"))
    town.run(55)
    assert len(town.sent("only")) - tried <= 1
    for number in range(1 + others):
        town.submit(make_binding(f"y{number}").having(namespace="y").tasks(1, gpu=1))
    town.run(2)
    assert all(town.started(f"y{number}") is not None for number in range(1 + others))


def test_a_new_leader_goes_on_with_what_is_written_on_the_cluster() -> None:
    town = liars()
    town.work(100, every=2)
    town.run(190)
    circuit, before = town.core.breakers.circuit("liar"), len(town.sent("liar"))
    assert circuit is not None
    assert circuit.open
    town.lead_anew()
    town.run(circuit.until - town.now - 1)
    assert len(town.sent("liar")) == before
    town.run(10)
    assert len(town.sent("liar")) == before + 1


def test_a_member_that_confirms_no_removal_counts_as_failing() -> None:
    """It takes nothing more, the quota is back, its room is not; what was sent elsewhere goes on."""
    town = liars()
    town.lets_go_from = math.inf
    town.tell(make_queue("q", view={"evict_timeout": 60.0}))
    town.work(150)
    town.run(2400)
    assert len(town.sent("liar")) <= 20
    stuck = [job for job in town.jobs.values() if job.ended is None]
    assert len(stuck) <= 20


def test_a_workload_that_waits_for_such_a_member_says_so() -> None:
    town = Doubtful(make_queue("q"), check=True, liar=gpus(8, 8))
    town.work(8, every=1)
    town.run(80)
    uid = next(uid for uid, view in town.views.items() if town.core.verdict(uid) is not None)
    verdict = town.core.verdict(uid)
    assert verdict is not None
    assert verdict.reason is Reason.MEMBER_FAILING
    assert verdict.blocker is not None
    assert verdict.blocker.name == "liar"


class Own(Doubtful):
    """Its member `only` fails workloads of tenant x in one way of their own."""

    fault = ""

    def bind_pods(self, name: str) -> None:
        site = self.sites[name]
        kept = {uid: part for uid, part in site.waiting.items() if self.views[uid].namespace == "x"}
        for uid in kept:
            del site.waiting[uid]
            told: Any = {"unmade": (name,)} if self.fault == "operator" else {"refused": {name: self.fault}}
            if self.fault == HOT_NODES:
                told = {"waiting": {name: self.fault}}
            self.see(dataclasses.replace(self.views[uid], **told))
        Town.bind_pods(self, name)

    def _gone(self, uid: str, epoch: int, names: Sequence[str]) -> None:
        super()._gone(uid, epoch, names)
        self.see(dataclasses.replace(self.views[uid], refused={}, unmade=(), waiting={}))


HOT_NODES = "there is no room for its pod; nodes too hot for pods of priority 0 (taint atoll.sh/hot): 2"

TAKEN = "Job x/a exists there and is not Atoll's (made by kubectl): rename the workload or delete that one"


@pytest.mark.parametrize(
    "fault",
    [
        TAKEN,
        'pods "a-0" is forbidden: no PriorityClass with name gold',
        "exceeded quota: q, requested: pods=1",
        HOT_NODES,
    ],
    ids=["name taken", "admission", "quota", "nodes too hot for its priority"],
)
def test_what_a_member_refuses_in_its_own_words_opens_no_breaker(fault: str) -> None:
    town = Own(make_queue("q"), only=gpus(8, 8))
    town.fault = fault
    for number in range(3):
        town.submit(make_binding(f"x{number}").having(namespace="x").tasks(1, gpu=1 + number))
    town.run(200)
    assert town.core.breakers.circuit("only") is None
    assert town.core.breakers.barred("x", "") == set()


def test_a_kind_without_its_controller_keeps_other_kinds_out_of_no_member() -> None:
    """1. No controller makes pods of a kind: three workloads fail. 2. The kind is barred. 3. A Job of the namespace runs."""
    town = Own(make_queue("q"), only=gpus(8, 8))
    town.fault = "operator"
    for number in range(3):
        builder = make_binding(f"x{number}").having(namespace="x", kind="TFJob.kubeflow.org")
        town.submit(builder.tasks(1, gpu=1 + number))
    town.run(100)
    assert town.core.breakers.circuit("only") is None
    assert town.core.breakers.barred("x", "TFJob.kubeflow.org") == {"only"}
    assert town.core.breakers.barred("x", "Job.batch") == set()
    # Another namespace may try the kind, and any other kind of the same shape starts at once.
    town.submit(make_binding("y").having(namespace="y", kind="Job.batch").tasks(1, gpu=1))
    town.run(2)
    assert town.started("y") is not None
