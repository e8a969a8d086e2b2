"""Whether an API server reached an address, by the error that it gives."""

from __future__ import annotations

import pytest

from atoll.install.reach import judge

_CALL = 'Internal error occurred: failed calling webhook "atoll-probe.atoll.sh": failed to call webhook: '


@pytest.mark.parametrize(
    ("error", "strict", "why"),
    [
        pytest.param(
            "the server could not find the requested resource", True, "", id="Atoll's server has no such path"
        ),
        pytest.param("tls: x509: certificate is valid for a, not b", True, "", id="a certificate for its other names"),
        pytest.param("tls: x509: certificate signed by unknown authority", False, "", id="any server will do"),
        pytest.param(
            "tls: x509: certificate signed by unknown authority", True, "another authority", id="a stranger's server"
        ),
        pytest.param("dial tcp 10.0.0.1:9443: connect: connection refused", True, "connection refused", id="no server"),
        pytest.param('service "atoll-webhook" not found', True, 'service "atoll-webhook" not found', id="no Service"),
        pytest.param("context deadline exceeded", False, "context deadline exceeded", id="no answer in time"),
    ],
)
def test_how_far_a_call_came_is_in_the_error_of_the_api_server(error: str, strict: bool, why: str) -> None:
    found = judge(_CALL + error, strict=strict)
    assert why in found
    assert bool(found) == bool(why)


def test_no_call_is_no_answer() -> None:
    assert "called nothing within 10 s" in judge("", strict=True)
