"""The table of workload kinds from their own declarations: `python -m atoll.kinds.reference [--check]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Final

from atoll.kinds import KINDS, Kind, unserved

PAGE: Final = Path(__file__).parents[3] / "docs" / "kinds.md"
"""Where the page is in a checkout; an installed package has none."""

_INTRODUCTION: Final = """\
# Workload kinds

<!-- Generated from atoll.kinds; to change it, edit the kind and run: python -m atoll.kinds.reference -->

What Atoll runs; [concepts.md](concepts.md#what-a-workload-may-be) says how each is taken over. A kind is one module of
`atoll.kinds`: everything else goes through all of them.

| kind | resource | before a name in `atollctl` | held on the host by | in members | actions of a Command |
|---|---|---|---|---|---|
"""
_SUPPORT: Final = """
## What of each acts
All pods of the components are one gang and charged together, also those that are made after others. Each member gets
the workload rewritten: started, with the pods of its part, their annotations and scheduler, without the names of the
host's queues.

| kind | components | start together | order | members | scaling | end and failure | quota back | status on the host |
|---|---|---|---|---|---|---|---|---|
"""
_REST: Final = """
## What is not run
In a namespace that has opted in, a new one of these gets a warning Event `NotServed` (where only what names a queue is
Atoll's, if it names one), as does one of a kind above whose CRD serves only a version that Atoll does not run:

"""


def page() -> str:
    """The whole page."""
    built_in = ", ".join(f"{each.kind} (`{each.api_version}`)" for each in unserved.BUILT_IN)
    by_crd = ", ".join(f"{each.kind} (`{each.api_version}`)" for each in unserved.BY_CRD)
    rest = f"{built_in} (a Pod where it names a node itself, or came before its namespace opted in);"
    rest += f" where their CRDs are, and unless a user declared them, {by_crd}.\n"
    return _INTRODUCTION + "".join(_rows()) + _SUPPORT + "".join(_support()) + _REST + rest


def _support() -> Iterator[str]:
    for kind in KINDS:
        cells = (kind.words.title, *(str(getattr(kind.support, each.name)) for each in fields(kind.support)))
        yield f"| {' | '.join(cells)} |\n"


def _rows() -> Iterator[str]:
    for kind in KINDS:
        resource = f"`{kind.resource.plural}`" + (f" of `{kind.resource.group}`" if kind.resource.group else "")
        if kind.assembly is not None:
            resource += f" with label `{kind.assembly.selector}`"
        cells = (
            kind.words.title,
            resource,
            ", ".join(f"`{name}/`" for name in kind.words.names),
            kind.words.held,
            _in_members(kind),
            ", ".join(f"`{each}`" for each in kind.commands) or "-",
        )
        yield f"| {' | '.join(cells)} |\n"


def _in_members(kind: Kind) -> str:
    if kind.in_member is None:
        return f"a workload of another kind: {kind.words.runs_as}"
    if kind.in_member.status:
        return "Atoll's controller makes its pods"
    who = kind.words.needs or "the member's own controller"
    return f"its pods are made by {who}" + ("; served where its CRD is" if kind.optional else "")


def main() -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the page is not up to date, and write nothing")
    if not parser.parse_args().check:
        PAGE.write_text(page(), "utf-8")
    elif PAGE.read_text("utf-8") != page():
        print("docs/kinds.md is not up to date: run `make generate`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
