"""Usage and the timeline: the figures of the commands, of the workloads that the user may see, in a bounded page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from atoll.model.apiresource import BINDINGS, CLUSTERS, QUEUES
from atoll.model.timestamps import rfc3339
from tests.atollctl import atollctl

pytest.importorskip("jinja2")

from tests.cli.web_pages import EVIL, filled, opened, plain, queue_run, ran, tree

Json = dict[str, Any]


async def test_usage_says_the_same_as_the_command(tmp_path: Path) -> None:
    host = filled()
    host.put(BINDINGS, ran("a"), ran("b", outcome="Evicted", reason="Reclaimed"))
    async with opened(host, tmp_path) as browser:
        for by in ("queue", "namespace", "user", "member", "class"):
            done = await atollctl("usage", "-A", f"--by={by}", "--since=7d", f"--kubeconfig={tmp_path / 'config'}")
            assert done.code == 0, done.said
            [row] = done.out.splitlines()[1:]
            assert " ".join((row.partition("hours")[0] + "hours").split()) in plain(
                await browser.text(f"/usage?by={by}")
            )
            assert "8.00 unknown 4.00 hours" in plain(row)
        assert "No run of that time" in plain(await browser.text("/usage?since=5m"))


async def test_usage_by_queue_names_shares_only_where_queues_can_be_read(tmp_path: Path) -> None:
    host = filled()
    host.put(QUEUES, *tree())
    host.put(BINDINGS, ran("a"))
    async with opened(host, tmp_path) as browser:
        words = ("usage", "-A", "--since=7d", f"--kubeconfig={tmp_path / 'config'}")
        done = await atollctl(*words)
        [header, lab, research] = done.out.splitlines()
        assert header.split()[-3:] == ["SHARE", "BORROWED", "LENT"]
        assert (lab.split()[0], lab.split()[-3:]) == ("lab", ["0%", "0.00", "0.00"])
        assert (research.split()[0], research.split()[-3:]) == ("research", ["-", "-", "-"])
        page = plain(await browser.text("/usage"))
        assert "unit share borrowed lent of all" in page
        assert page.count("hours 0% 0.00 0.00") == 1
        assert "4.00 of 4.00" in await browser.text("/usage")
        host.refused |= {(QUEUES.path(), "secret")}
        done = await atollctl(*words)
        assert done.code == 0
        assert "borrowed and lent hours: queues can't be read" in done.said
        assert "SHARE" not in done.out
        assert "research" in done.out
    async with opened(host, tmp_path) as browser:
        page = plain(await browser.text("/usage"))
        assert "share" not in page
        assert "research 1 0" in page


async def test_usage_of_one_queue_has_its_runs_and_the_ones_below(tmp_path: Path) -> None:
    host = filled()
    host.put(QUEUES, *tree())
    foreign = ran("b")
    foreign["status"]["runs"][0]["queue"] = "night"
    host.put(BINDINGS, ran("a"), foreign)
    async with opened(host, tmp_path) as browser:
        page = plain(await browser.text("/usage?queue=lab"))
        assert "lab 1 0" in page
        assert "research 1 0" in page
        assert "night" not in page
        assert "there is no queue typo" in plain(await browser.text("/usage?queue=typo"))
        done = await atollctl("usage", "-A", "--queue=typo", f"--kubeconfig={tmp_path / 'config'}")
        assert (done.code, "there is no queue typo" in done.said) == (1, True)


async def test_usage_of_a_queue_needs_the_right_to_it_or_to_one_above(tmp_path: Path) -> None:
    host = filled()
    host.put(QUEUES, *tree())
    host.put(BINDINGS, ran("a"))
    host.refused |= {(BINDINGS.path(), "secret")}
    async with opened(host, tmp_path) as browser:
        page = plain(await browser.text("/usage?queue=research"))
        assert "in other namespaces are left out: the right to get queueruns of research or lab is missing" in page
        assert "research 1 0" in page
        assert "unit of all" in page, "no share is of one namespace"
    host.queue_runs["lab"] = [queue_run("mine", "team"), queue_run("theirs", "others")]
    async with opened(host, tmp_path) as browser:
        page = plain(await browser.text("/usage?queue=research"))
        assert "research 2 0" in page
        assert "unit share borrowed lent of all" in page
        assert "left out" not in page
        assert "others 1 0" in plain(await browser.text("/usage?queue=lab&by=namespace"))
    async with opened(host, tmp_path, only="team") as browser:
        assert "research 1 0" in plain(await browser.text("/usage?queue=research")), "as with -n"


async def test_timeline_shows_starts_evictions_and_lost_members(tmp_path: Path) -> None:
    host = filled()
    host.put(BINDINGS, ran("a"), ran("b", outcome="Evicted", reason="Preempted", evicted_for="team/vip", message=EVIL))
    lost = {
        "type": "Ready",
        "status": "Unknown",
        "lastTransitionTime": rfc3339(time.time() - 60),
        "message": "no report",
    }
    host.put(CLUSTERS, {"metadata": {"name": "north"}, "spec": {}, "status": {"conditions": [lost]}})
    async with opened(host, tmp_path) as browser:
        text = await browser.text("/timeline")
        assert "<img" not in text
        words = plain(text)
        for line in ("started: 2", "ended: 1", "evicted: 1", "member lost: 1", "member lost north no report"):
            assert line in words
        assert "evicted research east team/ b Preempted for team/vip: <img" in words
        assert 'href="/workloads/team/job.batch.volcano.sh/a"' in text
        assert words.index("member lost north") < words.index("evicted research")
        assert "started: 0" in plain(await browser.text("/timeline?since=5m"))


async def test_reports_of_a_user_of_one_namespace_have_nothing_of_others(tmp_path: Path) -> None:
    host = filled()
    foreign = ran("secret-plan", user="spy")
    foreign["metadata"] |= {"namespace": "others", "uid": "foreign"}
    host.put(BINDINGS, ran("a"), foreign)
    host.refused |= {(resource.path(), "secret") for resource in (BINDINGS, CLUSTERS)}
    async with opened(host, tmp_path) as browser:
        for path in ("/usage?by=user", "/usage?by=namespace", "/timeline"):
            text = await browser.text(path)
            assert not any(word in text for word in ("secret-plan", "spy", "others/"))
            assert "workloads outside namespace team" in plain(text)
        assert "ann" in await browser.text("/usage?by=user")


async def test_reports_are_bounded(tmp_path: Path) -> None:
    host = filled()
    host.put(BINDINGS, *(ran(f"w-{number:04}", user=f"user-{number}") for number in range(600)))
    async with opened(host, tmp_path) as browser:
        text = plain(await browser.text("/usage?by=user"))
        assert "and 100 more lines: atollctl usage --by user --since 7d" in text
        text = plain(await browser.text("/timeline"))
        assert "started: 600" in text
        assert "The last 500; earlier ones: atollctl history --since 24h" in text


@pytest.mark.parametrize("path", ["/usage?by=colour", "/usage?since=tomorrow", "/timeline?since=nand"])
async def test_a_report_that_can_t_be_read_is_refused(tmp_path: Path, path: str) -> None:
    async with opened(filled(), tmp_path) as browser:
        assert "write" in await browser.text(path, 400)
