from __future__ import annotations

from typing import Any

import pytest

from atoll.model import labels


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ({"key": "size", "operator": "Gt", "values": ["x"]}, "integer"),
        ({"key": "size", "operator": "Gt", "values": ["1", "2"]}, "exactly one value"),
        ({"key": "zone", "operator": "In", "values": []}, "at least one value"),
        ({"key": "zone", "operator": "Exists", "values": ["a"]}, "no values"),
        ({"key": "zone", "operator": "Near", "values": ["a"]}, "unknown operator 'Near'"),
        ({"key": "-x", "operator": "Exists"}, "no key of a label"),
        ({"key": "x", "operator": "In", "values": ["-a"]}, "no value of a label"),
    ],
)
def test_error_names_the_wrong_part_of_an_expression(expression: dict[str, Any], says: str):
    with pytest.raises(labels.SelectorError, match=says):
        labels.check_expression(expression)
