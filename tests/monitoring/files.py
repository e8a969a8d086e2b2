"""Expressions of deploy/monitoring, and the metrics that they may name."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.docs.pages import DOCS, ROOT, rows

FOLDER = ROOT / "deploy" / "monitoring"
RULES = FOLDER / "rules.yaml"
_OF_PROMETHEUS = {"job", "instance", "le"}
"""Labels that a scrape or a histogram adds."""
_OF_THE_CLIENT = ("process_resident_memory_bytes", "process_cpu_seconds_total")


def alerts() -> list[dict[str, Any]]:
    """All alerts of the rules."""
    return [rule for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]]


def metrics() -> dict[str, set[str]]:
    """Each series that a scrape may show, with its labels: those of docs/operations.md, which an integration test
    compares with the processes."""
    found: dict[str, set[str]] = {name: set() for name in _OF_THE_CLIENT}
    for names, described, _, _ in rows(DOCS / "operations.md", "Metrics"):
        kind, _, labels = described.partition(":")
        every = {label.strip() for label in labels.split(",")} - {""}
        for name in re.findall(r"`(atoll_\w+)`", names):
            suffixes = ("_bucket", "_count", "_sum") if kind == "histogram" else ("",)
            found |= {name + suffix: every for suffix in suffixes}
    return found


def wrong(expression: str, known: dict[str, set[str]]) -> Iterator[str]:
    """Metrics and labels of an expression that no process has."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    named = re.findall(r"\b((?:atoll|process)_\w+)", re.sub(r"\b(by|without|on|ignoring) *\([^)]*\)", "", bare))
    yield from (f"metric {name}" for name in named if name not in known)
    if not named:
        yield "no metric"
    allowed = _OF_PROMETHEUS.union(*(known.get(name, set()) for name in named))
    labels = [
        name for group in re.findall(r"\{([^}]*)\}", bare) for name in re.findall(r"(\w+) *(?:=~|!=|!~|=)", group)
    ]
    labels += [
        name
        for group in re.findall(r"\b(?:by|without|on|ignoring) *\(([^)]*)\)", bare)
        for name in re.findall(r"\w+", group)
    ]
    yield from (f"label {name}" for name in labels if name not in allowed)


def expressions() -> list[tuple[str, str]]:
    """Title of the panel and expression of each query of the dashboards."""
    boards = [json.loads(file.read_text("utf-8")) for file in sorted((FOLDER / "dashboards").iterdir())]
    return [
        (panel["title"], target["expr"]) for board in boards for panel in board["panels"] for target in panel["targets"]
    ]


def program(name: str) -> str:
    """A program of Prometheus; the test is skipped without it."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(
            f"{name} is not on PATH; Debian has it in package prometheus, rules.test.yaml says how Go builds it"
        )
    return found
