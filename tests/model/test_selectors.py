"""Which labels, nodes and taints are accepted."""

from __future__ import annotations

import re
from typing import Any

import pytest

from atoll.model import selectors


def need(operator: str, *values: str, key: str = "k") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        pytest.param(None, {}, False, id="none matches nothing"),
        pytest.param({}, {"k": "v"}, True, id="an empty one matches everything"),
        pytest.param({"matchLabels": {"k": "v"}}, {"k": "v"}, True, id="equal"),
        pytest.param({"matchLabels": {"k": ""}}, {}, False, id="an empty value is not an absent one"),
        pytest.param({"matchExpressions": [need("NotIn", "v")]}, {}, True, id="NotIn matches the absent"),
        pytest.param({"matchExpressions": [need("In", "v"), need("Exists")]}, {"k": "v"}, True, id="all must hold"),
        pytest.param(
            {"matchExpressions": [need("In", "v"), need("DoesNotExist")]}, {"k": "v"}, False, id="one that fails"
        ),
    ],
)
def test_label_selectors(selector: Any, labels: dict[str, str], matches: bool) -> None:
    assert selectors.label_selector_matches(selector, labels) is matches


@pytest.mark.parametrize(
    ("terms", "matches"),
    [
        pytest.param([], False, id="no terms"),
        pytest.param([{}], False, id="an empty term"),
        pytest.param([{}, {"matchExpressions": [need("In", "5")]}], True, id="any term"),
        pytest.param([{"matchExpressions": [need("Gt", "4")]}], True, id="greater"),
        pytest.param([{"matchExpressions": [need("Lt", "5")]}], False, id="not less"),
        pytest.param([{"matchExpressions": [need("Gt", "x")]}], False, id="no number"),
        pytest.param(
            [{"matchExpressions": [need("Lt", "9223372036854775808")]}], False, id="a number beyond 64 bits is none"
        ),
        pytest.param([{"matchFields": [need("In", "n", key="metadata.name")]}], True, id="by name"),
        pytest.param(
            [{"matchFields": [need("In", "x", key="metadata.name")], "matchExpressions": [need("Exists")]}],
            False,
            id="fields and expressions",
        ),
    ],
)
def test_node_affinity(terms: list[dict[str, Any]], matches: bool) -> None:
    assert selectors.node_affinity_matches(terms, {"k": "5"}, "n") is matches


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True), ({"key": "k", "operator": "Exists"}, True), ({"key": "x", "operator": "Exists"}, False),
        ({"key": "k", "value": "v"}, True), ({"key": "k", "value": "x"}, False), ({"value": "v"}, True),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, False), ({"key": "k", "operator": "Gt", "value": "1"}, False),
    ],
)  # fmt: skip
def test_tolerations(toleration: dict[str, str], tolerated: bool) -> None:
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    assert (selectors.untolerated([taint], [toleration]) is None) is tolerated
    assert selectors.untolerated([{**taint, "effect": "PreferNoSchedule"}], []) is None


@pytest.mark.parametrize(
    "terms",
    [
        pytest.param([], id="none"),
        pytest.param([{}], id="one that nothing satisfies"),
        pytest.param([{"matchExpressions": None, "matchFields": [need("In", "n", key="metadata.name")]}], id="a null"),
        pytest.param([{"matchExpressions": [{**need("Exists"), "later": 1}], "later": 2}], id="fields that are not known"),
        *[pytest.param([{"matchExpressions": [need(name, "1")]}], id=name)
          for name in ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")],
    ],
)  # fmt: skip
def test_node_terms_of_the_right_form(terms: list[dict[str, Any]]) -> None:
    selectors.check_node_terms(terms)


@pytest.mark.parametrize(
    ("terms", "place"),
    [
        pytest.param({}, "array", id="no list"),
        pytest.param(["zone"], "$[0]", id="a text as a term"),
        pytest.param([{"matchExpressions": "zone in (a)"}], "$[0].matchExpressions", id="a text as expressions"),
        pytest.param([{"matchFields": ["zone"]}], "$[0].matchFields[0]", id="a text as a field"),
        pytest.param([{"matchExpressions": [{"operator": "Exists"}]}], "$[0].matchExpressions[0]", id="no key"),
        pytest.param([{"matchExpressions": [{"key": "k"}]}], "$[0].matchExpressions[0]", id="no operator"),
        pytest.param([{"matchExpressions": [need("Is", "a")]}], "$[0].matchExpressions[0].operator", id="an operator"),
        pytest.param(
            [{"matchExpressions": [{**need("In"), "values": [1]}]}], "$[0].matchExpressions[0].values[0]", id="a value"
        ),
    ],
)
def test_node_terms_of_the_wrong_form_are_refused_with_what_is_wrong(terms: Any, place: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"`{place}`")):
        selectors.check_node_terms(terms)
