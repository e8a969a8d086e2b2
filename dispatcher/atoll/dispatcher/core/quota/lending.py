"""Reclaim between queues: which may take capacity back from which, and which stays within its deserved share.

Apart from the tree because these rules read figures of queues and change none.
"""

from __future__ import annotations

from collections.abc import Callable

from atoll.dispatcher.core.quota.queue import Queue, path
from atoll.model import vector
from atoll.model.vector import Vector


def may_reclaim(queue: Queue, request: Vector) -> bool:
    """Whether the queue may reclaim for this request: within its own limit afterwards, and in some requested
    resource within the deserved share of it, or of an ancestor with an entitlement.

    Limits above are not looked at: victims lower their use; test `shortage` without them.
    """
    if queue.stuck or queue.children or vector.shortage(queue.used, request, queue.limit):
        return False
    asked = [(name, amount) for name, amount in request.items() if amount > 0]
    return any(
        name in deserved and each.used.get(name, 0) + amount <= deserved[name]
        for each, deserved in ((each, each.deserved) for each in path(queue) if each.parent is not None)
        for name, amount in asked
    )


def entitled(queue: Queue, request: Vector) -> Vector:
    """Of a request, the resources in which its queue is entitled to reclaim from others."""
    if not may_reclaim(queue, request):
        return {}
    return {name: amount for name, amount in request.items() if amount > 0 and may_reclaim(queue, {name: amount})}


def lends(queue: Queue, claimant: Queue, amount: Vector, request: Vector, *, whole: Vector | None = None) -> bool:
    """Whether an amount may be reclaimed from `queue` for the claimant's request.

    At the queue and at each one above it that is not above the claimant as well: it is reclaimable, stays at or
    above its guarantee, and uses more than it deserves of something that is asked for. A queue lends neither to
    itself nor to one below it.

    Of the two queues that share what both use, the claimant's must still have the smaller share afterwards than
    the other one has now, of whatever resource each has most of: so the larger of their shares falls with each
    eviction, and two queues that contend for several resources come to rest.

    One workload of `queue` uses `amount`. The claimant asks for `whole`, by default `request`, to which its queue is
    entitled.
    """
    relevant = [name for name in amount if amount[name] > 0 and request.get(name, 0) > 0]
    levels = _below_common(queue, claimant)
    if not relevant or not levels or not all(_spares(each, amount, relevant) for each in levels):
        return False
    top, mine = levels[-1], _below_common(claimant, queue)[-1]
    if not any(name in top.deserved for name in relevant):
        # No queue declares a due amount there.
        return True
    wanted = dict(mine.used)
    vector.add(wanted, whole if whole is not None else request)
    return mine.share(wanted) < top.share(top.used)


def may_lend(claimant: Queue, request: Vector) -> Callable[[Queue], bool]:
    """A quick test of queues: where it says no, `lends` says so of every amount. Each level is looked at once."""
    known: dict[Queue, bool] = dict.fromkeys(path(claimant), True)
    names = [name for name, amount in request.items() if amount > 0]

    def test(queue: Queue) -> bool:
        answer = known.get(queue)
        if answer is None:
            deserved = queue.deserved
            over = any(name not in deserved or queue.has(name) > deserved[name] for name in names)
            lent = over and queue.said.reclaimable
            answer = known[queue] = lent and (queue.parent is None or test(queue.parent))
        return answer

    return test


def is_claimed(queue: Queue, amount: Vector) -> bool:
    """Whether others, with their use and their waiting workloads, may claim some of an amount for themselves if it
    is all that the queue uses: it exceeds the queue's deserved share, and the part of the shared amount that they
    leave.
    """
    for each in path(queue):
        up = each.parent
        if up is None or not each.said.reclaimable:
            return False
        for name, value in amount.items():
            if value > each.deserved.get(name, 0):
                claims = sum(
                    min(other.wanted.get(name, 0), other.deserved.get(name, 0))
                    for other in up.children.values()
                    if other is not each
                )
                if claims > 0 and value > up.limit.get(name, value) - claims:
                    return True
    return False


def is_due_before(queue: Queue, amount: Vector, other: Queue, request: Vector) -> bool:
    """Whether one queue stays within its deserved share with an amount, and another one would borrow with a
    request: each as the part of the tree that is not above both. Where nothing is declared, and parts follow from
    who wants how much, no queue borrows in that sense: a large workload would never start.
    """
    mine, theirs = _below_common(queue, other), _below_common(other, queue)
    return bool(mine and theirs) and _is_due(mine[-1], amount) and not _is_due(theirs[-1], request)


def is_due(queue: Queue, amount: Vector) -> bool:
    """Whether the queue, and each one above it, stays within its deserved share with an amount, where that is
    declared at all; see `is_due_before`.
    """
    return all(_is_due(each, amount) for each in path(queue))


def _below_common(queue: Queue, other: Queue) -> list[Queue]:
    """The queue and those above it that are not above the other one too."""
    shared = set(path(other))
    return [each for each in path(queue) if each not in shared]


def _is_due(queue: Queue, amount: Vector) -> bool:
    """Whether a queue stays within its deserved share with an amount, in resources that it or a sibling declares."""
    return queue.parent is None or all(
        queue.used.get(name, 0) + value <= queue.deserved.get(name, 0)
        for name in queue.parent.claimed
        if (value := amount.get(name, 0)) > 0
    )


def _spares(queue: Queue, amount: Vector, relevant: list[str]) -> bool:
    """Whether a queue that lends is above its entitlement, and stays within its guarantee."""
    if not queue.said.reclaimable:
        return False
    guarantee, deserved = queue.guarantee, queue.deserved
    if any(queue.has(name) - amount[name] < guarantee.get(name, 0) for name in amount if amount[name] > 0):
        return False
    measured = [name for name in relevant if name in deserved]
    return not measured or any(queue.has(name) > deserved[name] for name in measured)
