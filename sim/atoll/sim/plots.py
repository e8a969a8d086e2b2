"""Utilisation and queue lengths over time as one SVG, alone or in an HTML page that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from atoll.sim.inputs import InputError

Json = dict[str, Any]

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 960, 220, 70, 40, 60
_COLOURS = (
    "#3366cc", "#dc3912", "#ff9900", "#109618", "#990099", "#0099c6", "#dd4477", "#66aa00", "#b82e2e", "#316395",
)  # fmt: skip
_LINES = 10
"""Queues with a line of their own; the others would only hide them."""


def write(path: Path, report: Json, title: str) -> None:
    """Write a plot; the name's ending decides the form.

    Raises:
        InputError: neither .svg nor .html.
    """
    picture = svg(report, title)
    if path.suffix == ".html":
        picture = (
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title></head>\n'
            f"<body>\n{picture}</body></html>\n"
        )
    elif path.suffix != ".svg":
        raise InputError(f"--plot {path}: a plot is .svg or .html")
    path.write_text(picture, encoding="utf-8")


def svg(report: Json, title: str) -> str:
    """Three panels over one time axis: use and demand, use per queue, jobs that wait."""
    series, capacity = report["series"], max(report["capacity"], 1)
    times, end = series["times"], report["seconds"]["whole"]
    queues = sorted(series["queues"], key=lambda name: (-sum(series["queues"][name]["used"]), name))[:_LINES]
    asked = [used + wanted for used, wanted in zip(series["used"], series["wanted"], strict=True)]
    panels = [
        (
            f"{report['resource']}: used and asked for (capacity {capacity}; asked for is cut at twice that)",
            [("used", series["used"]), ("asked for", [min(value, 2.0 * capacity) for value in asked])],
            capacity,
        ),
        (f"{report['resource']} used per queue", [(name, series["queues"][name]["used"]) for name in queues], None),
        (
            "jobs that wait",
            [("all", series["waiting"]), *((name, series["queues"][name]["waiting"]) for name in queues)],
            None,
        ),
    ]
    height = _TOP + len(panels) * (_HEIGHT + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + _LEFT + 160} {height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="16">{escape(title)}</text>',
    ]
    for number, (name, lines, mark) in enumerate(panels):
        parts += _panel(_TOP + number * (_HEIGHT + _GAP) + 20, name, times, end, lines, mark)
    return "\n".join([*parts, "</svg>\n"])


def _panel(
    top: float, name: str, times: Sequence[float], end: float, lines: Sequence[tuple[str, Sequence[float]]],
    mark: float | None,
) -> list[str]:  # fmt: skip
    highest = max([*(max(values, default=0) for _, values in lines), mark or 0, 1e-9])
    tick = _tick(highest)
    scale = math.ceil(highest / tick) * tick
    bottom = top + _HEIGHT

    def x(when: float) -> float:
        return _LEFT + _WIDTH * when / (end or 1)

    def y(value: float) -> float:
        return bottom - _HEIGHT * value / scale

    parts = [f'<text x="{_LEFT}" y="{top - 8:g}">{escape(name)}</text>']
    for step in range(round(scale / tick) + 1):
        level = y(step * tick)
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{level:.1f}" y2="{level:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{level + 4:.1f}" text-anchor="end">{step * tick:g}</text>')
    hours = end / 3600
    every = _tick(hours)
    for step in range(int(hours / every) + 1):
        at = x(step * every * 3600)
        parts.append(f'<text x="{at:.1f}" y="{bottom + 16:g}" text-anchor="middle">{step * every:g} h</text>')
    if mark is not None:
        level = y(mark)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{level:.1f}" y2="{level:.1f}" stroke="#888" '
            'stroke-dasharray="4 4"/>'
        )
    for number, (label, values) in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        points: list[str] = []
        level_text = ""
        for when, value in zip(times, values, strict=False):
            if f"{y(value):.1f}" == level_text:
                continue
            if points:
                points.append(f"{x(when):.1f},{level_text}")
            level_text = f"{y(value):.1f}"
            points.append(f"{x(when):.1f},{level_text}")
        points.append(f"{x(end):.1f},{level_text}")
        parts.append(f'<polyline fill="none" stroke="{colour}" points="{" ".join(points)}"/>')
        beside = top + 12 + 16 * number
        parts.append(f'<text x="{_LEFT + _WIDTH + 8}" y="{beside:g}" fill="{colour}">{escape(label)}</text>')
    return parts


def _tick(highest: float) -> float:
    """A round distance of which about five fit."""
    raw = max(highest, 1e-9) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= raw)
