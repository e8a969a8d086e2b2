"""Kinds of work that users bring and that Atoll does not run yet: they are told so instead of waiting in silence."""

from __future__ import annotations

from typing import Final

from atoll.model.apiresource import PODS, ApiResource

BUILT_IN: Final = (
    PODS,
    ApiResource("apps", "v1", "daemonsets", "DaemonSet"),
)
"""Those that every API server has."""

BY_CRD: Final = (ApiResource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"),)
"""Those that are there where their CRD is."""
