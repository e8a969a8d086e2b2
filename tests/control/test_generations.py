"""Which Works say of which generation of the host's object they are."""

from __future__ import annotations

import msgspec
import orjson
import pytest

from atoll.control.work_drafts import _granted_more
from atoll.kinds import Part, apps
from atoll.model.objects import decode_full
from tests.kinds.samples import taken

CASES = {
    "as many as it asks for": (4, {"east": 2, "west": 2}, False, False),
    "fewer, as one that grew and waits": (6, {"east": 2, "west": 2}, False, False),
    "more, as one that shrank a moment ago": (2, {"east": 2, "west": 2}, False, True),
    "none asked for any more": (0, {"east": 4}, False, True),
    "a copy in each of two members": (2, {"east": 2, "west": 2}, True, False),
    "copies that shrank a moment ago": (1, {"east": 2, "west": 2}, True, True),
}


@pytest.mark.parametrize("case", CASES)
def test_parts_with_more_pods_than_the_object_asks_for_are_of_an_older_generation(case: str) -> None:
    replicas, shares, copies, older = CASES[case]
    obj = taken("Deployment")
    obj["spec"]["replicas"] = replicas
    gang = msgspec.structs.replace(apps.DEPLOYMENT.gang(obj, priority=0), copies=copies)
    part = Part("east", {"main": shares["east"]}, 1, parts=len(shares), shares={"main": list(shares.items())})
    assert _granted_more(apps.DEPLOYMENT, decode_full(orjson.dumps(obj)), gang, part) is older
