"""What is sent again to an object that the member changed."""

from __future__ import annotations

import base64
import random
import zlib
from typing import Any

import orjson
import pytest

from atoll.delivery.delivered import MOST_ANNOTATIONS, change, encode, noted, recorded, with_record
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


LONG, LONGER = "x" * 100_000, "y" * 100_000


@pytest.mark.parametrize(
    ("last", "wanted", "live", "patch"),
    [
        pytest.param({"a": LONG}, {"a": LONG}, {"a": "theirs"}, {}, id="a long text that the member changed stands"),
        pytest.param({"a": LONG}, {"a": LONGER}, {"a": LONG}, {"a": LONGER}, id="one that the host changed is sent"),
        pytest.param({"a": LONG}, {"a": LONG}, {}, {}, id="one that the member took away stays away"),
        pytest.param({"a": LONG, "b": 1}, {"b": 1}, {"a": LONG, "b": 1}, {"a": None}, id="one that the host dropped goes"),
        pytest.param({"l": [LONG]}, {"l": [LONG]}, {"l": [1]}, {}, id="a list that the member changed stands"),
        pytest.param({"l": [LONG]}, {"l": [LONGER]}, {"l": [LONG]}, {"l": [LONGER]}, id="one that the host changed"),
        pytest.param(
            {"l": [LONG]},
            {"l": [task("w", 1)]},
            {"l": [task("v", 1)]},
            {"l": [task("w", 1)]},
            id="a list that has names now",
        ),
        pytest.param(
            {"tasks": [task("n" * 65, 1), task("v", 1)]},
            {"tasks": [task("v", 1)]},
            {"tasks": [task("n" * 65, 1), task("v", 1)]},
            {"tasks": [task("v", 1)]},
            id="a thing with a long name goes when the host drops it",
        ),
        pytest.param(
            {"tasks": [task("n" * 65, 1)]},
            {"tasks": [task("n" * 65, 2)]},
            {"tasks": [task("n" * 65, 1, policy="theirs")]},
            {"tasks": [task("n" * 65, 2, policy="theirs")]},
            id="a thing with a long name is merged by it",
        ),
        pytest.param({"a": "\0x"}, {"a": "\0x"}, {"a": 1}, {}, id="a text that looks like a digest"),
        pytest.param(
            {"tasks": [task("w", 1, args=[LONG]), task("v", 1, args=[LONG])]},
            {"tasks": [task("w", 1, args=[LONG]), task("v", 1, args=[LONGER])]},
            {"tasks": [task("w", 2, args=["theirs"]), task("v", 2, args=[LONG])]},
            {"tasks": [task("w", 2, args=["theirs"]), task("v", 2, args=[LONGER])]},
            id="a long value of a named thing",
        ),
    ],
)  # fmt: skip
def test_long_values_are_compared_by_what_the_record_has_of_them(last: Any, wanted: Any, live: Any, patch: Any) -> None:
    before = recorded({keys.DELIVERED: encode(manifest(last))})
    assert change(before, manifest(wanted), manifest(live, uid="u")) == ({"spec": patch} if patch else {})


def random_text(length: int) -> str:
    return base64.b64encode(random.Random(7).randbytes(length * 3 // 4)).decode()


MIB = random_text(1 << 20)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(manifest({"args": [MIB]}), id="1 MiB in one text"),
        pytest.param(manifest({"args": [MIB[i : i + 30] for i in range(0, 1 << 20, 30)]}), id="a list"),
        pytest.param(
            manifest({"env": [{"name": f"V{n}", "value": MIB[: 1 << 17]} for n in range(8)]}), id="variables"
        ),
        pytest.param(manifest({}, annotations={"data": MIB[:140_000]}), id="an annotation"),
    ],
)  # fmt: skip
def test_the_record_of_incompressible_content_is_short(sent: dict[str, Any]) -> None:
    assert len(encode(sent)) < 2_000
    assert noted(sent) < MOST_ANNOTATIONS


def test_a_record_is_read_back_and_is_no_part_of_itself() -> None:
    sent = manifest({"a": [1, {"b": "c"}]}, labels={"l": "1"})
    record = encode(sent)
    found = recorded(with_record(sent, record)["metadata"]["annotations"])
    assert found is not None
    assert found["metadata"] == {"labels": {"l": "1"}}
    assert change(found, sent, manifest({"a": "theirs"})) == {}


def test_a_record_of_an_earlier_version_is_read() -> None:
    whole = {"metadata": {}, "spec": {"a": LONG, "b": 1}}
    text = base64.b64encode(zlib.compress(orjson.dumps(whole))).decode()
    assert change(recorded({keys.DELIVERED: text}), manifest({"a": LONG}), manifest({"a": 1, "b": 1})) == {
        "spec": {"b": None}
    }


@pytest.mark.parametrize(
    "record", ["", "x", "AAAA", "eJwDAAAAAAE="], ids=["empty", "not base64", "not zlib", "no JSON"]
)
def test_a_record_that_cannot_be_read_is_none(record: str) -> None:
    assert recorded({keys.DELIVERED: record}) is None
