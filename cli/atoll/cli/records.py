"""`atollctl usage`, `efficiency`, `history` and `preemptions`: reports from records."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import USAGE, CommandError
from atoll.cli.options import NoHeaders, settings
from atoll.cli.printing import show_table
from atoll.cli.run_sources import Span, source_of

if TYPE_CHECKING:
    from atoll.view.usage import Row

Json = dict[str, Any]


class By(StrEnum):
    """Values of `--by`."""

    QUEUE = "queue"
    NAMESPACE = "namespace"
    USER = "user"
    MEMBER = "member"
    CLASS = "class"


class Of(StrEnum):
    """Values of `--by` of `efficiency`."""

    WORKLOAD = "workload"
    USER = "user"
    QUEUE = "queue"
    NAMESPACE = "namespace"


class Output(StrEnum):
    """Values of `--output`."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


_Store = Annotated[
    str | None,
    typer.Option(
        "--records",
        envvar="ATOLL_RECORDS",
        help="Folder or URL of the records (needs atoll[records] and the right to read it); left out: the last runs of"
        " workloads that exist in the namespace, or all with -A.",
    ),
]
_Queue = Annotated[
    str | None,
    typer.Option(
        "--queue",
        help="Only runs of this queue and the ones below it; without --records, -n and -A of all namespaces, for those"
        " who may get queueruns of the queue or one above it.",
    ),
]
_Since = Annotated[str, typer.Option(help="How long ago the time begins: 90m, 36h, 7d.")]
_Month = Annotated[str | None, typer.Option(help="A month (UTC) instead, such as 2026-10.")]
_OUTCOMES = ("Succeeded", "Failed", "Evicted", "Deleted")
_Format = Annotated[
    Output, typer.Option("--output", "-o", help="How to print; parquet (needs atoll[records]) to a file or a pipe.")
]


