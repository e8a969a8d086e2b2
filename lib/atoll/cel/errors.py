"""The two errors of the evaluator: an expression that is refused, and one that fails on a device."""

from __future__ import annotations

_LONGEST = 300


class CompileError(ValueError):
    """The expression is not a valid selector: its text, its types or its size."""

    def __init__(self, sentence: str, column: int) -> None:
        # What a sentence quotes may be as long as the text.
        self.sentence = sentence if len(sentence) <= _LONGEST else f"{sentence[:_LONGEST]}..."
        super().__init__(f"column {column}: {self.sentence}")
        #: Position in the text, the first character being 1.
        self.column = column


class EvaluationError(Exception):
    """The expression has no answer for this device, such as a missing attribute or a cost beyond the limit."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence if len(sentence) <= _LONGEST else f"{sentence[:_LONGEST]}...")


class CostExceeded(EvaluationError):
    """The limit of cost is reached: no `||` may swallow this one."""
