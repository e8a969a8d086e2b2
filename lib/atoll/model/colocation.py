"""Online and offline pods, by the names of Volcano and Koordinator. Offline ones are charged on reclaimed capacity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

BATCH_CPU: Final = "kubernetes.io/batch-cpu"
"""Reclaimed CPU in thousandths, as a count: `1500`, not `1500m`. The name is Koordinator's and Volcano's."""
BATCH_MEMORY: Final = "kubernetes.io/batch-memory"
BATCH: Final = {"cpu": BATCH_CPU, "memory": BATCH_MEMORY}
"""Resource -> its reclaimed part."""
VOLCANO_QOS: Final = "volcano.sh/qos-level"
KOORDINATOR_QOS: Final = "koordinator.sh/qosClass"
BEST_EFFORT: Final = "BE"
CLASSES: Final = {"koord-batch": range(5000, 6000), "koord-free": range(3000, 4000)}
"""Koordinator's PriorityClass of offline work -> its band; other classes of the cluster may lie in the band."""


def qos(labels: Mapping[str, Any], annotations: Mapping[str, Any]) -> str:
    """The class that a pod names, LC, HLS, LS, BE of Volcano or LSE, LSR, LS, BE, SYSTEM of Koordinator; or empty."""
    places = ((annotations, VOLCANO_QOS), (labels, VOLCANO_QOS), (labels, KOORDINATOR_QOS))
    return next((str(found) for place, key in places if (found := place.get(key))), "")


def charged(requests: Mapping[str, Any]) -> bool:
    """Whether a pod takes reclaimed capacity."""
    return any(name in requests for name in BATCH.values())


def offline(
    labels: Mapping[str, Any],
    annotations: Mapping[str, Any],
    requests: Mapping[str, Any],
    priority: int,
    classes: Mapping[str, int],
) -> bool:
    """Whether a pod is offline: by its resources, else by the class that it names, else by its priority.

    Args:
        labels: of the pod.
        annotations: of the pod.
        requests: of the pod, by resource.
        priority: of the pod.
        classes: PriorityClasses of the cluster with their values: bands count where Koordinator's are there.
    """
    named = qos(labels, annotations)
    if named or charged(requests):
        return named == BEST_EFFORT or charged(requests)
    return any(name in classes and priority in band for name, band in CLASSES.items())
