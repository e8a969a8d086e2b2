"""When a CronJob is due: schedules as Kubernetes' CronJobs have them, in a time zone."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, takewhile

from cronsim import CronSim, CronSimError

from atoll.model import duration

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = "@every "
_FIELD = re.compile(r"[0-9*/,\-]+")
_WORD = re.compile(r"SUN|MON|TUE|WED|THU|FRI|SAT|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC")
_LONGEST = 200
_SPANS = (3600.0, 86400.0, 33 * 86400.0, 366 * 86400.0, 9 * 366 * 86400.0)
"""Seconds that are looked back, one after the other: a schedule has few times in the one in which it has any."""


class BadSchedule(ValueError):
    """It can't be read, or never comes; says why."""


@dataclass(frozen=True)
class Schedule:
    """Times that come again; seconds since the epoch in and out."""

    text: str
    zone: zoneinfo.ZoneInfo
    every: float = 0.0
    """Seconds between two times that are counted from the last one; 0 where the clock decides."""

    def after(self, moment: float) -> float | None:
        """The first time later than this; None where there is none."""
        return next(self.times(moment), None)

    def times(self, moment: float) -> Iterator[float]:
        """Every time later than this."""
        if self.every:
            while True:
                moment = float(int(moment) + self.every)
                yield moment
        for when in CronSim(self.text, datetime.fromtimestamp(moment, self.zone)):
            # Where clocks are put forward, a time that there is not comes as the one after it.
            if (at := when.timestamp()) > moment:
                yield at

    def latest(self, since: float, now: float) -> float | None:
        """The last time later than `since` and not later than `now`; None where there is none."""
        if self.every:
            rounds = int((now - int(since)) // self.every)
            return int(since) + rounds * self.every if rounds > 0 else None
        for span in _SPANS:
            begin = max(since, now - span)
            found = None
            for at in self.times(begin):
                if at > now:
                    break
                found = at
            if found is not None or begin == since:
                return found
        return None

    def missed(self, since: float, now: float, most: int) -> int:
        """How many times there are later than `since` and not later than `now`, counted up to `most`."""
        return sum(1 for _ in takewhile(lambda at: at <= now, islice(self.times(since), most)))


def parse(text: object, zone: object = None) -> Schedule:
    """Read a schedule.

    Args:
        text: five fields, or one of the names that begin with `@`.
        zone: name of a time zone; None for UTC.

    Raises:
        BadSchedule: it can't be read.
    """
    if not isinstance(text, str) or not 0 < len(text) <= _LONGEST:
        raise BadSchedule("is no schedule; use five fields such as `*/5 * * * *`, or @hourly")
    if "TZ=" in text:
        raise BadSchedule("names a time zone; use timeZone for that")
    found = _zone(zone)
    if text.startswith(_EVERY):
        every = duration.parse_or_none(text.removeprefix(_EVERY).strip()) or 0.0
        if every < 1:
            raise BadSchedule(f"{text!r} has no duration of a second or more; use one such as @every 90m")
        return Schedule(text, found, float(int(every)))
    fields = _NAMED.get(text, text).upper().replace("?", "*").split()
    if len(fields) != 5 or not all(_FIELD.fullmatch(_WORD.sub("1", field)) for field in fields):
        raise BadSchedule(f"{text!r} is no schedule; use five fields such as `*/5 * * * *`, or @hourly")
    try:
        schedule = Schedule(" ".join(fields), found)
        if schedule.after(0.0) is None:
            raise BadSchedule(f"{text!r} never comes")
    except (CronSimError, AssertionError) as error:
        raise BadSchedule(f"{text!r}: {str(error) or 'a step needs a range'}") from error
    return schedule


def _zone(name: object) -> zoneinfo.ZoneInfo:
    if name is None:
        return zoneinfo.ZoneInfo("UTC")
    # `Local` is whatever the machine of the process has, which no user knows.
    if not isinstance(name, str) or not name or name.lower() == "local":
        raise BadSchedule(f"timeZone {name!r} is no time zone; use a name such as Europe/Berlin")
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError) as error:
        raise BadSchedule(f"timeZone {name!r} is not known; use a name such as Europe/Berlin") from error
