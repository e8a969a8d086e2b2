"""Name a fresh snapshot of etcd by its time, and delete the oldest ones: `python -m atoll.install.snapshots`."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_PREFIX: Final = "etcd-"


def keep_newest(fresh: Path, keep: int, now: datetime) -> list[str]:
    """Rename a snapshot to `etcd-<time>.db` beside itself, and leave the newest `keep`; return their names.

    Raises:
        OSError: there is no fresh one.
    """
    fresh.rename(fresh.with_name(f"{_PREFIX}{now:%Y%m%dT%H%M%SZ}.db"))
    found = sorted(fresh.parent.glob(f"{_PREFIX}*.db"))
    for old in found[:-keep]:
        old.unlink()
    return [each.name for each in found[-keep:]]


def main() -> int:
    """What the CronJob `atoll-etcd-backup` runs after `etcdctl snapshot save`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fresh", type=Path)
    parser.add_argument("--keep", type=int, required=True)
    options = parser.parse_args()
    print(*keep_newest(options.fresh, max(options.keep, 1), datetime.now(UTC)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
