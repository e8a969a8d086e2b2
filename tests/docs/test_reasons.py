"""docs/reasons.md explains every reason that `explain` can print, and none that it can't."""

from __future__ import annotations

import re

import pytest

from atoll.model.verdict import Reason
from tests.docs.pages import DOCS

SECTIONS = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", (DOCS / "reasons.md").read_text("utf-8"), re.M | re.S))


def test_the_sections_are_exactly_the_reasons() -> None:
    assert sorted(SECTIONS) == sorted(reason.value for reason in Reason)


@pytest.mark.parametrize("reason", list(Reason), ids=str)
def test_every_section_says_what_to_do(reason: Reason) -> None:
    assert "**To do:**" in SECTIONS[reason.value]
