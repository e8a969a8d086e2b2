"""Loggers that cost nothing until something is logged: importing structlog brings rich along, and a short command logs
nothing.
"""

from __future__ import annotations

from typing import Any


class _Logger:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        import structlog

        return getattr(structlog.get_logger(self._name), method)


def get_logger(name: str) -> Any:
    """As `structlog.get_logger`.

    Args:
        name: of the module that logs.
    """
    return _Logger(name)
