"""Events that come twice, late or in another order: newer wins, and what is gone stays gone."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from atoll.kube import reflector as module
from atoll.kube.reflector import Reflector
from atoll.model.apiresource import PODS
from atoll.model.objects import Slim, decode_meta


def line(type_: str, name: str, version: str, uid: str = "u", **labels: str) -> bytes:
    metadata = {"name": name, "uid": uid, "resourceVersion": version, "labels": labels}
    return orjson.dumps({"type": type_, "object": {"metadata": metadata}})


def told(*lines: bytes) -> tuple[Reflector[Slim], list[str]]:
    """A cache after these lines, and what its handler heard."""
    heard: list[str] = []
    cache: Reflector[Slim] = Reflector(None, PODS, decode_meta)  # type: ignore[arg-type]

    def say(obj: Slim | None) -> str:
        return f"{obj.metadata.uid}@{obj.metadata.resource_version}" if obj is not None else "-"

    cache.on_change(lambda old, new: heard.append(f"{say(old)} {say(new)}"))
    for each in lines:
        cache.take_line(each)
    return cache, heard


def test_a_late_event_does_not_overwrite_a_newer_state() -> None:
    cache, heard = told(line("ADDED", "a", "5"), line("MODIFIED", "a", "12"), line("MODIFIED", "a", "9"))
    assert heard == ["- u@5", "u@5 u@12"]
    assert (cache.stale, cache._version) == (1, "12")


def test_versions_are_compared_as_numbers_not_as_texts() -> None:
    assert told(line("ADDED", "a", "9"), line("MODIFIED", "a", "10"))[1] == ["- u@9", "u@9 u@10"]


@pytest.mark.parametrize(("first", "second"), [("x9", "x10"), ("010", "9"), ("10", "９"), ("abc", "5")])
def test_versions_that_are_no_canonical_numbers_are_not_compared(first: str, second: str) -> None:
    assert told(line("ADDED", "a", first), line("MODIFIED", "a", second))[1] == [
        f"- u@{first}",
        f"u@{first} u@{second}",
    ]


def test_a_late_event_of_another_object_still_counts() -> None:
    cache, _ = told(line("ADDED", "a", "12"), line("ADDED", "b", "11"))
    assert (sorted(cache.store), cache._version) == (["a", "b"], "12")


def test_an_object_that_was_deleted_is_not_brought_back_by_a_late_event() -> None:
    cache, heard = told(line("ADDED", "a", "5"), line("DELETED", "a", "9"), line("MODIFIED", "a", "7"))
    assert (len(cache), heard) == (0, ["- u@5", "u@5 -"])


def test_a_late_deletion_does_not_take_the_object_that_followed() -> None:
    cache, heard = told(line("ADDED", "a", "9", uid="new"), line("DELETED", "a", "7", uid="old"))
    assert (sorted(cache.store), heard) == (["a"], ["- new@9"])


def test_another_object_of_the_same_name_is_told_after_the_deletion_of_the_first() -> None:
    _, heard = told(line("ADDED", "a", "5", uid="one"), line("MODIFIED", "a", "8", uid="two"))
    assert heard == ["- one@5", "one@5 -", "- two@8"]


def test_what_comes_too_late_to_tell_whether_it_was_deleted_means_a_new_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TOMBSTONES", 1)
    cache, _ = told(line("DELETED", "a", "5"), line("DELETED", "b", "6"))
    with pytest.raises(module._Distrusted, match="a at 4"):
        cache.take_line(line("MODIFIED", "a", "4"))


def test_an_indexer_that_fails_files_nothing_and_keeps_the_cache() -> None:
    cache: Reflector[Slim] = Reflector(None, PODS, decode_meta)  # type: ignore[arg-type]

    def fail(obj: Slim) -> list[str]:
        return [obj.metadata.labels["missing"]]

    cache.add_index("label", fail)
    cache.take_line(line("ADDED", "a", "5"))
    cache.take_line(line("MODIFIED", "a", "6", missing="there"))
    assert (len(cache), [each.metadata.key for each in cache.by_index("label", "there")]) == (1, ["a"])


def test_equal_texts_of_metadata_are_kept_once() -> None:
    cache, _ = told(*(line("ADDED", f"p{number}", str(number), app="".join(["tra", "in"])) for number in range(1, 4)))
    assert len({id(each.metadata.labels["app"]) for each in cache}) == 1


def test_a_handler_may_see_any_type_of_event_first() -> None:
    events: list[Any] = [line("MODIFIED", "a", "3"), line("DELETED", "b", "4")]
    assert told(*events)[1] == ["- u@3"]
