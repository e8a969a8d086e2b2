"""The pins of the wheels in Atoll's own image; `tests/e2e/test_image.py` builds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.local.image import requirements


def test_the_pins_hold_every_need_of_a_package_and_leave_out_the_kubernetes_package_with_its_own() -> None:
    text = (Path(__file__).parents[2] / "requirements.txt").read_text()
    names = {line.partition("==")[0] for line in requirements.pinned(text).splitlines() if line[0].isalpha()}
    assert {"aiohttp", "numpy", "cryptography", "cffi", "pycparser", "kopf", "typer", "click", "rich"} <= names
    assert not names & {"kubernetes", "requests", "oauthlib", "pytest", "mypy"}


@pytest.mark.parametrize("path", requirements.FILES, ids=lambda path: path.stem)
def test_every_pin_has_hashes_and_no_address(path: Path) -> None:
    text = path.read_text()
    assert ("\npyarrow==" in text) == path.stem.endswith("records")
    packages = [line for line in text.splitlines() if line[0].isalpha()]
    assert packages
    assert all(line.endswith("\\") for line in packages)
    assert "://" not in text
