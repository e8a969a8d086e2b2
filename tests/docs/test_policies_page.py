"""docs/policies.md says of every field of every policy whether it acts; the code and the CRDs agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from atoll.api.effects import WITHOUT_EFFECT
from tests.api.schemas import nodes, schema

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
KINDS = ("PropagationPolicy", "ClusterPropagationPolicy", "OverridePolicy", "ClusterOverridePolicy")
_ROW = re.compile(r"^\| `(spec[^`]*)` \| (acts|warned|in part) \| ", re.MULTILINE)


def rows(kind: str) -> dict[str, str]:
    """Field -> effect, as the page says of a kind."""
    sections = re.split(r"^##+ ", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    [section] = [each for each in sections if kind in each.partition("\n")[0].split(", ")]
    found = _ROW.findall(section)
    assert len(found) == len(dict(found)), "a field has one row"
    return dict(found)


def effect(path: str, said: dict[str, str]) -> str | None:
    """What the most exact row says of a field."""
    above = [row for row in said if path == row or path.startswith((f"{row}.", f"{row}["))]
    return said[max(above, key=len)] if above else None


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_a_row_and_every_row_a_field(kind: str) -> None:
    said, known = rows(kind), [path.removeprefix(".") for path, _ in nodes(schema(kind))]
    fields = [path for path in known if path.startswith("spec.")]
    assert [path for path in fields if effect(path, said) is None] == []
    assert [path for path in said if path not in known] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_says_what_the_webhook_says(kind: str) -> None:
    said, idle = rows(kind), {each.path: each for each in WITHOUT_EFFECT.get(kind, ())}
    wrong = {path: text for path, text in said.items() if (path in idle) is (text == "acts")}
    assert wrong == {}
    assert [path for path in idle if path not in said] == []
    partly = {path for path, each in idle.items() if each.only or each.unless}
    assert {path for path, text in said.items() if text == "in part"} == partly
