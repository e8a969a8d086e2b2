"""Means of use by run, from looks at the figures of pods."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from atoll.agent.busy import PodUse
from atoll.agent.objects import Pod
from atoll.model import keys
from atoll.model.objects import Meta


def pod(name: str, binding: str = "b", *, epoch: int = 1, phase: str = "Running") -> Pod:
    notes = {keys.BINDING_UID: binding, keys.EPOCH: str(epoch)}
    return Pod(metadata=Meta(name=name, namespace="n", uid=name, annotations=notes), phase=phase)


def busy(*pods: Pod) -> tuple[PodUse, list[Pod]]:
    present = list(pods)
    cache: Any = SimpleNamespace(pods=present)
    return PodUse(None, cache), present  # type: ignore[arg-type]


def use(cores: float, memory: float) -> dict[str, float]:
    return {"cpu": cores * 1000, "memory": memory}


def test_the_mean_of_all_pods_over_the_looks() -> None:
    found, _ = busy(pod("a"), pod("b"), pod("other", "c"))
    found.add({"n/a": use(1, 100), "n/b": use(3, 200), "n/other": use(9, 9)}, 60)
    found.add({"n/a": use(0, 100), "n/b": use(1, 200), "n/other": use(9, 9)}, 180)
    assert found.of("b") == {"cpu": 1.8, "memory": 300.0}
    assert found.of("unheard") == {}


def test_a_look_that_lacks_a_running_pod_does_not_count() -> None:
    found, _ = busy(pod("a"), pod("b"), pod("waits", phase="Pending"))
    found.add({"n/a": use(1, 1)}, 60)
    assert found.of("b") == {}
    found.add({"n/a": use(1, 1), "n/b": use(1, 1)}, 60)
    assert found.of("b")["cpu"] == 2.0


def test_another_run_begins_anew_and_one_that_is_gone_is_forgotten() -> None:
    found, present = busy(pod("a"))
    found.add({"n/a": use(8, 1)}, 60)
    present[:] = [pod("a", epoch=2)]
    found.add({"n/a": use(2, 1)}, 60)
    assert found.of("b")["cpu"] == 2.0
    present[:] = [pod("a", epoch=2, phase="Succeeded")]
    found.add({}, 60)
    assert found.of("b")["cpu"] == 2.0
    present.clear()
    found.add({}, 60)
    assert found.of("b") == {}
