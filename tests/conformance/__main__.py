"""Replay cases: `python -m tests.conformance SUITE FILE...`.

FILE has one JSON object per line, packed with xz where its name ends so. Prints the id of each case that differs and
how; the last line is `N passed, M failed`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.conformance.suites import SUITES, cases


def main() -> int:
    """Run one suite over files; 1 where a case differs, 2 where a file can't be read."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    options = parser.parse_args()
    passed = failed = 0
    for file in options.files:
        try:
            for case in cases(file):
                differing = SUITES[options.suite](case)
                passed, failed = passed + (not differing), failed + bool(differing)
                if differing:
                    print(f"{case['id']}: {'; '.join(differing)}")
        except (OSError, ValueError) as error:
            print(f"error: {file}: {error}", file=sys.stderr)
            return 2
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
