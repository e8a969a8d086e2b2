"""Targets: what they get, how often, and what becomes of messages while they fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from atoll.control import targets
from atoll.control.notifications import counter
from atoll.control.settings import NotificationSettings
from atoll.control.targets import Message, Outlet, Target
from tests.control.receivers import receiving


@asynccontextmanager
async def outlet(target: Target | None, **settings: Any) -> AsyncIterator[Outlet]:
    made = Outlet("t", lambda: target, NotificationSettings(**settings), counter(CollectorRegistry()))
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def message(number: int = 1, done: list[int] | None = None, **more: Any) -> Message:
    text = {"event": "evicted", "at": "2026-11-29T10:00:00Z", "text": "Job team/a was <!channel> & more", "name": "a"}
    return Message(
        id=f"u/{number}/evicted", namespace="team", done=(lambda: done.append(number)) if done is not None else None,
        **text | more,
    )  # fmt: skip


async def test_webhooks_get_a_cloud_event_and_the_headers_of_the_administrator() -> None:
    async with receiving() as receiver:
        target = Target(webhook=f"{receiver.url}/hook", headers={"Authorization": "Bearer s"})
        async with outlet(target) as out:
            out.offer(message())
            [body] = await receiver.has(1)
    assert {key: body[key] for key in ("specversion", "id", "source", "type", "subject")} == {
        "specversion": "1.0",
        "id": "u/1/evicted",
        "source": "atoll",
        "type": "sh.atoll.workload.evicted",
        "subject": "team/a",
    }
    assert body["data"]["text"].startswith("Job team/a was")
    assert "done" not in body["data"]
    assert receiver.headers[0]["Authorization"] == "Bearer s"
    assert receiver.headers[0]["Content-Type"] == "application/cloudevents+json"


async def test_chats_get_text_in_which_nobody_is_called() -> None:
    async with receiving() as receiver, outlet(Target(slack=receiver.url)) as out:
        out.offer(message())
        assert await receiver.has(1) == [{"text": "Job team/a was &lt;!channel&gt; &amp; more"}]


@pytest.mark.parametrize("code", [500, 429, 408])
async def test_what_fails_is_sent_again_with_the_same_id(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "pause", lambda *_: 0.0)
    done: list[int] = []
    async with receiving(code, code) as receiver, outlet(Target(webhook=receiver.url)) as out:
        out.offer(message(done=done))
        out.offer(message(2, done=done))
        got = await receiver.has(4)
    assert [each["id"] for each in got] == ["u/1/evicted"] * 3 + ["u/2/evicted"]
    assert done[0] == 1


@pytest.mark.parametrize("code", [400, 404, 302])
async def test_refusals_are_final_and_redirects_are_not_followed(code: int) -> None:
    done: list[int] = []
    async with receiving(code) as receiver, outlet(Target(webhook=f"{receiver.url}/hook")) as out:
        out.offer(message(done=done))
        out.offer(message(2))
        await receiver.has(2)
    assert [path for path, _ in receiver.got] == ["/hook", "/hook"]
    assert done == [1]


async def test_more_than_the_limit_are_counted_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_WINDOW_S", 1.0)
    done: list[int] = []
    async with receiving() as receiver, outlet(Target(slack=receiver.url), per_minute=3) as out:
        for number in range(10):
            out.offer(message(number, done, event="ended" if number == 9 else "evicted", text=str(number)))
        got = await receiver.has(4)
        out.offer(message(10, text="later"))
        assert (await receiver.has(5))[4] == {"text": "later"}
    assert [each["text"] for each in got[:3]] == ["0", "1", "2"]
    assert got[3]["text"].startswith("7 further notifications were not sent one by one (1 ended, 6 evicted)")
    assert sorted(done) == list(range(10))


async def test_messages_that_wait_for_a_target_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_WINDOW_S", 0.2)
    async with receiving() as receiver, outlet(Target(slack=receiver.url), queued=2) as out:
        for number in range(5):
            out.offer(message(number, text=str(number)))
        got = await receiver.has(3)
    assert sorted(each["text"][:2] for each in got) == ["0", "1", "3 "]


async def test_a_target_that_is_away_gives_up_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "pause", lambda *_: 0.0)
    done = asyncio.Event()
    async with outlet(Target(webhook="http://127.0.0.1:1/"), patience=0.1) as out:
        out.offer(Message(id="u/1/ended", event="ended", at="", text="", done=done.set))
        await asyncio.wait_for(done.wait(), 20)


async def test_mail_goes_to_the_relay_with_a_stable_id(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[bytes] = []
    sent = asyncio.Event()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        body = False
        while line := await reader.readline():
            word = line[:4].upper().strip()
            if body:
                got.append(line)
                if line == b".\r\n":
                    body = False
                    writer.write(b"250 taken\r\n")
                    sent.set()
                continue
            got.append(line)
            body = word == b"DATA"
            writer.write(b"354 go on\r\n" if body else b"250 yes\r\n")
            if word == b"QUIT":
                break
        writer.close()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    mail = targets.Mail(["ops@example.org"], "atoll@example.org", f"127.0.0.1:{port}", start_tls=False)
    async with server, outlet(Target(mail=mail)) as out:
        out.offer(message())
        await asyncio.wait_for(sent.wait(), 20)
    text = b"".join(got).decode()
    for line in (
        "rcpt TO:<ops@example.org>", "Subject: Atoll: team/a evicted", "Message-ID: <u.1.evicted@atoll>",
        "Auto-Submitted: auto-generated", "Job team/a was <!channel> & more",
    ):  # fmt: skip
        assert line in text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("targets: {a: {}}", id="no address"),
        pytest.param("targets: {a: {webhook: 'https://x', slack: 'https://y'}}", id="two"),
        pytest.param("targets: {a: {webhook: 'file:///etc/passwd'}}", id="no URL of HTTP"),
        pytest.param("targets: {a: {url: 'https://x'}}", id="an unknown field"),
        pytest.param("a: {b: {webhook: 'https://x'}}", id="another key"),
        pytest.param("targets: [", id="no YAML"),
        pytest.param("", id="an empty file"),
    ],
)
def test_files_that_do_not_say_what_they_should_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        targets.parse(text.encode())


def test_a_file_names_targets() -> None:
    found = targets.parse(
        b"targets:\n  chat: {slack: https://chat/x, namespaces: [team]}\n"
        b"  mail: {mail: {to: [a@b], sender: c@d, relay: 'r:25', startTls: false}}\n"
    )
    assert found["chat"] == Target(slack="https://chat/x", namespaces=["team"])
    assert found["mail"].mail is not None
    assert not found["mail"].mail.start_tls
