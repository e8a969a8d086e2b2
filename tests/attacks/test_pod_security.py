"""Pods that the Pod Security level of the host's namespace forbids: refused on the host, and in the member all the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atoll.kube import errors
from atoll.model.apiresource import BATCH_JOBS, JOBS, NAMESPACES
from atoll.model.pod_security import PREFIX
from tests.integration.federation import Json, Site, batch_job, job, until
from tests.members.forms import safe

pytestmark = pytest.mark.integration


async def label(site: Site, **labels: str | None) -> None:
    """Label the test's namespace on the host; `_` stands for `-`."""
    wanted = {f"{PREFIX}{key.replace('_', '-')}": text for key, text in labels.items()}
    await site.host.merge_patch(NAMESPACES, site.namespace, {"metadata": {"labels": wanted}})


async def refused(site: Site, obj: Json) -> str:
    """The refusal of a workload, once the webhook has heard of the namespace's labels."""

    async def look() -> str:
        try:
            await site.submit(obj)
        except errors.Forbidden as error:
            return error.message
        await site.host.delete(JOBS if "tasks" in obj["spec"] else BATCH_JOBS, obj["metadata"]["name"], site.namespace)
        return ""

    return await until(look, what="it is refused")


def rooted(obj: Json) -> Json:
    """The node's own files, processes and root."""
    for template in [task["template"] for task in obj["spec"].get("tasks", ())] or [obj["spec"]["template"]]:
        template["spec"] |= {"hostPID": True, "volumes": [{"name": "node", "hostPath": {"path": "/"}}]}
        template["spec"]["containers"][0]["securityContext"] = {"capabilities": {"add": ["SYS_ADMIN"]}, "runAsUser": 0}
    return obj


@pytest.mark.parametrize("level", ["baseline", "restricted"])
@pytest.mark.parametrize("make", [job, batch_job], ids=["a Volcano Job", "a batch Job"])
async def test_what_the_level_forbids_is_refused_in_the_words_of_the_api_server(
    site: Site, make: Any, level: str
) -> None:
    await label(site, enforce=level)
    text = await refused(site, rooted(make("root")))
    assert f'violates PodSecurity "{level}:latest": host namespaces (hostPID=true)' in text
    assert 'container "c" must not include "SYS_ADMIN" in securityContext.capabilities.add' in text
    assert "hostPath" in text
    await site.submit(safe(make("safe")))


async def test_a_warning_is_given_where_the_level_only_warns(site: Site) -> None:
    await label(site, warn="baseline", warn_version="v1.30")
    manifest = rooted(job("warned"))

    async def warned() -> bool:
        text = site.warned("create", "-n", site.namespace, "--dry-run=server", "-f", "-", stdin=json.dumps(manifest))
        return 'would violate PodSecurity "baseline:v1.30": host namespaces (hostPID=true)' in text

    await until(warned, what="it is warned of")


async def test_labels_travel_to_the_namespace_in_the_member_and_follow(site: Site) -> None:
    await site.only("alpha")
    await label(site, enforce="restricted", enforce_version="v1.30")
    await refused(site, rooted(job("x")))
    await site.submit(safe(job("held", seconds=None)))
    await site.phase("held", "Running")

    async def told(**wanted: str) -> bool:
        found = (await site.members["alpha"].get(NAMESPACES, site.namespace))["metadata"]["labels"]
        return {key: text for key, text in found.items() if key.startswith(PREFIX)} == {
            f"{PREFIX}{key.replace('_', '-')}": text for key, text in wanted.items()
        }

    assert await told(enforce="restricted", enforce_version="v1.30")
    # Another level holds for what runs there as well as for what comes.
    await label(site, enforce="baseline", enforce_version=None, warn="restricted")
    await until(lambda: told(enforce="baseline", warn="restricted"), what="the labels follow")
    # What the member's admin says besides stands.
    own = {"metadata": {"labels": {f"{PREFIX}audit": "restricted"}}}
    await site.members["alpha"].merge_patch(NAMESPACES, site.namespace, own)
    await label(site, enforce=None, warn=None)
    await until(lambda: told(audit="restricted"), what="the labels are gone, and the member's own is there")


async def test_the_member_refuses_what_was_made_before_the_level_was_raised(site: Site) -> None:
    """1. A Job waits. 2. Its namespace gets a level. 3. It is sent, and its pods are refused."""
    await site.only("alpha")
    held = rooted(job("before", seconds=None))
    held["metadata"]["annotations"] = {"atoll.sh/hold": "true"}
    await site.submit(held)
    await label(site, enforce="baseline")
    site.kubectl("annotate", "vcjob", "before", "atoll.sh/hold-", "-n", site.namespace)
    decision = await site.reason("before", "RefusedByMember")
    assert "violates PodSecurity" in str(decision)
    assert await site.pods("alpha") == []
