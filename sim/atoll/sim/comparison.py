"""Two runs of the same jobs beside each other: figures of both, and which queues win and lose."""

from __future__ import annotations

from typing import Any

from atoll.sim.journal import Journal

Json = dict[str, Any]
SAME = 60.0
"""Seconds by which a start must move to count as earlier or later."""


def compared(now: Json, journal: Journal, then: Json, changed: Journal) -> Json:
    """Figures of both runs by queue and by size of the jobs.

    Args:
        now: report (`atoll.sim.metrics.report`) of the first run.
        journal: of the first run.
        then: report of the second run.
        changed: its journal.
    """
    starts = _starts(changed)
    moved: dict[str, list[int]] = {}
    for name, (queue, start) in _starts(journal).items():
        other = starts.get(name, (queue, None))[1]
        counts = moved.setdefault(queue, [0, 0])
        if start is None or other is None:
            counts[0] += start is None and other is not None
            counts[1] += other is None and start is not None
        else:
            counts[0] += other < start - SAME
            counts[1] += other > start + SAME
    queues = [name for name in now["queues"] if now["queues"][name]["jobs"]]
    return {
        "queues": {
            name: {
                "now": _figures(now["queues"][name]),
                "changed": _figures(then["queues"].get(name, {"jobs": 0})),
                "earlier": moved.get(name, [0, 0])[0],
                "later": moved.get(name, [0, 0])[1],
            }
            for name in queues
        },
        "sizes": {
            name: {"now": _figures(figures), "changed": _figures(then["classes"][name])}
            for name, figures in now["classes"].items()
            if figures["jobs"]
        },
        "run": {
            name: {"now": _of_run(now)[name], "changed": _of_run(then)[name]}
            for name in ("finished", "never started", "evictions", "utilisation while jobs come")
        },
    }


def _starts(journal: Journal) -> dict[tuple[str, str], tuple[str, float | None]]:
    return {
        (record.job.namespace, record.job.name): (record.job.queue, record.first_start)
        for record in journal.records.values()
    }


def _figures(figures: Json) -> Json:
    wait = figures.get("wait") or {"mean": None, "p95": None}
    found = {"jobs": figures["jobs"], "wait_mean": wait["mean"], "wait_p95": wait["p95"]}
    return found | ({"hours": round(figures["used"] / 3600, 3)} if "used" in figures else {})


def _of_run(report: Json) -> Json:
    return {
        "finished": report["jobs"]["finished"],
        "never started": report["jobs"]["never_started"],
        "evictions": report["evictions"]["total"],
        "utilisation while jobs come": report["utilisation"]["window"],
    }
