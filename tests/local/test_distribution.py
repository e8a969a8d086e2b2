"""How tests are spread over processes: see conftest.py."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.conftest import Needs, needs, uses_federation


def test_files_that_use_the_sessions_federation_are_told_from_those_with_their_own(
    request: pytest.FixtureRequest,
) -> None:
    """As pytest itself sees it, of all tests that were collected."""
    uses: defaultdict[str, bool] = defaultdict(bool)
    for item in request.session.items:
        assert isinstance(item, pytest.Function)
        found = item._fixtureinfo.name2fixturedefs.get("federation")
        file = item.nodeid.partition("::")[0]
        uses[file] |= found[-1].baseid == "tests" if found else False
    assert {file: uses_federation(file) for file in uses} == uses


def test_no_file_with_api_servers_is_taken_for_one_without(request: pytest.FixtureRequest) -> None:
    files = {item.nodeid.partition("::")[0] for item in request.session.items if item.get_closest_marker("integration")}
    assert [file for file in files if needs(file) is Needs.NOTHING] == []
