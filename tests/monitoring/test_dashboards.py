"""Dashboards name metrics that exist, and no data source of their own."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring.files import FOLDER, expressions, metrics, program, wrong

KNOWN = metrics()
NAMES = ("federation", "members", "queues")
_MOST_BYTES = 1 << 20
"""Longest value of a ConfigMap, from which Grafana's sidecar loads dashboards."""


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "dashboards" / f"{name}.json").read_text("utf-8"))
    return found


def data_sources(part: Any) -> Iterator[Any]:
    if isinstance(part, dict):
        if "datasource" in part:
            yield part["datasource"]
        for each in part.values():
            yield from data_sources(each)
    elif isinstance(part, list):
        for each in part:
            yield from data_sources(each)


def test_these_are_all_dashboards() -> None:
    assert {file.name for file in (FOLDER / "dashboards").iterdir()} == {f"{name}.json" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_every_query_names_metrics_and_labels_of_the_processes(name: str) -> None:
    for panel in read(name)["panels"]:
        assert panel["targets"]
        for target in panel["targets"]:
            assert not list(wrong(target["expr"], KNOWN)), panel["title"]
            named = re.findall(r"\b(?:atoll|process)_\w+", target["expr"])
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert shown <= {"job", "instance"}.union(*(KNOWN[each] for each in named)), panel["title"]


def test_promtool_parses_every_query(tmp_path: Path) -> None:
    records = [{"record": f"query_{number}", "expr": query} for number, (_, query) in enumerate(expressions())]
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": records}]}), "utf-8")
    run = subprocess.run(
        [program("promtool"), "check", "rules", str(rules)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("name", NAMES)
def test_every_variable_exists_and_asks_for_a_label_of_its_metric(name: str) -> None:
    board = read(name)
    known = {variable["name"] for variable in board["templating"]["list"]}
    assert set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(board["panels"]))) <= known
    for variable in board["templating"]["list"][1:]:
        found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"])
        assert found
        assert found[2] in KNOWN[found[1]]


@pytest.mark.parametrize("name", NAMES)
def test_the_data_source_is_a_variable(name: str) -> None:
    board = read(name)
    assert board["templating"]["list"][0] == {"name": "datasource", "type": "datasource", "query": "prometheus"}
    assert {json.dumps(each) for each in data_sources(board)} == {'{"type": "prometheus", "uid": "${datasource}"}'}


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_fits_a_config_map_and_no_panels_overlap(name: str) -> None:
    assert (FOLDER / "dashboards" / f"{name}.json").stat().st_size < _MOST_BYTES
    places = [panel["gridPos"] for panel in read(name)["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells))
    assert all(p["x"] + p["w"] <= 24 for p in places)
