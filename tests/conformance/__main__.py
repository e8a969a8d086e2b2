"""Replay cases: `python -m tests.conformance SUITE FILE...`.

FILE has one JSON object per line, packed with xz where its name ends so. Prints the id of each case that differs and
how, and of how many cases nothing was compared and why; the last line is `N passed, M failed`, with `, K skipped` where
there are such.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from tests.conformance.interpreter import NotCompared
from tests.conformance.suites import SUITES, cases


def main() -> int:
    """Run one suite over files; 1 where a case differs, 2 where a file can't be read."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    options = parser.parse_args()
    passed = failed = 0
    skipped = Counter[str]()
    for file in options.files:
        try:
            for case in cases(file):
                try:
                    differing = SUITES[options.suite](case)
                except NotCompared as why:
                    skipped[str(why)] += 1
                    continue
                passed, failed = passed + (not differing), failed + bool(differing)
                if differing:
                    print(f"{case['id']}: {'; '.join(differing)}")
        except (OSError, ValueError) as error:
            print(f"error: {file}: {error}", file=sys.stderr)
            return 2
    for reason, count in sorted(skipped.items()):
        print(f"skipped {count}: {reason}")
    print(f"{passed} passed, {failed} failed" + (f", {skipped.total()} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
