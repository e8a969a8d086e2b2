"""Prepare a cluster to be a host, join members to it, let them go, and take all of it off again: what `atollctl init`,
`join`, `unjoin` and `uninstall` do.

All are idempotent and start no process; they act with an administrator's credentials and leave each process its own.
It may import `atoll.api`, `atoll.model`, `atoll.kinds` and `atoll.kube`. What leaves: `init`, `join`, `unjoin`,
`uninstall`, the CRDs as they are installed, and kubeconfig files.
"""

from __future__ import annotations

from atoll.install.crds import host_crds, member_crds
from atoll.install.credentials import Endpoint, endpoint, issue_token, write_kubeconfig
from atoll.install.embedded import EmbeddedValues
from atoll.install.embedding import admin_kubeconfig, embed, present_values, remove, renew
from atoll.install.host import PROCESSES, init, kubeconfig_of
from atoll.install.invitations import (
    Invitation,
    agent_of_invited,
    approve,
    deny,
    invite,
    pending,
    prepare_invited,
    requests,
)
from atoll.install.leaving import Left, unjoin
from atoll.install.member import AGENT, MemberFacts, agent_kubeconfigs, check_name, join
from atoll.install.placing import PlacingWish
from atoll.install.policies import ensure_policies, remove_policies
from atoll.install.profiles import offers, profile_kubeconfig
from atoll.install.refusal import Refused
from atoll.install.rehearsal import Rehearsal
from atoll.install.removal import uninstall
from atoll.install.rendering import BadValues, render_host, render_installer, render_member, values_of
from atoll.install.rights import ensure_rights

__all__ = [
    "AGENT",
    "PROCESSES",
    "BadValues",
    "EmbeddedValues",
    "Endpoint",
    "Invitation",
    "Left",
    "MemberFacts",
    "PlacingWish",
    "Refused",
    "Rehearsal",
    "admin_kubeconfig",
    "agent_kubeconfigs",
    "agent_of_invited",
    "approve",
    "check_name",
    "deny",
    "embed",
    "endpoint",
    "ensure_policies",
    "ensure_rights",
    "host_crds",
    "init",
    "invite",
    "issue_token",
    "join",
    "kubeconfig_of",
    "member_crds",
    "offers",
    "pending",
    "prepare_invited",
    "present_values",
    "profile_kubeconfig",
    "remove",
    "remove_policies",
    "render_host",
    "render_installer",
    "render_member",
    "renew",
    "requests",
    "uninstall",
    "unjoin",
    "values_of",
    "write_kubeconfig",
]
