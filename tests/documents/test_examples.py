"""What Volcano's documentation shows of Jobs, in manifests of our own with the same fields; docs/examples.md lists them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.federation import Site

HERE = Path(__file__).parent / "examples"
PAGE = Path(__file__).parents[2] / "docs" / "examples.md"
FILES = sorted(each.name for each in HERE.glob("*.yaml"))
WARNED = {
    "elastic.yaml": ["template.spec.priorityClass: is no field", "class 'high-priority' does not exist on the host"],
    "topology.yaml": [],
}
"""What is told of those that are taken with a warning."""
REFUSED = {
    "volumes.yaml": [
        "spec.volumes[0]: has 0 sources; give either volumeClaimName or volumeClaim",
        "spec.volumes[1]: has 2 sources; give either volumeClaimName or volumeClaim",
    ],
    "wrong.yaml": ["spec.policies[1].event: 'PodFailed' is there twice; keep one policy for it"],
}


def rows() -> dict[str, str]:
    """File -> what the page says happens to it."""
    found = re.findall(r"^\| \[`([a-z-]+\.yaml)`\]\(\S+\) \|.*\| ([^|]+) \|$", PAGE.read_text("utf-8"), re.M)
    return dict(found)


def test_the_page_lists_each_example_and_says_which_are_refused_and_warned_of() -> None:
    listed = rows()
    assert sorted(listed) == FILES
    assert {name for name, said in listed.items() if said.startswith("refused")} == set(REFUSED)
    assert {name for name, said in listed.items() if said.startswith("runs; warned")} == {
        name for name, words in WARNED.items() if words
    }
    assert listed["devices.yaml"].startswith("waits for its claim template")


@pytest.mark.integration
@pytest.mark.parametrize("file", [each for each in FILES if each not in REFUSED])
async def test_an_example_is_taken_and_what_has_no_effect_is_told(site: Site, file: str) -> None:
    told = site.warned("create", "-n", site.namespace, "-f", str(HERE / file), "--dry-run=server")
    warnings = [line for line in told.splitlines() if "Warning" in line]
    wanted = WARNED.get(file, [])
    assert len(warnings) == len(wanted), told
    assert all(any(words in line for line in warnings) for words in wanted), told


@pytest.mark.integration
@pytest.mark.parametrize("file", REFUSED)
async def test_an_example_that_is_wrong_is_refused_with_each_mistake(site: Site, file: str) -> None:
    said = site.kubectl("create", "-n", site.namespace, "-f", str(HERE / file), "--dry-run=server", ok=False)
    assert all(words in said for words in REFUSED[file]), said
