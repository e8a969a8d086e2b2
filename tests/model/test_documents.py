"""Texts of users and members are read at a cost that their length bounds, and refused with a reason."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from atoll.model.documents import DEEPEST, LARGEST, BadDocument, check_depth, read_json, read_yaml, read_yaml_file
from tests.model.hostile import BOMB

LISTS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 25))


@pytest.mark.parametrize("read", [read_yaml, read_yaml_file])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(BOMB, "alias", id="merge keys that double"),
        pytest.param(LISTS, "alias", id="lists that double"),
        pytest.param("&a [*a]", "alias", id="a list that contains itself"),
        pytest.param("a: *b", "alias", id="an alias of nothing"),
        pytest.param("[" * 60_000, f"more than {DEEPEST} levels", id="brackets"),
        pytest.param("{" * 60_000, f"more than {DEEPEST} levels", id="braces"),
        pytest.param("- " * 30_000, f"more than {DEEPEST} levels", id="lists in lists"),
        pytest.param("? " * 30_000, f"more than {DEEPEST} levels", id="keys in keys"),
        pytest.param("a: " + "9" * 60_000, "not YAML", id="a number of 60,000 digits"),
        pytest.param("a: 0001-13-99", "not YAML", id="a date that does not exist"),
        pytest.param("? [a]\n: b", "not YAML", id="a key that can't be one"),
        pytest.param("!!python/object/apply:os.system [id]", "not YAML", id="a call"),
        pytest.param("a: [", "not YAML", id="half a list"),
    ],
)
def test_hostile_yaml_is_refused_at_once(read: Callable[[str], Any], text: str, words: str) -> None:
    begun = time.thread_time()
    with pytest.raises(BadDocument, match=words):
        read(text)
    assert time.thread_time() - begun < 0.5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("[" * 60_000, "more than 64 levels", id="brackets"),
        pytest.param("[" * 100 + "]" * 100, "more than 64 levels", id="100 levels"),
        pytest.param("{", "not JSON", id="half an object"),
        pytest.param(" " * (LARGEST + 1), "the most that is read", id="a text that is too long"),
    ],
)
def test_hostile_json_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadDocument, match=words):
        read_json(text)


def test_two_documents_are_not_taken_for_one() -> None:
    with pytest.raises(BadDocument, match="2 documents"):
        read_yaml("a: 1\n---\nb: 2\n")


def test_a_file_of_ones_own_may_have_aliases() -> None:
    text = "x: &x {image: a, args: [b]}\ny: {<<: *x, name: c}\n---\nz: 1\n"
    assert read_yaml_file(text) == [
        {"x": {"image": "a", "args": ["b"]}, "y": {"image": "a", "args": ["b"], "name": "c"}},
        {"z": 1},
    ]


@pytest.mark.parametrize("levels", [DEEPEST - 1, DEEPEST])
def test_the_deepest_document_that_is_read_is_read_in_both_forms(levels: int) -> None:
    text = "[" * levels + "]" * levels
    value = json.loads(text)
    assert read_yaml(text) == read_json(text) == value
    check_depth(value)


def test_a_deeper_value_is_refused() -> None:
    value: Any = 1
    for _ in range(DEEPEST + 1):
        value = {"a": value}
    with pytest.raises(BadDocument):
        check_depth(value)


@pytest.mark.parametrize("text", ["", "---\n", "# later\n"])
def test_an_empty_text_has_no_value(text: str) -> None:
    assert read_yaml(text) is None
