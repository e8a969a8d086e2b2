"""Completion and the reference page: what they know comes from the commands themselves."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from aiohttp import web

from atoll.cli import reference
from atoll.cli.completion import candidates
from tests.cli.kubeconfigs import kubeconfig
from tests.kube.servers import serving


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["jo"], {"join", "job"}, id="the beginning of a command"),
        pytest.param(
            ["job", "re"], {"release", "reschedule", "resume", "restart", "retry"}, id="a command below another"
        ),
        pytest.param(["queue", "list", "--wa"], {"--watch"}, id="an option"),
        pytest.param(["queue", "describe", "q", "-o", ""], {"json", "yaml"}, id="the values of an option"),
    ],
)
def test_candidates_are_what_may_stand_there(words: list[str], expected: set[str]) -> None:
    before = dict(os.environ)
    assert {line.split("\t")[0] for line in candidates(words)} == expected
    assert dict(os.environ) == before


ITEMS = {
    "/apis/batch.volcano.sh/v1alpha1/namespaces/team/jobs": ["train", "tune"],
    "/apis/batch/v1/namespaces/team/jobs": ["nightly"],
    "/apis/scheduling.volcano.sh/v1beta1/queues": ["default", "research"],
    "/apis/cluster.karmada.io/v1alpha1/clusters": ["east"],
}


async def names(request: web.Request) -> web.Response:
    if request.path not in ITEMS:
        return web.json_response({"reason": "Forbidden", "message": "no"}, status=403)
    items = [{"metadata": {"name": name}} for name in ITEMS[request.path]]
    return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["job", "hold", ""], ["job.batch/nightly", "train", "tune"], id="jobs of both kinds"),
        pytest.param(["job", "hold", "train", "tu"], ["tune"], id="a further name"),
        pytest.param(["explain", "job/n"], ["job/nightly"], id="of the kind that was typed"),
        pytest.param(["queue", "describe", "re"], ["research"], id="queues"),
        pytest.param(["job", "move", "train", "--queue", ""], ["default", "research"], id="a queue as a value"),
        pytest.param(["cluster", "cordon", ""], ["east"], id="members"),
        pytest.param(["drain", ""], ["east"], id="members, with the short word"),
        pytest.param(["job", "list", "-n", "other", "-q", "d"], ["default"], id="behind global options"),
        pytest.param(["job", "hold", "-n", "other", ""], [], id="what this user may not list is not offered"),
    ],
)
async def test_names_are_those_of_the_host(
    words: list[str], expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(names) as host:
        monkeypatch.setenv("KUBECONFIG", kubeconfig(host.url, tmp_path / "config"))
        # A process of its own as far as the loop is concerned, as the shell's is.
        found = await asyncio.to_thread(candidates, words)
    assert [line.split("\t")[0] for line in found] == expected


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "no url at all"])
def test_without_a_host_no_names_are_offered_and_nothing_is_said(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig(url, tmp_path / "config"))
    began = time.monotonic()
    assert candidates(["queue", "describe", ""]) == []
    assert time.monotonic() - began < 10, "it is tried for a second and a half"
    assert capsys.readouterr() == ("", "")


def test_the_page_is_up_to_date() -> None:
    assert reference.main(["--check"]) == 0, "run: python -m atoll.cli.reference"


def test_a_page_that_differs_is_reported_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "cli.md"
    monkeypatch.setattr(reference, "PAGE", page)
    assert reference.main(["--check"]) == 1
    assert "python -m atoll.cli.reference" in capsys.readouterr().err
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0


def test_every_command_is_on_the_page_with_an_example() -> None:
    sections = reference.page().split("\n## ")[3:]
    assert {section.partition("\n")[0] for section in sections} >= {"atollctl unjoin", "atollctl job abort"}
    assert all("\nExample: `atollctl " in section for section in sections)
