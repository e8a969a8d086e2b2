"""The reader of audit logs: what it gives, and what it does with lines that are not whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.local import audit
from tests.demo.log import CUT_OFF, START, event, written

WRITES = [
    event(1, "create", "pods", "a", code=201),
    event(2.000123, "create", "pods/binding", "a", {"target": {"name": "n1"}}, code=201, user="agent"),
    event(3, "create", "pods/binding", "b", code=409, user="agent"),
    event(4, "get", "pods", "a"),
    event(5, "patch", "pods/status", "a", {"status": {"phase": "Running"}}, user="kubelet"),
    event(6, "create", "jobs", "j", code=201, group="batch"),
    event(7, "create", "jobs", "j", code=201, group="batch.volcano.sh"),
]


def test_events_come_in_order_with_microseconds_and_bodies(tmp_path: Path) -> None:
    events = list(audit.read(written(tmp_path / "log", WRITES)))
    assert [each.verb for each in events] == ["create", "create", "create", "get", "patch", "create", "create"]
    assert events[1].at == pytest.approx(START + 2.000123, abs=1e-6)
    assert events[1].body() == {"target": {"name": "n1"}}
    assert events[0].body() is None
    assert events[1].object_ref.key == "default/a"


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    assert len(list(audit.read(written(tmp_path / "log", WRITES, torn='{"stage":"Respon')))) == len(WRITES)


def test_a_broken_line_before_the_end_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = written(tmp_path / "log", WRITES[:1], torn="{broken\n")
    with pytest.raises(audit.AuditError, match="line 2"):
        list(audit.read(path))


def test_an_empty_log_has_no_events(tmp_path: Path) -> None:
    assert list(audit.read(written(tmp_path / "log", []))) == []


@pytest.mark.parametrize(
    ("code", "message", "ok", "unknown"),
    [
        pytest.param(201, "", True, False, id="carried out"),
        pytest.param(409, "", False, False, id="refused"),
        pytest.param(504, CUT_OFF, False, True, id="its client died before the answer"),
        pytest.param(504, "Timeout: etcd", False, True, id="the server gave up"),
    ],
)
def test_a_write_whose_client_died_may_have_been_carried_out(
    code: int, message: str, ok: bool, unknown: bool, tmp_path: Path
) -> None:
    (found,) = audit.read(written(tmp_path / "log", [event(1, "create", "pods", "a", code=code, message=message)]))
    assert (found.ok, found.unknown) == (ok, unknown)
    assert found.wrote("pods", "create") == ok
    assert found.wrote("pods", "create", or_unknown=True) == (ok or unknown)


def test_times_are_by_key_and_refused_requests_have_none(tmp_path: Path) -> None:
    events = list(audit.read(written(tmp_path / "log", WRITES)))
    assert audit.creation_times(events, "pods/binding") == pytest.approx({"default/a": START + 2.000123})
    assert audit.creation_times(events, "jobs", group="batch.volcano.sh") == pytest.approx({"default/j": START + 7})


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param({"metadata": {}, "status": {"a": 1}}, {"a": 1}, id="a merge patch"),
        pytest.param(
            [{"op": "test", "path": "/metadata/uid"}, {"op": "add", "path": "/status", "value": {"a": 1}}],
            {"a": 1},
            id="a JSON patch",
        ),
        pytest.param([{"op": "remove", "path": "/status"}], {}, id="a JSON patch that removes it"),
        pytest.param(None, {}, id="no body"),
    ],
)
def test_the_status_is_found_in_every_form_of_write(body: object, status: dict[str, int]) -> None:
    assert audit.status_in(body) == status
