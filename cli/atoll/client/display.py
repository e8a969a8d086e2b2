"""Answers as text that a notebook shows as a table."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from atoll.view import explanation

Json = dict[str, Any]

_COLOURS = {"succeeded": "#2e7d32", "running": "#1565c0", "failed": "#c62828", "pending": "#bdbdbd"}


class Explanation(str):
    """The text of `atollctl explain`, with its data in `data`."""

    data: Json

    @classmethod
    def of(cls, data: Json) -> Explanation:
        """The explanation of this data."""
        made = cls(explanation.text(data))
        made.data = data
        return made

    def _repr_html_(self) -> str:
        workload, queue = self.data["workload"], self.data.get("queue") or {}
        step = next((each["step"] for each in self.data.get("steps") or () if each["state"] == "current"), "")
        waiting = self.data.get("waiting") or self.data.get("why") or {}
        facts = {
            "status": workload["status"] or step,
            "queue": queue.get("name", ""),
            "members": ", ".join(each["cluster"] for each in self.data.get("clusters") or ()),
            "waits for": waiting.get("message", ""),
            "would help": "; ".join(waiting.get("help") or ()),
        }
        title = f"{workload['kind']} {workload['namespace']}/{workload['name']}"
        body = table((title, ""), [pair for pair in facts.items() if pair[1]])
        indices = self.data.get("indices")
        text = f"<details><summary>explain</summary><pre>{html.escape(self)}</pre></details>"
        return body + (bar(indices) if indices else "") + text


def bar(indices: Mapping[str, Any]) -> str:
    """Indices of an array by state, and the ones that failed."""
    total = sum(int(indices[name]) for name in _COLOURS) or 1
    parts = "".join(
        f'<span title="{indices[name]} {name}" style="display:inline-block;height:1em;'
        f'width:{100 * indices[name] / total:.2f}%;background:{colour}"></span>'
        for name, colour in _COLOURS.items()
        if indices[name]
    )
    counts = ", ".join(f"{indices[name]} {name}" for name in _COLOURS)
    failed = f"; failed: {indices['failedIndices']}" if "failedIndices" in indices else ""
    return f'<div style="width:30em;white-space:nowrap">{parts}</div><div>{html.escape(counts + failed)}</div>'


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of texts, all escaped."""
    head = "".join(f"<th>{html.escape(each)}</th>" for each in headers)
    lines = ("".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
