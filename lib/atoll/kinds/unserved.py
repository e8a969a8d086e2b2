"""Kinds of work that users bring and that Atoll does not run: they get a message instead of silence.

Users may declare custom resources among them (`declared.py`); then they are served.
"""

from __future__ import annotations

from typing import Final

from atoll.model.apiresource import PODS, REPLICA_SETS, ApiResource

BUILT_IN: Final = (
    PODS,
    REPLICA_SETS,
    ApiResource("apps", "v1", "daemonsets", "DaemonSet"),
    ApiResource("", "v1", "replicationcontrollers", "ReplicationController"),
)
"""Kinds that every API server has."""

BY_CRD: Final = (
    ApiResource("kubeflow.org", "v1", "paddlejobs", "PaddleJob"),
    ApiResource("kubeflow.org", "v1", "notebooks", "Notebook"),
    ApiResource("sparkoperator.k8s.io", "v1beta2", "scheduledsparkapplications", "ScheduledSparkApplication"),
    ApiResource("sparkoperator.k8s.io", "v1alpha1", "sparkconnects", "SparkConnect"),
    ApiResource("flink.apache.org", "v1beta1", "flinkdeployments", "FlinkDeployment"),
    ApiResource("kubernetes.dask.org", "v1", "daskclusters", "DaskCluster"),
    ApiResource("kubernetes.dask.org", "v1", "daskjobs", "DaskJob"),
    ApiResource("argoproj.io", "v1alpha1", "workflows", "Workflow"),
    ApiResource("tekton.dev", "v1", "pipelineruns", "PipelineRun"),
    ApiResource("tekton.dev", "v1", "taskruns", "TaskRun"),
    ApiResource("serving.kserve.io", "v1beta1", "inferenceservices", "InferenceService"),
)
"""Kinds that exist where their CRD does."""
