"""Reports of looks: a ConfigMap in the system namespace, with one JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import structlog

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import CONFIGMAPS

log = structlog.get_logger(__name__)


async def write_report(api: ApiServer, name: str, report: Mapping[str, Any], *, field_manager: str) -> None:
    """Write the report of the last look under this name; where that fails the next look writes its own."""
    body = {
        "apiVersion": CONFIGMAPS.api_version,
        "kind": CONFIGMAPS.kind,
        "metadata": {"name": name, "namespace": keys.SYSTEM_NAMESPACE},
        "data": {"report.json": orjson.dumps(report, option=orjson.OPT_INDENT_2).decode()},
    }
    try:
        await api.apply(CONFIGMAPS, body, field_manager=field_manager)
    except errors.ApiError as error:
        log.warning("the report was not written", error=str(error))
