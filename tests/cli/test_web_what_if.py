"""The form of what-if: the questions of `atollctl what-if`, the same words as an answer, and nothing that is asked by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from atoll.view import verdicts
from tests.cli.web_host import Host

pytest.importorskip("jinja2")

from tests.cli.web_pages import EVIL, filled, opened, plain

Json = dict[str, Any]

WAITS: Json = {
    "reason": "QuotaExceeded",
    "message": f"queue research: 4 of 16 {EVIL}",
    "queue": {"queue": "research", "position": 3, "waiting": 4},
    "changes": [{"message": "a higher limit of queue research", "enough": True}],
}
STARTS: Json = {"starts": True, "places": [{"cluster": "east", "pods": 4, "domain": "east-rack"}]}


def asked(status: Json) -> Host:
    host = filled()
    host.answer_to_what_if = status
    return host


async def test_few_words_ask_what_submit_would_submit(tmp_path: Path) -> None:
    host = asked(STARTS)
    async with opened(host, tmp_path) as browser:
        form = await browser.text("/what-if?queue=night")
        assert 'name="namespace" value="team"' in form
        assert 'name="queue" value="night"' in form
        assert "<script" not in form
        fields = {"queue": "research", "workers": "4", "gpus": "8", "within": "rack", "memory": "64Gi"}
        text = plain(await browser.send("/what-if", fields))
    [question] = host.what_ifs
    job = question["spec"]["workload"]
    assert question["metadata"]["namespace"] == "team"
    assert job["kind"] == "Job"
    assert job["spec"]["queue"] == "research"
    assert job["spec"]["minAvailable"] == 4
    assert job["spec"]["networkTopology"] == {"mode": "hard", "highestTierName": "rack"}
    [task] = job["spec"]["tasks"]
    requests = {"cpu": "1", "memory": "64Gi", "nvidia.com/gpu": "8"}
    assert task["template"]["spec"]["containers"][0]["resources"]["requests"] == requests
    assert "Job team/what-if would start now" in text
    assert "in east: 4 pods, domain east-rack" in text


async def test_answer_is_the_text_of_the_command(tmp_path: Path) -> None:
    workload = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "new"}, "spec": {}}
    async with opened(asked(WAITS), tmp_path) as browser:
        text = await browser.send("/what-if", {"manifest": yaml.safe_dump(workload)})
    assert "<img" not in text
    for line in verdicts.answer("Job team/new", WAITS, 0.0).splitlines():
        assert " ".join(line.split()) in plain(text)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        pytest.param({"manifest": "kind: [Job"}, "YAML", id="no YAML"),
        pytest.param({"manifest": "a: 1\n---\nb: 2"}, "2 documents", id="several documents"),
        pytest.param({"manifest": "just words"}, "a manifest of a workload is wanted", id="no object"),
        pytest.param({"manifest": "kind: Sofa\nmetadata: {name: x}\nspec: {containers: []}"}, "what-if takes", id="an unknown kind"),
        pytest.param({"manifest": "kind: ConfigMap\nmetadata: {name: x}"}, "carries no workload", id="no workload"),
        pytest.param({"workers": "many"}, "write a number", id="a word for a count"),
        pytest.param({"workers": "0"}, "at least 1", id="no workers"),
        pytest.param({"memory": "much"}, "much", id="no amount"),
        pytest.param({"time": "soon"}, "soon", id="no duration"),
    ],
)  # fmt: skip
async def test_what_can_t_be_asked_is_refused_with_the_reason(tmp_path: Path, fields: dict[str, str], why: str) -> None:
    host = asked(STARTS)
    async with opened(host, tmp_path) as browser:
        text = plain(await browser.send("/what-if", fields))
    assert why in text
    assert "would start" not in text
    assert host.what_ifs == []


async def test_forms_are_bounded(tmp_path: Path) -> None:
    async with opened(asked(STARTS), tmp_path) as browser:
        assert "the manifest: it has 70000 bytes" in plain(await browser.send("/what-if", {"manifest": "a" * 70_000}))
        await browser.send("/what-if", {"manifest": "a" * 300_000}, 413)
        await browser.send("/what-if", {"queue": "a" * 300}, 400)


async def test_who_may_not_ask_gets_the_refusal_of_the_host(tmp_path: Path) -> None:
    host = asked(STARTS)
    host.refused.add(("/apis/batch.volcano.sh/v1alpha1/namespaces/team/jobs", "secret"))
    async with opened(host, tmp_path) as browser:
        assert "Forbidden here" in plain(await browser.send("/what-if", {}))
    assert host.what_ifs == []


async def test_no_stream_asks_again(tmp_path: Path) -> None:
    host = asked(STARTS)
    async with opened(host, tmp_path) as browser:
        await browser.text("/changes?of=/what-if", 404)
        await browser.text("/what-if?manifest=x&workers=4")
    assert host.what_ifs == []
