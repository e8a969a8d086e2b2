"""docs/settings.md from the settings of each process: `python -m atoll.cli.settings_reference [--check]`.

Units, bounds, defaults and reasons are those that the processes read, so the page can't promise any other.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from atoll.agent.descheduler.settings import DeschedulerSettings
from atoll.agent.settings import AgentSettings
from atoll.cli.web.settings import WebSettings
from atoll.control.settings import ControlSettings
from atoll.dispatcher.settings import DispatcherSettings
from atoll.kube.settings import Leaf, ProcessSettings, leaves, shown
from atoll.topology.settings import TopologySettings
from atoll.webhook.settings import WebhookSettings

PAGE: Final = Path(__file__).parents[3] / "docs" / "settings.md"
"""Where the page is in a checkout; an installed package has none."""
PROCESSES: Final[dict[str, type[ProcessSettings]]] = {
    "webhook": WebhookSettings,
    "control": ControlSettings,
    "dispatcher": DispatcherSettings,
    "agent": AgentSettings,
    "topology": TopologySettings,
    "descheduler": DeschedulerSettings,
    "web": WebSettings,
}
INTRODUCTION: Final = """\
# Settings

<!-- Generated from the settings modules; to change it, edit them and run: python -m atoll.cli.settings_reference -->

Each process has one tree of settings. Defaults are right for a federation of up to 100 members; change one when a
measurement says so, and on all replicas of a process alike.

| Where | How | Example |
|---|---|---|
| a flag of its own | where the table names one | `--lease-seconds=20` |
| any flag | `--set KEY=VALUE`, repeated | `--set election.lease=20` |
| environment | `ATOLL_<PROCESS>__<SECTION>__<NAME>` | `ATOLL_CONTROL__ELECTION__RENEW_DEADLINE=12` |
| file | `--config FILE`, YAML | `election: {lease: 20, renewDeadline: 12}` |

The first of these that names a setting wins. A name that the process does not know is refused, with the nearest one
that it does; so is a value outside of the bounds. `--print-config` prints the tree that a process would run with, with
where each value comes from; its output is such a file.

What users may write into objects (longest names, most tasks) is the API and no setting: it is in [api.md](api.md).
`core` are the timers and bounds of what decides: of the dispatcher, and of a member's scheduler. A recorded log carries
them, so `python -m atoll.sim.replay` decides with the same. The default of an annotation that several processes read,
such as `atoll.sh/evict-timeout`, is part of the API as well.
"""

_BOUNDS: Final = (("gt", "> {}"), ("ge", ">= {}"), ("le", "<= {}"))


def render() -> str:
    """The page; the same models always give the same text."""
    return "\n".join([INTRODUCTION, *(_process(name, model) for name, model in PROCESSES.items())])


def _process(name: str, model: type[ProcessSettings]) -> str:
    lines = [f"## atoll-{name}", "", "| Key | Default | Unit | Flag | What it does, and why |", "|---|---|---|---|---|"]
    lines += [_line(leaf) for leaf in leaves(model)]
    return "\n".join(lines) + "\n"


def _line(leaf: Leaf) -> str:
    default = "" if leaf.default in ("", None) else f"`{shown(leaf.default)}`".replace('"', "")
    flag = f"`{leaf.flag}`" if leaf.flag else ""
    text = " ".join(each for each in (leaf.meta.description or "", _bounds(leaf.kind, leaf.meta)) if each)
    return f"| `{leaf.key}` | {default} | {leaf.meta.title} | {flag} | {text} |"


def _bounds(kind: Any, meta: msgspec.Meta) -> str:
    choices = get_args(get_args(kind)[0])
    if choices and all(isinstance(each, str) for each in choices):
        return f"One of {', '.join(f'`{each}`' for each in choices)}."
    # That a time is not for ever needs no word.
    found = [text.format(f"{bound:g}") for name, text in _BOUNDS if (bound := getattr(meta, name)) not in (None, 1e9)]
    return f"({', '.join(found)})" if found else ""


def main(argv: list[str] | None = None) -> int:
    """Write the page, or with --check compare it; 1 if it is out of date."""
    parser = argparse.ArgumentParser(prog="python -m atoll.cli.settings_reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; 1 on a difference")
    options = parser.parse_args(argv)
    if not options.check:
        PAGE.write_text(render())
    elif not PAGE.exists() or PAGE.read_text() != render():
        print("docs/settings.md differs from the settings; run python -m atoll.cli.settings_reference", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