def usage(
    ctx: typer.Context,
    by: Annotated[By, typer.Option(help="What a line is about.")] = By.QUEUE,
    store: _Store = None,
    queue: _Queue = None,
    since: _Since = "30d",
    month: _Month = None,
    prices: Annotated[
        Path | None,
        typer.Option(help="YAML: currency, and prices by resource for an hour of a core, a GiB or a device."),
    ] = None,
    output: _Format = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show resource-hours of runs: asked, held, in use, lost by evictions; and their waits.

    By queue, of all namespaces (-A, --queue, or --records without -n), queues count with the ones below them, and have
    figures against their deserved amounts as configured now: the share held, hours borrowed beyond, idle hours lent.
    """
    from atoll.view import borrowing
    from atoll.view import usage as view

    span = span_of(since, month)
    costs, currency = _prices(prices)
    columns = [*view.COLUMNS, *view.BY[by.value]]
    source = source_of(settings(ctx), store, span, queue, columns, tree=by is By.QUEUE)
    if by is By.QUEUE and (report := source.against_tree(span)) is not None:
        if output is Output.TABLE:
            headers = ("QUEUE", *view.USAGE, *borrowing.HEADERS)
            show_table(headers, borrowing.table(report, costs), no_headers=no_headers)
        else:
            types = {**view.record_types(by.value), **borrowing.TYPES}
            _print(borrowing.records(report, *span, costs, currency), output, types)
        return
    lines = view.usage(source.rows, by.value, *span)
    if output is Output.TABLE:
        show_table((by.value.upper(), *view.USAGE), view.usage_rows(lines, costs), no_headers=no_headers)
    else:
        _print(view.usage_records(lines, by.value, *span, costs, currency), output, view.record_types(by.value))


def efficiency(
    ctx: typer.Context,
    by: Annotated[Of, typer.Option(help="What a line is about.")] = Of.USER,
    store: _Store = None,
    queue: _Queue = None,
    since: _Since = "30d",
    month: _Month = None,
    output: _Format = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show what became of the resource-hours that runs held: succeeded, lost, or spent on starting and leaving.

    BUSY is the part in use, of runs whose members measure it.
    """
    from atoll.view import efficiency as view

    span = span_of(since, month)
    lines = view.efficiency(source_of(settings(ctx), store, span, queue, view.COLUMNS).rows, by.value, *span)
    if output is Output.TABLE:
        show_table((by.value.upper(), *view.HEADERS), view.table(lines), no_headers=no_headers)
    else:
        _print(view.records(lines, by.value), output, view.record_types(by.value))


def history(
    ctx: typer.Context,
    store: _Store = None,
    since: _Since = "7d",
    month: _Month = None,
    queue: _Queue = None,
    user: Annotated[str | None, typer.Option(help="Only of this user.")] = None,
    me: Annotated[bool, typer.Option("--me", help="Only runs of what I submitted.")] = False,
    outcome: Annotated[
        str | None, typer.Option(help="Only these: Succeeded, Failed, Evicted or Deleted; with commas.")
    ] = None,
    output: _Format = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show runs: when, where, how long, and how they ended."""
    from atoll.view import usage as view

    if me:
        from atoll.cli.connection import call
        from atoll.cli.jobs import myself

        if user is not None:
            raise CommandError("--me and --user name one user each; leave one of them out", USAGE)
        user = call(settings(ctx), myself)
    wanted = outcome.split(",") if outcome is not None else None
    if wrong := [each for each in wanted or () if each not in _OUTCOMES]:
        raise CommandError(f"--outcome {', '.join(wrong)}: write {', '.join(_OUTCOMES)}", USAGE)
    found = [
        row
        for row in source_of(settings(ctx), store, span_of(since, month), queue).rows
        if user in (None, row["user"]) and (wanted is None or row["outcome"] in wanted)
    ]
    if output is Output.TABLE:
        show_table(view.HISTORY, view.history_rows(found), no_headers=no_headers)
    else:
        _print_rows(found, output)


def preemptions(
    ctx: typer.Context,
    store: _Store = None,
    queue: _Queue = None,
    since: _Since = "7d",
    month: _Month = None,
    output: _Format = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show runs that were evicted for other workloads: the claimants and the rules."""
    from atoll.view import usage as view

    found = view.preempted(source_of(settings(ctx), store, span_of(since, month), queue).rows)
    if output is Output.TABLE:
        show_table(view.PREEMPTIONS, view.preemption_rows(found), no_headers=no_headers)
    else:
        _print_rows(found, output)


def span_of(since: str, month: str | None) -> Span:
    """The time of a report: a month, or up to now."""
    now = datetime.now(UTC)
    if month is not None:
        try:
            begin = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
        except ValueError as error:
            raise CommandError(f"--month {month}: write a year and a month, such as 2026-10", USAGE) from error
        return begin, (begin + timedelta(days=32)).replace(day=1)
    from atoll.model import duration

    try:
        days = since.endswith("d") and float(since[:-1]) * 86400.0
        return now - timedelta(seconds=days or duration.parse(since)), now
    except (ValueError, OverflowError) as error:
        raise CommandError(f"--since {since}: write 90m, 36h or 7d", USAGE) from error


def _prices(path: Path | None) -> tuple[dict[str, float], str]:
    if path is None:
        return {}, ""
    import yaml

    try:
        sheet = yaml.safe_load(path.read_text("utf-8"))
        return {str(name): float(price) for name, price in sheet["prices"].items()}, str(sheet.get("currency") or "")
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        text = "write `currency: EUR` and `prices: {nvidia.com/gpu: 2.5}`"
        raise CommandError(f"--prices {path}: {error}; {text}") from error


def _print_rows(rows: Sequence[Row], output: Output) -> None:
    from atoll.view.usage import plain

    if output is Output.PARQUET:
        _write_parquet(rows)
    else:
        _print([plain(row) for row in rows], output)


def _print(records: Sequence[Json], output: Output, types: Mapping[str, str] | None = None) -> None:
    """Print as JSON, CSV or, with the type of each column, Parquet."""
    if output is Output.PARQUET:
        _write_parquet(records, types)
    elif output is Output.JSON:
        print(json.dumps(records, indent=2, ensure_ascii=False))
    elif records:
        writer = csv.DictWriter(sys.stdout, list(records[0]), lineterminator="\n")
        writer.writeheader()
        for record in records:
            writer.writerow({key: _cell(value) for key, value in record.items()})


def _write_parquet(records: Sequence[Json], types: Mapping[str, str] | None = None) -> None:
    """To standard output.

    Args:
        records: of the report.
        types: column -> `string`, `int64` or `double`; None for columns of records themselves (docs/records.md).
    """
    if sys.stdout.isatty():
        raise CommandError("-o parquet is no text: send it to a file, as in `... -o parquet > usage.parquet`", USAGE)
    try:
        import pyarrow
        from pyarrow import parquet

        from atoll.control.ledger import SCHEMA
    except ImportError as error:
        text = f"-o parquet needs a package that is not installed ({error}): pip install 'atoll[records]'"
        raise CommandError(text) from error
    schema = SCHEMA if types is None else pyarrow.schema([*types.items()])
    table = pyarrow.Table.from_pylist([*records], schema=schema)
    parquet.write_table(table, sys.stdout.buffer, compression="zstd")


def _cell(value: Any) -> Any:
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
    # A spreadsheet takes such a text for a formula.
    return f"'{text}" if isinstance(text, str) and text.startswith(("=", "+", "-", "@")) else text
