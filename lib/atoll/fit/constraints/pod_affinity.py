"""Required affinity and anti-affinity between pods: Kubernetes' plugin InterPodAffinity.

A pod is kept away by its own anti-affinity and by the anti-affinity of present pods. Its affinity is met where a pod
that all of its terms mean is in the same domain by each of them; the first of pods that mean themselves may go
anywhere that has the labels.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from atoll.fit.constraints.beside import Beside
from atoll.model.pod_rules import PodRules

Bools = NDArray[np.bool_]

ANTI_REFUSAL = "node(s) didn't match pod anti-affinity rules"
OTHERS_REFUSAL = "node(s) didn't satisfy existing pods anti-affinity rules"
REFUSAL = "node(s) didn't match pod affinity rules"


def allowed(rules: PodRules, company: Beside) -> Bools:
    """bool[M]: nodes that a pod with these rules may be on."""
    return kept_away(rules, company) & near_enough(rules, company)


def kept_away(rules: PodRules, company: Beside) -> Bools:
    """bool[M]: nodes that no anti-affinity forbids, of the pod or of others."""
    return _by_others(rules, company) & _by_itself(rules, company)


def near_enough(rules: PodRules, company: Beside) -> Bools:
    """bool[M]: nodes that meet the pod's affinity."""
    found = np.ones(len(company.peers), np.bool_)
    if not rules.affinity:
        return found
    counts = company.count(*(term.pods for term in rules.affinity))
    first = True
    for term in rules.affinity:
        ids, _ = company.peers.domains(term.key)
        found &= ids >= 0
        first = first and not counts[ids >= 0].any()
    if first and _means_itself(rules, company):
        return found
    for term in rules.affinity:
        found &= company.in_domains(term.key, counts) > 0
    return found


def alone_by(rules: PodRules, company: Beside) -> Iterator[str]:
    """The labels by whose domains pods with these rules keep each other away."""
    return (term.key for term in rules.anti_affinity if company.is_meant(term.pods, rules))


def together_by(rules: PodRules, company: Beside) -> list[str]:
    """The labels by whose domains pods with these rules must be together."""
    return [term.key for term in rules.affinity] if rules.affinity and _means_itself(rules, company) else []


def refusals(rules: PodRules, company: Beside) -> list[tuple[str, Bools]]:
    """(words of kube-scheduler, bool[M] nodes with that refusal)."""
    return [
        (OTHERS_REFUSAL, ~_by_others(rules, company)),
        (ANTI_REFUSAL, ~_by_itself(rules, company)),
        (REFUSAL, ~near_enough(rules, company)),
    ]


def _by_others(rules: PodRules, company: Beside) -> Bools:
    found = np.ones(len(company.peers), np.bool_)
    for key, counts in company.peers.anti_affinity_to(rules):
        found &= company.in_domains(key, counts) == 0
    for other, node, _ in company.put():
        for term in other.anti_affinity:
            if company.is_meant(term.pods, rules):
                ids, _ = company.peers.domains(term.key)
                if ids[node] >= 0:
                    found &= ids != ids[node]
    return found


def _by_itself(rules: PodRules, company: Beside) -> Bools:
    found = np.ones(len(company.peers), np.bool_)
    for term in rules.anti_affinity:
        found &= company.in_domains(term.key, company.count(term.pods)) == 0
    return found


def _means_itself(rules: PodRules, company: Beside) -> bool:
    return all(company.is_meant(term.pods, rules) for term in rules.affinity)
