"""The words of a Volcano Job's lifecycle policies."""

from __future__ import annotations

from typing import Literal

Event = Literal[
    "*",
    "PodFailed",
    "PodEvicted",
    "PodPending",
    "PodRunning",
    "Unknown",
    "TaskCompleted",
    "TaskFailed",
    "JobUpdated",
]
Action = Literal[
    "AbortJob",
    "RestartJob",
    "RestartTask",
    "RestartPod",
    "RestartPartition",
    "TerminateJob",
    "CompleteJob",
    "ResumeJob",
]
