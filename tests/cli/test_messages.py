"""Words for people, one by one: what was once wrong or missing, and what is said now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atoll.cli.options import default_namespace
from atoll.kube import config
from atoll.kube.access import BadKubeconfig
from atoll.model import gang, keys, quantity
from atoll.model.decision import Phase
from atoll.model.gang import TopologyWish
from atoll.model.verdict import Blocker, Reason, Verdict
from atoll.view import explanation, jobs, verdicts
from tests.view.made import NOW, T0, binding, job, told
from tests.view.made import queue as made_queue

Json = dict[str, Any]


# -- topology, limits, numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "line"),
    [
        pytest.param(TopologyWish("soft"), "soft: the nearer the better", id="soft without a tier"),
        pytest.param(TopologyWish("hard", 1), "hard, within tier 1", id="hard with a tier"),
        pytest.param(TopologyWish("hard"), "hard, no tier named: anywhere", id="hard without a tier"),
    ],
)
def test_a_topology_is_told_without_nothing_in_it(wish: TopologyWish, line: str) -> None:
    mine = binding()
    plain = gang.decode(mine["metadata"]["annotations"][keys.GANG])
    asked = gang.Gang(plain.queue, plain.tasks, plain.min_available, network_topology=wish, submitted=T0)
    mine["metadata"]["annotations"][keys.GANG] = gang.encode(asked)
    text = explanation.text(explanation.explain(explanation.Facts(job(), mine, [made_queue()]), NOW))
    assert f"  topology  {line}" in text.splitlines()


def test_two_bounds_of_one_limit_are_one_line() -> None:
    one = {"kind": "Queue", "name": "q", "resource": "cpu", "requested": "8"}
    limits = [
        {**one, "available": "4", "shortage": "4", "declared": False},
        {**one, "available": "0", "shortage": "8"},
    ]
    [line] = verdicts.details({"reason": "QuotaExceeded", "limits": limits})
    assert line == "  limit     queue q: 8 cpu needed, 0 left, 8 short; 4 short (its members have no more)"


@pytest.mark.parametrize(
    ("blocker", "sentence"),
    [
        pytest.param(
            Blocker("Namespace", "team", "cpu", "2", "1"),
            "it would exceed the ResourceQuota of its namespace: namespace team has 1 cpu free for it, 2 needed",
            id="a ResourceQuota is none of a queue",
        ),
        pytest.param(
            Blocker("Queue", "q", "cpu", "2", "1", "east"),
            "it would exceed its queue's ceiling in a member: queue q has 1 cpu free for it in cluster east, 2 needed",
            id="a ceiling",
        ),
        pytest.param(
            Blocker("Queue", "q", "cpu", "98981500m", "500m"),
            "it would exceed its queue's capability: queue q has 500m cpu free for it, 98981.5 needed",
            id="many thousandths",
        ),
    ],
)
def test_what_is_exceeded_is_called_by_its_name(blocker: Blocker, sentence: str) -> None:
    assert Verdict(Reason.QUOTA_EXCEEDED, blocker).sentence() == sentence


@pytest.mark.parametrize(
    ("text", "shown"),
    [("98981500m", "98981.5"), ("10000m", "10"), ("1500m", "1500m"), ("8", "8"), ("8Gi", "8Gi"), ("m", "m")],
)
def test_thousandths_are_for_small_numbers(text: str, shown: str) -> None:
    assert quantity.for_people(text) == shown


# -- kubeconfigs ---------------------------------------------------------------------------------------------------------


CONFIG = "apiVersion: v1\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: x, user: u}}]\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(b"", "it is empty", id="nothing"),
        pytest.param(b"just text", "it is no kubeconfig", id="a text"),
        pytest.param(b"[]", "a list is there", id="a list"),
        pytest.param(b"\xff\xfe", "it is not UTF-8 text", id="no text"),
        pytest.param(b"current-context: c\ncontexts: [c]", "contexts: a list of entries with a name", id="no entries"),
        pytest.param(b"contexts: []", "current-context: it is not set", id="no context is chosen"),
        pytest.param(b"current-context: x\ncontexts: []", "there is no context 'x'", id="it does not exist"),
        pytest.param(CONFIG.encode(), "there is no cluster 'x'", id="no cluster"),
        pytest.param(
            CONFIG.encode() + b'clusters: [{name: x, cluster: {server: "https://a"}}]',
            "there is no user 'u'",
            id="no user",
        ),
    ],
)
async def test_a_kubeconfig_that_is_none_is_refused_in_words(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(BadKubeconfig) as caught:
        await config.load(path)
    said = str(caught.value)
    assert said.startswith(f"kubeconfig {path}: ")
    assert why in said
    for python in ("NoneType", "object", "iterable", "codec", "indices"):
        assert python not in said
    assert default_namespace(str(path), None) == "default"


async def test_without_any_kubeconfig_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(BadKubeconfig, match="there is none, and this is no pod"):
        await config.load()


# -- members that do not answer, and workloads that Atoll leaves alone ---------------------------------------------------


def silent(name: str) -> Json:
    ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2027-01-15T10:04:00Z"}
    return {"metadata": {"name": name}, "status": {"conditions": [ready]}}


def test_figures_of_a_member_that_is_lost_are_of_then() -> None:
    mine = binding(phase=Phase.DISPATCHED, reason=Reason.DISPATCHED, clusters=("member2",))
    text = explanation.text(explanation.explain(explanation.Facts(job(), mine, clusters=[silent("member2")]), NOW))
    assert "  NOT READY member2 since 2027-01-15T10:04:00Z: figures are of then" in text.splitlines()
    since = {"member2": "2027-01-15T10:04:00Z"}
    [row] = jobs.rows([job(running=2)], jobs.by_workload([mine]), NOW, namespaced=False, wide=True, silent=since)
    assert row[-1] == "member2 not ready since 2027-01-15T10:04:00Z, figures are of then"


def test_what_was_deleted_and_made_again_waits_for_its_predecessor() -> None:
    old = binding(clusters=("member2",))
    labels = {keys.ENABLED: "true"}
    facts = explanation.Facts(job(), clusters=[silent("member2")], namespace_labels=labels, predecessor=old)
    why = explanation.explain(facts, NOW)["why"]
    assert (why["reason"], why["message"]) == (
        "PredecessorRemains",
        "its predecessor of the same name is still being removed from member2, which does not answer since"
        " 2027-01-15T10:04:00Z",
    )


@pytest.mark.parametrize(
    ("workload", "reason", "text"),
    [
        pytest.param({"spec": {}}, "OlderThanOptIn", "created before its namespace opted in", id="before the opt-in"),
        pytest.param({"spec": {"managedBy": "x.io/y"}}, "ManagedByAnother", "spec.managedBy is x.io/y", id="managed"),
        pytest.param({"kind": "CronJob"}, "KindNotSupported", "Atoll does not run CronJob of batch/v1", id="kind"),
    ],
)
def test_what_atoll_leaves_alone_says_why_itself(workload: Json, reason: str, text: str) -> None:
    batch = {**job(), "apiVersion": "batch/v1", **workload}
    data = explanation.explain(explanation.Facts(batch, namespace_labels={keys.ENABLED: "true"}), NOW)
    assert data["why"]["reason"] == reason
    assert text in data["why"]["message"]


def test_a_queue_without_the_dispatchers_word_has_the_figures_of_its_status() -> None:
    place = told(made_queue(capability={"cpu": "4"}), allocated={"cpu": "2"})
    data = explanation.explain(explanation.Facts(job(), binding(), [place]), NOW)
    assert data["queue"]["resources"] == [{"resource": "cpu", "used": "2", "limit": "4"}]
