"""Node selectors with all checks of Kubernetes, as devices have them.

A term that Kubernetes would not take matches nothing, and so does an empty one; the other terms still count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atoll.model.labels import SelectorError, check_expression
from atoll.model.selectors import NODE_NAME, node_affinity_matches

Json = Mapping[str, Any]


def selects(terms: Sequence[Json], labels: Mapping[str, str], name: str) -> bool:
    """Whether some term of a core/v1 NodeSelector matches a node; without a name, its fields count as met.

    Raises:
        SelectorError: no term matches, and some are invalid.
    """
    sound, problems = [], []
    for place, term in enumerate(terms):
        try:
            _check(term)
            sound.append(term)
        except SelectorError as error:
            problems.append(f"nodeSelectorTerms[{place}]: {error}")
    if node_affinity_matches(sound, labels, name, () if name else (NODE_NAME,)):
        return True
    if problems:
        raise SelectorError("; ".join(problems))
    return False


def _check(term: Json) -> None:
    for expression in term.get("matchExpressions") or ():
        check_expression(expression)
    for field in term.get("matchFields") or ():
        if field.get("operator") not in ("In", "NotIn") or len(field.get("values") or ()) != 1:
            raise SelectorError(f"{field.get('key', '')}: a field of a node is matched by In or NotIn and one value")
