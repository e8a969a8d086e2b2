"""What of the rights to a declared kind the rules of a role lack."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model import rights
from atoll.model.apiresource import ApiResource

FOOS = ApiResource("example.com", "v1", "foos", "Foo")
VERBS = ["list", "watch", "patch", "delete"]


def rule(*resources: str, verbs: list[str] = VERBS, group: str = "example.com", **more: Any) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": verbs, **more}


@pytest.mark.parametrize(
    ("rules", "lacks"),
    [
        ([], ["list, watch, patch, delete foos.example.com", "patch foos.example.com/status"]),
        ([rule("foos", "foos/status")], []),
        ([rule("*", verbs=["*"], group="*")], []),
        ([rule("foos")], ["patch foos.example.com/status"]),
        ([rule("foos"), rule("*/status", verbs=["patch"])], []),
        ([rule("foos", "foos/status", verbs=["list", "watch", "patch"])], ["delete foos.example.com"]),
        ([rule("foos", "foos/status", resourceNames=["one"])], ["list, watch, patch, delete foos.example.com", "patch foos.example.com/status"]),
    ],
    ids=["nothing", "exactly", "all of all", "no status", "status of all", "no delete", "only one by name"],
)  # fmt: skip
def test_what_is_lacking_is_named(rules: list[dict[str, Any]], lacks: list[str]) -> None:
    assert rights.missing(rules, FOOS, rights.ON_HOST) == lacks
