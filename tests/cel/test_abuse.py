"""Expressions written to hurt: each ends soon, with an answer or with one of the two errors."""

from __future__ import annotations

import time

import pytest

from atoll import cel

_SECONDS = 10
"""Of a processor: several times what any takes, and far less than any took without its bound."""
DEVICE = cel.DeviceView(
    "gpu.example.com", {"attributes": {f"d{at}.example.com/a": {"string": "a" * 64} for at in range(32)}}
)


def _bound(levels: int, first: str, step: str, last: str) -> str:
    """`first`, then `step` of the variable before (`@`), level by level, then `last`."""
    binds = [f"cel.bind(x0, {first}, "]
    binds += [f"cel.bind(x{at + 1}, {step.replace('@', f'x{at}')}, " for at in range(levels)]
    return "".join(binds) + last.replace("@", f"x{levels}") + ")" * (levels + 1)


_FIFTY = 'cel.bind(a, "' + "a" * 50 + '", '
ABUSE = {
    "ten thousand brackets": "(" * 5000 + ")" * 5000,
    "ten thousand open brackets": "(" * 10_000,
    "lists in lists": "[" * 3000 + "]" * 3000 + ".size() == 1",
    "maps in maps": "{1:" * 2500 + "1" + "}" * 2500,
    "signs": "!" * 10_000 + "true",
    "minus signs": "-" * 10_000 + "1 == 1",
    "a long sum": "1" + "+1" * 5000 + " > 0",
    "a long chain of or": "false" + "||false" * 1200,
    "a long chain of comparisons": "true" + "==true" * 1500,
    "conditions in conditions": "true?true:" * 1000 + "true",
    "selections": "device" + ".attributes" * 900,
    "indexes": "[1]" + "[0]" * 3000 + " == 1",
    "calls in calls": "dyn(" * 2000 + "true" + ")" * 2000,
    "macros in macros": "[1].map(x, " * 800 + "1" + ")" * 800 + " == []",
    "an open quote": '"' + "a" * 10_000,
    "triple quotes": '"""' * 3413,
    "a large integer": "9" * 10_000 + " > 0",
    "a large number in text": 'int("' + "9" * 10_000 + '") > 0',
    "a large quantity": 'quantity("' + "9" * 10_000 + '").isInteger()',
    "a large exponent": 'quantity("1e999999999").isInteger()',
    "a large version": 'isSemver("' + "9" * 10_000 + '.0.0")',
    "a long text": "true" + " " * 10_237,
    "a pattern of nested repetition": f'"{"a" * 5000}!".matches("^(a+)+$")',
    "a pattern of counted repetition": '"a".matches("((a{1000}){1000}){1000}")',
    "a large pattern": '"a".matches("' + ".{1000}" * 1000 + '")',
    "patterns made in a loop": 'lists.range(60000).exists(x, "a".matches(".{900}" + string(x)))',
    "a large pattern over a long text": _bound(12, f'"{"a" * 100}"', "@ + @", '@.matches("(.?){500}b")'),
    "domains in domains": "".join(f"device.attributes.all(k{at}, " for at in range(6)) + "true" + ")" * 6,
    "a range without end": "lists.range(9223372036854775807).size() > 0",
    "ranges in ranges": "".join(f"lists.range(1000).all(x{at}, " for at in range(5)) + "true" + ")" * 5,
    "a filter that keeps nothing": "".join(f"lists.range(900).filter(x{at}, " for at in range(3))
    + "false).size() > 0).size() > 0).size() > 0",
    "text twice as long each time": _bound(50, '"aaaaaaaaaaaaaaaa"', "@ + @", "@.size() > 0"),
    "lists twice as long each time": _bound(50, "[1, 2, 3]", "@ + @", "@.size() > 0"),
    "lists that share their elements": _bound(50, "dyn([dyn(1)])", "dyn([@, @])", "@ == @"),
    "lists that share nothing to count": _bound(50, "dyn([])", "dyn([@, @])", "[@].flatten(60).size() > 0"),
    "shared lists gone through": _bound(50, "dyn([])", "dyn([@, @])", "[@].indexOf(@) > 0"),
    "shared lists printed": _bound(50, "dyn([])", "dyn([@, @])", '"%s".format([@]).size() > 0'),
    "maps of maps as types": _bound(50, "{1: 1}", "{1: @, 2: @}", "@ == @"),
    "maps as keys": _bound(50, "{1: 1}", "{@: @}", "@.size() > 0"),
    "free types as keys": _bound(50, "[][0]", "{@: @}", "@ == @"),
    "optional values asked twice": "optional.of(1)" + ".optMap(x, x + 1)" * 60 + ".hasValue()",
    "replacements that grow": _FIFTY + _bound(10, "a", '@.replace("", @)', "@.size() > 0") + ")",
    "joins that grow": _FIFTY + _bound(10, "a", '@.split("").join(@)', "@.size() > 0") + ")",
    "formats that grow": _FIFTY + _bound(40, "a", '"%s%s%s%s".format([@, @, @, @])', "@.size() > 0") + ")",
    "a search backwards": _bound(13, f'"{"a" * 64}"', "@ + @", '@.lastIndexOf("b" + @.substring(260000)) > 0'),
    "sorting": "lists.range(60000).map(x, -x).sort().size() > 0",
    "distinct": "lists.range(60000).distinct().size() > 0",
    "sets": "sets.equivalent(lists.range(30000), lists.range(30000).reverse())",
    "a zone outside its folder": 'timestamp("2026-01-01T00:00:00Z").getHours("../../../etc/passwd") == 0',
    "half a character": '"\ud800" == "a"',
    "a character that is no text": "\x00",
}


@pytest.mark.parametrize("name", ABUSE)
def test_abusive_expression_ends_soon(name: str):
    refusal = ""
    started = time.thread_time()
    try:
        assert cel.compile(ABUSE[name]).matches(DEVICE) in (True, False)
    except (cel.CompileError, cel.EvaluationError) as error:
        refusal = str(error)
    assert len(refusal) < 400
    assert time.thread_time() - started < _SECONDS


def test_text_of_kubernetes_bound_is_taken_and_one_more_is_not():
    assert cel.compile("true" + " " * (10 * 1024 - 4)).matches(DEVICE)
    with pytest.raises(cel.CompileError, match="the most is 10240"):
        cel.compile("true" + " " * (10 * 1024 - 3))
