"""Flavors in simulated federations."""

from __future__ import annotations

from pathlib import Path

from atoll.dispatcher.core import Dispatch
from atoll.model.gang import Task
from atoll.sim import queues
from atoll.sim.clusters import MemberSpec, Pool
from atoll.sim.jobs import GPU, Job
from tests.sim.builders import by_name, make_job, simulate, starts

QUEUES = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata:
  name: root
  annotations:
    atoll.sh/flavors: '{"nvidia.com/gpu": {"h100": "model=h100", "a100": "model=a100"}}'
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: q}
spec:
  capability: {nvidia.com/gpu@h100: 2, nvidia.com/gpu@other: 0}
"""


def test_a_quota_of_one_flavor_holds_and_what_leaves_it_open_takes_the_other(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUES)
    kinds = (("h100", 8), ("a100", 4), ("t4", 8))
    member = MemberSpec("m", tuple(Pool(1, {GPU: n, "pods": 110}, labels={"model": kind}) for kind, n in kinds))
    says = Job("says", 0.0, 50.0, (Task("w", 1, 1, {GPU: 1, "pods": 1}, {"model": "h100"}),), queue="q", minimum=1)
    opens = [make_job(name, 1.0 + at, 50.0, gpu=n) for at, (name, n) in enumerate((("b", 1), ("c", 3), ("d", 2)))]
    run = simulate([member], [says, *opens], queues=queues.read(file))
    began = {name: at for name, at in starts(run).items() if at is not None}
    assert began["b"] < 2.0
    assert began["c"] < 3.0, "on the second flavor, of which its queue has no limit"
    assert began["d"] > 50.0, "neither flavor has two left until the first ends"
    assert {record.job.name for record in by_name(run.journal).values()} == {"says", "b", "c", "d"}
    assert run.host.writes[Dispatch.__name__] == 4
