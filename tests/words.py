"""`python -m tests.words [--check | --write]`: docstrings and comments of product code use short sentences with nouns as subjects.

Each listed word hides a noun that the code has a name for. `words_budget.txt` beside this module has the number of them that each
file may still have: `--check` fails where a file has more, `--write` lowers the numbers and never raises one. A new file has none.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUDGET = Path(__file__).with_name("words_budget.txt")
PRODUCT = ("agent", "cli", "crds", "deploy", "dispatcher", "global", "lib", "sim", "topology", "webhook")

WORDS = {
    "what is": re.compile(r"\bwhat(ever)? (is|are|was|were|has|have|may|must|it|its|they|their)\b", re.I),
    "said": re.compile(r"\bsaid\b", re.I),
    "told": re.compile(r"\btold\b", re.I),
    # `Room` is a class of the agent, `room:` a parameter: only capital at the start of a phrase about capacity counts.
    "room": re.compile(r"\brooms?\b(?!:)|\bRooms? (for|that|is|in|of|on|which)\b"),
    "those": re.compile(r"\bthose (that|of|which|who|whose|whom)\b", re.I),
    "is to be": re.compile(r"\b(is|are|was|were) to be\b", re.I),
    "nobody": re.compile(r"\b(nobody|somebody|anybody|whom)\b", re.I),
}
"""Each listed word with the forms that count. Names of the code, between backticks, do not."""


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring and of each block of comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    first, last, block = 0, -1, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, text = token.start[0], token.string.lstrip("#: ")
            if line != last + 1:
                if block:
                    yield first, block
                first, block = line, ""
            last, block = line, f"{block} {text}"
    if block:
        yield first, block


def found(source: str) -> Iterator[tuple[int, str, str]]:
    """Line, listed word, and the phrase that has it."""
    for line, text in prose(source):
        # A phrase may go on in the next line.
        flat = " ".join(re.sub(r"`[^`]*`", "", text).split())
        for word, pattern in WORDS.items():
            for match in pattern.finditer(flat):
                yield line, word, flat[max(0, match.start() - 30) : match.end() + 30].strip()


def sources() -> dict[str, str]:
    """Product files by path."""
    return {
        str(file.relative_to(ROOT)): file.read_text("utf-8")
        for folder in PRODUCT
        for file in sorted((ROOT / folder).rglob("*.py"))
    }


def read(budget: Path) -> dict[str, int]:
    """Occurrences that each file may have."""
    lines = budget.read_text("utf-8").splitlines() if budget.exists() else []
    return {path: int(count) for count, path in (line.split() for line in lines)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.words", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where a file has more than its budget (default)")
    parser.add_argument("--write", action="store_true", help="lower the budgets to the present numbers")
    parser.add_argument("--list", metavar="PATH", help="print each occurrence in files below PATH")
    options = parser.parse_args(arguments)
    files = sources()
    hits = {path: list(found(source)) for path, source in files.items()}
    if options.list:
        for path, each in hits.items():
            for line, word, phrase in each if path.startswith(options.list) else ():
                print(f"{path}:{line}: {word}: {phrase}")
        return 0
    budget = read(BUDGET)
    if options.write:
        fresh = not BUDGET.exists()
        now = {path: len(each) if fresh else min(len(each), budget.get(path, 0)) for path, each in hits.items()}
        BUDGET.write_text("".join(f"{count} {path}\n" for path, count in sorted(now.items()) if count), "utf-8")
        budget = read(BUDGET)
    thousands = sum(source.count("\n") for source in files.values()) / 1000
    words = Counter(word for each in hits.values() for _, word, _ in each)
    print(", ".join(f"{word} {words[word] / thousands:.2f}" for word in WORDS), "per 1,000 lines")
    over = {path: each for path, each in hits.items() if len(each) > budget.get(path, 0)}
    for path, each in over.items():
        print(
            f"{path} has {len(each)} of the listed words in docstrings and comments, and may have {budget.get(path, 0)}:"
        )
        for line, word, phrase in each:
            print(f"  {path}:{line}: {word}: {phrase}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
