"""The annotation that names targets."""

from __future__ import annotations

import pytest

from atoll.model.notify import BadNotify, Wish, parse

BOTH = frozenset(("ended", "evicted"))


@pytest.mark.parametrize(
    ("text", "wishes"),
    [
        pytest.param("chat", [Wish("chat", BOTH, None)], id="a name alone: ends and evictions"),
        pytest.param(" chat ; mail: failed , waiting=2h;", [Wish("chat", BOTH, None), Wish("mail", frozenset({"failed"}), 7200.0)], id="two"),
        pytest.param("chat: waiting=90s", [Wish("chat", frozenset(), 90.0)], id="a wait alone"),
    ],
)  # fmt: skip
def test_wishes(text: str, wishes: list[Wish]) -> None:
    assert parse(text) == wishes


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "write 1 to 4"),
        ("a;b;c;d;e", "write 1 to 4"),
        ("chat;chat: failed", "different"),
        ("evil.example", "no name of a target"),
        ("https://evil.example/x", "none of ended"),
        ("chat: gone", "none of ended"),
        ("chat: ended=1h", "none of ended"),
        ("chat: waiting", "not a duration"),
        ("chat: waiting=soon", "not a duration"),
    ],
)
def test_refusals(text: str, why: str) -> None:
    with pytest.raises(BadNotify, match=why):
        parse(text)
