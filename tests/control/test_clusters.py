"""How long an agent may be silent."""

from __future__ import annotations

import orjson
import pytest

from atoll.control.clusters import patience
from atoll.control.objects import decode_lease
from atoll.control.settings import ClusterSettings

LONGEST_LEASE = ClusterSettings().longest_lease


@pytest.mark.parametrize(("says", "counts"), [(40, 40), (1, 1), (0, 1), (-5, 1), (2**31 - 1, LONGEST_LEASE)])
def test_a_lease_lasts_no_longer_than_the_host_allows(says: int, counts: int) -> None:
    lease = decode_lease(orjson.dumps({"metadata": {"name": "atoll-agent"}, "spec": {"leaseDurationSeconds": says}}))
    assert patience(lease, LONGEST_LEASE) == counts
