"""Random texts and random trees: nothing is raised but the two errors, and an answer stays the same."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll import cel
from atoll.cel.declarations import FUNCTIONS

DEVICE = cel.DeviceView(
    "gpu.example.com",
    {
        "attributes": {
            "model": {"string": "H100"}, "index": {"int": 0}, "healthy": {"bool": True},
            "version": {"version": "1.2.3-rc.1"}, "tags": {"strings": ["a", "é"]},
        },
        "capacity": {"memory": {"value": "80Gi"}},
        "allowMultipleAllocations": True,
    },
    list_attributes=True,
)  # fmt: skip
ATTRIBUTES = 'device.attributes["gpu.example.com"]'
LEAVES = st.sampled_from(
    [
        "true", "false", "null", "0", "-1", "7u", "1.5", "9223372036854775807", '"a"', '"é"', '""', "b'\\xff'", "[]", "{}",
        "x", "device", "device.driver", ATTRIBUTES, f"{ATTRIBUTES}.model", f"{ATTRIBUTES}.index", f"{ATTRIBUTES}.version",
        f"{ATTRIBUTES}.tags", f"{ATTRIBUTES}.?none", 'device.capacity["gpu.example.com"].memory', 'quantity("1Gi")',
        'semver("1.2.3")', 'duration("1h")', 'timestamp("2026-01-01T00:00:00Z")', 'ip("::1")', 'cidr("10.0.0.0/8")',
        'url("https://a.example/x")', "format.uuid()", "optional.none()", "optional.of(1)", "int", "type(1)", "0.0 / 0.0",
    ]
)  # fmt: skip
METHODS = sorted(name for name, overloads in FUNCTIONS.items() if any(each.member for each in overloads))
GLOBALS = sorted(
    name for name, overloads in FUNCTIONS.items() if name[0].isalpha() and not all(each.member for each in overloads)
)
MACROS = st.sampled_from(["all", "exists", "exists_one", "map", "filter", "sortBy", "optMap", "optFlatMap"])
OPERATORS = st.sampled_from(["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in"])


def _wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(inner, max_size=3).map(", ".join)
    return st.one_of(
        st.builds("({} {} {})".format, inner, OPERATORS, inner),
        st.builds("dyn({}) {} dyn({})".format, inner, OPERATORS, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
        st.builds("[{}]".format, several),
        st.builds("{{{}: {}}}".format, inner, inner),
        st.builds("{}.{}({})".format, inner, st.sampled_from(METHODS), several),
        st.builds("dyn({}).{}({})".format, inner, st.sampled_from(METHODS), several),
        st.builds("{}({})".format, st.sampled_from(GLOBALS), several),
        st.builds("{}.{}(x, {})".format, inner, MACROS, inner),
        st.builds("{}.{}(i, x, {})".format, inner, st.sampled_from(["all", "transformList", "transformMap"]), inner),
        st.builds("cel.bind(x, {}, {})".format, inner, inner),
        st.builds("{}[{}]".format, inner, inner),
        st.builds("{}[?{}]".format, inner, inner),
        st.builds("{}.?model".format, inner),
        st.builds("has({}.model)".format, inner),
        st.builds("[?{}]".format, inner),
        st.builds("!{}".format, inner),
        st.builds("-({})".format, inner),
    )


EXPRESSIONS = st.recursive(LEAVES, _wider, max_leaves=8)
PIECES = st.lists(
    st.sampled_from(
        [*"()[]{}.,?:!-+*/%<>=&|\"'\\ \n", "device", "x", "in", "true", "1", "1u", "0x", "1e", "r'", 'b"', '"""', "\\u00", "cel.bind(",
         "has(", ".?", "[?", ".all(x,", "//", "||", "&&", "é", "\x00"]
    ),
    max_size=30,
).map("".join)  # fmt: skip


def _answer(expression: str) -> tuple[bool, object]:
    try:
        return True, cel.compile(expression, list_attributes=True).evaluate(DEVICE, limit=20_000)
    except cel.CompileError as error:
        return error.column in range(1, len(expression) + 2), str(error)
    except cel.EvaluationError as error:
        return True, str(error)


@given(st.one_of(st.text(max_size=60), PIECES))
@settings(max_examples=400, deadline=None)
def test_random_text_raises_nothing_but_the_two_errors(expression: str):
    assert _answer(expression)[0]


@given(EXPRESSIONS.map("{} == true".format) | EXPRESSIONS.map("dyn({}) == true".format) | EXPRESSIONS)
@settings(max_examples=600, deadline=None)
def test_random_tree_has_one_answer(expression: str):
    assert _answer(expression) == _answer(expression)
