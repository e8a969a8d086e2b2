"""Everything that is particular to a kind is with the kind: others go through all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from atoll.kinds import KINDS, Kind

ROOT = Path(__file__).parents[2]
SOURCES = ("global", "webhook", "dispatcher", "agent", "sim", "cli", "deploy")
NAMES = re.compile(r"\bBATCH_JOBS\b|atoll\.kinds\.(\w+_job|pod_group)|from atoll\.kinds import .*(_job|pod_group)")
KNOWN = {
    "agent/atoll/agent/jobs": "the controller of Volcano Jobs",
    "cli/atoll/cli/submit.py": "makes a batch Job of a command line",
    "cli/atoll/client": "makes batch Jobs of Python's values",
    "global/atoll/control/makers": "makes Volcano Jobs",
    "global/atoll/install/embedding.py": "a Job of the carrier's own runs init",
    "global/atoll/install/roles.py": "the right to try out whether an API server keeps managedBy",
    "global/atoll/install/versions.py": "tries out whether an API server keeps managedBy",
}
"""Where a kind may be named, and why."""

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.words.title)


def test_no_kind_is_named_outside_its_module() -> None:
    found = {
        str(path.relative_to(ROOT))
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*.py")
        if NAMES.search(path.read_text("utf-8"))
    }
    assert {name for name in found if not any(name.startswith(known) for known in KNOWN)} == set()


@each_kind
def test_a_kind_answers_for_what_cannot_be_read(kind: Kind) -> None:
    rules = kind.admission()
    for odd in ({}, {"metadata": 7, "spec": 7}, {"metadata": {"labels": [], "annotations": 1}, "spec": {"tasks": 3}}):
        kind.takes(odd)
        assert kind.queue_of(odd, default="d") == "d"
        rules.templates(odd)
        rules.classes(odd)


@each_kind
def test_a_kind_has_names_of_its_own(kind: Kind) -> None:
    others = [each for each in KINDS if each is not kind]
    assert kind.admission().route not in {each.admission().route for each in others}
    assert not {*kind.words.names} & {name for each in others for name in each.words.names}
    assert kind.words.prefix not in {each.words.prefix for each in others}
