"""Shares of GPUs in the simulator: members give them card by card, on the nodes that a scoring prefers."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.dispatcher.core import QueueView
from atoll.model.gang import Task
from atoll.model.scoring import parse
from atoll.sim import clusters, metrics, traces
from atoll.sim.clusters import MemberSpec, Pool
from atoll.sim.jobs import GPU_SHARE, Job
from atoll.sim.simulation import Options, Simulation

MIG = "nvidia.com/mig-1g.5gb"
NODES = "sn,cpu_milli,memory_mib,gpu,model\na,8000,4096,2,T4\nb,8000,4096,1,V100\n"
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,scheduled_time
p1,100,64,1,600,T4,LS,0,100,0
p2,100,64,1,600,T4,LS,1,100,1
p3,100,64,1,400,T4,LS,2,100,2
p4,100,64,1,600,T4,LS,3,200,3
p5,100,64,1,1000,V100,LS,4,100,4
"""


def ran(members: list[MemberSpec], jobs: list[Job], resource: str = GPU_SHARE, scoring: str = "") -> Simulation:
    options = Options(verify=True, scoring=parse(scoring) if scoring else None)
    queues = [QueueView(name, {}) for name in sorted({job.queue for job in jobs})]
    run = Simulation(members, queues, jobs, resource, options)
    run.run()
    return run


def waits(run: Simulation) -> dict[str, bool]:
    """Whether jobs waited for others to end."""
    records = run.journal.records.values()
    return {each.job.name: (each.first_start or 0.0) - each.job.submit > 10 for each in records}


def test_openb_pods_share_cards_and_no_share_is_of_two(tmp_path: Path) -> None:
    """Of two T4 cards 1,600 of 2,000 thousandths are taken: 600 more fit in number, and on neither card."""
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    jobs, notes = traces.openb(tmp_path / "pods.csv")
    run = ran(clusters.read(tmp_path / "nodes.csv"), jobs)
    assert waits(run) == {"p1": False, "p2": False, "p3": False, "p4": True, "p5": False}
    found = metrics.report(run.journal, [])
    assert (found["capacity"], found["utilisation"]["most"]) == (3000, round(2600 / 3000, 6))
    assert notes == []


@pytest.mark.parametrize(
    ("scoring", "together"),
    [pytest.param("", True, id="the tightest gap"), pytest.param("least", False, id="the emptiest node")],
)
def test_members_prefer_nodes_by_the_scoring(scoring: str, together: bool) -> None:
    """Two shares of a card, and then a pod that needs a whole node."""
    member = MemberSpec("m", (Pool(2, {GPU_SHARE: 1000, "cpu": 8000, "pods": 110}),))

    def job(name: str, submit: float, share: int) -> Job:
        return Job(name, submit, 100, (Task("w", 1, 1, {GPU_SHARE: share, "cpu": 1000, "pods": 1}),))

    run = ran([member], [job("a", 0, 300), job("b", 1, 300), job("whole", 2, 1000)], scoring=scoring)
    assert waits(run)["whole"] is not together


def test_a_scoring_by_fragmentation_places_pods_before_it_has_seen_a_share() -> None:
    member = MemberSpec("m", (Pool(1, {GPU_SHARE: 1000, "cpu": 8000, "pods": 110}),))
    plain = Job("plain", 0, 100, (Task("w", 1, 1, {"cpu": 1000, "pods": 1}),))
    assert waits(ran([member], [plain], scoring="fragmentation")) == {"plain": False}


def test_parts_of_cards_by_name_are_given_one_by_one() -> None:
    member = MemberSpec("m", (Pool(1, {MIG: 2, "pods": 110}),))
    jobs = [Job(f"j{number}", number, 100, (Task("w", 1, 1, {MIG: 1, "pods": 1}),)) for number in range(3)]
    assert waits(ran([member], jobs, MIG)) == {"j0": False, "j1": False, "j2": True}
