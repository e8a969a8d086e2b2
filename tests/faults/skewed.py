"""`python -m tests.faults.skewed FILE MODULE ...`: run a module whose clock is off by the seconds that a file says.

What the standard library tells of the time of day is off; the monotonic clock and certificates are not.
"""

from __future__ import annotations

import datetime
import runpy
import sys
import time
from pathlib import Path

_LOOK_S = 0.1


class _Skew:
    def __init__(self, file: Path) -> None:
        self._file, self._seconds, self._read_at = file, 0.0, -_LOOK_S

    def __call__(self) -> float:
        now = time.monotonic()
        if now - self._read_at >= _LOOK_S:
            self._read_at = now
            text = self._file.read_text()
            self._seconds = float(text) if text else self._seconds
        return self._seconds


def install(file: Path) -> None:
    """Skew this process; before anything takes `datetime` or `time.time` for itself."""
    skew, real, real_ns, now = _Skew(file), time.time, time.time_ns, datetime.datetime.now
    usual = datetime.datetime

    class Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            # Those that libraries in C make are of the usual class.
            return isinstance(instance, usual)

    class Datetime(datetime.datetime, metaclass=Kind):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Datetime:
            found = now(tz) + datetime.timedelta(seconds=skew())
            return cls.combine(found.date(), found.timetz())

    time.time = lambda: real() + skew()
    time.time_ns = lambda: real_ns() + int(skew() * 1e9)
    datetime.datetime = Datetime  # type: ignore[misc]


if __name__ == "__main__":
    _, file, module, *rest = sys.argv
    install(Path(file))
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
