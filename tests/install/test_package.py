"""What `pip install` brings: the command line and the processes, without a laboratory that has to be built first."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROCESSES = ("webhook", "control", "dispatcher", "agent")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as pip installs it, without what it needs."""
    target = tmp_path_factory.mktemp("installed")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--no-build-isolation", "--target", str(target), str(ROOT)),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=240,
    )
    return target


def run(installed: Path, code: str) -> str:
    """Run a program with the installed package and the libraries alone: the sources are not to be found."""
    paths = [str(installed), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    head = f"import sys\nsys.path += {paths!r}\n"
    # -S: what makes the sources importable is read with `site`.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", head + code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_program_is_there(installed: Path) -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    assert {each.name for each in (installed / "bin").iterdir()} == set(named)
    assert {"atollctl", "kubectl-atoll", *(f"atoll-{each}" for each in PROCESSES)} <= set(named)


def test_nothing_but_the_product_is_there(installed: Path) -> None:
    found = {each.name for each in installed.iterdir() if not each.name.endswith(".dist-info")}
    assert found == {"atoll", "bin"}
    packages = {each.name for each in (installed / "atoll").iterdir()}
    assert {"api", "model", "kinds", "fit", "kube", "control", "install", "webhook", "dispatcher", "agent"} <= packages
    assert {"sim", "cli", "local"} <= packages


def test_what_is_no_program_is_there_as_well(installed: Path) -> None:
    there = {str(each.relative_to(installed)) for each in installed.rglob("*") if each.is_file()}
    wanted = {
        str(each.relative_to(ROOT / root))
        for root in ("crds", "lib", "global", "webhook", "dispatcher", "agent", "sim", "cli", "deploy")
        for each in (ROOT / root / "atoll").rglob("*")
        if each.is_file() and "__pycache__" not in each.parts
    }
    assert wanted - there == set()


def test_command_line_and_processes_start_without_the_laboratory(installed: Path) -> None:
    code = f"""
import contextlib, importlib, io, json
# Packages of extras: an image has none of the command line's.
extras = ("kubernetes", "kopf", "pydantic", "typer", "click", "rich", "tenacity")
sys.modules.update(dict.fromkeys(extras))
said = {{}}
with contextlib.redirect_stdout(io.StringIO()):
    for name in {PROCESSES!r}:
        sys.argv = [name, "--help"]
        try:
            importlib.import_module(f"atoll.{{name}}.__main__").main()
        except SystemExit as ended:
            said[name] = ended.code
    for name in extras:
        del sys.modules[name]
    from atoll.cli.app import tree
    try:
        tree()(["--help"])
    except SystemExit as ended:
        said["cli"] = ended.code
import atoll.cli.app
said["files"] = [atoll.cli.app.__file__]
said["local"] = [name for name in sys.modules if name.startswith("atoll.local")]
print(json.dumps(said))
"""
    said = json.loads(run(installed, code))
    assert said.pop("files")[0].startswith(str(installed))
    assert said.pop("local") == []
    assert said == dict.fromkeys([*PROCESSES, "cli"], 0)


def test_discovery_of_a_topology_needs_no_package_of_another_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    others = {re.split(r"[<>=]", each)[0] for each in extras["topology"]}
    others -= {re.split(r"[<>=]", each)[0] for each in extras["cli"]}
    code = f"import sys; sys.modules.update(dict.fromkeys({sorted(others)!r})); import atoll.topology.sources"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_command_line_without_its_packages_names_the_extra(installed: Path) -> None:
    code = """
from atoll.cli.__main__ import main
sys.modules["typer"] = None
try:
    main()
except SystemExit as ended:
    print(ended.code)
"""
    assert run(installed, code) == "atollctl: the Python package typer is missing; install atoll[cli]\n"
