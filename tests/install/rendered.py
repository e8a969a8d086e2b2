"""Charts as the pinned Helm renders them."""

from __future__ import annotations

import subprocess
from functools import cache
from typing import Any

import pytest
import yaml

from atoll.cli import chart_files

Json = dict[str, Any]

CHARTS = chart_files.DEPLOY / "charts"


@cache
def helm() -> str:
    """The program; the test is skipped without it."""
    try:
        return chart_files.find_helm(build=False)
    except OSError as error:
        pytest.skip(str(error))


def ran(*words: str, values: Json | None = None) -> subprocess.CompletedProcess[str]:
    given = yaml.safe_dump(values or {})
    return subprocess.run(
        [helm(), *words, "--values=-", chart_files.KUBERNETES], input=given, capture_output=True, text=True, check=False
    )


def template(chart: str, values: Json, *flags: str) -> list[Json]:
    run = ran("template", chart, str(CHARTS / chart), "--namespace=atoll-system", *flags, values=values)
    assert run.returncode == 0, run.stderr
    return [each for each in yaml.load_all(run.stdout, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if each]


def refused(chart: str, values: Json, *flags: str) -> str:
    run = ran("template", chart, str(CHARTS / chart), *(flags or ("--namespace=atoll-system",)), values=values)
    assert run.returncode != 0, run.stdout
    return run.stderr


def is_hook(each: Json) -> bool:
    return "helm.sh/hook" in (each["metadata"].get("annotations") or {})
