from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.model import labels

names = st.from_regex(r"[a-z]([-a-z0-9_.]{0,5}[a-z0-9])?", fullmatch=True)
values = st.one_of(st.just(""), names)
requirements = st.one_of(
    st.builds(labels.requirement, names, st.sampled_from(["exists", "!"])),
    st.builds(labels.requirement, names, st.sampled_from(["=", "==", "!="]), st.tuples(values)),
    st.builds(labels.requirement, names, st.sampled_from(["in", "notin"]), st.lists(values, min_size=1, unique=True)),
    st.builds(labels.requirement, names, st.sampled_from(["<", ">"]), st.integers(0, 99).map(lambda n: (str(n),))),
)


@given(st.lists(requirements, max_size=4, unique_by=lambda each: each.key))
def test_what_is_printed_reads_as_the_same_selector(wanted: list[labels.Requirement]):
    text = ",".join(map(str, wanted))
    selector = labels.parse(text)
    assert set(selector.requirements) == set(wanted)
    assert labels.parse(str(selector)) == selector


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("zone=a b", "expected ',' before 'b'"),
        ("zone in a", r"expected '\('"),
        ("zone in (a", r"expected '\)' at the end"),
        ("zone=a,", "expected the key of a label at the end"),
        ("size>x", "integer"),
        ("-x=a", "no key of a label"),
        ("x=-a", "no value of a label"),
    ],
)
def test_an_error_says_what_was_expected(text: str, says: str):
    with pytest.raises(labels.SelectorError, match=says):
        labels.parse(text)
