"""What is asked of a core, and the members that it is asked about."""

from __future__ import annotations

from atoll.dispatcher.explain import verdicts
from atoll.model.query import Account
from tests.dispatcher.builders import (
    BindingBuilder,
    Scene,
    make_capacity,
    make_cluster,
)

TWO = (make_cluster("m1"), make_cluster("m2"), make_capacity("m1", [4, 4]), make_capacity("m2", [4]))


def account(s: Scene, name: str) -> Account:
    found = verdicts.account(s.core, s.view(name).uid, s.now)
    assert found is not None
    return found


def ask(s: Scene, builder: BindingBuilder) -> Account:
    # What members publish counts from the next pass on.
    s.core.members.refresh()
    return verdicts.what_if(s.core, builder.build(), s.now)


def running(s: Scene, *builders: BindingBuilder) -> Scene:
    """These were dispatched, and all of it is written."""
    s.submit(*builders)
    s.run()
    return s
