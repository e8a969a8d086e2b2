"""Errors, conditions, and the cache of a reflector, without a server."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import orjson
import pytest

from atoll.kube import errors
from atoll.kube.reflector import Reflector
from atoll.model import conditions
from atoll.model.apiresource import PODS
from atoll.model.objects import Full, decode_full


def status(reason: str = "", message: str = "no") -> bytes:
    return orjson.dumps({"kind": "Status", "reason": reason, "message": message})


@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        (400, status(), errors.Invalid), (401, status(), errors.Unauthorized), (403, status(), errors.Forbidden), (404, status(), errors.NotFound),
        (409, status("Conflict"), errors.Conflict), (409, status("AlreadyExists"), errors.AlreadyExists), (410, status(), errors.Gone),
        (400, status("Expired"), errors.Gone), (422, status(), errors.Invalid), (429, status(), errors.Busy), (500, status(), errors.Busy),
        (504, status(), errors.Busy), (418, status(), errors.Unexpected), (502, b"<html>", errors.Busy), (500, b"null", errors.Busy), (500, b"", errors.Busy),
    ],
)  # fmt: skip
def test_the_error_of_an_answer(code: int, body: bytes, kind: type[errors.ApiError]) -> None:
    error = errors.from_response(code, body, None, "GET /x")
    assert type(error) is kind
    assert (error.code, "GET /x" in str(error)) == (code, True)


@pytest.mark.parametrize(
    ("header", "seconds"), [("3", 3.0), (None, None), ("", None), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0)]
)
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert errors.from_response(429, status(), header, "GET /x").retry_after == seconds


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = conditions.with_condition([], "A", True, "R", "m", now=0)
    assert first == [
        {"type": "A", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "1970-01-01T00:00:00Z"}
    ]
    assert conditions.with_condition(first, "A", True, "R", "m", now=9) == first
    [other] = conditions.with_condition(first, "A", True, "R2", "m", now=9, generation=4)
    assert (other["reason"], other["lastTransitionTime"], other["observedGeneration"]) == (
        "R2",
        "1970-01-01T00:00:00Z",
        4,
    )
    [turned] = conditions.with_condition(first, "A", None, "R", "m", now=9)
    assert (turned["status"], turned["lastTransitionTime"]) == ("Unknown", "1970-01-01T00:00:09Z")
    two = conditions.with_condition(first, "B", False, "R", "", now=9)
    assert [c["type"] for c in two] == ["A", "B"]
    assert conditions.find(two, "B") == two[1]
    assert conditions.find(two, "C") is None


def test_a_condition_without_a_time_gets_one() -> None:
    [found] = conditions.with_condition([{"type": "A", "status": "True"}], "A", True, "R", "", now=9)
    assert found["lastTransitionTime"] == "1970-01-01T00:00:09Z"


def line(type_: str, name: str = "p", version: str = "1", **labels: str) -> bytes:
    metadata = {"name": name, "namespace": "ns", "resourceVersion": version, "labels": labels}
    return json.dumps({"type": type_, "object": {"metadata": metadata}}).encode()


class Watching:
    """A reflector that is told lines, and what its handler heard."""

    def __init__(self) -> None:
        self.reflector: Reflector[Full] = Reflector(None, PODS, decode_full)  # type: ignore[arg-type]
        self.heard: list[tuple[str | None, str | None]] = []
        self.reflector.add_index("app", lambda obj: [value] if (value := obj.metadata.labels.get("app")) else [])
        self.reflector.on_change(self._hear)

    def _hear(self, old: Full | None, new: Full | None) -> None:
        versions = [obj.metadata.resource_version if obj is not None else None for obj in (old, new)]
        self.heard.append((versions[0], versions[1]))

    def tell(self, *lines: bytes) -> list[str | None]:
        return [self.reflector.take_line(each) for each in lines]

    def filed(self, app: str) -> list[str]:
        return [obj.metadata.name for obj in self.reflector.by_index("app", app)]


def test_a_watch_event_changes_cache_index_and_tells_handlers() -> None:
    w = Watching()
    assert w.tell(line("ADDED", version="1", app="a"), line("MODIFIED", version="2", app="b")) == ["1", "2"]
    assert (w.filed("a"), w.filed("b")) == ([], ["p"])
    assert w.tell(line("DELETED", version="3", app="b")) == ["3"]
    assert w.heard == [(None, "1"), ("1", "2"), ("2", None)]
    assert (len(w.reflector), w.filed("b"), w.reflector.get("ns/p")) == (0, [], None)


def test_an_event_with_nothing_new_is_not_told() -> None:
    w = Watching()
    w.tell(line("ADDED"), line("MODIFIED"), line("DELETED", name="never-seen"))
    assert w.heard == [(None, "1")]


def test_an_index_answers_in_order_of_keys() -> None:
    w = Watching()
    w.tell(*(line("ADDED", name, app="a") for name in ("c", "a", "b")))
    assert w.filed("a") == ["a", "b", "c"]


def test_a_bookmark_moves_only_the_version() -> None:
    w = Watching()
    assert w.tell(line("BOOKMARK", version="77")) == ["77"]
    assert (w.heard, len(w.reflector)) == ([], 0)


@pytest.mark.parametrize(("code", "kind"), [(410, errors.Gone), (500, errors.Unexpected)])
def test_an_error_event_is_raised(code: int, kind: type[Exception]) -> None:
    event: dict[str, Any] = {"type": "ERROR", "object": {"code": code, "message": "too old"}}
    with pytest.raises(kind, match="too old"):
        Watching().tell(orjson.dumps(event))


def test_an_object_that_can_not_be_read_is_left_out_and_the_watch_goes_on() -> None:
    w = Watching()
    bad: dict[str, Any] = {"type": "ADDED", "object": {"metadata": {"name": 5, "resourceVersion": "8"}}}
    assert w.tell(orjson.dumps(bad), line("ADDED", version="9")) == ["8", "9"]
    assert w.heard == [(None, "9")]


def test_a_handler_that_fails_keeps_the_others_and_the_cache() -> None:
    w = Watching()
    handlers = w.reflector._handlers

    def fail(old: Full | None, new: Full | None) -> None:
        raise RuntimeError("bad handler")

    handlers.insert(0, fail)
    w.tell(line("ADDED"))
    assert (w.heard, len(w.reflector)) == ([(None, "1")], 1)


def test_nonsense_on_the_wire_is_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        Watching().tell(b"{")
