"""Who is refused a session with a pod, and in which words; what works needs real containers (`tests/e2e`)."""

from __future__ import annotations

import pytest

from tests.atollctl import Ran, atollctl
from tests.integration.federation import Site, job, until

pytestmark = pytest.mark.integration


async def of_job(site: Site, *words: str) -> Ran:
    host = {"KUBECONFIG": str(site.federation.host.kubeconfig)}
    return await atollctl("job", *words[:2], "-n", site.namespace, *words[2:], environment=host)


async def test_members_do_not_allow_sessions_unless_they_were_joined_so(site: Site) -> None:
    await site.submit(job("live", seconds=None))
    await site.phase("live", "Running")
    member = await site.where("live")

    async def refused() -> bool:
        said = await of_job(site, "exec", "live", "--", "hostname")
        hint = f"member {member}: its administrator does not allow exec: `atollctl join --allow-exec`"
        return said.code == 1 and hint in said.said

    await until(refused, what="exec is refused with its reason")
    no_such = await of_job(site, "exec", "live", "--task", "other", "--", "hostname")
    assert "it has no such pod that runs" in no_such.said
    elsewhere = await of_job(site, "exec", "live", "--cluster", "nowhere", "--", "hostname")
    assert f"its pods are in {member}; choose one of them" in elsewhere.said
    asked = [each for each in site.audit() if each.get("objectRef", {}).get("subresource") == "exec"]
    assert ("admin", "live-job") in {(each["user"]["username"], each["objectRef"]["name"]) for each in asked}


async def test_who_may_not_exec_into_pods_of_the_host_is_refused(site: Site) -> None:
    await site.submit(job("secret", seconds=None))
    await site.phase("secret", "Running")
    base = f"/apis/query.atoll.sh/v1alpha1/namespaces/{site.namespace}/verdicts/secret-job"

    async def told(path: str, words: str) -> None:
        # The authorizer's answers are remembered for some seconds.
        async def look() -> bool:
            return words in site.both("get", "--raw", f"{base}/{path}", "--as", "eve")

        await until(look, what=f"eve is told {words}")

    await told("exec?command=ls", 'cannot get resource "verdicts/exec"')
    await told("portforward?port=80", 'cannot get resource "verdicts/portforward"')
    verbs = ("--verb=get", "--resource=verdicts.query.atoll.sh/exec,verdicts.query.atoll.sh/portforward")
    site.kubectl("create", "role", "half", "-n", site.namespace, *verbs)
    site.kubectl("create", "rolebinding", "half", "-n", site.namespace, "--role=half", "--user=eve")
    await told("exec?command=ls", 'cannot create resource "pods/exec"')
    await told("portforward?port=80", 'cannot create resource "pods/portforward"')
    # Who may only look, may not.
    site.kubectl("create", "rolebinding", "look", "-n", site.namespace, "--clusterrole=view", "--user=eve")
    await told("exec?command=ls", 'cannot create resource "pods/exec"')
    site.kubectl("create", "rolebinding", "whole", "-n", site.namespace, "--clusterrole=edit", "--user=eve")
    await told("exec?command=ls", '"cluster":')
    await told("exec", "command: is missing")
    await told("portforward?port=99999", "is no port")
