"""Annotation `atoll.sh/submitted-by`: nobody writes it but the webhook."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.admission import jsonpatch
from atoll.admission.rules import Change
from atoll.model import keys
from atoll.webhook.stamps import stamped

PATCH = [jsonpatch.add({"other": "1"}, "metadata", "annotations")]


def workload(**annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": "a", **({"annotations": annotations} if annotations else {})}}


def written(change: Change, patch: list[jsonpatch.Operation]) -> str:
    result = jsonpatch.applied(change.new, stamped(change, patch))
    notes: dict[str, str] = result["metadata"].get("annotations") or {}
    return notes.get(keys.SUBMITTED_BY, "")


@pytest.mark.parametrize("patch", [[], PATCH], ids=["alone", "beside other annotations"])
@pytest.mark.parametrize("new", [workload(), workload(x="y"), workload(**{keys.SUBMITTED_BY: "boss"})])
def test_a_new_workload_names_the_user_of_the_request(new: dict[str, Any], patch: list[jsonpatch.Operation]) -> None:
    assert written(Change(namespace={}, new=new, old=None, user="ann"), patch) == "ann"


@pytest.mark.parametrize("new", [workload(), workload(x="y"), workload(**{keys.SUBMITTED_BY: "boss"})])
@pytest.mark.parametrize(("old", "kept"), [(workload(**{keys.SUBMITTED_BY: "ann"}), "ann"), (workload(), "")])
def test_a_change_keeps_the_old_name(new: dict[str, Any], old: dict[str, Any], kept: str) -> None:
    assert written(Change(namespace={}, new=new, old=old, user="boss"), []) == kept


def test_the_name_is_bounded() -> None:
    assert written(Change(namespace={}, new=workload(), old=None, user="u" * 9000), []) == "u" * keys.MOST_SUBMITTER


def test_an_unchanged_workload_needs_no_patch() -> None:
    same = workload(**{keys.SUBMITTED_BY: "ann"})
    assert stamped(Change(namespace={}, new=same, old=same, user="ann"), []) == []


@pytest.mark.parametrize("odd", [{}, {"metadata": 3}, {"metadata": {"annotations": []}}])
def test_odd_objects_are_left_to_the_schema(odd: dict[str, Any]) -> None:
    assert stamped(Change(namespace={}, new=odd, old=None, user="ann"), []) == []
