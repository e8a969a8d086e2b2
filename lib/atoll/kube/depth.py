"""Answers in which some object is nested more deeply than a decoder goes: API servers take 10,000 levels, a decoder
here some hundred, and it reads all of an answer or nothing.

So one object of anybody would hide all others of its kind. Too deep parts are cut out, so that the rest can be read.
"""

from __future__ import annotations

import re

_LEVELS = 400
CUT = b'"(nested too deeply)"'
"""Stands where something was cut out."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def flattened(text: bytes) -> bytes:
    """The JSON without too deeply nested parts."""
    kept, depth, begun, end = [], 0, 0, 0
    for token in _TOKEN.finditer(text):
        kind = text[token.start()]
        if kind in b"[{":
            depth += 1
            if depth == _LEVELS:
                begun = token.start()
        elif kind in b"]}":
            if depth == _LEVELS:
                kept += [text[end:begun], CUT]
                end = token.end()
            depth -= 1
    return b"".join([*kept, text[end:]])
