"""What bench.arrays counts of an audit log."""

from __future__ import annotations

from pathlib import Path

import orjson

from atoll.local import audit
from bench.arrays import cost


def line(
    second: int, verb: str, resource: str, *, code: int = 201, body: object = None, subresource: str = ""
) -> bytes:
    moment = f"2026-10-15T12:00:{second:02}.000000Z"
    event = {
        "stage": "ResponseComplete", "verb": verb, "requestReceivedTimestamp": moment, "stageTimestamp": moment,
        "user": {"username": "u"}, "responseStatus": {"code": code}, "requestURI": "/",
        "objectRef": {"resource": resource, "namespace": "a", "name": "n", "subresource": subresource},
        **({"requestObject": body} if body is not None else {}),
    }  # fmt: skip
    return orjson.dumps(event) + b"\n"


def test_cost_is_of_one_time_and_leaves_out_events_and_leases(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_bytes(
        line(1, "create", "jobs", body={"a": 1})
        + line(2, "create", "jobs", body={"a": 12}, code=409)
        + line(2, "create", "pods", subresource="binding", body={})
        + line(3, "patch", "jobs", subresource="status", code=200, body={"b": 2})
        + line(3, "create", "events", body={"c": 3})
        + line(3, "update", "leases", code=200, body={"d": 4})
        + line(3, "get", "jobs", code=200)
        + line(9, "create", "jobs", body={"e": 5})
    )
    events = list(audit.read(log))
    begin = events[0].at
    found = cost(events, begin, begin + 5)
    assert (found.objects, found.writes, found.bytes) == (1, 4, 7 + 8 + 2 + 7)
    assert found.by_kind == {"create jobs": 2, "create pods/binding": 1, "patch jobs/status": 1}
