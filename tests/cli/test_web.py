"""The page over HTTP: who gets in, what is shown, what changes reach a browser, and what never becomes markup."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from atoll.kube.transport import ApiServer
from atoll.model.apiresource import AVAILABILITIES, BINDINGS, CAPACITIES, CLUSTERS, JOBS, LEASES
from atoll.model.decision import Phase
from atoll.model.verdict import Blocker
from tests.atollctl import atollctl
from tests.view.made import job

pytest.importorskip("jinja2")

from atoll.cli.web import page, pages, site
from tests.cli.web_pages import EVIL, availability, filled, member, opened, plain, waiting


async def test_each_view_shows_the_federation(tmp_path: Path) -> None:
    async with opened(filled(), tmp_path) as browser:
        front = plain(await browser.text("/"))
        assert "east True v1.36.0" in front
        assert "6 of 16 free" in front
        assert "2 waiting" in front
        assert "atoll-control one" in front
        tree = plain(await browser.text("/queues"))
        assert "research Open 2 0 nvidia.com/gpu 0 of 32" in tree
        one = plain(await browser.text("/queues/research"))
        assert "1 team train Job" in one
        assert "2 team other Job" in one
        listed = plain(await browser.text("/workloads"))
        assert "QuotaExceeded" in listed
        assert "workloads of queue research that finish" in listed
        story = plain(await browser.text("/workloads/team/job.batch.volcano.sh/train"))
        assert "Why it waits" in story
        assert "queued" in story
        assert "a higher limit of queue research" in story


async def test_page_says_the_same_as_the_command(tmp_path: Path) -> None:
    from atoll.cli import explain
    from atoll.view import explanation

    host = filled()
    async with opened(host, tmp_path) as browser, await ApiServer.from_kubeconfig(str(tmp_path / "config")) as api:
        data = explanation.explain(await explain.gather(api, "vcjob/train", "team"), 0.0)
        shown = plain(await browser.text("/workloads/team/vcjob/train"))
        assert plain(html.escape(data["waiting"]["message"])) in shown
        assert all(line in shown for line in data["waiting"]["help"])


async def test_topology_says_the_same_as_nodes(tmp_path: Path) -> None:
    async with opened(filled(), tmp_path) as browser:
        ran = await atollctl("nodes", f"--kubeconfig={tmp_path / 'config'}")
        assert ran.code == 0, ran.said
        head, east, _ = (line.split("   ") for line in ran.out.splitlines())
        row = dict(zip([each.strip() for each in head if each], [each.strip() for each in east if each], strict=True))
        assert (row["MIXED"], row["FREE"], row["ON ONE NODE"], row["IN ONE DOMAIN"]) == ("2", "6", "3", "6")
        shown = plain(await browser.text("/topology"))
        assert "2 nodes with nvidia.com/gpu: 0 idle, 2 mixed, 0 full; 6 of 16 free, at most 3 on one node" in shown
        assert "east-rack tier 1 (rack), 2 nodes 6 of 16 free" in shown
        assert "32 of 64 free" in plain(await browser.text("/topology?resource=cpu"))


async def test_available_says_the_same_as_the_command(tmp_path: Path) -> None:
    host = filled()
    host.put(AVAILABILITIES, availability("east", message=f"is cordoned {EVIL}"), availability("west", free=16))
    async with opened(host, tmp_path) as browser:
        ran = await atollctl("available", "-n", "team", f"--kubeconfig={tmp_path / 'config'}")
        assert ran.code == 0, ran.said
        text = await browser.text("/available")
        assert "<img" not in text
        assert 'aria-current="page">Available' in text
        for line in ran.out.splitlines()[1:]:
            assert " ".join(line.split()) in plain(text)
        assert "No member has such a resource" in plain(await browser.text("/available?resource=tpu"))
        asked = host.requests.count(("secret", "GET", AVAILABILITIES.path("team")))
        host.put(BINDINGS, waiting("new"))
        await browser.text("/available")
        assert host.requests.count(("secret", "GET", AVAILABILITIES.path("team"))) == asked


async def test_available_has_the_rights_of_its_viewer_and_is_bounded(tmp_path: Path) -> None:
    host = filled()
    host.put(AVAILABILITIES, *(availability(f"m-{number:03}") for number in range(600)))
    host.refused.add((AVAILABILITIES.path("others"), "secret"))
    async with opened(host, tmp_path) as browser:
        text = await browser.text("/available")
        assert text.count("<tr data-key") == 500
        assert "and 100 more lines" in text
        assert "Forbidden here" in plain(await browser.text("/available?namespace=others"))
        await browser.text("/available?namespace=team/../others", 400)


async def test_topology_names_lost_nodes(tmp_path: Path) -> None:
    host = filled()
    _, capacity = member("west")
    capacity["spec"]["lost"] = [{"domain": "west-rack", "nodes": 2, "names": ["w3", "w4"]}]
    host.put(CAPACITIES, capacity)
    async with opened(host, tmp_path) as browser:
        shown = plain(await browser.text("/topology"))
        assert "2 nodes with nvidia.com/gpu: 0 idle, 2 mixed, 0 full, 2 lost ; 6 of 16 free" in shown
        assert "6 of 16 free 2 lost w3, w4" in shown


async def test_pods_of_a_workload_are_drawn_in_their_racks(tmp_path: Path) -> None:
    host = filled()
    report = {"clusterName": "east", "status": {"placement": {"nodes": {"e1": 2, "e9": 1}, "domain": "east-rack"}}}
    host.put(BINDINGS, waiting("train", phase=Phase.DISPATCHED, clusters=("east",), reports=(report,)))
    _, capacity = member("east")
    capacity["spec"]["classes"][0]["names"] = ["e1", "e2"]
    capacity["spec"]["lost"] = [{"domain": "east-rack", "nodes": 1, "names": ["e9"]}]
    host.put(CAPACITIES, capacity)
    async with opened(host, tmp_path) as browser:
        shown = plain(await browser.text("/workloads/team/vcjob/train"))
        assert "east-rack rack e1 \u25a0\u25a0 2 pods e9 (lost) \u25a0 1 pod 1 other node there" in shown
    host.refused.add((CAPACITIES.path(), "secret"))
    async with opened(host, tmp_path) as browser:
        assert "no domain that you may see e1" in plain(await browser.text("/workloads/team/vcjob/train"))


async def test_texts_of_tenants_never_become_markup(tmp_path: Path) -> None:
    host = filled()
    host.put(BINDINGS, waiting("evil", blocker=Blocker("Queue", EVIL, EVIL, "16", "4")))
    host.put(JOBS, job("train", state={"phase": EVIL}), job("evil"))
    async with opened(host, tmp_path) as browser:
        for path in ("/", "/queues", "/queues/research", "/workloads", "/workloads/team/vcjob/train",
                     f"/workloads?name={EVIL}&queue={EVIL}"):  # fmt: skip
            text = await browser.text(path)
            assert "<img" not in text, path
            assert text.count("<script") == 1, path
        assert html.escape(EVIL) in await browser.text("/workloads/team/vcjob/train")


async def test_only_the_printed_address_gets_in(tmp_path: Path) -> None:
    async with opened(filled(), tmp_path, enter=False) as browser:
        await browser.text("/", 401)
        await browser.text("/changes?of=/", 401)
        await browser.text("/enter?secret=guess", 401)
        async with browser.session.get(browser.address) as answer:
            assert answer.status == 200
        [cookie] = browser.session.cookie_jar
        assert cookie["httponly"]
        assert cookie["samesite"] == "Strict"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1:1"])
async def test_names_that_resolve_to_loopback_do_not_reach_the_page(tmp_path: Path, host: str) -> None:
    async with (
        opened(filled(), tmp_path) as browser,
        browser.session.get(browser.base + "/", headers={"Host": host}) as answer,
    ):
        assert answer.status == 421
        assert "east" not in await answer.text()


async def test_requests_of_other_sites_are_refused(tmp_path: Path) -> None:
    async with opened(filled(), tmp_path) as browser:
        for origin in ("cross-site", "same-site"):
            async with browser.session.get(browser.base + "/", headers={"Sec-Fetch-Site": origin}) as answer:
                assert answer.status == 403
        async with browser.session.post(browser.base + "/queues") as answer:
            assert answer.status == 403
        await browser.send("/queues", {}, 405)
        await browser.send("/what-if", {}, 403, Origin="https://evil.example")


async def test_answers_forbid_inline_scripts_and_frames(tmp_path: Path) -> None:
    async with opened(filled(), tmp_path) as browser:
        for path in ("/", "/static/page.js", "/nowhere"):
            async with browser.session.get(browser.base + path) as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "unsafe" not in policy
                assert "frame-ancestors 'none'" in policy
        text = await browser.text("/")
        assert not re.search(r"<script(?![^>]*src=)|\son\w+=|\sstyle=|<style", text)


async def test_unknown_pages_and_objects_say_so(tmp_path: Path) -> None:
    async with opened(filled(), tmp_path) as browser:
        assert "no such page" in await browser.text("/nowhere", 404)
        await browser.text("/queues/none", 404)
        await browser.text("/workloads/team/vcjob/none", 404)
        await browser.text("/workloads/team/..%2f/none", 404)


async def events(answer: aiohttp.ClientResponse) -> AsyncIterator[list[Any]]:
    async for line in answer.content:
        if line.startswith(b"data: "):
            yield orjson.loads(line[6:])


async def test_stream_sends_the_page_and_then_its_changed_parts(tmp_path: Path) -> None:
    host = filled()
    async with (
        opened(host, tmp_path) as browser,
        browser.session.get(f"{browser.base}/changes?of=/workloads%3Fqueue%3Dresearch") as answer,
    ):
        assert answer.content_type == "text/event-stream"
        stream = events(answer)
        first = await anext(stream)
        assert all(isinstance(part, str) for part in first)
        host.put(BINDINGS, waiting("third"))
        async for change in stream:
            new = [part for part in change if isinstance(part, str)]
            if any("third" in part for part in new):
                break
        assert len(new) < len(first)
        assert any(isinstance(part, int) for part in change)


async def test_streams_are_bounded_and_share_their_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host, made = filled(), []
    find = pages.find

    def counting(url: Any) -> pages.View:
        view = find(url)

        async def make(world: Any) -> page.Page:
            made.append(view.key)
            return await view.make(world)

        return pages.View(view.key, make)

    monkeypatch.setattr(pages, "find", counting)
    async with opened(host, tmp_path) as browser:
        made.clear()
        async with aiohttp.ClientSession(
            cookie_jar=browser.session.cookie_jar, connector=aiohttp.TCPConnector(limit=0)
        ) as many:
            asked = f"{browser.base}/changes?of=/queues"
            answers = await asyncio.gather(*(many.get(asked) for _ in range(site.MOST_STREAMS)))
            for each in answers:
                assert each.status == 200
                await anext(events(each))
            assert len(made) <= 3
            async with many.get(asked) as one_more:
                assert one_more.status == 503
            for each in answers:
                each.close()


async def test_user_of_one_namespace_sees_nothing_of_others(tmp_path: Path) -> None:
    host = filled()
    foreign = waiting("secret-plan")
    foreign["metadata"] |= {"namespace": "others", "uid": "foreign"}
    host.put(BINDINGS, foreign)
    for resource in (BINDINGS, CLUSTERS, CAPACITIES, LEASES):
        host.refused.add((resource.path(), "secret"))
    async with opened(host, tmp_path) as browser:
        for path in ("/", "/queues", "/queues/research", "/workloads"):
            text = await browser.text(path)
            assert "secret-plan" not in text
            assert "workloads outside namespace team" in plain(text)
        assert "train" in await browser.text("/workloads")


async def test_page_of_ten_thousand_workloads_is_bounded(tmp_path: Path) -> None:
    host = filled()
    host.put(BINDINGS, *(waiting(f"w-{number:05}") for number in range(10_000)))
    async with opened(host, tmp_path) as browser:
        text = await browser.text("/workloads")
        assert len(text) < 250_000
        assert "10002 waiting, 1 to 100 here" in plain(text)
        assert "10001 to 10002 here" in plain(await browser.text("/workloads?page=101"))
        assert "page=2" in text
        assert "template=" not in text, "a link has the filters alone"
