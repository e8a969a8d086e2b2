"""What is sent again to an object that the member changed."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.delivery.delivered import change, encode, recorded, with_record
from atoll.model import keys


def manifest(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "j", "namespace": "n", **metadata}, "spec": spec}


def task(name: str, replicas: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "replicas": replicas, **more}


@pytest.mark.parametrize(
    ("last", "wanted", "live", "patch"),
    [
        pytest.param({"a": 1}, {"a": 1}, {"a": 2, "b": 3}, {}, id="what the member changed stands"),
        pytest.param({"a": 1}, {"a": 2}, {"a": 1, "b": 3}, {"a": 2}, id="what the host changed is sent"),
        pytest.param({"a": 1, "b": 1}, {"a": 1}, {"a": 1, "b": 1, "c": 1}, {"b": None}, id="what it dropped goes"),
        pytest.param({"a": 1}, {"a": 1}, {}, {}, id="what the member took away stays away"),
        pytest.param({"a": 1}, {"a": 2}, {}, {"a": 2}, id="unless the host changed it"),
        pytest.param(
            {"m": {"a": 1}}, {}, {"m": {"a": 1, "b": 2}}, {"m": {"a": None}}, id="a table keeps what is theirs"
        ),
        pytest.param(
            {"tasks": [task("w", 1)]},
            {"tasks": [task("w", 2)]},
            {"tasks": [task("w", 1, policy="theirs"), task("x", 1)]},
            {"tasks": [task("w", 2, policy="theirs"), task("x", 1)]},
            id="lists of named things are merged by name",
        ),
        pytest.param(
            {"tasks": [task("w", 1), task("v", 1)]},
            {"tasks": [task("w", 1)]},
            {"tasks": [task("v", 1), task("w", 1, policy="theirs")]},
            {"tasks": [task("w", 1, policy="theirs")]},
            id="named things go when the host drops them",
        ),
        pytest.param({"l": [1]}, {"l": [2]}, {"l": [1, 3]}, {"l": [2]}, id="other lists are sent whole"),
        pytest.param(None, {"a": 1, "l": [task("w", 1)]}, {"a": 2, "l": [task("w", 1, x=1)]}, {"a": 1}, id="not known"),
    ],
)
def test_only_what_changed_on_the_host_is_sent(last: Any, wanted: Any, live: Any, patch: Any) -> None:
    before = None if last is None else {"metadata": {}, "spec": last}
    found = change(before, manifest(wanted), manifest(live, uid="u"))
    assert found == ({"spec": patch} if patch else {})


def test_an_annotation_that_is_not_said_any_more_goes() -> None:
    last = recorded({keys.DELIVERED: encode(manifest({}, annotations={"a": "1", keys.AT_ONCE: "{}"}))})
    live = manifest({}, annotations={"a": "1", keys.AT_ONCE: "{}", "theirs": "x"}, labels={"theirs": "x"})
    assert change(last, manifest({}, annotations={"a": "2"}), live) == {
        "metadata": {"annotations": {"a": "2", keys.AT_ONCE: None}}
    }


def test_a_record_is_read_back_and_is_no_part_of_itself() -> None:
    sent = manifest({"a": [1, {"b": "c"}]}, labels={"l": "1"})
    record = encode(sent)
    assert recorded(with_record(sent, record)["metadata"]["annotations"]) == {
        "metadata": {"labels": {"l": "1"}},
        "spec": {"a": [1, {"b": "c"}]},
    }


@pytest.mark.parametrize(
    "record", ["", "x", "AAAA", "eJwDAAAAAAE="], ids=["empty", "not base64", "not zlib", "no JSON"]
)
def test_a_record_that_cannot_be_read_is_none(record: str) -> None:
    assert recorded({keys.DELIVERED: record}) is None
