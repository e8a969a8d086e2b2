"""Where reports find runs: in a store of records, in bindings, or by the query API for administrators of a queue."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from atoll.cli.errors import CommandError
from atoll.cli.options import Settings

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer
    from atoll.view.borrowing import Tree
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
    queue: str = ""
    """Only runs of this one and the ones below it; empty for all."""

    def against_tree(self, span: Span) -> Tree | None:
        """The report by queue against the tree; None where other namespaces or the queues are missing."""
        from atoll.view.borrowing import of_rows

        return of_rows(self.rows, self.queues, span, self.queue) if self.whole and self.queues is not None else None


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
        CommandError: the store can't be read, there is no such queue, or no dispatcher answers.
        ApiError: the host refuses.
    """
    from atoll.cli.connection import call

    if store is None:
        alone, where = options.namespace is not None, options.where
        return call(options, lambda host: of_host(host, span, where, queue or "", alone=alone, tree=tree, say=_say))
    queues = None
    if queue or (tree and options.namespace is None):
        from atoll.kube.access import BadKubeconfig

        try:
            queues = call(options, lambda host: queues_of(host, _say))
        except (BadKubeconfig, CommandError) as error:
            _say(_unread(error))
    return of_store(store, span, options.namespace, queue or "", queues, columns)


def of_store(
    store: str,
    span: Span,
    namespace: str | None,
    queue: str,
    queues: Sequence[Json] | None,
    columns: Sequence[str] | None = None,
) -> Source:
    """Runs of a store, as `stored` reads it; of a queue and the ones below it where one is given."""
    rows = stored(store, span, namespace, columns and [*dict.fromkeys([*columns, "queue"])])
    return _chosen(rows, namespace is None, queue, queues)


async def of_host(
    host: ApiServer,
    span: Span,
    namespace: str | None,
    queue: str = "",
    *,
    alone: bool = False,
    tree: bool = False,
    say: Callable[[str], None],
) -> Source:
    """The last runs of workloads that exist.

    Args:
        host: of the queues and workloads.
        span: the time.
        namespace: of the workloads; None for all.
        queue: only runs of this queue and the ones below it, of all namespaces if the user administers it.
        alone: only of the namespace, whoever administers the queue.
        tree: the queues are needed, if the runs of all namespaces are there.
        say: gets a sentence for anything left out.

    Raises:
        CommandError: there is no such queue, or no dispatcher answers.
        ApiError: the host refuses.
    """
    from atoll.kube.errors import Forbidden
    from atoll.model.apiresource import BINDINGS

    queues = await queues_of(host, say) if queue or (tree and namespace is None) else None
    refused: Forbidden | None = None
    if queue and queues is not None:
        path = path_to(queue, queues)
        if not alone and namespace is not None:
            try:
                return of_administered(await administered(host, path), span, queue, queues)
            except Forbidden as error:
                refused = error
    try:
        bindings = await host.list(BINDINGS, namespace)
    except Forbidden:
        if refused is None:
            raise
        raise refused from None
    if refused is not None:
        say(left_out(path))
    return of_bindings(bindings, span, queue, queues, whole=namespace is None)


def of_bindings(
    bindings: Sequence[Json], span: Span, queue: str, queues: Sequence[Json] | None, *, whole: bool
) -> Source:
    """Runs that bindings still have; of a queue and the ones below it where one is given."""
    from atoll.view import usage

    return _chosen(usage.within(usage.of_bindings(bindings), *span), whole, queue, queues)


def of_administered(found: Sequence[Json], span: Span, queue: str, queues: Sequence[Json]) -> Source:
    """Runs of a queue in all namespaces, as `administered` finds them."""
    from atoll.view import usage

    return Source([*usage.within(usage.of_queue(found), *span)], True, queues, queue)


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
        raise CommandError(f"to read records, install atoll[records]: a package of it is missing ({error})") from error
    try:
        yield from (row for row in read(store, *span, columns) if namespace in (None, row["namespace"]))
    except (ImportError, OSError, ValueError) as error:
        raise CommandError(f"records at {store} can't be read: {error}") from error


def _chosen(rows: Iterable[Row], whole: bool, queue: str, queues: Sequence[Json] | None) -> Source:
    """Rows of a queue and the ones below it, where one is given; of the queue alone where queues can't be read."""
    from atoll.view.borrowing import configured

    if queue:
        names = {queue, *configured(queues or (), queue)}
        rows = (row for row in rows if row["queue"] in names)
    return Source(rows, whole, queues, queue)


async def queues_of(host: ApiServer, say: Callable[[str], None]) -> list[Json] | None:
    """Queues as they are now; None, and a sentence, where they can't be read."""
    from atoll.kube.errors import ApiError
    from atoll.model.apiresource import QUEUES

    try:
        return await host.list(QUEUES)
    except ApiError as error:
        say(_unread(error))
        return None


def _unread(error: Exception) -> str:
    text = "each queue counts alone, without shares of deserved amounts, borrowed and lent hours"
    return f"{text}: queues can't be read ({getattr(error, 'message', error)})"


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def path_to(queue: str, queues: Sequence[Json]) -> list[str]:
    """Names of a queue and the ones above it.

    Raises:
        CommandError: there is no such queue.
    """
    from atoll.cli.lookup import no_queue
    from atoll.view.queue_objects import path_of

    by_name = {str(each["metadata"]["name"]): each for each in queues}
    if queue not in by_name:
        raise no_queue(queue, by_name)
    return [str(each["metadata"]["name"]) for each in path_of(by_name[queue], by_name)]


def left_out(path: Sequence[str]) -> str:
    """The sentence for a user who does not administer the first queue of a path."""
    text = f"runs of queue {path[0]} in other namespaces are left out: the right to get queueruns of"
    return f"{text} {' or '.join(path)} is missing"


async def administered(host: ApiServer, path: Sequence[str]) -> list[Json]:
    """QueueRuns of the first queue of a path, by the right to any of the path.

    Raises:
        CommandError: no dispatcher answers.
        Forbidden: the user administers none of them.
        ApiError: the host refuses.
    """
    from atoll.kube.errors import Forbidden

    refused: Forbidden | None = None
    for top in path:
        try:
            return await _gathered(host, top, path[0])
        except Forbidden as error:
            refused = refused or error
    raise refused or AssertionError("a path has a queue")


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
