"""Everything that real nodes need and that takes long the first time, before anything waits for it.

`python -m atoll.local.realnodes.prepare [FOLDER ...]` checks the machine, gets the programs of nodes, and builds the
images of pods' sandboxes, of busybox and of these folders.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from atoll.local.binaries import BinariesError
from atoll.local.realnodes import images, programs, requirements


def prepare(folders: Sequence[Path]) -> None:
    """Have it all; blocks, for minutes the first time.

    Raises:
        Missing: the machine can't run real nodes.
        BinariesError: a program can be neither found, nor downloaded, nor built.
        ImageError: an image can't be built.
    """
    requirements.check({**requirements.RUN, **requirements.BUILD})
    programs.ensure(_say)
    images.builtin()
    for folder in folders:
        images.build(folder, _say)


def main() -> int:
    """Have it all, or name the missing parts; exit code 1 then."""
    try:
        prepare([Path(each) for each in sys.argv[1:]])
    except (requirements.Missing, BinariesError, images.ImageError) as error:
        _say(f"error: {error}")
        return 1
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
