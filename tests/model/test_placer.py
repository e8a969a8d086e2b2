"""What a Cluster says of placing in its member."""

from __future__ import annotations

import pytest

from atoll.model.placer import MadeFor, Placer, made_for, parse_selector
from atoll.model.selectors import label_selector_matches

SELECTORS = [
    ("a value", "pool=batch", {"pool": "batch"}, {"pool": "web"}),
    ("the same with two signs", "pool==batch", {"pool": "batch"}, {}),
    ("another value", "pool!=web", {}, {"pool": "web"}),
    ("one of several", "zone in (a, b)", {"zone": "b"}, {"zone": "c"}),
    ("none of several", "zone notin (a,b)", {"zone": "c"}, {"zone": "a"}),
    ("a key", "gpu.example.com/model", {"gpu.example.com/model": ""}, {}),
    ("no key", "!spot", {}, {"spot": "true"}),
    ("all of several", "pool=batch,zone in (a,b),!spot", {"pool": "batch", "zone": "a"}, {"pool": "batch"}),
    ("nothing", "", {}, None),
]


@pytest.mark.parametrize(("text", "yes", "no"), [c[1:] for c in SELECTORS], ids=[c[0] for c in SELECTORS])
def test_selectors_as_kubectl_takes_them(text: str, yes: dict[str, str], no: dict[str, str] | None) -> None:
    selector = parse_selector(text)
    assert label_selector_matches(selector, yes)
    assert no is None or not label_selector_matches(selector, no)


@pytest.mark.parametrize("text", ["a b", "=x", "a in b", "a=b c", "-x", "a in (b"])
def test_what_is_no_selector(text: str) -> None:
    with pytest.raises(ValueError, match="is no label selector"):
        parse_selector(text)


def test_how_a_workload_was_made_is_read_back() -> None:
    how = MadeFor(Placer.VOLCANO, "team", True)
    assert made_for(how.text()) == how
    assert made_for(None) is made_for("nonsense") is None
