"""Names of the Cluster Inventory API that the host's processes and `atollctl` share."""

from __future__ import annotations

from typing import Final

MANAGER: Final = "atoll"
"""Cluster manager of the ClusterProfiles that Atoll writes."""
IDENTITY: Final = "cluster.clusterset.k8s.io"
"""Property with the identity of a cluster (KEP-2149): by convention the UID of its namespace kube-system."""
