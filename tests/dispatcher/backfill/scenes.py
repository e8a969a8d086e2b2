"""Scenes that several tests begin with."""

from __future__ import annotations

from tests.dispatcher.builders import (
    BACKFILL,
    EARLY,
    HOUR,
    Scene,
    make_binding,
    make_cluster,
    make_queue,
    named,
    names,
)


def two_nodes_of_which_the_head_gets_the_second() -> Scene:
    """Two GPUs are free on the first, for long; one on the second, which is the tighter gap."""
    s = Scene(make_queue("q", view=BACKFILL), make_queue("r", view=BACKFILL), make_cluster("m"), named("m", [8, 8]))
    for name, gpu, seconds in (("long", 6, 10 * HOUR), ("most", 7, HOUR)):
        s.submit(make_binding(name).tasks(1, gpu=gpu).runs(seconds).created(EARLY))
        assert names(s.run()) == [name]
    s.submit(make_binding("head").tasks(1, gpu=8).submitted(EARLY))
    assert names(s.run()) == []
    return s
