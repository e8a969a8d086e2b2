"""Manifests of Kueue and Volcano as their users have them, for `atollctl import`."""

from __future__ import annotations

KUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: research}
spec:
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: plain, resources: [{name: cpu, nominalQuota: 10}]}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: vision, labels: {team: a}}
spec:
  cohort: research
  queueingStrategy: StrictFIFO
  namespaceSelector: {}
  preemption: {reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: plain, resources: [{name: cpu, nominalQuota: 20, borrowingLimit: 5, lendingLimit: 8}]}]
  - coveredResources: [nvidia.com/gpu]
    flavors:
    - {name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}
    - {name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 16}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: text}
spec:
  cohortName: research
  namespaceSelector: {matchLabels: {team: b}}
  fairSharing: {weight: "3"}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: plain, resources: [{name: cpu, nominalQuota: 1500m}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: List
items:
- apiVersion: kueue.x-k8s.io/v1beta2
  kind: LocalQueue
  metadata: {name: vision-jobs, namespace: eyes}
  spec: {clusterQueue: vision}
- apiVersion: kueue.x-k8s.io/v1beta2
  kind: LocalQueue
  metadata: {name: default, namespace: words}
  spec: {clusterQueue: text, stopPolicy: Hold, fairSharing: {weight: "2"}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: h100}
spec: {nodeLabels: {gpu: h100}, topologyName: racks}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: a100}
spec: {nodeLabels: {gpu: a100}, tolerations: [{operator: Exists}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 1000
description: now
"""

VOLCANO = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: below}
spec:
  parent: above
  weight: 3
  priority: 7
  reclaimable: false
  capability: {cpu: 8}
  deserved: {cpu: "4"}
  guarantee: {resource: {cpu: 2}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: above}
spec: {guarantee: {resource: {cpu: 2}}, deserved: {cpu: 8}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 100
globalDefault: false
preemptionPolicy: Never
"""
