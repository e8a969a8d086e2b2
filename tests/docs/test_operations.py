"""docs/operations.md names every metric, docs/settings.md every setting, and none that does not exist."""

from __future__ import annotations

import re

import aiohttp
import pytest

from atoll.cli import settings_reference
from atoll.kube.settings import ProcessSettings, leaves
from atoll.local.atoll_federation import AtollFederation
from tests.docs.pages import DOCS, rows
from tests.programs import printed

PROCESSES = ("webhook", "control", "dispatcher", "agent")


@pytest.mark.parametrize("process", settings_reference.PROCESSES)
def test_every_flag_of_every_process_is_in_the_page_of_its_settings(
    process: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    flags = set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", printed(f"atoll-{process}", "--help"), re.M)) - {"--help"}
    introduction, *pages = settings_reference.render().split("\n## atoll-")
    [page] = [each for each in pages if each.startswith(f"{process}\n")]
    general = set(re.findall(r"`(--[a-z-]+)", introduction)) - {"--lease-seconds"}
    assert general | set(re.findall(r"\| `(--[a-z-]+)` \|", page)) == flags


def test_the_page_of_settings_is_what_the_processes_read() -> None:
    assert (DOCS / "settings.md").read_text("utf-8") == settings_reference.render(), "run make generate"


@pytest.mark.parametrize("model", settings_reference.PROCESSES.values(), ids=settings_reference.PROCESSES)
def test_defaults_are_within_their_own_bounds(model: type[ProcessSettings]) -> None:
    for leaf in leaves(model):
        assert leaf.read(leaf.default, "default", text=False) == leaf.default


@pytest.mark.integration
async def test_every_metric_of_every_process_is_in_the_page(federation: AtollFederation) -> None:
    found: dict[str, set[str]] = {}
    async with aiohttp.ClientSession() as session:
        for process in PROCESSES:
            name = "agent-alpha" if process == "agent" else process
            ready = federation.process(name).process.spec.ready_url
            assert ready is not None
            async with session.get(ready.replace("/readyz", "/metrics")) as answer:
                families = set(re.findall(r"^# TYPE (atoll_\w+)", await answer.text(), re.M))
            found[process] = {family for family in families if not family.endswith("_created")}
    told: dict[str, set[str]] = {process: set() for process in PROCESSES}
    for names, _, _, where in rows(DOCS / "operations.md", "Metrics"):
        for process in PROCESSES if where == "all" else where.split(", "):
            told[process] |= set(re.findall(r"atoll_\w+", names))
    assert told == found
