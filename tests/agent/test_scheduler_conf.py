"""The scheduler's configuration: Volcano's scheduler.conf as far as it acts, what of it does not, and how it is taken up."""

from __future__ import annotations

import pytest

from atoll.agent.scheduler import measured
from atoll.agent.scheduler.configuration import read
from atoll.agent.scheduler.core import Bind, Evict, MemberCore, Pass
from atoll.agent.scheduler.core.events import Configured, Measured, NodeSet, PodSet, Whose
from atoll.agent.scheduler.volcano_conf import ConfError
from atoll.agent.scheduler.volcano_conf import read as read_conf
from atoll.model.scoring import Scoring, parse
from tests.agent.builders import make_node, make_pod

DEFAULT = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
"""What Volcano comes with."""
GPUS = """
actions: "allocate, gangpreempt, dance"
metrics: {type: prometheus, address: "http://prometheus:9090"}
configurations: [{name: allocate, arguments: {x: 1}}]
colour: green
tiers:
- plugins:
  - name: nodeorder
    arguments: {leastrequested.weight: 0, mostrequested.weight: 2, balancedresource.weight: 0, nodeaffinity.weight: 7, nodelove.weight: 3}
  - name: binpack
    arguments: {binpack.weight: 10, binpack.cpu: 0, binpack.resources: "nvidia.com/gpu", binpack.resources.nvidia.com/gpu: 8}
  - name: usage
    arguments: {usage.weight: 3, thresholds: {cpu: 70}}
  - name: tdm
"""


def test_volcano_s_own_default_is_read() -> None:
    conf = read_conf(DEFAULT)
    assert conf.scoring.terms == {"least": 1, "balanced": 1, "binpack": 1}
    assert conf.scoring.resources == {"binpack": {"cpu": 1, "memory": 1}}
    assert not conf.preempts, "no action preempt"
    assert [each.split(":")[0] for each in conf.without_effect] == [
        "action enqueue", "plug-in gang, enablePreemptable", "plug-in conformance", "plug-in overcommit", "plug-in drf",
        "plug-in proportion",
    ]  # fmt: skip


def test_arguments_are_read_and_what_has_no_part_here_is_named() -> None:
    conf = read_conf(GPUS)
    assert conf.scoring.terms == {"most": 2, "binpack": 10, "usage": 3}
    assert conf.scoring.resources == {"binpack": {"memory": 1, "nvidia.com/gpu": 8}}
    assert (conf.scoring.preferences, conf.scoring.thresholds) == ({"nodeAffinity": 7}, {"cpu": 70, "memory": 80})
    assert conf.preempts
    named = "; ".join(conf.without_effect)
    for word in ("action dance", "metrics", "action allocate", "colour", "nodelove.weight", "plug-in tdm"):
        assert word in named


def test_a_plug_in_that_is_switched_off_scores_nothing() -> None:
    conf = read_conf("tiers: [{plugins: [{name: binpack, enableNodeOrder: false}]}]")
    assert (conf.scoring, conf.preempts, conf.without_effect) == (Scoring(), True, ())


@pytest.mark.parametrize(
    "text",
    [
        "- a",
        "tiers: 3",
        "tiers: [3]",
        "tiers: [{plugins: [x]}]",
        "a: [",
        "tiers: [{plugins: [{name: binpack, arguments: {binpack.weight: -1}}]}]",
    ],
)
def test_what_is_no_scheduler_conf_is_refused(text: str) -> None:
    with pytest.raises(ConfError):
        read_conf(text)


def test_a_configmap_has_a_scoring_of_its_own_before_the_conf() -> None:
    found, idle = read({"node-scoring": "spread=2", "volcano-scheduler.conf": GPUS, "other": ""})
    assert (found.scoring.terms, found.scoring.preferences, found.preempts) == (
        {"spread": 2},
        {"nodeAffinity": 7},
        True,
    )
    assert idle[0] == "key other: there is no such key"
    with pytest.raises(ValueError, match="node-scoring has 'x'"):
        read({"node-scoring": "x"})
    assert read({}) == (Configured(), [])


def placed(core: MemberCore, name: str, **more: object) -> str:
    core.handle(PodSet(make_pod(name, **more), Whose.OURS))  # type: ignore[arg-type]
    commands = core.handle(Pass(0.0))
    return next((node for each in commands if isinstance(each, Bind) for _, _, node in each.pods), "")


def two_nodes() -> MemberCore:
    core = MemberCore()
    for name in ("a", "b"):
        core.handle(NodeSet(make_node(name)))
    core.handle(PodSet(make_pod("there", node="a", phase="Running"), Whose.OURS))
    return core


def test_the_configuration_acts_from_the_next_pod_on() -> None:
    core = two_nodes()
    assert placed(core, "tight") == "a"
    core.handle(Configured(parse("spread")))
    assert placed(core, "spread") == "b"
    core.handle(Configured())
    assert placed(core, "tight-again") == "a"


def test_nodes_in_use_are_avoided_where_use_counts() -> None:
    core = two_nodes()
    core.handle(Configured(parse("usage")))
    read_ = measured.read([
        {"metadata": {"name": "a"}, "usage": {"cpu": "250m", "memory": "1Gi"}},
        {"metadata": {"name": "b"}, "usage": {"cpu": "7000000000n", "memory": "1Gi"}},
        {"metadata": {"name": "c"}},
    ])  # fmt: skip
    assert read_ == Measured({"a": (250, 2**30), "b": (7000, 2**30)})
    core.handle(read_)
    assert placed(core, "one") == "a"
    core.handle(Measured({}))
    core.handle(Configured(parse("spread")))
    assert placed(core, "two") == "b"


def test_a_conf_without_preempt_has_nothing_evicted() -> None:
    core = MemberCore()
    core.handle(NodeSet(make_node("a")))
    core.handle(PodSet(make_pod("low", node="a", phase="Running", gpu=8), Whose.OURS))
    core.handle(Configured(preempts=False))
    core.handle(PodSet(make_pod("high", gpu=8, priority=9), Whose.OURS))
    assert not [each for each in core.handle(Pass(0.0)) if isinstance(each, Evict)]
    core.handle(Configured())
    assert [each for each in core.handle(Pass(1.0)) if isinstance(each, Evict)]


def test_plug_in_sla_says_how_long_gangs_of_the_member_may_wait() -> None:
    conf = "tiers: [{plugins: [{name: sla, arguments: {sla-waiting-time: 1h30m, colour: green}}]}]"
    found, idle = read({"volcano-scheduler.conf": conf})
    assert found.waiting_time == 5400
    assert idle == ["plug-in sla, argument colour: it does nothing here"]
    with pytest.raises(ValueError, match="no duration"):
        read({"volcano-scheduler.conf": conf.replace("1h30m", "soon")})
