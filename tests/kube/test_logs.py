"""What is never in a log: credentials, whatever field or text they hide in."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.kube.logs import without_secrets

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJlLW9mLWl0"
KEY = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIBsecretsecretsecret\n-----END EC PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        pytest.param({"event": f"asked with Bearer {JWT}"}, JWT, id="a header in a text"),
        pytest.param({"error": f"token {JWT} has expired"}, JWT, id="a JWT in a text"),
        pytest.param({"event": "Authorization: Bearer 0123456789abcdef"}, "0123456789abcdef", id="an opaque token"),
        pytest.param({"token": "opaque"}, "opaque", id="a field of that name"),
        pytest.param({"user": {"Token": "opaque", "client-key-data": "a2V5"}}, "opaque", id="a field of an object"),
        pytest.param({"users": [{"name": "a", "password": "pass-word"}]}, "pass-word", id="an object in a list"),
        pytest.param({"why": KEY}, "MHcCAQEE", id="a key"),
        pytest.param({"why": KEY[:60]}, "MHcCAQEE", id="a key that was cut off"),
        pytest.param({"error": ValueError(f"Bearer {JWT}")}, JWT, id="an exception"),
        pytest.param({"exception": f"Traceback\n  headers={{'Authorization': 'Bearer {JWT}'}}"}, JWT, id="a traceback"),
    ],
)
def test_no_credential_is_in_a_line(line: dict[str, Any], secret: str) -> None:
    assert secret in str(line)
    assert secret not in str(without_secrets(None, "", dict(line)))


def test_everything_else_is() -> None:
    line = {"event": "bound", "workload": "ns/a", "pods": 3, "took": 0.5, "ok": True, "why": None, "token": ""}
    assert without_secrets(None, "", dict(line)) == line
