"""A member that did not bind a workload in time is avoided for its namespace, and for nobody else."""

from __future__ import annotations

import dataclasses

from atoll.dispatcher.core import BindingView
from atoll.dispatcher.core.settings import CoreSettings
from atoll.model.verdict import Reason
from tests.dispatcher.builders import LATE, Scene, evicted, explained, let_go, make_binding, names, scene

AVOID_MAX = CoreSettings().avoided.longest_pause


def of(namespace: str, name: str) -> BindingView:
    view = make_binding(name).tasks(8).submitted(LATE if namespace != "default" else "").build()
    return dataclasses.replace(view, namespace=namespace)


def after_a_failure() -> Scene:
    """Equal workloads of two tenants; the first one's pods are not bound in time."""
    s = scene().submit(of("default", "a"), of("other", "b"), of("default", "c"))
    assert names(s.run()) == ["a"]
    s.change("a", waiting={"m": 'persistentvolumeclaim "data" not found'})
    assert evicted(s.run(after=31)) == ["a"]
    let_go(s, "a")
    return s


def test_what_another_tenant_could_not_have_bound_keeps_nothing_from_a_member() -> None:
    s = after_a_failure()
    commands = s.run()
    assert names(commands) == ["b"]
    assert explained(commands)["a"].decision.reason is Reason.AVOIDED
    assert s.verdict("c") is Reason.AVOIDED


def test_its_own_namespace_tries_again_and_the_classes_are_one_again_later() -> None:
    s = after_a_failure()
    s.run()
    s.change("b", finished=True)
    assert names(s.run(after=10)) == ["a"]
    s.change("a", finished=True)
    assert names(s.run()) == ["c"]
    s.change("c", finished=True)
    s.run(after=3 * AVOID_MAX)
    assert not s.core.state.failures.known
    s.submit(of("default", "d"), of("other", "e"))
    assert len({s.core.bindings[f"uid-{name}"].shape for name in "de"}) == 1
