"""Workloads whose pods need to reach each other, though their policy may divide them over members without a network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from atoll.admission.problems import Json, Problem, mapping
from atoll.kube.reflector import Reflector
from atoll.model import keys, network
from atoll.model.apiresource import ApiResource
from atoll.model.objects import Full, Meta
from atoll.model.placement import may_divide
from atoll.model.policies import PolicyObject, TooMany, choose, selected


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies that a new workload may follow."""

    own: Reflector[PolicyObject]
    """PropagationPolicies."""
    common: Reflector[PolicyObject]
    """ClusterPropagationPolicies."""

    def __post_init__(self) -> None:
        """Add an index to the caches, so call this before they run."""
        for each in (self.own, self.common):
            each.add_index("selected", selected)

    def unreachable(
        self, resource: ApiResource, workload: Json, namespace: str, default: str, fields: Iterable[str]
    ) -> list[Problem]:
        """Messages about these fields of a new workload; nothing before the policies were read.

        Args:
            resource: of the workload.
            workload: the object.
            namespace: its namespace.
            default: the policy that its queue names.
            fields: that need pods which reach each other.
        """
        fields = list(fields)
        if not fields or not (self.own.synced.is_set() and self.common.synced.is_set()):
            return []
        said = mapping(workload.get("metadata"))
        labels, notes = (
            {str(key): str(text) for key, text in mapping(said.get(name)).items()} for name in ("labels", "annotations")
        )
        meta = Meta(name=str(said.get("name") or ""), namespace=namespace, labels=labels, annotations=notes)
        try:
            policy = choose(
                resource,
                Full(meta, workload),
                own=partial(self.own.by_index, "selected"),
                common=partial(self.common.by_index, "selected"),
                default=(self.own if "/" in default else self.common).get(default),
            )
        except TooMany as error:
            return [Problem("metadata.name", str(error))]
        placement = (policy.spec.placement if policy is not None else None) or {}
        declared = policy is not None and network.read(policy.metadata.annotations.get(keys.NETWORK))
        if declared or not may_divide(placement, notes):
            return []
        who = f"policy {policy.metadata.name}" if policy is not None and keys.DIVIDED not in notes else keys.DIVIDED
        where = f"annotation {keys.NETWORK} of {'its policy' if policy is None else f'policy {policy.metadata.name}'}"
        text = (
            f"needs pods that reach each other, and {who} may divide the Job over members: those of different members"
            f" do not, unless {where} names a network"
        )
        return [Problem(field, text) for field in fields]
