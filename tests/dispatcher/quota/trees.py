"""Quota trees, and what waits and runs in them."""

from __future__ import annotations

from typing import Any

from atoll.dispatcher.core.events import QueueView
from atoll.dispatcher.core.quota.queue import Queue
from atoll.dispatcher.core.quota.tree import Tree
from atoll.model.vector import Vector


def queue(name: str, parent: str = "", capability: Vector | None = None, **more: Any) -> QueueView:
    return QueueView(name, capability or {}, parent=parent, **more)


def tree_of(*views: QueueView, total: Vector | None = None) -> Tree:
    tree = Tree()
    if total is not None:
        tree.set_members({"m1": (total, {})})
    tree.set_queues(views)
    tree.check()
    return tree


def use(tree: Tree, name: str, member: str = "m1", **amount: int) -> None:
    tree.charge(tree.queue(name), amount, {member: amount})


def pend(tree: Tree, name: str, **amount: int) -> None:
    tree.wait(tree.queue(name), amount)


def serves(queue: Queue, member: str) -> bool:
    """Whether the queue, and each one above it, may use the member."""
    return queue.serving is None or member in queue.serving
