"""docs/architecture.md: every path, name and key exists, every folder and package has a row, every question a place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, rows

FILE = DOCS / "architecture.md"
PAGE = FILE.read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PACKAGES = PROJECT["tool"]["importlinter"]["root_packages"]
HIDDEN = {"__pycache__", "node_modules", "dist", "build"}
FOLDERS = sorted(
    path.name
    for path in ROOT.iterdir()
    if path.is_dir() and not path.name.startswith(".") and path.name not in HIDDEN and any(path.rglob("*.*"))
)

_PATH = re.compile(r"`([\w.]+/[\w./-]*|\w+\.py)`")
_NAMES = re.compile(r"`([\w./]+\.(?:py|yaml))` \((`\w+`(?:, `\w+`)*)\)")
_KEY = re.compile(r"`(atoll\.sh/[a-z-]+)`")


def source(path: str, line: str) -> Path | None:
    """The place of a path: from the root, or below a folder that the line names before."""
    if (ROOT / path).exists():
        return ROOT / path
    before = [ROOT / each for each in _PATH.findall(line.split(f"`{path}`")[0])]
    return next((each / path for each in reversed(before) if each.is_dir() and (each / path).exists()), None)


def paths(line: str) -> list[str]:
    """Paths that a line names, without the keys of annotations."""
    return [path for path in _PATH.findall(line) if not path.startswith(("atoll.sh/", "..."))]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("`lib/atoll/fit/place.py`", True),
        ("`lib/atoll/fit/`: `place.py`", True),
        ("`lib/atoll/fit/`: `nowhere.py`", False),
        ("`place.py` of `lib/atoll/fit/`", False),
    ],
)
def test_a_short_name_counts_below_the_folder_before_it(line: str, found: bool) -> None:
    assert all(source(path, line) for path in paths(line)) == found


def test_every_path_on_the_page_exists() -> None:
    named = [(path, line) for line in PAGE.splitlines() for path in paths(line)]
    assert len(named) > 100
    assert not [path for path, line in named if source(path, line) is None]


def test_every_name_in_a_file_is_defined_there() -> None:
    named = [
        (source(path, line), name)
        for line in PAGE.splitlines()
        for path, names in _NAMES.findall(line)
        for name in re.findall(r"\w+", names)
    ]
    assert len(named) > 30
    for file, name in named:
        assert file is not None, name
        assert re.search(rf"^ *(?:async )?(?:def |class )?{name}\b", file.read_text("utf-8"), re.M), (file, name)


def test_every_key_is_one_of_the_code() -> None:
    known = (ROOT / "lib/atoll/model/keys.py").read_text("utf-8")
    keys = _KEY.findall(PAGE)
    assert keys
    assert not [key for key in keys if f'"{key}"' not in known]


def test_every_top_folder_and_every_package_has_a_row() -> None:
    cells = [cell for row in rows(FILE, "Folders and layers") for cell in row[:2]]
    named = set(re.findall(r"`([\w.]+)/?`", " ".join(cells)))
    assert named >= {*FOLDERS, *PACKAGES}


def test_the_layers_are_the_contract() -> None:
    [layers] = [each for each in PROJECT["tool"]["importlinter"]["contracts"] if each["name"] == "layers"]
    [line] = re.findall(r"^`(api < .*)`", PAGE, re.M)
    said = [frozenset(re.findall(r"\w+", part)) for part in line.split("<")]
    assert said == [frozenset(re.findall(r"atoll\.(\w+)", each)) for each in reversed(layers["layers"])]


def test_every_process_has_a_row() -> None:
    processes = {name for name in PROJECT["project"]["scripts"] if name.startswith("atoll-")}
    assert {row[0].strip("`") for row in rows(FILE, "Processes")} == processes


def test_every_question_has_a_place() -> None:
    table = PAGE.split("\n## Where would I change ...?\n")[1].split("\n## ")[0]
    asked = [line for line in table.splitlines() if line.startswith("| ") and line != "| change | where |"]
    assert len(asked) > 40
    assert not [line for line in asked if not paths(line)]


@pytest.mark.parametrize("folder", [each for each in FOLDERS if each != "docs"])
def test_every_top_folder_says_what_lives_there_enters_and_leaves(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text("utf-8").splitlines()
    lines = [line for line in text if line and not line.startswith("# ")]
    assert [line.split(":")[0] for line in lines] == ["Lives here", "May enter", "Leaves"]
