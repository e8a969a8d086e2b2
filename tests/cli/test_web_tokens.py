"""`atoll-web`: each request reads with the token of its user, which is never written down nor used for another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.kube.access import Access
from atoll.model.apiresource import BINDINGS, CAPACITIES, CLUSTERS, LEASES
from tests.cli.web_host import Host, serving

pytest.importorskip("jinja2")

from atoll.cli.web import __main__, tokens
from tests.cli.web_pages import Browser, filled, plain, shared, waiting


def divided() -> Host:
    """`admin` may see all, `tenant` namespace `team` alone; the host does not know `stranger`."""
    host = filled()
    foreign = waiting("secret-plan")
    foreign["metadata"] |= {"namespace": "others", "uid": "foreign"}
    host.put(BINDINGS, foreign)
    host.refused |= {(resource.path(), "tenant") for resource in (BINDINGS, CLUSTERS, CAPACITIES, LEASES)}
    host.unknown.add("stranger")
    return host


async def entered(browser: Browser, token: str, namespace: str = "", status: int = 200) -> str:
    async with browser.session.post(f"{browser.base}/enter", data={"token": token, "namespace": namespace}) as answer:
        assert answer.status == status
        return await answer.text()


async def test_each_request_reads_with_the_token_of_its_user() -> None:
    host = divided()
    async with serving(host), shared(Access(host.url)) as browser:
        assert "secret-plan" in await browser.text("/workloads", token="admin")
        await entered(browser, "tenant", "team")
        for path in ("/", "/queues", "/queues/research", "/workloads"):
            text = await browser.text(path)
            assert "secret-plan" not in text
            assert "workloads outside namespace team" in plain(text)
        assert "train" in await browser.text("/workloads")
        browser.session.cookie_jar.clear()
        assert "secret-plan" in await browser.text("/workloads", token="admin")
    assert {token for token, _, _ in host.requests} == {"admin", "tenant"}
    assert {method for _, method, path in host.requests if not path.endswith("/selfsubjectreviews")} == {"GET"}


async def test_nobody_gets_in_without_a_token_that_the_host_knows() -> None:
    host = divided()
    async with serving(host), shared(Access(host.url)) as browser:
        for path in ("/", "/workloads", "/changes?of=/"):
            assert 'name="token"' in await browser.text(path, 401)
            await browser.text(path, 401, token="stranger")
        assert "does not know" in await entered(browser, "stranger", status=401)
        assert "no token" in await entered(browser, "two words", status=401)
        assert "namespace" in await entered(browser, "admin", "../x", status=400)
        await browser.text("/", 401)


async def test_token_stays_in_memory_until_its_user_leaves() -> None:
    host = divided()
    async with serving(host), shared(Access(host.url)) as browser:
        await entered(browser, "admin")
        [cookie] = browser.session.cookie_jar
        assert cookie.key == "__Host-atoll"
        assert "admin" not in cookie.value
        assert cookie["httponly"]
        assert cookie["secure"]
        assert cookie["samesite"] == "Strict"
        assert "Leave" in await browser.text("/")
        async with browser.session.post(f"{browser.base}/leave") as answer:
            assert answer.url.path == "/enter"
        await browser.text("/", 401)


async def test_forms_of_other_sites_are_refused() -> None:
    host = divided()
    async with serving(host), shared(Access(host.url)) as browser:
        for origin in ("https://evil.example", "null", ""):
            for path in ("/enter", "/leave"):
                headers = {"Origin": origin}
                async with browser.session.post(
                    browser.base + path, data={"token": "admin"}, headers=headers
                ) as answer:
                    assert answer.status == 403


async def test_token_that_expires_ends_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "CHECKED_S", 0.0)
    host = divided()
    async with serving(host), shared(Access(host.url)) as browser:
        headers = {"Authorization": "Bearer admin"}
        async with browser.session.get(f"{browser.base}/changes?of=/workloads", headers=headers) as answer:
            assert (await answer.content.readline()).startswith(b"data: ")
            host.unknown.add("admin")
            rest = await answer.content.read()
        assert b"event: gone" in rest
        assert b"has expired" in rest
        await browser.text("/workloads", 401, token="admin")


async def test_users_are_bounded_and_the_ones_who_went_make_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "IDLE_S", 0.4)
    host = divided()
    async with serving(host), shared(Access(host.url), users=1) as browser:
        await browser.text("/", token="admin")
        await browser.text("/", 503, token="other")
        async with browser.session.get(f"{browser.base}/nowhere") as answer:
            assert answer.status == 401
        while True:
            async with browser.session.get(f"{browser.base}/", headers={"Authorization": "Bearer other"}) as answer:
                if answer.status == 200:
                    break


def test_names_are_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        __main__.main([])
    assert "--names" in capsys.readouterr().err
