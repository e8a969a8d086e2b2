"""Where reports find runs: in a store of records, in bindings, or by the query API for administrators of a queue."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from atoll.cli.errors import CommandError
from atoll.cli.options import Settings

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer
    from atoll.view.usage import Row

Json = dict[str, Any]
Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Source:
    """Runs for a report."""

    rows: Iterable[Row]
    whole: bool
    """The runs of all namespaces are in it: of the queue, where one is given."""
    queues: Sequence[Json] | None = None
    """All queues; None where they were not read."""


def source_of(
    options: Settings,
    store: str | None,
    span: Span,
    queue: str | None = None,
    columns: Sequence[str] | None = None,
    *,
    tree: bool = False,
) -> Source:
    """Runs of that time.

    Args:
        options: with the namespace, where one is given.
        store: folder or URL of the records; None for the last runs of workloads that exist.
        span: the time.
        queue: only runs of this queue and the ones below it: without a store and a namespace, of all namespaces if the
            user administers it.
        columns: to read from a store; None for all.
        tree: the queues are needed, if the runs of all namespaces are there.

    Raises:
        CommandError: the store can't be read, or no dispatcher answers.
        ApiError: the host refuses.
    """
    whole = options.namespace is None if store is not None else options.all_namespaces
    asks = queue is not None and store is None and options.namespace is None and not whole
    queues = _queues(options) if queue is not None or (tree and whole) else None
    if queue is not None and asks and queues is not None:
        return _administered(options, span, queue, queues)
    rows = rows_of(options, store, span, columns if columns is None else [*dict.fromkeys([*columns, "queue"])])
    return Source(_only(rows, queue, queues) if queue is not None else rows, whole, queues)


def rows_of(options: Settings, store: str | None, span: Span, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """Rows of that time, of the namespace where one is given."""
    if store is not None:
        yield from stored(store, span, options.namespace, columns)
        return
    from atoll.cli.connection import call
    from atoll.model.apiresource import BINDINGS
    from atoll.view.usage import of_bindings, within

    yield from within(of_bindings(call(options, lambda host: host.list(BINDINGS, options.where))), *span)


def stored(store: str, span: Span, namespace: str | None, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """Rows of a store, one file at a time.

    Args:
        store: folder or URL.
        span: the time.
        namespace: of the workloads; None for all.
        columns: to read; None for all.

    Raises:
        CommandError: it can't be read.
    """
    try:
        from atoll.control.ledger import read
    except ImportError as error:
        raise CommandError(f"--records needs a package that is not installed ({error}): atoll[records]") from error
    try:
        yield from (row for row in read(store, *span, columns) if namespace in (None, row["namespace"]))
    except (ImportError, OSError, ValueError) as error:
        raise CommandError(f"records at {store} can't be read: {error}") from error


def _only(rows: Iterable[Row], queue: str, queues: Sequence[Json] | None) -> Iterator[Row]:
    """Rows of a queue and the ones below it; of the queue alone where queues can't be read."""
    from atoll.view.borrowing import configured

    names = {queue, *configured(queues or (), queue)}
    return (row for row in rows if row["queue"] in names)


def _queues(options: Settings) -> list[Json] | None:
    """Queues as they are now; None, and a sentence on stderr, where they can't be read."""
    from atoll.cli.connection import call
    from atoll.kube.access import BadKubeconfig
    from atoll.kube.errors import ApiError
    from atoll.model.apiresource import QUEUES

    try:
        return call(options, lambda host: host.list(QUEUES))
    except (ApiError, BadKubeconfig, CommandError) as error:
        text = "each queue counts alone, without shares of deserved amounts, borrowed and lent hours"
        print(f"{text}: queues can't be read ({getattr(error, 'message', error)})", file=sys.stderr)
        return None


def _administered(options: Settings, span: Span, queue: str, queues: Sequence[Json]) -> Source:
    """Runs of a queue in all namespaces, for who administers it or one above it; else its runs in the namespace."""
    from atoll.cli.connection import call
    from atoll.kube import errors
    from atoll.view.queue_objects import path_of
    from atoll.view.usage import of_queue, within

    by_name = {str(each["metadata"]["name"]): each for each in queues}
    if queue not in by_name:
        raise CommandError(f"queue {queue} not found: atollctl queue list")
    path = [str(each["metadata"]["name"]) for each in path_of(by_name[queue], by_name)]
    refused: list[errors.Forbidden] = []
    for top in path:
        try:
            found = call(options, partial(_gathered, top=top, queue=queue))
        except errors.Forbidden as error:
            refused.append(error)
        else:
            return Source([*within(of_queue(found), *span)], whole=True, queues=queues)
    try:
        rows = [*_only(rows_of(options, None, span), queue, queues)]
    except errors.Forbidden:
        raise refused[0] from None
    text = f"runs of queue {queue} in other namespaces are left out: the right to get queueruns of"
    print(f"{text} {' or '.join(path)} is missing", file=sys.stderr)
    return Source(rows, whole=False, queues=queues)


async def _gathered(host: ApiServer, top: str, queue: str) -> list[Json]:
    """QueueRuns of a queue, by the right to one at or above it.

    Raises:
        CommandError: no dispatcher answers.
        ApiError: the host refuses.
    """
    import orjson

    from atoll.cli.errors import no_dispatcher
    from atoll.kube import errors
    from atoll.model.apiresource import QUEUE_RUNS

    found: list[Json] = []
    params = {"queue": queue} if queue != top else {}
    while True:
        try:
            page = orjson.loads(await host.request("GET", QUEUE_RUNS.path(name=top), params=params))
        except (errors.NotFound, errors.Busy) as error:
            raise no_dispatcher("no dispatcher answers", error) from error
        found += page["items"]
        if not (after := page["metadata"].get("continue")):
            return found
        params["continue"] = after
