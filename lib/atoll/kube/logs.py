"""Logs: one JSON object per line on stderr, with the object under work in it, and never a credential.

Whoever takes up a piece of work says so with `working_on`; every line written on the way, however deep, names it. The
fields are `workload` (namespace/name), `binding`, `work`, `pod_group`, `cluster`, `queue`, `cycle` (a pass of the
dispatcher) and `controller` (the work queue that asked).
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any

import orjson
import structlog

working_on = structlog.contextvars.bound_contextvars
"""`with working_on(workload=..., cluster=...)`: bind fields for the lines of this task and tasks that it starts."""

_HIDDEN = "(hidden)"
_SECRET_FIELDS = frozenset({"authorization", "token", "password", "client_key", "client-key-data", "secret"})
_SECRET_TEXT = re.compile(
    r"(?i:bearer\s+)[\w.~+/=-]{8,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
"""Bearer tokens, JWTs, private keys."""

Line = MutableMapping[str, Any]


def without_secrets(_: Any, __: str, line: Line) -> Line:
    """The structlog processor that hides credentials, whatever field they hide in."""
    for field, value in line.items():
        line[field] = _HIDDEN if field.lower() in _SECRET_FIELDS and value else _cleaned(value)
    return line


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return _SECRET_TEXT.sub(_HIDDEN, value)
    if isinstance(value, dict):
        return without_secrets(None, "", dict(value))
    if isinstance(value, list | tuple):
        return [_cleaned(each) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return _SECRET_TEXT.sub(_HIDDEN, str(value))


def _json(value: Any, **_: Any) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def configure(level: str, **bound: str) -> None:
    """Set up the log of this process, libraries included, with these fields in each line.

    Args:
        level: debug, info, warning or error; libraries say warnings and worse.
        bound: fields of every line.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        without_secrets,
    ]
    render = structlog.processors.JSONRenderer(serializer=_json)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(number),
        processors=[*shared, render],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared[:3]],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *shared[3:], render],
        )
    )
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler], force=True)
    logging.captureWarnings(True)
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**bound)
