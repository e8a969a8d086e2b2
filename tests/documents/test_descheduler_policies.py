"""The policy of a descheduler, as users bring it: a sentence names its reader."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import yaml

from atoll.cli import what_if
from atoll.cli.errors import CommandError
from atoll.kube.transport import ApiServer
from atoll.model.deschedulers import readers

HERE = Path(__file__).parent
SAID = "ConfigMap volcano-system/volcano-descheduler is the policy of a descheduler: atoll-descheduler reads it in a member"


def test_a_policy_is_known_in_a_config_map_and_on_its_own_and_nothing_else_is() -> None:
    policy = yaml.safe_load((HERE / "003-descheduler.yaml").read_text("utf-8"))
    assert SAID in readers(policy)
    bare = yaml.safe_load(policy["data"]["policy.yaml"])
    assert readers(bare).startswith("DeschedulerPolicy is the policy of a descheduler")
    koordinator = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\n"
    meta = {"name": "koord-descheduler-config", "namespace": "koordinator-system"}
    found = readers({"kind": "ConfigMap", "metadata": meta, "data": {"koord-descheduler-config": koordinator}})
    assert found.endswith("nothing in Atoll reads it")
    assert readers({"kind": "ConfigMap", "metadata": meta, "data": {"a": "apiVersion: v1"}}) == ""
    assert readers({"kind": "Secret", "metadata": meta, "data": {"a": koordinator}}) == ""
    assert readers({"kind": "ConfigMap", "metadata": meta}) == ""


async def test_what_if_names_the_reader() -> None:
    [policy] = what_if.read(str(HERE / "003-descheduler.yaml"))
    # Nobody has to be asked.
    [answer] = await what_if.ask_each(cast(ApiServer, None), [policy], None, "default")
    assert isinstance(answer, CommandError)
    assert SAID in str(answer)
