"""Prepare a cluster to be a host, join members to it, let them go, and take all of it off again: what `atollctl init`,
`join`, `unjoin` and `uninstall` do.

All are idempotent and start no process; they act with an administrator's credentials and leave each process its own.
It may import `atoll.api`, `atoll.model`, `atoll.kinds` and `atoll.kube`. What leaves: `init`, `join`, `unjoin`,
`uninstall`, the CRDs as they are installed, and kubeconfig files.
"""

from __future__ import annotations

from atoll.control.install.crds import host_crds, member_crds
from atoll.control.install.credentials import Endpoint, endpoint, issue_token, write_kubeconfig
from atoll.control.install.host import PROCESSES, init, kubeconfig_of
from atoll.control.install.leaving import Left, unjoin
from atoll.control.install.member import AGENT, MemberFacts, agent_kubeconfigs, check_name, join
from atoll.control.install.placing import PlacingWish
from atoll.control.install.policies import ensure_policies, remove_policies
from atoll.control.install.refusal import Refused
from atoll.control.install.removal import uninstall
from atoll.control.install.rights import ensure_rights

__all__ = [
    "AGENT",
    "PROCESSES",
    "Endpoint",
    "Left",
    "MemberFacts",
    "PlacingWish",
    "Refused",
    "agent_kubeconfigs",
    "check_name",
    "endpoint",
    "ensure_policies",
    "ensure_rights",
    "host_crds",
    "init",
    "issue_token",
    "join",
    "kubeconfig_of",
    "member_crds",
    "remove_policies",
    "uninstall",
    "unjoin",
    "write_kubeconfig",
]
