"""The CRDs as they are shipped. No model is imported: processes start without pydantic."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""That of libyaml takes a tenth of the time; it reads the same, and not every PyYAML has it."""


def load_crds() -> list[dict[str, Any]]:
    """Read the CRDs as shipped with the package, ordered by name."""
    folder = resources.files("atoll.api") / "yaml"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".yaml")), key=lambda f: f.name)
    return [yaml.load(f.read_text("utf-8"), _Loader) for f in files]
