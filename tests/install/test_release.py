"""`make release`: what is in dist/, under which version, and that the checksums are right."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from atoll.cli.chart_files import find_helm
from atoll.model.release import VERSION

ROOT = Path(__file__).parents[2]
CHARTS = sorted(each.name for each in (ROOT / "deploy" / "charts").iterdir())
_LEFT_OUT = shutil.ignore_patterns(".venv", ".git", "dist", "__pycache__", ".*_cache", ".hypothesis")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of a copy of this checkout, without an image, whose build has tests of its own."""
    copy = tmp_path_factory.mktemp("release") / "atoll"
    shutil.copytree(ROOT, copy, ignore=_LEFT_OUT)
    programs = copy.parent / "programs"
    programs.mkdir()
    for name in ("sh", "make", "rm", "cp", "tar", "gzip", "basename", "sha256sum", "ls", "grep", "cat", "id", "awk"):
        (programs / name).symlink_to(shutil.which(name) or name)
    environment = {"PATH": str(programs), "HOME": os.environ.get("HOME", "/")}
    venv = Path(sys.executable).parents[1]
    # The environment is there already.
    words = ["make", "release", f"VENV={venv}", f"--old-file={venv}/.installed", "SHELL=sh"]
    run = subprocess.run(words, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "no image" in run.stdout
    return copy / "dist"


def test_release_has_wheel_sdist_charts_manifests_and_checksums_of_all(dist: Path) -> None:
    manifests = [f"atoll-{each.name}" for each in (ROOT / "deploy" / "manifests").iterdir()]
    charts = [f"{each}-{VERSION}.tgz" for each in CHARTS]
    packages = [f"atoll-{VERSION}-py3-none-any.whl", f"atoll-{VERSION}.tar.gz"]
    files = {*manifests, *charts, *packages}
    assert {each.name for each in dist.iterdir()} == {*files, "SHA256SUMS"}
    sums = (dist / "SHA256SUMS").read_text().splitlines()
    assert {each.split()[1] for each in sums} == files
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, check=True, capture_output=True)


@pytest.mark.parametrize("name", CHARTS)
def test_chart_of_a_release_has_its_version_and_all_files(dist: Path, name: str) -> None:
    with tarfile.open(dist / f"{name}-{VERSION}.tgz") as tar:
        found = {each.name for each in tar if each.isfile()}
        content = tar.extractfile(f"{name}/Chart.yaml")
        assert content is not None
        about = yaml.safe_load(content)
    assert (about["name"], about["version"], about["appVersion"]) == (name, VERSION, VERSION)
    folder = ROOT / "deploy" / "charts" / name
    assert found == {f"{name}/{each.relative_to(folder)}" for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("name", CHARTS)
def test_helm_takes_a_chart_of_a_release(dist: Path, name: str) -> None:
    try:
        helm = find_helm(build=False)
    except OSError as error:
        pytest.skip(str(error))
    subprocess.run([helm, "show", "chart", str(dist / f"{name}-{VERSION}.tgz")], check=True, capture_output=True)


def test_wheel_of_a_release_has_its_version(dist: Path) -> None:
    with zipfile.ZipFile(dist / f"atoll-{VERSION}-py3-none-any.whl") as wheel:
        metadata = wheel.read(f"atoll-{VERSION}.dist-info/METADATA").decode()
    assert f"\nVersion: {VERSION}\n" in metadata
