"""Which release this is. Asking `importlib.metadata` takes as long as a request to an API server."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
"""As pyproject.toml says; a test compares them."""
