"""Plain values pass Typer's converters by; all others are as Typer has them."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.cli.options import DataFormat
from atoll.kube.http import _product
from atoll.model.release import VERSION
from tests.cli.command_line import parse


@pytest.mark.parametrize(
    ("words", "parameter", "value"),
    [
        pytest.param(["job", "list", "-q", "research"], "queue", "research", id="a text"),
        pytest.param(["job", "list"], "queue", None, id="nothing"),
        pytest.param(["explain", "x", "-o", "json"], "output", DataFormat.JSON, id="a choice"),
        pytest.param(["queue", "create", "x", "--weight", "7"], "weight", 7, id="a number"),
        pytest.param(["queue", "create", "x", "--member", "a", "--member", "b"], "member", ["a", "b"], id="a list"),
        pytest.param(["queue", "create", "x"], "member", None, id="no list"),
        pytest.param(["queue", "create", "x", "--no-reclaimable"], "reclaimable", False, id="a flag"),
    ],
)
def test_values_arrive_as_their_type(words: list[str], parameter: str, value: Any) -> None:
    assert (parse(words).params[parameter] or None if value is None else parse(words).params[parameter]) == value


@pytest.mark.parametrize(
    ("words", "text"),
    [
        pytest.param(["job", "list", "-o", "xml"], "wide", id="no such choice"),
        pytest.param(["queue", "create", "x", "--weight", "0"], "1", id="a number out of range"),
        pytest.param(["queue", "create", "x", "--weight", "two"], "integer", id="no number"),
    ],
)
def test_what_is_wrong_is_refused_in_typers_words(words: list[str], text: str) -> None:
    with pytest.raises(Exception, match=text):
        parse(words)


def test_the_user_agent_says_the_release() -> None:
    assert _product("atollctl") == f"atollctl/{VERSION}"
