"""Alerts name metrics that exist, and each has its runbook."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import DOCS, ROOT, anchors, blocks
from tests.monitoring.files import FOLDER, RULES, alerts, metrics, program, wrong

KNOWN = metrics()
SECTIONS = re.findall(r"^## (\w+)$", (DOCS / "runbooks.md").read_text("utf-8"), re.M)
PARTS = ("**Symptom.**", "**Meaning.**", "**Commands.**", "**Fix.**")


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_alert_names_metrics_and_labels_of_the_processes(alert: dict[str, Any]) -> None:
    assert not list(wrong(alert["expr"], KNOWN))
    used = {label for text in alert["annotations"].values() for label in re.findall(r"\$labels\.(\w+)", text)}
    named = re.findall(r"\batoll_\w+", alert["expr"])
    assert used <= {"job", "instance"}.union(*(KNOWN[name] for name in named))


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("atoll_member_redy == 0", ["metric atoll_member_redy"]),
        ("sum by (color) (atoll_member_ready)", ["label color"]),
        ('atoll_member_ready{color="red"}', ["label color"]),
        ("rate(atoll_loop_lag_seconds[5m])", ["metric atoll_loop_lag_seconds"]),
        ("vector(1)", ["no metric"]),
    ],
)
def test_an_unknown_metric_or_label_is_noticed(expression: str, found: list[str]) -> None:
    assert list(wrong(expression, KNOWN)) == found


def test_each_alert_has_its_runbook_and_each_runbook_its_alert() -> None:
    names = [alert["alert"] for alert in alerts()]
    assert sorted(names) == sorted(SECTIONS)
    assert len(set(names)) == len(names)
    for alert in alerts():
        page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        assert anchor == alert["alert"].lower()
        assert anchor in anchors(ROOT / page)
        assert alert["labels"]["severity"] in {"critical", "warning"}


def test_each_runbook_has_its_four_parts_in_order() -> None:
    _, *sections = (DOCS / "runbooks.md").read_text("utf-8").split("\n## ")
    for section in sections:
        places = [section.find(part) for part in PARTS]
        assert -1 not in places, section
        assert places == sorted(places), section


def test_metrics_and_log_lines_of_the_runbooks_exist() -> None:
    page = (DOCS / "runbooks.md").read_text("utf-8")
    begun = tuple(KNOWN)
    assert all(any(known.startswith(name) for known in begun) for name in re.findall(r"\batoll_\w+", page))
    sources = "".join(
        file.read_text("utf-8") for folder in ("lib", "webhook") for file in sorted((ROOT / folder).rglob("*.py"))
    )
    lines = {
        "lease attempt failed",
        "watch interrupted",
        "will try again",
        "a review failed",
        "credentials were not renewed",
        "certificates and registration are tried again",
    }
    for line in lines:
        assert line in page
        assert f'"{line}' in sources


def test_the_rules_wrapped_as_the_page_says_are_a_prometheus_rule(tmp_path: Path) -> None:
    [script] = [body for body in blocks(DOCS / "operations.md", "sh") if "PrometheusRule" in body]
    subprocess.run(["sh", "-ec", script.replace("> prometheusrule", f"> {tmp_path}/rule")], cwd=ROOT, check=True)
    made = yaml.safe_load((tmp_path / "rule.yaml").read_text("utf-8"))
    assert made["kind"] == "PrometheusRule"
    assert made["spec"] == yaml.safe_load(RULES.read_text("utf-8"))


def test_each_alert_is_seen_firing_by_the_cases_of_promtool() -> None:
    cases = yaml.safe_load((FOLDER / "rules.test.yaml").read_text("utf-8"))["tests"]
    fired = {each["alertname"] for case in cases for each in case.get("alert_rule_test", ()) if each.get("exp_alerts")}
    assert fired == {alert["alert"] for alert in alerts()}


@pytest.mark.parametrize("words", [("check", "rules", "rules.yaml"), ("test", "rules", "rules.test.yaml")])
def test_promtool_passes(words: tuple[str, ...]) -> None:
    run = subprocess.run([program("promtool"), *words], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
