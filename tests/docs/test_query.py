"""docs/query.md names every kind, verb and field of the query API, and none that does not exist."""

from __future__ import annotations

import re

import msgspec
import pytest

from atoll.dispatcher.query import documents
from atoll.model import query
from atoll.model.verdict import Blocker
from tests.docs.pages import DOCS

TEXT = (DOCS / "query.md").read_text("utf-8")
STRUCTS = [
    Blocker,
    *(each for each in vars(query).values() if isinstance(each, type) and issubclass(each, query.Value)),
]


def section(name: str) -> str:
    return re.split(r"^## ", TEXT.split(f"\n## {name}\n", 1)[1], flags=re.M)[0]


@pytest.mark.parametrize(
    "struct", [each for each in STRUCTS if each is not query.Value], ids=lambda struct: struct.__name__
)
def test_every_field_is_described_in_order(struct: type[msgspec.Struct]) -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section(struct.__name__), re.M)
    assert rows == [field.encode_name for field in msgspec.structs.fields(struct)]


def test_the_kinds_of_changes_are_all_named() -> None:
    [row] = [line for line in section("Change").splitlines() if line.startswith("| `kind`")]
    assert set(re.findall(r"`(\w+)`", row)) == {"kind", *(kind.value for kind in query.ChangeKind)}


def test_the_resources_and_their_verbs() -> None:
    rows = re.findall(r"^\| (\w+) \| `([\w/]+)` \| ([\w, ]+) \|", TEXT, re.M)
    served = documents.RESOURCES["resources"]
    assert rows == [(each["kind"], each["name"], ", ".join(each["verbs"])) for each in served]
