"""What is no token of an account has no end that anything is done about."""

from __future__ import annotations

import base64

import orjson
import pytest

from atoll.kube import tokens


@pytest.mark.parametrize("token", ["", "opaque", "a.b.c", "a." + base64.b64encode(orjson.dumps({"sub": "x"})).decode()])
def test_what_is_no_token_of_an_account_is_left_alone(token: str) -> None:
    assert tokens.claims_of(token) is None
