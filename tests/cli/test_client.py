"""`atoll.client` without a host: its imports, its words, and a client that is not open."""

from __future__ import annotations

import subprocess
import sys

import pytest

from atoll.client import AsyncClient, Client, Job, State

_NOT = ("kubernetes", "pydantic", "pyarrow", "tenacity", "atoll.control", "atoll.dispatcher", "atoll.install")


def test_the_extra_has_all_that_it_imports() -> None:
    """Its processes are people's own programs: it takes few packages along."""
    code = f"import sys; sys.path[:] = {sys.path!r}; import atoll.client; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in loaded if name in _NOT]


def test_both_clients_have_the_same_methods() -> None:
    def public(of: type) -> set[str]:
        return {name for name in vars(of) if not name.startswith("_")} - {"namespace"}

    assert public(Client) == public(AsyncClient)


async def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="with statement"):
        await AsyncClient(namespace="a").submit(Job(command=["true"], image="i"))


def test_the_manifest_is_there_before_anything_is_sent() -> None:
    made = Client(namespace="research").manifest(Job(command=["true"], image="i", gpus=8, workers=4))
    assert (made["metadata"]["namespace"], made["spec"]["minAvailable"]) == ("research", 4)
    assert not State.PENDING.final


def test_a_host_that_can_t_be_reached_leaves_no_thread(tmp_path) -> None:
    import threading

    before = threading.active_count()
    with pytest.raises(Exception, match="kubeconfig"), Client(kubeconfig=str(tmp_path / "none")):
        pass
    assert threading.active_count() == before
