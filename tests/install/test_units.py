"""The units of deploy/systemd start the processes with flags that they take, hardened alike."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
PROCESSES = {"atoll-agent@", "atoll-control", "atoll-dispatcher", "atoll-webhook"}
OWN = {"Description", "ExecStart", "EnvironmentFile", "DynamicUser", "LoadCredential", "User", "StateDirectory"}
SPECIFIERS = {"%d": "/run/credentials", "%S": "/var/lib", "%i": "east"}


def lines(unit: Path) -> list[tuple[str, str]]:
    text = unit.read_text("utf-8")
    return [(key, value) for key, _, value in re.findall(r"^(\w+)(=)(.*)$", text, re.M)]


def test_each_process_has_its_unit() -> None:
    assert {unit.stem for unit in UNITS} == PROCESSES


def test_units_differ_only_in_process_and_credentials() -> None:
    common = [[line for line in lines(unit) if line[0] not in OWN | {"StateDirectoryMode"}] for unit in UNITS]
    assert all(each == common[0] for each in common)
    assert {
        ("Restart", "always"), ("StartLimitIntervalSec", "0"), ("NoNewPrivileges", "yes"), ("ProtectSystem", "strict")
    } <= set(common[0])  # fmt: skip


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
async def test_the_process_takes_the_flags_of_its_unit(unit: Path) -> None:
    program, *flags = dict(lines(unit))["ExecStart"].split()
    for specifier, value in SPECIFIERS.items():
        flags = [flag.replace(specifier, value) for flag in flags]
    module = program.removeprefix("/opt/atoll/bin/").replace("-", ".")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *flags, "--print-config", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    assert child.returncode == 0
    for flag in flags:
        assert flag.partition("=")[2] in out.decode()


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not on PATH")
    for unit in UNITS:
        # The programs need not be installed there, and a template is judged as an instance.
        text = re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", unit.read_text("utf-8"), flags=re.M)
        (tmp_path / unit.name.replace("@", "@east")).write_text(text, "utf-8")
    run = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no", *sorted(map(str, tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    # Unknown directives are warnings.
    assert str(tmp_path) not in run.stdout + run.stderr
