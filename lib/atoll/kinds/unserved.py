"""Kinds of work that users bring and that Atoll does not run yet: they are told so instead of waiting in silence."""

from __future__ import annotations

from typing import Final

from atoll.model.apiresource import PODS, ApiResource

BUILT_IN: Final = (
    PODS,
    ApiResource("apps", "v1", "daemonsets", "DaemonSet"),
    ApiResource("batch", "v1", "cronjobs", "CronJob"),
)
"""Those that every API server has."""

BY_CRD: Final = (
    ApiResource("batch.volcano.sh", "v1alpha1", "cronjobs", "CronJob"),
    ApiResource("flow.volcano.sh", "v1alpha1", "jobflows", "JobFlow"),
    ApiResource("training.volcano.sh", "v1alpha1", "hyperjobs", "HyperJob"),
    ApiResource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet"),
    ApiResource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"),
    ApiResource("kubeflow.org", "v1", "tfjobs", "TFJob"),
    ApiResource("kubeflow.org", "v1", "xgboostjobs", "XGBoostJob"),
    ApiResource("kubeflow.org", "v1", "jaxjobs", "JAXJob"),
    ApiResource("kubeflow.org", "v2beta1", "mpijobs", "MPIJob"),
    ApiResource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"),
    ApiResource("ray.io", "v1", "rayjobs", "RayJob"),
    ApiResource("ray.io", "v1", "rayclusters", "RayCluster"),
    ApiResource("ray.io", "v1", "rayservices", "RayService"),
    ApiResource("sparkoperator.k8s.io", "v1beta2", "sparkapplications", "SparkApplication"),
    ApiResource("workload.codeflare.dev", "v1beta2", "appwrappers", "AppWrapper"),
)
"""Those that are there where their CRD is."""
